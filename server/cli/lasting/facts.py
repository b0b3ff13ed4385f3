"""The commands about facts that last: assert, observe, log, and send from the standard input.

Each is a coroutine that takes the parsed arguments and returns an exit code.  They use only the public client
library, and print through ``output``.  What ends at once is in ``once``.
"""

from __future__ import annotations

import argparse
import math
import os
import stat
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import trio

from dataspace.client.observations import Observation
from dataspace.client.session.events import ConnectionChange, ConnectionEvent
from dataspace.client.session.turns import Ticket
from dataspace.client.space import RemoteSpace
from dataspace.errors import ExpectationFailed, Refused, UsageError
from dataspace.facts import as_it_is, literally
from dataspace.foreign import tame
from dataspace.kernel.actions import SEND
from dataspace.kernel.changes import Change, EpochChanges, time_of
from index.patterns.patterns import capture_names
from index.patterns.text import unparse
from index.values.jsons import captures_json
from index.values.values import Map, Value
from server.cli.connecting import connect, is_lent, refuse_in_shell
from server.cli.lasting.run import parsed_lines
from server.cli.output import (
    captures_text,
    change_json,
    counted,
    epochs_text,
    is_in_background,
    json_line,
    note,
    print_epoch,
    say,
    say_accepted,
    time_text,
    write,
)
from server.cli.values import expectations, given, parsed, tell
from server.config.units import duration

_LAST_SECONDS: Final = 5.0
"""Seconds that an interrupted command waits for the answers to what it has sent."""


# -- assert ------------------------------------------------------------------------------------------


async def assert_(args: argparse.Namespace) -> int:
    """Holds facts until interrupted, for a while, or while a program runs."""
    if is_lent(args):
        for name, value in (("--for", args.hold), ("--grace", args.grace), ("--lease", args.lease)):
            if value:
                raise UsageError(f"{name}: assert takes --owner NAME, or lasts as long as the shell")
    facts = await trio.to_thread.run_sync(given, args.fact, abandon_on_cancel=True)
    seconds = duration(args.hold) if args.hold else math.inf
    grace = duration(args.grace) if args.grace else 0.0
    lease = duration(args.lease) if args.lease else 0.0
    expected = expectations(args, map(literally, facts))
    async with connect(args, grace=grace, lease=lease) as space:
        _follow_connection(space, args)
        turn = space.draft(expect=expected)
        for fact in facts:
            turn.assert_(as_it_is(fact))
        epochs: list[int] = []
        try:
            for part in space.cut(turn):
                epochs.append(await space.commit(part))
        except ExpectationFailed as failed:
            return tell(failed, expected)
        except Refused:
            say_accepted(epochs)
            raise
        lasts = ", until this shell ends" if is_lent(args) else ""
        say(f"asserted {counted(len(facts), 'fact')} in {epochs_text(epochs)}{lasts}")
        if lasts:
            return 0
        if args.program:
            return await _run_program(args.program)
        note(f"held for {args.hold}, Ctrl-C ends" if args.hold else "held until Ctrl-C")
        await trio.sleep(seconds)
    return 0


async def _run_program(program: Sequence[str]) -> int:
    try:
        process = await trio.run_process(list(program), check=False, stdin=None)
    except OSError as error:
        say(f"dataspace: cannot run {program[0]}: {error.strerror}")
        return 127
    return int(process.returncode) if process.returncode >= 0 else 128 - int(process.returncode)


def _follow_connection(space: RemoteSpace, args: argparse.Namespace) -> None:
    """Prints what becomes of the connection, but its end by the daemon: with that the command fails.

    In a shell, the shell does so.
    """
    if is_lent(args):
        return

    def tell(event: ConnectionEvent) -> None:
        if event.change is not ConnectionChange.ENDED:
            say(f"dataspace: connection {event}")

    space.on_connection = tell


# -- observe and log ---------------------------------------------------------------------------------


async def observe(args: argparse.Namespace) -> int:
    """Prints what matches now, then changes as they come."""
    pattern = parsed(args.pattern)
    async with connect(args) as space:
        _follow_connection(space, args)
        since = await _first(space, args)
        since_now = args.until is not None and since is None and not args.changes_only
        async with space.observe(
            pattern,
            snapshot=not args.changes_only,
            as_of=await _newest(space, args.until) if since_now else None,
            after=None if since is None else since - 1,
            upto=args.until,
            quiet=args.quiet,
            policy=args.policy,
            net=args.conflate,
            progress=args.progress,
            pace=None if args.pace is None else duration(args.pace),
        ) as observation:
            if since is not None or args.changes_only:
                start = "now on" if since is None else f"epoch {since} on"
                note(f"observing {args.pattern}: changes from {start}, Ctrl-C ends")
                opening = None
            else:
                opening = f"observing {args.pattern}"
            await _show_all(observation, args, opening=opening)
    return 0


