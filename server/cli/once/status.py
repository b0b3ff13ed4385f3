"""The commands that ask a daemon about itself: status, index, owners, actors.

Each takes the parsed arguments and returns an exit code.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

from dataspace.foreign import tame
from dataspace.kernel.changes import time_of
from dataspace.version import described
from index.patterns.text import parse_pattern, unparse
from index.values.jsons import to_json
from index.values.values import Map, Value
from server.cli.connecting import connect_short
from server.cli.output import counted, json_line, size_text, time_text, write

_FIGURES: Final = {
    "actors": "actor",
    "turns": "turn",
    "facets": "facet",
    "crashes": "crash",
    "stalls": "stall",
}
"""Nouns for the counts of hosted actors, and for one of each."""


def status(args: argparse.Namespace) -> int:
    """Prints the status of the daemon."""
    with connect_short(args, here=True) as space:
        answer = space.request("status", {})
    assert isinstance(answer, Map)  # by WIRE.md
    fields = dict(answer.pairs())
    if args.json:
        write(json_line({str(name): to_json(value) for name, value in fields.items()}))
        return 0
    for name, value in _status_lines(fields):
        write(f"{name:<10} {value}")
    return 0


def index(args: argparse.Namespace) -> int:
    """Prints a drawing of the daemon's index: the observers of each pattern."""
    with connect_short(args, here=True) as space:
        drawn = space.request("index", {"form": args.form, "most": args.most})
    assert isinstance(drawn, str)  # by WIRE.md
    sys.stdout.write(drawn)
    sys.stdout.flush()
    return 0


def owners(args: argparse.Namespace) -> int:
    """Prints the owners of the facts that match a pattern, a claim on each line."""
    asked: dict[str, Value] = {"pattern": parse_pattern(args.pattern), "most": args.most}
    with connect_short(args, reads=True) as space:
        found = space.request("owners", asked)
    assert isinstance(found, tuple)  # by WIRE.md
    for claim in found:
        assert isinstance(claim, Map) and isinstance(claim["stamp"], Map)  # as above
        if args.json:
            write(json_line({str(name): to_json(value) for name, value in claim.pairs()}))
            continue
        words = [str(claim["owner"]), str(claim["bearer"])]
        words += [f"{name!s}={word!s}" for name, word in claim["stamp"].pairs()]
        write(tame(f"{unparse(claim['fact'])}  {' '.join(filter(None, words))}"))
    return 0


def actors(args: argparse.Namespace) -> int:
    """Prints the state of each hosted actor, and its last error."""
    with connect_short(args, here=True) as space:
        hosted = space.request("actors", {})
    assert isinstance(hosted, tuple)  # by WIRE.md
    for actor in hosted:
        assert isinstance(actor, Map)  # as above
        if args.json:
            write(json_line({str(name): to_json(value) for name, value in actor.pairs()}))
            continue
        figures = ", ".join([_figure(actor, word, words) for words, word in _FIGURES.items()])
        write(f"{actor['name']!s} {actor['state']!s}{_whereabouts(actor)}: {figures}")
        if actor["last"] is not None:
            write(f"    {actor['last']!s}")
    return 0


def _figure(actor: Map, word: str, words: str) -> str:
    count = actor[words]
    return f"{count!r} {word if count == 1 else words}"


def _whereabouts(actor: Map) -> str:
    """Returns the space of an actor, and its process, where that is not the usual one."""
    space = "" if actor["space"] == "main" else f" in {actor['space']!s}"
    if not actor["isolated"]:
        return space
    return space + (" isolated" if actor["process"] is None else f" isolated in process {actor['process']!r}")


def _status_lines(fields: dict[Value, Value]) -> list[tuple[str, str]]:
    def number(name: str) -> int:
        value = fields[name]
        assert isinstance(value, int)  # by WIRE.md
        return value

    def some(names: str) -> str:
        return counted(number(names), names[:-1])

    def text(name: str) -> str:
        value = fields.get(name, "(not shown to this token)")
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)

    waiting = number("waiting_epochs")
    full = f", FULL: {counted(waiting, 'epoch')} wait for room" if fields["disk_full"] else ""
    up = (number("now") - number("started")) / 1e6
    since = time_text(time_of(number("started")))
    return [
        ("version", described(text("version"), _compiled(fields))),
        ("address", text("addresses")),
        ("process", f"{text('process')}, up {up:.0f} s, since {since}"),
        *_role(fields),
        ("space", f"{text('space')} ({text('identity')}){_others(fields)}"),
        (
            "epoch",
            f"{number('epoch')} ({number('durable_epoch')} on disk, oldest {number('oldest_epoch')})",
        ),
        ("sessions", f"{number('sessions')} with {some('streams')}{_away(fields)}"),
        ("facts", f"{number('facts')} ({some('claims')} by {some('owners')})"),
        ("rules", _rules_line(fields)),
        ("observers", f"{number('observers')} of {some('patterns')}"),
        ("slow", _slow(fields)),
        ("memory", f"{size_text(number('memory_bytes'))} (peak {size_text(number('memory_peak_bytes'))})"),
        ("disk", f"{size_text(number('disk_bytes'))} in {text('data')}{full}"),
        *([("durability", text("durability"))] if fields.get("durability") else []),
        *_connections(fields),
        *_archive(fields),
    ]


def _connections(fields: dict[Value, Value]) -> list[tuple[str, str]]:
    """Returns a line for the connections to a database, if the daemon has one."""
    found = fields.get("connections")
    if not isinstance(found, Map):
        return []
    return [("connections", f"{found['held']!s} of {found['allowed']!s} to the database")]


