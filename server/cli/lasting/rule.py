"""The command ``dataspace rule``: adds, lists and removes rules, and asks the daemon about them.

Always: a rule that cannot be carried out is removed again by the command that added it, and the replaced rule
is restored; control characters in rules and facts of others are escaped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import trio

from dataspace.client.space import RemoteSpace
from dataspace.errors import Refused, UsageError
from dataspace.foreign import read_utf8, tame
from dataspace.kernel.actions import ASSERT, RETRACT, WITHDRAW, Action
from dataspace.rules.language.parser import read_text
from index.patterns.text import parse, parse_pattern, unparse
from index.values.jsons import to_json
from index.values.values import Map, Record, Value
from server.cli.connecting import connect, durable_handle, is_lent
from server.cli.output import json_line, note, say, write


async def ask(args: argparse.Namespace) -> int:
    """Prints what the daemon answers to one of the questions about rules."""
    about: Value = None
    if args.verb in ("why", "why-not"):
        about = parse(args.about) if args.verb == "why" else parse_pattern(args.about)
    form = "rows" if getattr(args, "json", False) else "text"
    async with connect(args) as space:
        answer = await space.request("rules", Map({"ask": args.verb, "about": about, "form": form}))
    if isinstance(answer, tuple):
        for row in answer:
            write(json_line(to_json(row)))
    else:
        for line in str(answer).splitlines():
            write(tame(line))
    return 0


async def resume(args: argparse.Namespace) -> int:
    """Evaluates a suspended rule again."""
    async with connect(args) as space:
        say(tame(str(await _resume(space, args.name))))
    return 0


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
                await _resume(space, args.name)
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
    return [row for row in await _errors(space) if row[:2] == (name, text)]


async def _resume(space: RemoteSpace, name: str) -> Value:
    """Resumes a suspended rule; raises ``Refused`` if it is not suspended, or is suspended again."""
    return await space.request("rules", Map({"ask": "resume", "about": name}))


async def _keep(space: RemoteSpace, name: str, text: str) -> bool:
    """Claims a rule for a durable owner, in place of its rule of this name; returns whether there was one."""
    handle = _handle(name)
    fresh = (ASSERT, handle, Record("rule", name, text))
    try:
        await _commit(space, (RETRACT, handle), fresh)
    except Refused as refusal:
        if refusal.code != "unknown-handle":
            raise
        await _commit(space, (WITHDRAW, _named(name)), fresh)  # another client may have asserted one
        return False
    return True


async def _take_back(space: RemoteSpace, name: str, former: set[Value]) -> None:
    """Ends the durable claim on a rule that is not carried out, and restores the former one, in one turn."""
    again = [(ASSERT, _handle(name), Record("rule", name, text)) for text in former]
    await _commit(space, (RETRACT, _handle(name)), *again)


async def _texts(space: RemoteSpace, name: str) -> set[Value]:
    """Returns the texts that are rules under a name, of any owner."""
    return {text for each, text in await space.matches("rule($name:str, $text:str)") if each == name}


async def remove(args: argparse.Namespace) -> int:
    """Retracts the rule of a durable owner, whatever client has asserted it."""
    async with connect(args, owner=args.durable) as space:
        wanted = Map({"owner": args.durable, "pattern": _named(args.name)})
        answer = await space.request("withdraw", wanted)
        if not isinstance(answer, Map) or not answer.get("retracted"):
            raise Refused("unknown-handle", tame(f"{args.durable} has added no rule {args.name}"))
    say(tame(f"removed rule {args.name}"))
    return 0


async def _commit(space: RemoteSpace, *actions: Action) -> None:
    await (await space.submit(actions)).wait()


def _named(name: str) -> Value:
    """Returns the pattern of the rules of a name."""
    return Record("rule", name, Record("_"))


def _handle(name: str) -> int:
    """Returns the handle of a rule: a durable owner has one rule of a name."""
    return durable_handle(Record("rule", name))


def _text(given: str) -> str:
    """Returns the text itself, or the content of the file behind ``@``."""
    if not given.startswith("@"):
        return given
    try:
        return read_utf8(Path(given[1:]))
    except (OSError, UnicodeError) as error:
        raise UsageError(f"rules of {given[1:]}: {error}") from None


async def _errors(space: RemoteSpace) -> list[tuple[Value, ...]]:
    return await space.matches("rule-error($name, $text, $row, $why)")


async def list_(args: argparse.Namespace) -> int:
    """Prints each rule, and why it is suspended if it is."""
    async with connect(args) as space:
        errors = {row[:2]: row[2:] for row in await _errors(space)}
        found = await space.matches("rule($name:str, $text:str)")
    for name, text in sorted(found):
        row, reason = errors.get((name, text), (Map(), None))
        if args.json:
            write(json_line({"name": name, "text": text, "suspended": reason, "row": to_json(row)}))
            continue
        for line in _listed(str(name), str(text), reason, row):
            write(tame(line))
    return 0


def _listed(name: str, text: str, reason: Value, row: Value) -> Iterator[str]:
    """Yields the lines of a rule; if it is suspended, also the reason and the variables."""
    yield f"{name}:"
    for line in text.strip().splitlines():
        yield f"    {line.strip()}"
    if reason is not None:
        first, *more = str(reason).splitlines()
        yield f"    suspended: {first}"
        yield from [f"        {line}" for line in more]
        pairs = row.pairs() if isinstance(row, Map) else ()
        known = [f"${at} = {unparse(value)}" for at, value in pairs if isinstance(at, str)]
        if known:
            yield f"        with {', '.join(known)}"
