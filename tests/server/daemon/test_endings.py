"""An owner with very many facts ends in several epochs, between which others have their turns."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from dataspace.kernel.actions import ASSERT
from dataspace.kernel.limits import SpaceLimits
from dataspace.wire import packets as p
from index.values.values import Record
from server.spaces.endings import STEP
from server.turns.publication import publish, stage
from tests.server.peers import opening, turn
from tests.server.streams.inside import Inside, Wire, inside

pytestmark = pytest.mark.slow

MOST = SpaceLimits().actions_per_turn
"""Facts that an owner may have to end in one epoch."""

ANY = Record("$", None, None, Record("_"))


async def _owned(daemon: Inside, client: str, count: int, owner: str = "") -> Wire:
    """A connection whose owner claims so many facts, in turns of a few thousand."""
    wire = daemon.connect()
    await wire.greet(client)
    for sequence, start in enumerate(range(0, count, 4096), 1):
        actions = [(ASSERT, n + 1, Record("owned", n)) for n in range(start, min(start + 4096, count))]
        await wire.say(turn(sequence, *actions, owner=owner))
    while len(daemon.hosted.space.index) < count:
        assert isinstance(await wire.hear(), p.Accepted)
    return wire


async def _ended(daemon: Inside) -> None:
    while daemon.hosted.endings:
        await trio.lowlevel.checkpoint()


async def test_a_large_session_ends_in_steps_and_others_go_on(tmp_path: Path) -> None:
    count = MOST + 3 * STEP
    with trio.fail_after(60):
        async with inside(tmp_path) as daemon, trio.open_nursery() as nursery:
            nursery.start_soon(daemon.hosted.endings.run)
            large = await _owned(daemon, "~large", count)
            innocent = daemon.connect()
            await innocent.greet("~innocent")
            await innocent.say(opening(1, Record("mine", ANY)))
            await innocent.hear()
            before = daemon.hosted.space.epoch
            await large.say(p.Bye("", ""))
            sequence, waits = 0, []
            while len(daemon.hosted.space.index) > 1:
                sequence += 1
                slices = daemon.daemon.lane.statistics().slices
                await innocent.say(turn(sequence, (ASSERT, sequence, Record("mine", sequence))))
                while not isinstance(await innocent.hear(), p.Values):
                    pass
                waits.append(daemon.daemon.lane.statistics().slices - slices)
                if not daemon.hosted.endings and sequence > 3:
                    break
            assert max(waits) <= 4
            epochs = [e for e in daemon.hosted.commits.recent.of_class(before, "owned") if e[4]]
            assert [len(e[4]) for e in epochs[:-1]] == [STEP] * (len(epochs) - 1)
            assert sum(len(e[4]) for e in epochs) == count
            assert [each for each in daemon.hosted.space.owners() if each != "session:0.2"] == []
            nursery.cancel_scope.cancel()


async def test_as_many_facts_as_a_turn_may_have_end_in_one_epoch(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        large = await _owned(daemon, "~large", MOST)
        before = daemon.hosted.space.epoch
        await large.say(p.Bye("", ""))
        while len(daemon.hosted.space.index):
            await trio.lowlevel.checkpoint()
        assert daemon.hosted.space.epoch == before + 1
        assert not daemon.hosted.endings


async def test_an_owner_that_comes_again_finds_nothing_of_the_one_before(tmp_path: Path) -> None:
    lease = "lease:60000:l"
    async with inside(tmp_path) as daemon:
        daemon.hosted.leases.grant(lease)
        await _owned(daemon, "~large", MOST + 2 * STEP, owner=lease)
        daemon.hosted.leases.release(lease)
        assert lease in daemon.hosted.endings.left and daemon.hosted.space.claims(lease)
        daemon.hosted.leases.grant(lease)
        daemon.hosted.commit(lease, [(ASSERT, 1, Record("owned", "anew"))])
        assert [*daemon.hosted.space.index.values()] == [Record("owned", "anew")]
        assert not daemon.hosted.endings
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.hosted.endings.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert [*daemon.hosted.space.claims(lease).values()] == [Record("owned", "anew")]


async def test_what_is_left_of_a_session_goes_with_the_next_start(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        large = await _owned(daemon, "~large", MOST + 2 * STEP)
        await large.say(p.Bye("", ""))
        while not daemon.hosted.endings:
            await trio.lowlevel.checkpoint()
        assert len(daemon.hosted.space.index) == MOST + STEP
    async with inside(tmp_path) as daemon:
        assert not len(daemon.hosted.space.index)


@pytest.mark.parametrize("replace", [False, True])
async def test_a_publication_for_an_owner_that_is_still_ending_finds_nothing_of_it(
    tmp_path: Path, replace: bool
) -> None:
    lease = "lease:60000:l"
    operations = (("retract", Record("owned", MOST)), ("assert", Record("owned", -1)))
    async with inside(tmp_path) as daemon:
        daemon.hosted.leases.grant(lease)
        await _owned(daemon, "~large", MOST + 2 * STEP, owner=lease)
        daemon.hosted.leases.release(lease)
        assert daemon.hosted.endings
        staged = operations[replace:]
        await stage(daemon.hosted, ("k",), staged)
        with trio.fail_after(60):
            await publish(daemon.hosted, [("k",)], owner=lease, client="c", sequence=1, replace=replace)
        assert list(daemon.hosted.space.claims(lease).values()) == [Record("owned", -1)]
