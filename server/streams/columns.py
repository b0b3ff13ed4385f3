"""A replay in columns: blocks of the log, up to an epoch that the reader names.

It never continues with live changes, and never conflates.

Always: blocks are made by a thread, and only as many as the stream has capacity for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import Refused
from dataspace.wire.observing import ObserveOptions
from index.patterns.text import unparse_pattern
from index.values.values import Record
from relay.delivery.memory import HeldState, MemoryBudget
from relay.delivery.outbox import OutStream
from relay.log.columns import Blocks, ColumnReplay
from server.sessions.peer import Peer
from server.streams.replay import ReplaySlots, beginning, from_log
from server.system import SystemSpace

if TYPE_CHECKING:
    from relay.log.columns import ColumnBlock

logger: Final = logging.getLogger("dataspace")


async def replay_columns(
    peer: Peer,
    stream: OutStream,
    request: ObserveOptions,
    *,
    slots: ReplaySlots,
    reads: ReadCounts,
    memory: MemoryBudget,
) -> None:
    """Feeds a stream with blocks from the log as fast as it is taken; counted in ``reads``."""
    hosted = peer.hosted
    if request.upto is None or not request.durable:
        raise Refused("bad-request", "a stream of columns needs upto, and durable=true")
    read = reads.begun()
    start = beginning(hosted, request)
    waiting = stream.backlog = Blocks(memory)  # counted as an observer until it is closed with its stream
    await hosted.commits.wait_durable(request.upto)
    replay = await from_log(hosted, replace(request, after=start), ColumnReplay)
    time = 0 if request.as_of is None else await trio.to_thread.run_sync(hosted.log.time_of, start)
    blocks = replay.blocks(request.upto)
    if request.as_of is not None:
        blocks = chain(replay.state(time), blocks)
    work, state = peer.work(), HeldState(memory)
    try:
        while True:
            async with slots.reading(), work:
                block = await trio.to_thread.run_sync(next, blocks, None)
            if block is None:
                break
            state.holds(replay.held)
            read.sent(block)
            waiting.extend(block)
            peer.wake(stream)
            hosted.flush()
            while stream.sated or waiting.full:
                await stream.wait_taken()
    finally:
        state.close()
    stream.complete = True
    peer.wake(stream)
    reads.ended(read, request)
    hosted.flush()


@dataclass(slots=True)
class Read:
    """One read: its rows and their bytes so far, and when it began."""

    began: float
    rows: int = 0
    bytes: int = 0

    def sent(self, block: ColumnBlock) -> None:
        """Notes one more block made for the reader."""
        self.rows += len(block)
        self.bytes += len(block.packed)


class ReadCounts:
    """The reads of one connection: rows and bytes that it was sent, which show what a query costs.

    Each connection that reads by the column has one fact in the space ``system``, with totals that grow as
    its reads end, and each read is a line in the log of the daemon.

    Always: the fact is there from the end of the first read until the connection ends.
    """

    def __init__(self, peer: Peer, system: SystemSpace) -> None:
        self._peer = peer
        self._system = system
        self._totals = [0, 0, 0, 0.0]
        self._fact: Record | None = None

    def begun(self) -> Read:
        """Returns a read that begins now."""
        return Read(trio.current_time())

    def ended(self, read: Read, request: ObserveOptions) -> None:
        """Counts a read that has ended; its last block or two may still wait in the stream."""
        seconds = trio.current_time() - read.began
        peer, session = self._peer, self._peer.own.number
        self._totals = [a + b for a, b in zip(self._totals, (1, read.rows, read.bytes, seconds), strict=True)]
        reads, rows, size, spent = self._totals
        fact = Record("read", session, peer.name, peer.hosted.name, reads, rows, size, round(spent * 1000))
        self._say(fact)
        logger.info(
            "session %d read %d rows, %d bytes, up to epoch %s of %s in %.3f s",
            session,
            read.rows,
            read.bytes,
            request.upto,
            unparse_pattern(request.pattern),
            seconds,
        )

    def end(self) -> None:
        """Retracts the fact, since the connection has ended."""
        self._say(None)

    def _say(self, fact: Record | None) -> None:
        before, self._fact = self._fact, fact
        facts = [[each] if each is not None else [] for each in (fact, before)]
        self._system.state(*facts)
