"""Jobs that wait for long leave their places in memory alone: the log keeps their rows, also over starts."""

from __future__ import annotations

from pathlib import Path

import trio

from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.wire.consuming import ConsumeOptions
from index.values.values import Record
from relay.groups.state import PARKED, GroupStates
from server.groups.space.definitions import joined
from server.groups.space.group import WorkGroup
from server.groups.space.reading import read_behind
from tests.server.groups.spaces import BareSpace
from tests.server.groups.test_keeping import ALL_MAY_GO, PATTERN, Worker, send, settle, wait_live

HOUR = 3_600_000_000
FACTS = 4


async def snapshot(bare: BareSpace) -> None:
    """Writes a snapshot, and deletes all of the log that may go."""
    before = bare.commits.statistics().snapshots
    bare.leading.commits.snapshot_soon()
    with trio.fail_after(10):
        while bare.commits.statistics().snapshots == before:  # noqa: ASYNC110  # no event says so
            await trio.sleep(0.002)
    while bare.own_log.trim(ALL_MAY_GO, bare.now + 10**12).more:
        pass


async def put_off(bare: BareSpace) -> WorkGroup:
    """Makes a group with a window of four, of which four facts and eight messages have failed."""
    options = ConsumeOptions("w", PATTERN, backoff=(3_600.0,), attempts=0)
    group = await joined(bare.groups, options)
    object.__setattr__(group.core.options, "window", 4)
    for number in range(FACTS):
        bare.commit("boss", [(ASSERT, number, Record("job", 100 + number))])
    await send(bare, 0, 8)
    worker = Worker()
    bare.groups.join(group, worker, "session:1", ())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_behind, bare.groups)
        with trio.fail_after(10):
            while len(group.state.undone) < FACTS + 8 or group.core.postponed < FACTS + 8:
                bare.groups.deliver()
                got, worker.got = worker.got, []
                for each in got:
                    bare.groups.fail(group, each, reason="no")
                await trio.sleep(0.002)
        nursery.cancel_scope.cancel()
    bare.groups.leave(group, worker)
    return group


async def test_parked_jobs_outlive_a_snapshot_and_come_with_the_values_of_their_rows(tmp_path: Path) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        group = await put_off(bare)
        parked = group.state.parked
        assert len(parked) >= 9 and all(isinstance(each.value, bytes) for each in parked)
        await snapshot(bare)
        assert bare.own_log.oldest <= parked[0].at[0], "the log keeps their rows"
        bare.commit("boss", [(RETRACT, 1), (RETRACT, 2)])
        bare.commit("boss", [(ASSERT, 9, Record("job", 102))])
        await bare.commits.wait_durable(bare.space.epoch)
        nursery.cancel_scope.cancel()
    rows = dict(bare.own_log.registers.of(GroupStates).rows())
    assert PARKED in rows
    bare.own_log.close()

    again = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again.commits.run)
        nursery.start_soon(read_behind, again.groups)
        group = again.groups.find("w")
        assert [each.at for each in group.state.parked] == [each.at for each in parked]
        worker = Worker()
        again.groups.join(group, worker, "session:1", ())
        await wait_live(group)
        again.groups.deliver()
        assert settle(again, group, worker) == [102], "the others wait; this one came again"
        again.now += 2 * HOUR
        found: list[int] = []
        with trio.fail_after(10):
            while group.state.undone:
                again.groups.tick()
                found += settle(again, group, worker) if worker.got else []
                await trio.sleep(0.002)
        assert sorted(found) == [*range(8), 100, 103]
        assert group.state.parked == [] and group.core.held == 0
        await snapshot(again)
        await send(again, 50, 3)
        await snapshot(again)
        assert again.own_log.oldest > parked[-1].at[0], "nothing needs their rows any more"
        nursery.cancel_scope.cancel()


async def test_parked_jobs_whose_rows_are_deleted_are_lost_and_the_group_says_so(tmp_path: Path) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        group = await put_off(bare)
        parked = len(group.state.parked)
        group.state.parked_after = None  # as beyond `log.keep_bytes_for_readers`
        await snapshot(bare)
        await send(bare, 50, 1)
        group.state.parked_after = None
        await snapshot(bare)
        nursery.start_soon(read_behind, bare.groups)
        worker = Worker()
        bare.groups.join(group, worker, "session:1", ())
        bare.now += 2 * HOUR
        found: list[int] = []
        with trio.fail_after(10):
            while group.state.undone or group.core.to_read:
                bare.groups.tick()
                found += settle(bare, group, worker) if worker.got else []
                await trio.sleep(0.002)
        assert len(found) == FACTS + 8 + 1 - parked
        lost = [fact for fact in bare.space.claims("group:w").values() if isinstance(fact, Record)]
        assert [fact.fields[0] for fact in lost if fact.label == "group_lost"] == ["w"]
        nursery.cancel_scope.cancel()


async def put_all_off(bare: BareSpace, group: WorkGroup, worker: Worker, postponed: int) -> None:
    """Gives everything back that a worker gets, until so many items are postponed."""
    with trio.fail_after(10):
        while group.core.postponed < postponed:
            bare.groups.deliver()
            got, worker.got = worker.got, []
            for each in got:
                bare.groups.fail(group, each, reason="no")
            await trio.sleep(0.002)


async def test_postponed_jobs_leave_room_in_the_share_of_memory_of_their_group(tmp_path: Path) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        nursery.start_soon(read_behind, bare.groups)
        bare.groups.items.limit = 100_000
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN, backoff=(3_600.0,), attempts=0))
        worker = Worker()
        bare.groups.join(group, worker, "session:1", ())
        for number in range(100):
            bare.commit("boss", [(ASSERT, number, Record("job", f"{number} {'x' * 400}"))])
        await bare.commits.wait_durable(bare.space.epoch)
        await put_all_off(bare, group, worker, 100)
        assert bare.groups.items.used < 100_000
        await send(bare, 0, 1)
        with trio.fail_after(10):
            while not worker.got:
                bare.groups.deliver()
                await trio.sleep(0.002)
        nursery.cancel_scope.cancel()


async def test_a_group_of_postponed_jobs_whose_share_of_memory_shrinks_hands_out_what_comes(
    tmp_path: Path,
) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        nursery.start_soon(read_behind, bare.groups)
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN, backoff=(3_600.0,), attempts=0))
        worker = Worker()
        bare.groups.join(group, worker, "session:1", ())
        for number in range(40):
            bare.commit("boss", [(ASSERT, number, Record("job", f"{number} {'x' * 1_000}"))])
        await bare.commits.wait_durable(bare.space.epoch)
        await put_all_off(bare, group, worker, 40)
        assert not group.state.parked
        bare.groups.items.limit = 100_000  # as if others had taken the rest
        assert group.is_full
        await send(bare, 0, 1)
        with trio.fail_after(10):
            while not worker.got:
                bare.groups.deliver()
                await trio.sleep(0.002)
        assert len(group.state.parked) == 40 and group.core.postponed == 40
        nursery.cancel_scope.cancel()
