"""Replays keep to their bounds: counted in bytes that wait, and in parts of the log that are held."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

import dataspace
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from index.values.values import Record
from relay.delivery.memory import OVERHEAD
from relay.delivery.outbox import AHEAD_BYTES
from server.config.model import Limits
from tests.server.peers import EVERYTHING, PLENTY, Peer, opening
from tests.server.processes import DaemonProcess
from tests.server.streams.inside import Inside, Wire, inside

LARGE = 100_000
MESSAGES = 60


async def _filled(daemon: Inside, verb: int = SEND) -> int:
    """A log of large messages, or facts, each an epoch of its own; the last epoch."""
    for n in range(MESSAGES):
        value = Record("blob", n, "x" * LARGE)
        daemon.hosted.commit("durable:a", [(SEND, value) if verb == SEND else (ASSERT, n + 1, value)])
    await daemon.hosted.commits.wait_durable(daemon.hosted.space.epoch)
    return daemon.hosted.space.epoch


async def _at_rest(daemon: Inside) -> None:
    """Returns when no replay has a part of the log: all wait for their readers."""
    slots = daemon.daemon.replays
    while not daemon.daemon.delivery.budget.used or slots.value < daemon.daemon.config.limits.all_replays:
        await trio.lowlevel.checkpoint()


async def _heard(wire: Wire, streams: int) -> dict[int, int]:
    """How many values came on each stream, until all have ended."""
    came = dict.fromkeys(range(1, streams + 1), 0)
    ended = 0
    while ended < streams:
        packet = await wire.hear()
        if isinstance(packet, p.Values):
            came[packet.stream] += len(packet.values)
        assert not isinstance(packet, p.Error | p.Bye | None), packet
        ended += isinstance(packet, p.Done)
    return came


@pytest.mark.slow
@pytest.mark.parametrize("verb", [SEND, ASSERT])
@pytest.mark.parametrize("limits", [Limits(), Limits(all_replays=3), Limits(replays=2)])
async def test_streams_without_credit_hold_almost_nothing(tmp_path: Path, verb: int, limits: Limits) -> None:
    streams = 20
    with trio.fail_after(60):
        async with inside(tmp_path, limits) as daemon:
            last = await _filled(daemon, verb)
            wire = daemon.connect()
            await wire.greet()
            numbers = range(1, streams + 1)
            await wire.say(*[opening(n, EVERYTHING, items=0, after=0, upto=last) for n in numbers])
            await wire.say(*[p.Peek(n, 1) for n in numbers])
            promised = [await wire.hear() for _ in numbers]
            assert {each.stream for each in promised if isinstance(each, p.Available)} == {*numbers}
            await _at_rest(daemon)
            assert daemon.daemon.delivery.budget.used <= streams * (AHEAD_BYTES + LARGE + 2 * OVERHEAD)
            await wire.say(*[p.Ask(n, PLENTY, PLENTY) for n in numbers])
            assert await _heard(wire, streams) == dict.fromkeys(numbers, MESSAGES)
            await trio.testing.wait_all_tasks_blocked()
            assert daemon.daemon.delivery.budget.used == 0


@pytest.mark.slow
async def test_blocks_of_columns_count_and_are_given_back(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with inside(tmp_path) as daemon:
            last = await _filled(daemon)
            wire = daemon.connect()
            await wire.greet()
            numbers = range(1, 9)
            await wire.say(
                *[
                    opening(n, EVERYTHING, kind="columns", items=0, after=0, upto=last, durable=True)
                    for n in numbers
                ],
                *[p.Peek(n, 1) for n in numbers],
            )
            for _ in numbers:
                assert isinstance(await wire.hear(), p.Available)
            await trio.testing.wait_all_tasks_blocked()
            assert 0 < daemon.daemon.delivery.budget.used <= len(numbers) * (2 << 20), "one block each"
            await wire.say(*[p.Abort(n, "", True) for n in numbers])
            for _ in numbers:
                assert isinstance(await wire.hear(), p.Done)
            assert daemon.daemon.delivery.budget.used == 0 == daemon.daemon.delivery.budget.observers


@pytest.mark.slow
async def test_a_daemon_stays_small_under_many_streams_that_are_not_read(daemon: DaemonProcess) -> None:
    with trio.fail_after(120):
        async with dataspace.connect(daemon.url) as space, Peer(daemon.url) as peer:
            for n in range(200):
                await space.send(Record("blob", n, "x" * LARGE))
            last = await space.sync()
            await peer.greet()
            before = (await space.status())["memory_peak_bytes"]
            for n in range(1, 41):
                await peer.say(opening(n, EVERYTHING, items=0, after=0, upto=last), p.Peek(n, 1))
            for _ in range(40):
                assert isinstance(await peer.hear(), p.Available)
            told = await space.status()
            while told["replays_reading"]:
                told = await space.status()
            after = told["memory_peak_bytes"]
            assert isinstance(before, int) and isinstance(after, int)
            assert after - before < 150 << 20, "the log is 20 MB, and so would each of the streams be"