async def _first(space: RemoteSpace, args: argparse.Namespace) -> int | None:
    """Returns the epoch to begin with, of ``--from`` or ``--since``; None if neither is given.

    Epochs that are gone are left out, which is said.
    """
    moment: datetime | None = args.moment
    if moment is None:
        since: int | None = args.since
        return since
    if moment > datetime.now(UTC):
        raise UsageError(f"--since {moment.isoformat()} has not come yet")
    try:
        return 1 + await space.epoch_at(moment - timedelta(microseconds=1))
    except Refused as refusal:
        if refusal.code != "epoch-gone":
            raise
    _, oldest = await _frontier(space)
    say(f"dataspace: epochs of that time are gone, beginning with the oldest, {oldest}")
    return oldest


async def _newest(space: RemoteSpace, until: int) -> int:
    """Returns the newest epoch on disk; raises an error if ``until`` is before it."""
    newest, _ = await _frontier(space)
    if newest > until:
        raise UsageError(f"epoch {until} is past, the newest is {newest}; give the first one with --from")
    return newest


async def _frontier(space: RemoteSpace) -> tuple[int, int]:
    """Returns the newest epoch on disk, and the oldest that is retained."""
    frontier = await space.request("frontier", Map())
    assert isinstance(frontier, Map)  # by WIRE.md
    newest, oldest = frontier["epoch"], frontier["oldest"]
    assert isinstance(newest, int) and isinstance(oldest, int)  # as above
    return newest, oldest


async def log(args: argparse.Namespace) -> int:
    """Prints the changes of past epochs, then new ones with ``--follow``."""
    pattern = parsed(args.pattern)
    if args.who and args.follow:
        raise UsageError("--who reads the past and cannot --follow; run it again with --from")
    async with connect(args) as space:
        newest, oldest = await _frontier(space)
        since = await _first(space, args)
        after = max(1, oldest if since is None else since) - 1
        upto = args.until if args.until is not None or args.follow else newest
        if upto is not None and upto <= after:
            if 0 < upto < oldest:
                raise UsageError(f"the epochs up to {upto} are gone, the oldest held is {oldest}")
            if after >= newest:
                say(f"dataspace: nothing from epoch {after + 1} on: the newest is {newest} (--follow waits)")
            return 0
        if args.who:
            assert upto is not None  # as --follow is refused beside it
            await _print_attributed(space, pattern, after, min(upto, newest), args)
            return 0
        if args.follow and args.until is None:
            note(f"following {args.pattern} from epoch {after + 1} on, Ctrl-C ends")
        async with space.observe(
            pattern, after=after, upto=_bounded(upto, newest, args.follow), quiet=True, durable=True
        ) as observation:
            await _show_all(observation, args)
    return 0


def _bounded(upto: int | None, newest: int, follow: bool) -> int | None:
    """Returns the epoch to end with: without ``--follow``, the newest one at most."""
    return upto if follow or upto is None else min(upto, newest)


async def _show_all(
    observation: Observation, args: argparse.Namespace, *, opening: str | None = None
) -> None:
    """Prints changes, or runs a command for each, until there are no more, until ``--count`` of them, or
    until the output is closed.

    The first epoch is a state that is counted for a person, if there are words to open with.
    """
    command = getattr(args, "execute", None)
    async with trio.open_nursery() as nursery:
        if not is_in_background():
            nursery.start_soon(wait_unread, nursery.cancel_scope)
        left = args.count
        async for epoch in observation.epochs():
            if opening is not None:
                note(f"{opening}: {len(epoch.added)} now, Ctrl-C ends")
                opening = None
            if command:
                shown = await _execute(epoch, command, most=left)
            else:
                shown = print_epoch(epoch, as_json=args.json, most=left)
            if left is not None:
                left -= shown
                if not left:
                    break
        nursery.cancel_scope.cancel()


async def wait_unread(scope: trio.CancelScope) -> None:
    """Cancels the scope when the other end of the output pipe is closed, even with nothing to print."""
    if not sys.stdout.closed and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        await trio.lowlevel.wait_readable(sys.stdout.fileno())  # the end for writing: only an error wakes it
        scope.cancel()


