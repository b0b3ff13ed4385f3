"""The commands about all clients: ``sessions`` lists them or ends one, ``drain`` ends them and the daemon."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

from dataspace.errors import UsageError
from dataspace.foreign import tame
from index.values.jsons import to_json
from index.values.values import Map, Value
from server.cli.connecting import connect_short
from server.cli.output import json_line, say, size_text, write
from server.config.units import duration

COLUMNS: Final = (
    "session",
    "name",
    "principal",
    "address",
    "tls",
    "up",
    "turns/s",
    "streams",
    "waiting",
    "lag",
)

ORDERS: Final[Mapping[str, str]] = {
    "turns": "turns_per_second",
    "waiting": "waiting_bytes",
    "lag": "lag_epochs",
}
"""What the lines are ordered by, the highest first."""

Fields = dict[str, Value]


def sessions(args: argparse.Namespace) -> int:
    """Prints the sessions of the daemon, or ends one."""
    if args.verb == "end":
        return _end(args)
    if args.number is not None:
        raise UsageError("to end a session: dataspace sessions end ID")
    with connect_short(args, here=True) as space:
        found = listed(space.request("sessions", {}))
    found = ordered(found, args.sort)
    if args.json:
        for session in found:
            fields = {name: to_json(value) for name, value in session.items() if name != "id"}
            write(json_line({**fields, "session": _name(session)}))
        return 0
    for line in aligned([COLUMNS, *[cells(each) for each in found]]):
        write(line)
    return 0


def _end(args: argparse.Namespace) -> int:
    if args.number is None:
        raise UsageError("which session is to end? dataspace sessions lists them: dataspace sessions end ID")
    with connect_short(args, here=True) as space:
        ended = space.request("end-session", {"session": args.number})
    assert isinstance(ended, Map)  # by WIRE.md
    whose = [str(ended[each]) for each in ("name", "principal") if ended[each]]
    say(tame(f"ended session {ended.get('id', args.number)!s}: {', '.join(whose)}"))
    return 0


def drain(args: argparse.Namespace) -> int:
    """Asks the daemon to end when its clients have gone, and prints for how many it waits."""
    within = round(duration(args.within) * 1000)
    with connect_short(args, here=True) as space:
        answer = space.request("drain", {"within": within, "reason": args.reason})
    left = answer.get("sessions", 0) if isinstance(answer, Map) else 0
    ends = f"ends when {left!r} other sessions have gone, within {args.within}" if left else "ends now"
    write(f"the daemon takes no new sessions, and {ends}")
    return 0


def _name(session: Fields) -> str:
    """Returns the name of a session, as ``sessions end`` takes it; of an earlier daemon its number."""
    return str(session.get("id", session["session"]))


def listed(answer: Value) -> list[Fields]:
    """Returns the fields of each session in an answer."""
    assert isinstance(answer, tuple)  # by WIRE.md
    return [{str(name): value for name, value in each.pairs()} for each in answer if isinstance(each, Map)]


def ordered(found: list[Fields], by: str) -> list[Fields]:
    """Returns the sessions in an order of ``--sort``."""
    field = ORDERS.get(by)
    return found if field is None else sorted(found, key=lambda each: -_figure(each, field))


def cells(session: Fields) -> tuple[str, ...]:
    """Returns what is shown of a session, one text for each of ``COLUMNS``."""
    who = (_name(session), tame(str(session["name"])) or "-", tame(str(session["principal"])))
    if session["state"] != "connected":
        return (*who, str(session["state"]), *["-"] * (len(COLUMNS) - 4))
    return (
        *who,
        tame(str(session["address"])),
        str(session["tls"]) or "no",
        since_text(_figure(session, "seconds")),
        f"{_figure(session, 'turns_per_second'):.1f}",
        str(session["streams"]),
        size_text(int(_figure(session, "waiting_bytes"))),
        _lag(session),
    )


def since_text(seconds: float) -> str:
    """Returns a duration in its largest unit.

    >>> [since_text(each) for each in (5.0, 130.0, 7200.0, 200_000.0)]
    ['5s', '2m', '2h', '2d']
    """
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of a table as lines of text.

    >>> aligned([("a", "bc"), ("def", "g")])
    ['a    bc', 'def  g']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip()
        for row in rows
    ]


def _lag(session: Fields) -> str:
    epochs, seconds = _figure(session, "lag_epochs"), _figure(session, "lag_seconds")
    if not epochs:
        return "-"
    return f"{epochs:.0f} epochs" + (f", {since_text(seconds)}" if seconds >= 1 else "")


def _figure(session: Fields, name: str) -> float:
    value = session.get(name, 0)
    assert isinstance(value, int | float)  # by WIRE.md
    return value
