"""The command ``dataspace rule add``, which may last; those about rules that end at once are in ``once``.

Always: a rule that cannot be carried out is removed again by the command that added it, and the replaced rule
is restored.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import trio

from dataspace.client.space import RemoteSpace
from dataspace.errors import Refused, UsageError
from dataspace.foreign import read_utf8
from dataspace.kernel.actions import ASSERT, RETRACT, WITHDRAW, Action
from dataspace.rules.language.parser import read_text
from index.values.values import Map, Record, Value, text_of
from server.cli.connecting import connect, is_lent
from server.cli.once.rule import ERRORS, RULES
from server.cli.output import note, say


async def add(args: argparse.Namespace) -> int:
    """Adds a rule for a durable owner, or for as long as the connection lasts."""
    text = _text(args.text)
    if not any(read_text(text)):
        raise UsageError(f"no rule in the text of {args.name}: write for example 'near($x) <- at($x, _).'")
    async with connect(args, owner=args.durable or "") as space:
        before = await _texts(space, args.name)
        stood = False
        if args.durable:
            stood = await _keep(space, args.name, text) and text in before
        else:
            await space.assert_(Record("rule", args.name, text))
        refused = await _refused(space, args.name, text)
        if refused and text in before:  # it was suspended before this, and is tried again now
            with suppress(Refused):
                await space.request("rules", Map({"ask": "resume", "about": args.name}))
            refused = await _refused(space, args.name, text)
        if refused:
            former = before - await _texts(space, args.name)
            if args.durable and not stood:
                await _take_back(space, args.name, former)
            stands = f"; the former {args.name} stands" if former else ""
            raise UsageError(f"{args.name} is not carried out{stands}: {refused[0][3]!s}")
        lasts = ", until this shell ends" if is_lent(args) and not args.durable else ""
        say(f"added rule {args.name}{lasts}")
        if not args.durable and not lasts:
            note("carried out until Ctrl-C; --durable OWNER keeps it")
            await trio.sleep_forever()
    return 0


async def _refused(space: RemoteSpace, name: str, text: str) -> list[tuple[Value, ...]]:
    """Returns the errors of a rule, if there are any."""
    return [row for row in await space.matches(ERRORS) if row[:2] == (name, text)]


async def _keep(space: RemoteSpace, name: str, text: str) -> bool:
    """Claims a rule for a durable owner, in place of its rule of this name; returns whether there was one."""
    handle = _handle(name)
    fresh = (ASSERT, handle, Record("rule", name, text))
    try:
        await _commit(space, (RETRACT, handle), fresh)
    except Refused as refusal:
        if refusal.code != "unknown-handle":
            raise
        named = Record("rule", name, Record("_"))
        await _commit(space, (WITHDRAW, named), fresh)  # another client may have asserted one
        return False
    return True


async def _take_back(space: RemoteSpace, name: str, former: set[Value]) -> None:
    """Ends the durable claim on a rule that is not carried out, and restores the former one, in one turn."""
    again = [(ASSERT, _handle(name), Record("rule", name, text)) for text in former]
    await _commit(space, (RETRACT, _handle(name)), *again)


async def _texts(space: RemoteSpace, name: str) -> set[Value]:
    """Returns the texts that are rules under a name, of any owner."""
    return {text for each, text in await space.matches(RULES) if each == name}


async def _commit(space: RemoteSpace, *actions: Action) -> None:
    await (await space.submit(actions)).wait()


def _handle(name: str) -> int:
    """Returns the handle of a rule, on which several runs agree: a durable owner has one rule of a name."""
    digest = blake2b(text_of(Record("rule", name)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def _text(given: str) -> str:
    """Returns the text itself, or the content of the file behind ``@``."""
    if not given.startswith("@"):
        return given
    try:
        return read_utf8(Path(given[1:]))
    except (OSError, UnicodeError) as error:
        raise UsageError(f"rules of {given[1:]}: {error}") from None
