"""The commands about facts: assert, retract, observe, log, send, status, index, actors.

Each is a coroutine that takes the parsed arguments and returns an exit code.  They use only the public client
library, and print through ``output``.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

from dataspace.client.observations import Observation
from dataspace.client.session.turns import Draft, Ticket
from dataspace.client.space import RemoteSpace
from dataspace.errors import Refused, UsageError
from dataspace.facts import as_it_is
from dataspace.kernel.actions import SEND
from dataspace.kernel.epoch_changes import time_of
from dataspace.version import described
from index.patterns.patterns import capture_names
from index.patterns.text import parse_pattern, unparse
from index.values.jsons import to_json
from index.values.values import Map, Value
from server.cli.connecting import connect, durable_handle
from server.cli.lines import given, parsed_lines
from server.cli.output import json_line, print_epoch, say, size_text, tame, time_text
from server.config.units import duration

_EATEN: Final = re.compile(r"\(\s*\)|\[\s*\]|:\s*[,}]|^\s*$")
"""Matches a fact from which the shell removed a ``$NAME`` in double quotes: ``present()``, ``[]``, ``{k:
}``."""

_LAST_SECONDS: Final = 5.0
"""Seconds that an interrupted command waits for the answers to what it has sent."""
_FIGURES: Final = {
    "actors": "actor",
    "turns": "turn",
    "facets": "facet",
    "crashes": "crash",
    "stalls": "stall",
}
"""Nouns for the counts of hosted actors, and for one of each."""


# -- assert ------------------------------------------------------------------------------------------


async def assert_(args: argparse.Namespace) -> int:
    """Holds facts until interrupted, for a while, or while a program runs."""
    facts = await given(args.fact)
    seconds = duration(args.hold) if args.hold else math.inf
    grace = duration(args.grace) if args.grace else 0.0
    lease = duration(args.lease) if args.lease else 0.0
    async with connect(args, owner=args.durable or "", grace=grace, lease=lease) as space:
        _follow_connection(space)
        turn = space.draft()
        for fact in facts:
            turn.assert_(as_it_is(fact), handle=durable_handle(fact) if args.durable else None)
        epochs = await _commit(space, turn, args, facts)
        say(f"asserted {len(facts)} {_plural('fact', len(facts))} in {epochs}")
        if args.durable:
            return 0
        if args.program:
            return await _run_program(args.program)
        await trio.sleep(seconds)
    return 0


async def _commit(space: RemoteSpace, turn: Draft, args: argparse.Namespace, facts: Sequence[Value]) -> str:
    """Commits one turn, or several if one cannot hold all; returns their epochs, as text.

    Handles are chosen here, so that what is wrong with them is said of the facts.
    """
    epochs: list[int] = []
    try:
        for part in space.cut(turn):
            epochs.append(await space.commit(part))
        first, last = epochs[0], epochs[-1]
        return f"epoch {first}" if len(epochs) == 1 else f"{len(epochs)} turns, epochs {first} to {last}"
    except Refused as refusal:
        if epochs:
            say(f"dataspace: {len(epochs)} turns were accepted before one was refused")
        which = unparse(facts[0]) if len(facts) == 1 else f"one of these {len(facts)} facts"
        if refusal.code == "handle-in-use":
            raise Refused(refusal.code, f"{args.durable} has already asserted {which}") from None
        if refusal.code == "unknown-handle":
            raise Refused(
                refusal.code, f"{args.durable} does not assert {which}, or not by this command"
            ) from None
        raise


async def _run_program(program: Sequence[str]) -> int:
    try:
        process = await trio.run_process(list(program), check=False, stdin=None)
    except OSError as error:
        say(f"dataspace: cannot run {program[0]}: {error.strerror}")
        return 127
    return int(process.returncode) if process.returncode >= 0 else 128 - int(process.returncode)


def _follow_connection(space: RemoteSpace) -> None:
    space.on_connection = lambda event: say(f"dataspace: connection {event}")


async def retract(args: argparse.Namespace) -> int:
    """Retracts facts of a durable owner."""
    facts = await given(args.fact)
    async with connect(args, owner=args.durable) as space:
        turn = space.draft()
        for fact in facts:
            turn.retract(durable_handle(fact))
        epochs = await _commit(space, turn, args, facts)
    say(f"retracted {len(facts)} {_plural('fact', len(facts))} in {epochs}")
    return 0


# -- observe and log ---------------------------------------------------------------------------------


async def observe(args: argparse.Namespace) -> int:
    """Prints what matches now, then changes as they come."""
    pattern = _parsed(args.pattern)
    async with connect(args) as space:
        _follow_connection(space)
        since_now = args.until is not None and args.since is None and not args.changes_only
        async with space.observe(
            pattern,
            snapshot=not args.changes_only,
            as_of=await _newest(space, args.until) if since_now else None,
            after=None if args.since is None else args.since - 1,
            upto=args.until,
            quiet=args.quiet,
            policy=args.policy,
            net=args.conflate,
            progress=args.progress,
        ) as observation:
            await _print_all(observation, as_json=args.json, count=args.count)
    return 0


def _parsed(text: str) -> Value:
    """Returns the pattern on a command line; the error names a ``$NAME`` that the shell seems to have
    removed."""
    pattern = parse_pattern(text)
    if _EATEN.search(text) and not capture_names(pattern):
        say(
            f"dataspace: {text} captures nothing: if you wrote $NAME within double quotes, the shell has put "
            "its own variable there; use single quotes"
        )
    return pattern


async def _newest(space: RemoteSpace, until: int) -> int:
    """Returns the newest epoch on disk; raises an error if ``until`` is before it."""
    frontier = await space.request("frontier", Map())
    assert isinstance(frontier, Map) and isinstance(frontier["epoch"], int)  # by WIRE.md
    if frontier["epoch"] > until:
        raise UsageError(
            f"epoch {until} is past, the newest is {frontier['epoch']}; give the first one with --from"
        )
    return frontier["epoch"]


async def log(args: argparse.Namespace) -> int:
    """Prints the changes of past epochs, then new ones with ``--follow``."""
    pattern = _parsed(args.pattern)
    async with connect(args) as space:
        frontier = await space.request("frontier", Map())
        assert isinstance(frontier, Map)  # by WIRE.md
        newest, oldest = frontier["epoch"], frontier["oldest"]
        assert isinstance(newest, int) and isinstance(oldest, int)  # as above
        after = max(1, oldest if args.since is None else args.since) - 1
        upto = args.until if args.until is not None or args.follow else newest
        if upto is not None and upto <= after:
            if 0 < upto < oldest:
                raise UsageError(f"the epochs up to {upto} are gone, the oldest held is {oldest}")
            if after >= newest:
                say(f"dataspace: nothing from epoch {after + 1} on: the newest is {newest} (--follow waits)")
            return 0
        async with space.observe(
            pattern, after=after, upto=_bounded(upto, newest, args.follow), quiet=True, durable=True
        ) as observation:
            await _print_all(observation, as_json=args.json, count=args.count)
    return 0


def _bounded(upto: int | None, newest: int, follow: bool) -> int | None:
    """Returns the epoch to end with: without ``--follow``, the newest one at most."""
    return upto if follow or upto is None else min(upto, newest)


async def _print_all(observation: Observation, *, as_json: bool, count: int | None) -> None:
    """Prints changes until there are no more, until ``count`` were printed, or until the output is closed."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_wait_unread, nursery.cancel_scope)
        left = count
        async for epoch in observation.epochs():
            printed = print_epoch(epoch, as_json=as_json, most=left)
            if left is not None:
                left -= printed
                if not left:
                    break
        nursery.cancel_scope.cancel()


