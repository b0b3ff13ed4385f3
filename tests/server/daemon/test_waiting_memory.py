"""What waits for clients that do not read is counted as it lies in memory, bounded, and given back.

A daemon in a process of its own, limited to some hundred MiB, and clients that take nothing: each load would
need several times the limit.  The quick form runs with the other slow tests, the whole in ``make torture``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, RemoteSpace
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Value
from tests.server.peers import EVERYTHING, Peer, opening
from tests.server.processes import DaemonProcess

ALONE = pytest.mark.torture(long=True)
LONG = "TORTURE_ROUNDS" in os.environ
OBSERVERS = 300 if LONG else 150
MESSAGES = 4_641 if LONG else 600
SIZE = 400_000
REPLAYS = 90
PAST = 300 if LONG else 50
"""Messages in the log that the replays begin with."""

MEMORY = 300 << 20
"""What the daemon may account for: half of it may wait for observers."""

LEAST = 64 << 10
SLACK = 64 << 20
NESTS = 20_000
NESTED = 60 if LONG else 14
"""Messages of so many small records each."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    config = tmp_path / "dataspace.toml"
    config.write_text(f"[limits]\nmemory = {MEMORY}\n")
    process = DaemonProcess(tmp_path / "data", "--config", str(config))
    process.start()
    yield process
    assert process.stop() == 0
    said = [line for line in process.errors.splitlines() if " WARNING slow turn: " not in line]
    assert said == ["dataspace: SIGTERM, stopping"], "no session has failed"


async def _figures(space: RemoteSpace) -> dict[str, int]:
    told = await space.status()
    return {str(name): value for name, value in told.pairs() if value.__class__ is int}


async def _judge(space: RemoteSpace, when: str, before: dict[str, int] | None = None) -> dict[str, int]:
    """Returns the figures of the daemon, whose resident memory must be what it accounts for.

    With ``before``, this must be so for what it has grown by.
    """
    figures = await _figures(space)
    resident, accounted = figures["memory_bytes"], figures["memory_accounted_bytes"]
    if before is not None:
        resident -= before["memory_bytes"]
        accounted -= before["memory_accounted_bytes"]
    waiting = figures["waiting_bytes"]
    print(f"{when}: {resident >> 20} MiB resident, {accounted >> 20} accounted, {waiting >> 20} wait")
    assert resident <= 1.5 * accounted + SLACK, when
    return figures


async def _until_given_back(space: RemoteSpace, before: dict[str, int]) -> None:
    """Returns when nothing waits any more and the memory is the system's again."""
    with trio.fail_after(120):
        while True:
            figures = await _figures(space)
            if not figures["waiting_bytes"] and figures["memory_bytes"] < before["memory_bytes"] + SLACK:
                return
            await trio.sleep(0.2)


@asynccontextmanager
async def _stalled(url: str, patterns: list[Value], policy: str = "conflate") -> AsyncIterator[list[Peer]]:
    """Peers with one stream each, which take the state at the beginning and nothing after it."""
    async with AsyncExitStack() as stack:
        peers = []
        for at, pattern in enumerate(patterns):
            peer = await stack.enter_async_context(Peer(url))
            await peer.greet(f"~stalled {at}")
            await peer.say(opening(1, pattern, items=1, policy=policy))
            assert isinstance(await peer.hear(), p.Values)
            peers.append(peer)
        yield peers


