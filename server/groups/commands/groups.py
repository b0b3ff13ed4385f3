"""The command groups: lists the groups of a space, shows what is out, and does something to one of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from dataspace.errors import UsageError
from dataspace.foreign import tame
from index.patterns.text import parse_pattern, unparse
from index.values.jsons import to_json
from index.values.values import Map, Value
from server.cli.connecting import connect_short
from server.cli.once.sessions import aligned, since_text
from server.cli.output import counted, json_line, say, write
from server.config.units import duration
from server.groups.commands.waits import waits

COLUMNS: Final = ("group", "members", "out", "undone", "dead", "oldest", "behind", "state", "pattern")
PEEK: Final = ("job", "state", "failed", "member", "in", "item")
OUT: Final = ("job", "attempt", "member", "left", "item")

Fields = Mapping[str, Value]


def groups(args: argparse.Namespace) -> int:
    """Prints the groups of the space, or does something to one of them."""
    if args.verb == "list":
        return _list(args)
    if args.name is None:
        raise UsageError(f"which group? dataspace groups {args.verb} NAME; dataspace groups lists them")
    if args.verb == "out":
        return _out(args)
    if args.verb == "peek":
        return _peek(args)
    asked: dict[str, Value] = {"group": args.name, "what": args.verb}
    if args.verb == "seek":
        asked["to"] = _place(args)
    elif args.verb == "retry":
        if args.place is not None:
            asked["pattern"] = parse_pattern(args.place)
    elif args.verb == "alter":
        asked["options"] = _options(args)
    elif args.place is not None:
        raise UsageError(f"{args.verb} takes the name of a group, and no {args.place!r}")
    with connect_short(args) as space:
        answer = space.request("group-alter", asked)
    if args.verb == "retry":
        say(tame(f"group {args.name}: {_retried(answer, args.place)}"))
        return 0
    done = {
        "pause": "paused",
        "resume": "goes on",
        "delete": "deleted",
        "alter": "changed",
        "seek": f"begins anew after epoch {answer!r}",
    }
    say(tame(f"group {args.name}: {done[args.verb]}"))
    return 0


def _retried(count: Value, pattern: str | None) -> str:
    """Returns what a retry of so many dead letters did.

    >>> _retried(1, None), _retried(2, None), _retried(0, "job(7)")
    ('1 dead letter is tried again', '2 dead letters are tried again', 'no dead letter matches job(7)')
    """
    assert isinstance(count, int)  # by WIRE.md
    if count == 0:
        return "there are no dead letters" if pattern is None else f"no dead letter matches {pattern}"
    return f"{counted(count, 'dead letter')} {'is' if count == 1 else 'are'} tried again"


def _options(args: argparse.Namespace) -> Map:
    given: dict[str, Value] = {
        "ack_within": None if args.ack_within is None else duration(args.ack_within),
        "attempts": args.attempts,
        "window": args.window,
        "backoff": None if args.backoff is None else waits(args.backoff),
        "most_out": args.most_out,
        "rate": args.rate,
        "exclusive": args.exclusive,
    }
    found = {name: value for name, value in given.items() if value is not None}
    if not found:
        named = "--ack-within, --attempts, --window, --backoff, --most-out, --rate or --[no-]exclusive"
        raise UsageError(f"what is to change? {named}")
    return Map(found)


def _place(args: argparse.Namespace) -> Value:
    if args.place is None:
        raise UsageError("where to? dataspace groups seek NAME EPOCH, or a time, or now")
    if args.place == "now":
        return None
    if args.place.isdecimal():
        return int(args.place)
    try:
        moment = datetime.fromisoformat(args.place)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        said = "a group begins at an epoch, a time such as 2026-11-22T09:00:00Z, or now"
        raise UsageError(f"{said}, not at {args.place}")
    return moment


def _asked(args: argparse.Namespace, **arguments: Value) -> list[Fields]:
    with connect_short(args) as space:
        answer = space.request("groups", arguments)
    assert isinstance(answer, tuple)  # by WIRE.md
    return [{str(name): value for name, value in each.pairs()} for each in answer if isinstance(each, Map)]


def _list(args: argparse.Namespace) -> int:
    found = _asked(args) if args.name is None else _asked(args, group=args.name)
    if args.json:
        for each in found:
            write(json_line({name: to_json(value) for name, value in each.items()}))
        return 0
    for line in aligned([COLUMNS, *[_cells(each) for each in found]]):
        write(line)
    return 0


def _cells(group: Fields) -> tuple[str, ...]:
    oldest = group["oldest_seconds"]
    assert isinstance(oldest, float)  # by WIRE.md
    return (
        tame(str(group["group"])),
        *[str(group[name]) for name in ("members", "out", "undone", "dead")],
        since_text(oldest) if group["undone"] else "-",
        str(group["behind"]),
        _state(group),
        tame(str(group["pattern"])),
    )


def _state(group: Fields) -> str:
    if group["paused"]:
        return "paused"
    if group.get("topic_ended"):
        return "topic ended"
    return "cannot read" if group.get("cannot_read") else "runs"


def _out(args: argparse.Namespace) -> int:
    (found,) = _asked(args, group=args.name, out=True)
    out = found["deliveries"]
    assert isinstance(out, tuple)  # by WIRE.md
    rows: list[tuple[str, ...]] = []
    for delivery in out:
        assert isinstance(delivery, tuple)  # as above
        epoch, position, _, attempt, member, left, item = delivery
        name = f"{epoch!r}.{position!r}"
        if args.json:
            write(
                json_line(
                    {
                        "job": name,
                        "attempt": attempt,
                        "member": member,
                        "item": to_json(item),
                    }
                )
            )
            continue
        rest = f"{left:.0f}s" if isinstance(left, float) else "-"
        rows.append((name, str(attempt), tame(str(member)), rest, tame(unparse(item))))
    for line in aligned([OUT, *rows]) if not args.json else ():
        write(line)
    return 0


def _peek(args: argparse.Namespace) -> int:
    """Prints the jobs that a group has, and then how many there are that it does not show."""
    asked = {"group": args.name} | ({} if args.most is None else {"most": args.most})
    with connect_short(args) as space:
        answer = space.request("peek", asked)
    assert isinstance(answer, Map)  # by WIRE.md
    jobs, undone, behind = answer["jobs"], answer["undone"], answer["behind"]
    assert isinstance(jobs, tuple) and isinstance(undone, int)  # as above
    if args.json:
        write(json_line({str(name): to_json(value) for name, value in answer.pairs()}))
        return 0
    now = datetime.now(UTC)
    for line in aligned([PEEK, *[_peeked(each, now) for each in jobs if isinstance(each, Map)]]):
        write(line)
    rest = [counted(undone - len(jobs), "further job")] if undone > len(jobs) else []
    if isinstance(behind, int) and behind:
        rest.append(f"{counted(behind, 'epoch')} that the group has not read")
    if rest:
        say(tame(f"group {args.name}: and {', and '.join(rest)}"))
    return 0


def _peeked(job: Map, now: datetime) -> tuple[str, ...]:
    due, left, captures = job.get("due"), job.get("seconds_left"), job["captures"]
    if isinstance(due, datetime):
        left = max(0.0, (due - now).total_seconds())
    return (
        f"{job['epoch']!r}.{job['position']!r}",
        str(job["state"]),
        str(job["attempts"]),
        tame(str(job.get("member", "-"))),
        since_text(left) if isinstance(left, float) else "-",
        "in the log" if captures is None else tame(unparse(captures)),
    )
