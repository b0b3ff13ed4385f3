"""Replaying: where a stream begins, and the replay in columns.

A stream can begin with what holds now, or from the log at an epoch.  Which of them it is, at which epoch, and
from which known state the log is read, is found out here and nowhere else, for both kinds of replay.  The
simpler of those is here as well: a stream of blocks ends at an epoch that it was told, so that nothing is
handed over to the live feed and nothing conflates.

Always: a replay begins where the log reaches and where all is on disk, or is refused with what there is;
blocks are made by a thread, and only as many as the stream has room for.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from dataspace.errors import Refused
from dataspace.kernel.actions import PROGRESS
from dataspace.kernel.changes import Changes
from relay.delivery.outbox import OutStream
from relay.log.columns import Blocks, ColumnReplay
from relay.log.replay import Live, Replay
from server.streams.request import Request

if TYPE_CHECKING:
    from server.sessions.connection import Connection
    from server.streams.ports import History

Kind = TypeVar("Kind", bound=Replay)

LIVE_FACTS: Final = 100_000
"""Facts that are copied as a base for a replay that begins near the end of the log."""


def beginning(home: History, request: Request) -> int:
    """The epoch after which a replay begins; ``Refused`` if the log does not reach there."""
    log = home.log
    newest = max(home.commits.durable, home.space.epoch)
    after = request.after if request.as_of is None else request.as_of
    if after is None:
        after = home.commits.durable
    wanted = f"epochs after {after} are wanted" if request.as_of is None else f"epoch {after} is wanted"
    if after < log.oldest - 1:
        raise Refused("epoch-gone", f"{wanted}, the oldest held is {log.oldest}")
    if after > newest:
        raise Refused("epoch-ahead", f"{wanted}, the newest is {newest}")
    # Who is only shown what is on disk never saw a lost epoch: its number is a place between two others.
    if not request.durable and log.lost(after):
        raise Refused("epoch-lost", f"epoch {after} was never acknowledged and was lost in a crash")
    return after


def begins_now(home: History, request: Request) -> bool:
    """Whether a stream begins with what holds now, or has missed nothing of it, and needs no log."""
    if request.live:
        return True
    after = request.after
    if request.columns or after is None or after != home.space.epoch or home.log.lost(after):
        return False
    return request.as_of is None and request.upto is None and not request.durable


async def from_log(home: History, request: Request, kind: type[Kind]) -> Kind:
    """A replay that stands where a stream begins, once everything up to there is on disk.

    Raises as ``beginning``.
    """
    start = beginning(home, request)
    await home.commits.wait_durable(start)  # what held there is reckoned from the log
    replay = kind(home.log, request.pattern, start)
    if request.wants_state or not replay.at_hand():
        replay.live = _live_base(home)
    return replay


def _live_base(home: History) -> Live | None:
    """What holds now, for a replay that begins near the end; not copied where there is a lot of it.

    The facts and what of them is not on disk are of one moment: nothing may wait in between.
    """
    space = home.space
    if len(space.index) > LIVE_FACTS:
        return None
    return Live(space.epoch, list(space.index.values()), home.commits.tail(0))


def time_of(home: History, number: int) -> int:
    """When an epoch was made; 0 for the emptiness before the first."""
    return home.log.time_of(number)


async def pump_columns(connection: Connection, stream: OutStream, request: Request) -> None:
    """One replay in columns, as fast as it is taken."""
    home, waiting = connection.home, Blocks(connection.house.room)
    if request.upto is None or not request.durable:
        raise Refused("bad-request", "a stream of columns needs upto, and durable=true")
    read = connection.observing.reads.begun()
    start = beginning(home, request)
    stream.observation = waiting
    await home.commits.wait_durable(request.upto)
    replay = await from_log(home, replace(request, after=start), ColumnReplay)
    time = 0 if request.as_of is None else await trio.to_thread.run_sync(time_of, home, start)
    blocks = replay.blocks(request.upto)
    if request.as_of is not None:
        blocks = chain(replay.state(time), blocks)
    while True:
        async with connection.observing.reading():
            block = await trio.to_thread.run_sync(next, blocks, None)
        if block is None:
            break
        read.sent(block)
        waiting.extend(block)
        connection.wake(stream)
        home.flush()
        while stream.sated or waiting.full:
            await stream.wait_taken()
    stream.complete = True
    connection.wake(stream)
    connection.observing.reads.ended(read, request)
    home.flush()


def progress_mark(number: int) -> Changes:
    """All epochs to this one have been told; its time is when that is said."""
    return Changes(number, time.time_ns() // 1000, flags=PROGRESS)