# -- who changed what -----------------------------------------------------------------------------------


async def _print_attributed(
    space: RemoteSpace, pattern: Value, after: int, upto: int, args: argparse.Namespace
) -> None:
    """Prints the changes in (after, upto], a page at a time, ``--count`` at most."""
    names, left = capture_names(pattern), args.count
    while after < upto and left != 0:
        most = 1_000 if left is None else min(left, 1_000)
        asked = {"pattern": pattern, "after": after, "upto": upto, "most": most}
        page = await space.request("who", Map(asked))
        assert isinstance(page, Map) and isinstance(page["changes"], tuple)  # by WIRE.md
        for change in page["changes"][:left]:
            assert isinstance(change, Map)  # as above
            write(_attributed_json(names, change) if args.json else _attributed_line(names, change))
        left = None if left is None else max(0, left - len(page["changes"]))
        assert isinstance(page["upto"], int) and page["upto"] > after  # as above
        after = page["upto"]


def _attributed_json(names: tuple[str, ...], change: Map) -> str:
    captures, epoch_time = change["captures"], change["time"]
    assert isinstance(captures, tuple) and isinstance(epoch_time, int)  # by WIRE.md
    told: dict[str, object] = {str(name): value for name, value in change.pairs()}
    return json_line(
        told | {"time": time_text(time_of(epoch_time)), "captures": captures_json(names, captures)}
    )


def _attributed_line(names: tuple[str, ...], change: Map) -> str:
    captures, owners = change["captures"], change["owners"]
    assert isinstance(captures, tuple) and isinstance(owners, tuple)  # by WIRE.md
    shown = captures_text(zip(names, captures, strict=True))
    about = [f"owner={', '.join(map(str, owners))}"] if owners else []
    about += [
        f"{name}={change[name]!s}" for name in ("client", "name", "principal", "address") if change[name]
    ]
    what = f"{change['epoch']!r} {change['change']!s} {shown}".rstrip()
    return tame("  ".join([what, *about]))


# -- a command for each change -------------------------------------------------------------------------

LARGEST: Final = 65_536
"""Bytes of a value in an environment: systems allow 128 KiB for each variable."""


async def _execute(epoch: EpochChanges, command: str, *, most: int | None = None) -> int:
    """Runs the command for each change of an epoch, ``most`` at most; returns for how many it did."""
    if epoch.lost:
        say(f"dataspace: epochs {epoch.first} to {epoch.number}: {epoch.lost} changes were dropped")
        return 0
    count = 0
    for change in epoch:
        if count == most:
            break
        await _run_command(change, epoch, command)
        count += 1
    return count


async def _run_command(change: Change, epoch: EpochChanges, command: str) -> None:
    """Runs the command for one change; says how it ended if it failed."""
    line = change_json(change, epoch) + "\n"
    try:
        done = await trio.run_process(
            ["/bin/sh", "-c", command],
            stdin=line.encode(),
            check=False,
            env=os.environ | environment(change),
        )
    except (OSError, subprocess.SubprocessError) as error:
        say(f"dataspace: cannot run {command}: {error}")
        return
    if done.returncode:
        say(f"dataspace: {command} ended with {done.returncode} for {change.kind} in epoch {change.epoch}")


def environment(change: Change) -> dict[str, str]:
    """Returns the variables of a change: text as it is, other values as in patterns."""
    variables = {
        "DATASPACE_CHANGE": change.kind,
        "DATASPACE_EPOCH": str(change.epoch),
        "DATASPACE_TIME": time_text(change.time),
    }
    for name, value in change.named.items():
        text = _text(value)
        if len(text.encode(errors="surrogatepass")) <= LARGEST:
            variables[f"DATASPACE_CAPTURE_{name}"] = text
    return variables


def _text(value: Value) -> str:
    """Returns a value as text that an environment can hold: without zero bytes."""
    return value if isinstance(value, str) and "\0" not in value else unparse(value)


# -- send --------------------------------------------------------------------------------------------


async def send(args: argparse.Namespace) -> int:
    """Sends each line of the standard input as it comes, a turn each."""
    waiting: deque[Ticket] = deque()
    sent = epoch = 0
    refuse_in_shell(args, "send -")
    async with connect(args) as space:
        _follow_connection(space, args)
        if sys.stdin.isatty():
            note("one message on each line; Ctrl-D ends")
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
            say(f"sent {counted(sent, 'message')}" + (f", the last in epoch {epoch}" if sent else ""))
    return 0