def _archive(fields: dict[Value, Value]) -> list[tuple[str, str]]:
    """Returns a line for the archive, if there is one."""
    archive = fields.get("archive")
    if not isinstance(archive, Map) or not archive:
        return []
    lag, seconds = archive["behind_epochs"], archive["behind_seconds"]
    assert isinstance(lag, int) and isinstance(seconds, float)  # by WIRE.md
    held = f"epochs {archive['oldest']!s} to {archive['upto']!s} in {archive['place']!s}"
    parts = [held if archive["upto"] else "no epoch yet", _behind(lag, seconds)]
    parts += [f"FAILING: {archive['error']!s}"] if archive["error"] else []
    return [("archive", tame(", ".join(parts))), *_kept(archive)]


def _kept(archive: Map) -> list[tuple[str, str]]:
    """Returns a line for what an archive has, what is to be merged and erased, and was erased last."""
    if "ranges" not in archive:  # an older daemon
        return []
    names = "ranges", "bytes", "ranges_to_merge", "erasures_waiting", "erased_at"
    ranges, size, due, waiting, erased_at = (archive[each] for each in names)
    assert isinstance(ranges, int) and isinstance(size, int) and isinstance(due, int)  # by ARCHIVE.md
    assert isinstance(waiting, int) and isinstance(erased_at, int)  # as above
    parts = [f"{counted(ranges, 'range')} of {size_text(size)}"]
    parts += [f"{due} to be merged"] if due else []
    parts += [f"NOT MERGED: {archive['merge_error']!s}"] if archive["merge_error"] else []
    parts += [f"{counted(waiting, 'erasure')} to be done"] if waiting else []
    parts += [f"erased last at {time_text(time_of(erased_at))}"] if erased_at else []
    return [("", tame(", ".join(parts)))]


def _role(fields: dict[Value, Value]) -> list[tuple[str, str]]:
    """Returns lines for a daemon that follows, or is followed: for its role, and for each follower."""
    if fields.get("leads") is False:
        leader = str(fields.get("leader", "")) or "a leader that does not answer"
        lag, seconds = fields["lag_epochs"], fields["lag_seconds"]
        assert isinstance(lag, int) and isinstance(seconds, float)  # by WIRE.md
        return [("role", f"follows {leader}, {_behind(lag, seconds)}")]
    followers = fields.get("followers")
    if not isinstance(followers, Map) or not followers:
        return []
    lines = [("role", f"leads {counted(len(followers), 'follower')}")]
    for name, follower in followers.pairs():
        assert isinstance(follower, Map)  # by WIRE.md
        lags, seconds = follower["lag_epochs"], follower["lag_seconds"]
        assert isinstance(lags, Map) and isinstance(seconds, Map)  # as above
        parts = [f"{name!s} at {follower['url']!s}" if follower["url"] else str(name)]
        parts += ["stands by"] if follower["stand_by"] else []
        lines.append(("", tame(", ".join([*parts, _behind(_most(lags), _most(seconds))]))))
    return lines


def _most(values: Map) -> float:
    """Returns the largest number of a map, or 0."""
    return max([value for _, value in values.pairs() if isinstance(value, int | float)], default=0)


def _behind(epochs: float, seconds: float) -> str:
    """Returns how far a follower is behind, in words."""
    return f"{counted(int(epochs), 'epoch')} and {seconds:.1f} s behind" if epochs else "up to date"


def _rules_line(fields: dict[Value, Value]) -> str:
    """How many rules are carried out, and which takes most time; a rule has one clause or more."""
    if "rules" not in fields:  # an older daemon
        return "unknown"
    clauses, texts = fields["rules"], fields.get("rule_texts", fields["rules"])
    assert isinstance(clauses, int)  # by WIRE.md
    line = f"{texts!r} with {counted(clauses, 'clause')}" if texts else "0"
    line += f", {fields['rules_suspended']!r} suspended"
    if fields.get("zones"):
        line += f", zones of {fields['zones']!s}"
    if fields.get("zones_before"):
        line += f" (of {fields['zones_before']!s} before)"
    if not fields.get("costliest_rule"):
        return line
    most, name = fields["costliest_rule_milliseconds"], str(fields["costliest_rule"])
    return f"{line}; most time: {name!r:.40} with {most!r} of {fields['rules_milliseconds']!r} ms"


def _slow(fields: dict[Value, Value]) -> str:
    """What became of observers who did not keep up."""
    epochs, changes = fields["slow_conflated_epochs"], fields["slow_dropped_changes"]
    failed, fallen = fields["slow_failed_streams"], fields["slow_fallen_behind"]
    return (
        f"{epochs!r} epochs conflated, {changes!r} changes dropped, {failed!r} failed, {fallen!r} fell behind"
    )


def _compiled(fields: dict[Value, Value]) -> list[str]:
    """Returns the parts of the daemon that are machine code; a daemon that states none has none."""
    parts = fields.get("compiled", ())
    return [str(part) for part in parts] if isinstance(parts, tuple) else []


def _others(fields: dict[Value, Value]) -> str:
    """Returns a text about the other dataspaces, empty if there are none."""
    spaces = fields.get("spaces", Map())
    assert isinstance(spaces, Map)  # by WIRE.md
    names = [str(name) for name in spaces if name != fields["space"]]
    return f", beside {', '.join(names)}" if names else ""


def _away(fields: dict[Value, Value]) -> str:
    """Returns a text about owners with facts but without a connection, empty if there are none."""
    waiting, leases = fields["sessions_waiting"], fields["leases"]
    assert isinstance(leases, int)  # by WIRE.md
    return f", {waiting!r} waiting to come back, {counted(leases, 'lease')}" if waiting or leases else ""