async def _wait_unread(scope: trio.CancelScope) -> None:
    """Cancels the scope when the other end of the output pipe is closed, even with nothing to print."""
    if not sys.stdout.closed and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        await trio.lowlevel.wait_readable(sys.stdout.fileno())  # the end for writing: only an error wakes it
        scope.cancel()


# -- send and status ---------------------------------------------------------------------------------


async def send(args: argparse.Namespace) -> int:
    """Sends messages, all in one turn; lines of the standard input as they come, a turn each."""
    if args.message == ["-"]:
        return await _send_lines(args)
    messages = await given(args.message)
    async with connect(args) as space, space.turn() as turn:
        for message in messages:
            turn.send(as_it_is(message))
    say(f"sent {len(messages)} {_plural('message', len(messages))} in epoch {turn.epoch}")
    return 0


async def _send_lines(args: argparse.Namespace) -> int:
    waiting: deque[Ticket] = deque()
    sent = epoch = 0
    async with connect(args) as space:
        _follow_connection(space)
        try:
            async for message in parsed_lines():
                waiting.append(await space.submit([(SEND, message)]))
                while waiting[0].done and len(waiting) > 1:
                    epoch = await waiting[0].wait()
                    waiting.popleft()
                    sent += 1
        finally:
            with trio.move_on_after(_LAST_SECONDS, shield=True):
                for ticket in waiting:
                    epoch = await ticket.wait()
                    sent += 1
            say(f"sent {sent} {_plural('message', sent)}" + (f", the last in epoch {epoch}" if sent else ""))
    return 0


