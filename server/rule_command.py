"""The command ``dataspace rule``: adds rules, lists them, and asks the daemon about them."""

from __future__ import annotations

import argparse
from pathlib import Path

import trio

import dataspace
from dataspace.errors import Refused, UsageError
from dataspace.rules.reading import read_rules
from dataspace.wire.packets import ASSERT, RETRACT, Action
from index.text import parse, parse_pattern
from index.values import Map, Record, Value
from server.client_options import connect, durable_handle
from server.printing import say


async def rule(args: argparse.Namespace) -> int:
    """Carries out one of the verbs."""
    if args.verb == "add":
        return await _add(args)
    if args.verb == "remove":
        return await _remove(args)
    async with connect(args) as space:
        if args.verb == "list":
            return await _list(space)
        about: Value = None
        if args.verb in ("why", "why-not"):
            about = parse(args.about) if args.verb == "why" else parse_pattern(args.about)
        answer = await space.request("rules", Map({"ask": args.verb, "about": about}))
    print(answer if isinstance(answer, str) else repr(answer))
    return 0


async def _add(args: argparse.Namespace) -> int:
    text = _text(args.text)
    read_rules(text)
    async with connect(args, owner=args.durable or "") as space:
        if args.durable:
            await _keep(space, args.name, text)
        else:
            await space.assert_(Record("rule", args.name, text))
        refused = [row for row in await _errors(space) if row[:2] == (args.name, text)]
        if refused:
            raise UsageError(f"{args.name} is not carried out: {refused[0][3]!s}")
        say(f"added rule {args.name}")
        if not args.durable:
            await trio.sleep_forever()
    return 0


async def _keep(space: dataspace.RemoteSpace, name: str, text: str) -> None:
    """Claims a rule for a durable owner, in one turn in the place of the one of this name."""
    handle = _handle(name)
    fresh = (ASSERT, handle, Record("rule", name, text))
    try:
        await _commit(space, (RETRACT, handle), fresh)
    except Refused as refusal:
        if refusal.code != "unknown-handle":
            raise
        await _commit(space, fresh)


async def _remove(args: argparse.Namespace) -> int:
    async with connect(args, owner=args.durable) as space:
        try:
            await _commit(space, (RETRACT, _handle(args.name)))
        except Refused as refusal:
            if refusal.code != "unknown-handle":
                raise
            raise Refused(refusal.code, f"{args.durable} has added no rule {args.name}") from None
    say(f"removed rule {args.name}")
    return 0


async def _commit(space: dataspace.RemoteSpace, *actions: Action) -> None:
    await (await space.submit(actions)).wait()


def _handle(name: str) -> int:
    """A durable owner has one rule of a name."""
    return durable_handle(Record("rule", name))


def _text(given: str) -> str:
    """The text itself, or what is in the file behind ``@``."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"rules of {given[1:]}: {error}") from None


async def _errors(space: dataspace.RemoteSpace) -> list[tuple[Value, ...]]:
    return await space.matches("rule-error($name, $text, $row, $why)")


async def _list(space: dataspace.RemoteSpace) -> int:
    troubles = {row[:2]: row[3] for row in await _errors(space)}
    for name, text in sorted(await space.matches("rule($name:str, $text:str)")):
        print(name, end=":\n")
        for line in str(text).strip().splitlines():
            print(f"    {line.strip()}")
        if (name, text) in troubles:
            print("    suspended:", troubles[name, text])
    return 0
