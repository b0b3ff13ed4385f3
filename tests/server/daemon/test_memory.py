"""Many stalled observers of each policy, cost a stated amount of memory.

The quick form runs with the other slow tests; ``make torture`` has 200 of each while a million changes pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, RemoteSpace
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from tests.server.peers import Peer, opening
from tests.server.processes import DaemonProcess

LONG = "TORTURE_ROUNDS" in os.environ
EACH = 200 if LONG else 25
"""Stalled observers of each policy."""

CHANGES = 1_000_000 if LONG else 60_000
POLICIES = ("wait", "conflate", "fail", "drop")
PATTERNS = 8 if LONG else len(POLICIES) * EACH
"""How many are different: observers of the same pattern share what waits."""

PADDING = "x" * 100

ROOM = 512 << 20
"""What may wait for all observers together."""

OWN = 150 << 20
"""What else the daemon may grow by: its own queues, the log's, and what Python does not give back."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path / "data")
    process.start()
    yield process
    assert process.stop() == 0
    assert process.errors == "dataspace: SIGTERM, stopping\n", "no session has failed"


async def _stall(peer: Peer, start: int) -> None:
    """Opens streams of all policies and takes one value of each: the state, which is empty."""
    await peer.greet(f"~stalled {start}")
    for at in range(len(POLICIES) * EACH):
        pattern = Record("n", capture("k"), capture("n"), capture(f"p{at % PATTERNS}"))
        policy = POLICIES[at % len(POLICIES)]
        await peer.say(opening(at + 1, pattern, items=1, policy=policy))
        assert isinstance(await peer.hear(), p.Values)


async def _figures(space: RemoteSpace) -> dict[str, int]:
    told = await space.status()
    return {str(name): value for name, value in told.pairs() if value.__class__ is int}


async def _write(space: RemoteSpace) -> None:
    """Facts of a bounded state, replaced again and again, and a message in every hundred changes."""
    for start in range(0, CHANGES, 100):
        draft = space.draft()
        for n in range(start, start + 49):
            if start:
                draft.retract(n - 99)
            draft.assert_(Record("n", n % 7, n, PADDING), handle=n + 1)
        draft.send(Record("n", -1, start, PADDING))
        await space.submit(draft)
    await space.drain(600)


@pytest.mark.slow
@pytest.mark.torture
async def test_stalled_observers_of_each_policy_are_bounded_and_the_others_miss_nothing(
    daemon: DaemonProcess,
) -> None:
    async with (
        dataspace.connect(daemon.url, owner="writer") as writer,
        dataspace.connect(daemon.url) as good,
        good.observe("n(-1, $start)", quiet=True) as observation,
        Peer(daemon.url) as peer,
    ):
        await observation.next_epoch()
        await _stall(peer, 0)
        before = await _figures(writer)
        seen: list[object] = []

        async def follow() -> None:
            while len(seen) < CHANGES // 100:
                epoch = await observation.next_epoch()
                assert epoch is not None and not epoch.conflated
                seen.extend(row[0] for row in epoch.messages)

        with trio.fail_after(3600 if LONG else 240):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await _write(writer)
        after = await _figures(writer)
        grown = after["memory_bytes"] - before["memory_bytes"]
        print(f"{grown >> 20} MiB for {after['waiting_bytes'] >> 20} MiB that wait; {after}")
        assert seen == list(range(0, CHANGES, 100)), "others are not affected"
        assert after["waiting_bytes"] <= ROOM + len(POLICIES) * EACH * (64 << 10)
        assert grown < 2 * after["waiting_bytes"] + OWN, "bounded by what is said to wait"
        assert after["slow_conflated_epochs"] and after["slow_dropped_changes"]
        assert after["slow_fallen_behind"] == after["slow_failed_streams"] == EACH or LONG