async def _failures(peers: list[Peer]) -> list[str]:
    """What the streams ended with, of those that ended; each is still answered."""
    said = []
    for peer in peers:
        await peer.say(p.Ping(7))
        while not isinstance(packet := await peer.hear(), p.Pong):
            assert isinstance(packet, p.Error), packet
            assert packet.code == "slow-observer"
            said.append(packet.text)
    return said


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize(
    "policy",
    [*("conflate", "wait"), *(pytest.param(each, marks=ALONE) for each in ("fail", "drop"))],
)
async def test_messages_for_stalled_observers_are_bounded_and_given_back(
    daemon: DaemonProcess, policy: str
) -> None:
    """Each of them has a pattern of its own, and keeps to its own bounds."""
    patterns: list[Value] = [Record("blob", at, capture()) for at in range(OBSERVERS)]
    async with dataspace.connect(daemon.url) as space:
        before = await _judge(space, "before")
        async with _stalled(daemon.url, patterns, policy=policy) as peers:
            for n in range(MESSAGES):
                await space.send(Record("blob", n % OBSERVERS, f"{n} {'x' * SIZE}"))
                if n % 200 == 199:
                    await _judge(space, f"{n + 1} messages")
            after = await _judge(space, "sent")
            assert after["waiting_bytes"] <= MEMORY // 2 + OBSERVERS * (LEAST + SIZE)
            failures = await _failures(peers)
            assert bool(failures) == (policy in ("conflate", "fail")), "no other policy loses a stream"
            assert all(" messages" in each and "for all observers, limit" in each for each in failures)
            assert after["slow_failed_streams"] == len(failures)
        await _until_given_back(space, before)


@pytest.mark.slow
async def test_one_message_for_many_patterns_is_refused_to_those_for_whom_no_memory_is_left(
    daemon: DaemonProcess,
) -> None:
    """One epoch alone may be of any size; but not for all of them together."""
    patterns: list[Value] = [Record("blob", capture(), *[capture()] * at) for at in range(120)]
    async with dataspace.connect(daemon.url) as space:
        before = await _judge(space, "before")
        async with _stalled(daemon.url, patterns) as peers:
            await space.send(Record("blob", "x" * 4_000_000, *range(120)))
            after = await _judge(space, "sent")
            assert 0 < after["waiting_bytes"] <= MEMORY // 2
            failures = await _failures(peers)
            assert 60 < len(failures) < 120
        await _until_given_back(space, before)


@pytest.mark.slow
@pytest.mark.torture
async def test_what_is_small_on_the_wire_is_no_larger_where_it_waits(daemon: DaemonProcess) -> None:
    """Records within records take twenty times their wire form as values."""
    nest: Value = tuple([Record("a", Map({}), (n,)) for n in range(NESTS)])
    patterns: list[Value] = [Record("nest", at, capture()) for at in range(20)]
    async with dataspace.connect(daemon.url) as space:
        for n in range(NESTED):  # the latest epochs are kept as values, observed or not
            await space.send(Record("nest", n % 20, nest))
        before = await _figures(space)
        async with _stalled(daemon.url, patterns):
            for n in range(NESTED):
                await space.send(Record("nest", n % 20, nest))
            after = await _judge(space, "grown by", before)
            assert after["waiting_bytes"] > NESTED * NESTS
        await _until_given_back(space, before)


@pytest.mark.slow
@pytest.mark.parametrize("facts", [False, True])
async def test_replays_that_are_not_read_hold_little_ahead(daemon: DaemonProcess, facts: bool) -> None:
    """They have endless credit, and sockets that nobody reads."""
    async with dataspace.connect(daemon.url) as space, AsyncExitStack() as stack:
        for n in range(PAST):
            value = Record("blob", n, "x" * SIZE)
            if facts:
                await space.retract(await space.assert_(value))
            else:
                await space.send(value)
        last = await space.sync()
        before = await _judge(space, "before")
        peers = []
        for at in range(REPLAYS):
            peer = await stack.enter_async_context(Peer(daemon.url, window=4096))
            await peer.greet(f"~replay {at}")
            await peer.say(opening(1, EVERYTHING, after=0, upto=last))
            peers.append(peer)
        reading = 1
        while reading:
            await trio.sleep(0.5)
            reading = (await _figures(space))["replays_reading"]
        after = await _judge(space, "nobody reads")
        assert after["waiting_bytes"] <= REPLAYS * (1 << 20)
        assert after["memory_bytes"] - before["memory_bytes"] < REPLAYS * (2 << 20) + SLACK
        read = 0
        while read < (2 if facts else 1) * PAST:
            packet = await peers[0].hear()
            assert isinstance(packet, p.Values)
            read += len(packet.values)
        assert isinstance(await peers[0].hear(), p.Done), "and who reads gets all of it"
        await stack.aclose()
        await _until_given_back(space, before)
