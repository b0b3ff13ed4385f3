"""The commands ``dataspace rule`` that end at once: what the daemon answers about rules, and their end.

Always: control characters in rules and facts of others are escaped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from dataspace.errors import Refused
from dataspace.foreign import tame
from index.patterns.text import parse, parse_pattern, unparse
from index.values.jsons import to_json
from index.values.values import Map, Record, Value
from server.cli.connecting import connect_short
from server.cli.output import json_line, say, write

RULES: Final = "rule($name:str, $text:str)"
ERRORS: Final = "rule-error($name, $text, $row, $why)"


def ask(args: argparse.Namespace) -> int:
    """Prints what the daemon answers to one of the questions about rules."""
    about: Value = None
    if args.verb in ("why", "why-not"):
        about = parse(args.about) if args.verb == "why" else parse_pattern(args.about)
    form = "rows" if getattr(args, "json", False) else "text"
    with connect_short(args) as space:
        answer = space.request("rules", {"ask": args.verb, "about": about, "form": form})
    if isinstance(answer, tuple):
        for row in answer:
            write(json_line(to_json(row)))
    else:
        for line in str(answer).splitlines():
            write(tame(line))
    return 0


def resume(args: argparse.Namespace) -> int:
    """Evaluates a suspended rule again."""
    with connect_short(args) as space:
        say(tame(str(space.request("rules", {"ask": "resume", "about": args.name}))))
    return 0


def remove(args: argparse.Namespace) -> int:
    """Retracts the rule of a durable owner, whatever client has asserted it."""
    rule = Record("rule", args.name, Record("_"))
    with connect_short(args) as space:
        answer = space.request("withdraw", {"owner": args.durable, "pattern": rule})
    if not isinstance(answer, Map) or not answer.get("retracted"):
        raise Refused("unknown-handle", tame(f"{args.durable} has added no rule {args.name}"))
    say(tame(f"removed rule {args.name}"))
    return 0


def list_(args: argparse.Namespace) -> int:
    """Prints each rule, and why it is suspended if it is."""
    with connect_short(args) as space:
        errors = {row[:2]: row[2:] for row in space.state(parse_pattern(ERRORS)).added}
        rules = space.state(parse_pattern(RULES)).added
    for name, text in sorted(rules):
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
