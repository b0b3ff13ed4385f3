"""A stream with a pace is sent what has changed once in so many seconds, and misses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, UsageError
from dataspace.client.epochs.assembling import Assembler
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.kernel.changes import EpochChanges
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Value
from relay.delivery.pacing import Pacing
from relay.delivery.queue_members import Delivery
from server.connections.dispatch import ClientPeer
from server.sessions.peer import PEERS
from server.streams.observations import OBSERVATIONS
from tests.server.proxies import Proxy
from tests.server.streams.inside import Inside, Wire, inside

PATTERN = Record("v", capture("n"))
PLENTY = 1 << 40


class Paced:
    """One client of a daemon whose clock of turns the test moves on."""

    def __init__(self, daemon: Inside, now: list[float]) -> None:
        self.daemon = daemon
        self.now = now
        self.wire: Wire = daemon.connect()
        self._facts = self._pings = 0
        self._assembler = Assembler(("n",))

    async def open(self, **options: Value) -> None:
        await self.wire.say(p.Open(1, Map({"pattern": PATTERN, "quiet": True, **options}), PLENTY, PLENTY))

    def turn(self, message: int | None = None) -> int:
        """Asserts a fact, or sends a message; returns the epoch."""
        self._facts += 1
        action = (SEND, Record("v", message)) if message else (ASSERT, self._facts, Record("v", self._facts))
        epoch = self.daemon.hosted.commit("durable:a", [action])
        assert epoch is not None
        self.daemon.hosted.flush()
        return self.daemon.hosted.space.epoch

    def go_on(self, seconds: float) -> None:
        self.now[0] += seconds
        while self.daemon.daemon.delivery.pacing.step():
            pass
        self.daemon.hosted.flush()

    async def heard(self) -> list[EpochChanges]:
        """Returns the epochs that have been sent."""
        self._pings += 1
        await self.wire.say(p.Ping(self._pings))
        found: list[EpochChanges] = []
        with trio.fail_after(10):
            while (packet := await self.wire.hear()) != p.Pong(self._pings):
                assert isinstance(packet, p.Values), packet
                for value in packet.values:
                    epoch = self._assembler.feed(value)
                    if epoch is not None:
                        found.append(epoch)
        return found


@asynccontextmanager
async def paced(data: Path) -> AsyncIterator[Paced]:
    now = [1000.0]
    async with inside(data) as daemon:
        daemon.daemon.delivery = Delivery(daemon.daemon.delivery.budget, pacing=Pacing(lambda: now[0]))
        made = Paced(daemon, now)
        await made.wire.greet()
        yield made


async def test_what_waits_comes_as_one_in_its_turn_and_the_first_after_a_rest_at_once(tmp_path: Path) -> None:
    async with paced(tmp_path) as client:
        await client.open(pace=1000)
        (state,) = await client.heard()
        assert [*state.added] == []
        client.go_on(2)
        client.turn()
        (first,) = await client.heard()
        assert (first.first, first.number, first.flags) == (1, 1, 0)
        for n in range(2, 6):
            client.turn(message=n * 100)
            client.turn()
            client.go_on(0.125)
        assert await client.heard() == []
        client.go_on(1)
        (merged,) = await client.heard()
        assert (merged.first, merged.number, merged.conflated) == (2, 9, True)
        assert [row[0] for row in merged.messages] == [200, 300, 400, 500]
        assert len(merged.added) == 4


async def test_a_stream_that_waits_for_its_turn_is_not_said_to_know_all(tmp_path: Path) -> None:
    """Else a client that comes back would go on after what it has not seen."""
    async with paced(tmp_path) as client:
        await client.open(pace=1000)
        await client.heard()
        epoch = client.turn()
        await client.daemon.hosted.commits.wait_durable(epoch)
        (connection,) = client.daemon.daemon.parts[PEERS].values()
        assert isinstance(connection, ClientPeer)
        assert await client.heard() == []
        assert connection.feeder(OBSERVATIONS).reached() == []
        client.go_on(2)
        assert [each.number for each in await client.heard()] == [epoch]


async def test_a_stream_that_is_aborted_before_its_turn_leaves_nothing(tmp_path: Path) -> None:
    async with paced(tmp_path) as client:
        await client.open(pace=60_000)
        await client.heard()
        client.turn()
        pacing = client.daemon.daemon.delivery.pacing
        assert len(pacing) == 1
        await client.wire.say(p.Abort(1, "", True))
        assert await client.wire.hear() == p.Done(1)
        assert len(pacing) == 0
        client.go_on(100)
        assert await client.heard() == []


@pytest.mark.parametrize("policy", ["wait", "fail", "drop"])
async def test_another_policy_is_refused_before_anything_is_sent(url: str, policy: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(UsageError, match="needs the policy conflate"):
            space.observe("v($n)", pace=1, policy=policy)
        async with space.observe("v($n)", pace=0.01) as changes:
            assert await changes.next_epoch() is not None


async def test_a_daemon_refuses_what_no_client_should_ask_for(tmp_path: Path) -> None:
    async with paced(tmp_path) as client:
        await client.open(pace=60_001)
        assert await client.wire.hear() == p.Error(
            1, "bad-request", "pace must be 0 to 60000 milliseconds, got 60001"
        )


@pytest.mark.slow
async def test_over_lost_lines_its_epochs_follow_one_another_and_lead_to_the_state(
    url: str, proxy: Proxy
) -> None:
    known: set[object] = set()
    said: list[object] = []
    at = -1
    async with dataspace.connect(url) as near, dataspace.connect(proxy.url, grace=30) as far:
        async with far.observe("v($n)", pace=0.02, quiet=True) as changes, trio.open_nursery() as nursery:

            async def write() -> None:
                claim = None
                for n in range(300):
                    fact = Record("v", n)
                    claim = await (near.assert_(fact) if claim is None else near.replace(claim, fact))
                    if n % 10 == 0:
                        await near.send(Record("v", -n))
                    if n % 100 == 50:
                        proxy.cut()
                await near.send(Record("v", "end"))

            nursery.start_soon(write)
            with trio.fail_after(30):
                async for epoch in changes.epochs():
                    assert at < epoch.first <= epoch.number
                    at = epoch.number
                    for row in epoch.added:
                        assert row not in known
                        known.add(row)
                    said += [row[0] for row in epoch.messages]
                    known -= set(epoch.removed)
                    if "end" in said:
                        break
        assert known == {(299,)} == set(await near.matches("v($n)"))
        assert said == [*(-n for n in range(0, 300, 10)), "end"]


async def test_the_space_system_can_be_observed_with_a_pace(url: str) -> None:
    async with (
        dataspace.connect(url, space="system") as system,
        system.observe("session($n)", pace=0.01, quiet=True) as sessions,
    ):
        epoch = await sessions.next_epoch()
        assert epoch is not None and epoch.added