async def status(args: argparse.Namespace) -> int:
    """Prints the status of the daemon."""
    async with connect(args) as space:
        fields = dict((await space.status()).pairs())
    if args.json:
        print(json_line({str(name): to_json(value) for name, value in fields.items()}))
        return 0
    for name, value in _status_lines(fields):
        print(f"{name:<10} {value}")
    return 0


async def index(args: argparse.Namespace) -> int:
    """Prints a drawing of the daemon's index: the observers of each pattern."""
    async with connect(args) as space:
        drawn = await space.request("index", Map({"form": args.form, "most": args.most}))
    assert isinstance(drawn, str)  # by WIRE.md
    sys.stdout.write(drawn)
    sys.stdout.flush()
    return 0


async def owners(args: argparse.Namespace) -> int:
    """Prints the owners of the facts that match a pattern, a claim on each line."""
    asked = Map({"pattern": parse_pattern(args.pattern), "most": args.most})
    async with connect(args) as space:
        found = await space.request("owners", asked)
    assert isinstance(found, tuple)  # by WIRE.md
    for claim in found:
        assert isinstance(claim, Map) and isinstance(claim["stamp"], Map)  # as above
        if args.json:
            print(json_line({str(name): to_json(value) for name, value in claim.pairs()}))
            continue
        words = [str(claim["owner"]), str(claim["bearer"])]
        words += [f"{name!s}={word!s}" for name, word in claim["stamp"].pairs()]
        print(tame(f"{unparse(claim['fact'])}  {' '.join(filter(None, words))}"))
    return 0


async def actors(args: argparse.Namespace) -> int:
    """Prints the state of each hosted actor, and its last error."""
    async with connect(args) as space:
        hosted = await space.request("actors", Map())
    assert isinstance(hosted, tuple)  # by WIRE.md
    for each in hosted:
        assert isinstance(each, Map)  # as above
        if args.json:
            print(json_line({str(name): to_json(value) for name, value in each.pairs()}))
            continue
        figures = ", ".join([_counted(each, word, words) for words, word in _FIGURES.items()])
        print(f"{each['name']!s} {each['state']!s}{_whereabouts(each)}: {figures}")
        if each["last"] is not None:
            print(f"    {each['last']!s}")
    return 0


def _counted(actor: Map, word: str, words: str) -> str:
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

    def counted(names: str) -> str:
        return f"{number(names)} {_plural(names[:-1], number(names))}"

    def text(name: str) -> str:
        value = fields.get(name, "(not shown to this token)")
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)

    waiting = number("waiting_epochs")
    full = f", FULL: {waiting} {_plural('epoch', waiting)} wait for room" if fields["disk_full"] else ""
    up = (number("now") - number("started")) / 1e6
    since = time_text(time_of(number("started")))
    return [
        ("version", described(text("version"), _compiled(fields))),
        ("address", text("addresses")),
        ("process", f"{text('process')}, up {up:.0f} s, since {since}"),
        ("space", f"{text('space')} ({text('identity')}){_others(fields)}"),
        (
            "epoch",
            f"{number('epoch')} ({number('durable_epoch')} on disk, oldest {number('oldest_epoch')})",
        ),
        ("sessions", f"{number('sessions')} with {counted('streams')}{_away(fields)}"),
        ("facts", f"{number('facts')} ({counted('claims')} by {counted('owners')})"),
        ("rules", _rules_line(fields)),
        ("observers", f"{number('observers')} of {counted('patterns')}"),
        ("slow", _slow(fields)),
        ("memory", f"{size_text(number('memory_bytes'))} (peak {size_text(number('memory_peak_bytes'))})"),
        ("disk", f"{size_text(number('disk_bytes'))} in {text('data')}{full}"),
    ]


def _rules_line(told: dict[Value, Value]) -> str:
    """How many rules are carried out, and which takes most time; a rule has one clause or more."""
    if "rules" not in told:  # an older daemon
        return "unknown"
    clauses, texts = told["rules"], told.get("rule_texts", told["rules"])
    assert isinstance(clauses, int)  # by WIRE.md
    line = f"{texts!r} with {clauses} {_plural('clause', clauses)}" if texts else "0"
    line += f", {told['rules_suspended']!r} suspended"
    if not told.get("costliest_rule"):
        return line
    most, name = told["costliest_rule_milliseconds"], str(told["costliest_rule"])
    return f"{line}; most time: {name!r:.40} with {most!r} of {told['rules_milliseconds']!r} ms"


def _slow(told: dict[Value, Value]) -> str:
    """What became of observers who did not keep up."""
    epochs, changes = told["slow_conflated_epochs"], told["slow_dropped_changes"]
    failed, fallen = told["slow_failed_streams"], told["slow_fallen_behind"]
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
    return (
        f", {waiting!r} waiting to come back, {leases} {_plural('lease', leases)}"
        if waiting or leases
        else ""
    )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
