"""Many replays at once hold up no other client: a packet is answered after a few slices of their work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from index.values.values import Record
from tests.server.peers import opening, turn
from tests.server.streams.inside import Inside, Wire, inside

EPOCHS = 3_000
REPLAYS = 20
FEW = 6
"""Slices that may lie between a turn and its observation, while twenty replays want hundreds."""


async def _past(daemon: Inside) -> int:
    for n in range(EPOCHS):
        daemon.hosted.commit("durable:a", [(SEND, Record("past", n, "x"))])
    await daemon.hosted.commits.wait_durable(daemon.hosted.space.epoch)
    return daemon.hosted.space.epoch


async def _drain(wire: Wire, done: list[int]) -> None:
    while not isinstance(packet := await wire.hear(), p.Done):
        assert isinstance(packet, p.Values)
    done.append(1)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"net": True}, {"as_of": 1}], ids=["plain", "net", "state"])
async def test_a_turn_is_answered_between_two_slices_of_replays(tmp_path: Path, more: dict[str, Any]) -> None:
    async with inside(tmp_path) as daemon:
        last = await _past(daemon)
        lane = daemon.daemon.lane
        innocent = daemon.connect()
        await innocent.greet("~innocent")
        await innocent.say(opening(1, Record("mine", Record("$", None, None, Record("_")))))
        assert isinstance(await innocent.hear(), p.Values)
        done: list[int] = []
        waits: list[int] = []
        async with trio.open_nursery() as nursery:
            for n in range(REPLAYS):
                wire = daemon.connect()
                await wire.greet(f"~replay {n}")
                where = {"after": 1} | more if "as_of" not in more else more
                pattern = Record("past", Record("$", None, None, Record("_")))
                await wire.say(opening(1, pattern, upto=last, **where))
                nursery.start_soon(_drain, wire, done)
            sequence = 0
            while len(done) < REPLAYS:
                sequence += 1
                before = lane.statistics().slices
                await innocent.say(turn(sequence, (ASSERT, sequence, Record("mine", sequence))))
                while not isinstance(await innocent.hear(), p.Values):
                    pass  # it may be accepted first
                waits.append(lane.statistics().slices - before)
        assert lane.statistics().slices > 2 * REPLAYS, "there was work to be done in turns"
        assert max(waits) <= FEW
