"""A replay in columns: blocks of the log, up to an epoch that the reader names.

It never continues with live changes, and never conflates.

Always: blocks are made by a thread, and only as many as the stream has capacity for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import trio

from dataspace.errors import Refused
from relay.delivery.memory import HeldState, MemoryBudget
from relay.delivery.outbox import OutStream
from relay.log.columns import Blocks, ColumnReplay
from server.sessions.peer import Peer
from server.streams.read_counts import ReadCounts
from server.streams.replay import ReplaySlots
from server.streams.request import StreamRequest
from server.streams.start import beginning, from_log, time_of


async def replay_columns(
    peer: Peer,
    stream: OutStream,
    request: StreamRequest,
    *,
    slots: ReplaySlots,
    reads: ReadCounts,
    memory: MemoryBudget,
) -> None:
    """Feeds a stream with blocks from the log as fast as it is taken; counted in ``reads``."""
    home = peer.home
    if request.upto is None or not request.durable:
        raise Refused("bad-request", "a stream of columns needs upto, and durable=true")
    read = reads.begun()
    start = beginning(home, request)
    waiting = stream.backlog = Blocks(memory)  # counted as an observer until it is closed with its stream
    await home.commits.wait_durable(request.upto)
    replay = await from_log(home, replace(request, after=start), ColumnReplay)
    time = 0 if request.as_of is None else await trio.to_thread.run_sync(time_of, home, start)
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
            home.flush()
            while stream.sated or waiting.full:
                await stream.wait_taken()
    finally:
        state.close()
    stream.complete = True
    peer.wake(stream)
    reads.ended(read, request)
    home.flush()
