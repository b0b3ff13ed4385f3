"""Who waits for the disk is told after the disk, in order, and never when the disk has failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from dataspace.errors import Closed
from dataspace.kernel.changes import Claims, Epoch
from dataspace.version import compiled_parts
from index.values.values import Record, Value
from relay.delivery.gate import DurableGate
from relay.delivery.memory import MemoryBudget
from relay.log import writer
from relay.log.log import Log
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed
from tests.relay.log.histories import epoch, flight
from tests.relay.store.files import asked, storage_of


@asynccontextmanager
async def running(commits: GroupCommit) -> AsyncIterator[GroupCommit]:
    """The task that writes, closed at the end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits.run)
        yield commits
        await commits.close()


def numbered(first: int, last: int) -> list[Epoch]:
    return [epoch(number, flight(number)) for number in range(first, last + 1)]


# -- order --------------------------------------------------------------------------------------------


async def test_acceptance_follows_the_commit_that_has_the_epoch(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    storage_of(log)._writer.set_trace_callback(
        lambda statement: happened.append(statement.split(" VALUES")[0])
    )
    monkeypatch.setattr(writer, "reach", happened.append)
    async with running(GroupCommit(log, after_group=lambda: happened.append("flush"))) as commits:
        for each in numbered(1, 3):
            commits.submit(each, lambda done: happened.append(f"accepted {done.number}"))
        assert not happened, "submitting only queues"
        await commits.wait_durable(3)
    written = ["log-before-write", "BEGIN IMMEDIATE", "INSERT INTO segments", "COMMIT", "log-after-write"]
    assert happened == [*written, "accepted 1", "accepted 2", "accepted 3", "flush"]
    assert storage_of(log)._writer.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"


async def test_what_gathers_during_a_write_goes_in_one_more(log: Log) -> None:
    accepted: list[int] = []
    async with running(GroupCommit(log)) as commits:
        commits.submit(epoch(1, flight(1)), lambda done: accepted.append(done.number))
        await trio.testing.wait_all_tasks_blocked()
        for each in numbered(2, 50):
            commits.submit(each, lambda done: accepted.append(done.number))
        await commits.wait_durable(50)
        assert commits.statistics().groups <= 3
    assert accepted == list(range(1, 51))
    assert [each.number for each in log.read(0)] == accepted


# -- waiting ------------------------------------------------------------------------------------------


async def test_waiting_ends_with_the_epoch_waited_for(log: Log) -> None:
    async with running(GroupCommit(log)) as commits:
        seen: list[str] = []

        async def waits(wait: Callable[[int], object], at: int, name: str) -> None:
            await wait(at)  # type: ignore[misc]  # one of the two below
            seen.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits, commits.wait_durable, 1, "durable 1")
            nursery.start_soon(waits, commits.wait_beyond, 1, "beyond 1")
            await trio.testing.wait_all_tasks_blocked()
            assert not seen
            commits.submit(epoch(1, flight(1)))
            await commits.wait_durable(1)
            await trio.testing.wait_all_tasks_blocked()
            assert seen == ["durable 1"]
            commits.submit(epoch(2, flight(2)))
        assert seen == ["durable 1", "beyond 1"]
        assert commits.durable == 2


async def test_a_silent_turn_is_waited_for_though_its_number_is_durable(log: Log) -> None:
    commits = GroupCommit(log)
    silent = Epoch(0, 0, claims=[Claims("a", [(1, "x")])], silent=True)
    commits.submit(silent)
    with trio.move_on_after(0) as patience:
        await commits.wait_durable(0)
    assert patience.cancelled_caught
    async with running(commits):
        await commits.wait_durable(0)
        assert log.last_segment == 1


async def test_after_an_unclean_end_nothing_is_waited_for_that_never_was(tmp_path: Path) -> None:
    first = Log.open(tmp_path)
    second = Log.open(tmp_path)  # as after a crash: the first never closed
    commits = GroupCommit(second)
    assert commits.durable == second.next_epoch - 1 > 0
    await commits.wait_durable(second.next_epoch - 1)
    second.close()
    storage_of(first).close()


async def test_the_backlog_is_bounded_for_who_asks(log: Log) -> None:
    commits = GroupCommit(log, backlog_epochs=3, backlog_bytes=10_000)
    for each in numbered(1, 3):
        commits.submit(each)
    await commits.wait_room()
    commits.submit(epoch(4, Record("blob", b"x" * 20_000)))
    assert commits.statistics().backlog_epochs == 4
    with trio.move_on_after(0) as patience:
        await commits.wait_room()
    assert patience.cancelled_caught
    async with running(commits):
        await commits.wait_room()
        await commits.wait_durable(4)
        assert (commits.backlog_bytes, commits.statistics().backlog_epochs) == (0, 0)


async def test_the_tail_is_what_is_not_on_disk_yet(log: Log) -> None:
    commits = GroupCommit(log)
    for each in numbered(1, 4):
        commits.submit(each)
    assert [each.number for each in commits.tail(2)] == [3, 4]
    async with running(commits):
        await commits.wait_durable(4)
        assert commits.tail(0) == []
    assert [each.number for each in log.read(0)] == [1, 2, 3, 4]


# -- the end ------------------------------------------------------------------------------------------


async def test_a_gate_shows_an_epoch_after_its_commit_and_before_it_is_accepted(log: Log) -> None:
    happened: list[str] = []
    gate = DurableGate(MemoryBudget())
    gate.close()
    async with running(GroupCommit(log, gate=gate)) as commits:
        for each in numbered(1, 3):
            commits.submit(each, lambda done: happened.append(f"accepted {done.number}"))
            gate.after(each.number, happened.append, f"shown {each.number}")
        assert not happened
        await commits.wait_durable(3)
    assert happened == [*[f"shown {n}" for n in (1, 2, 3)], *[f"accepted {n}" for n in (1, 2, 3)]]


async def test_what_a_gate_keeps_counts_in_the_backlog(log: Log) -> None:
    gate = DurableGate(MemoryBudget())
    gate.close()
    async with running(GroupCommit(log, gate=gate, backlog_bytes=100_000)) as commits:
        commits.submit(epoch(1, flight(1)))
        gate.after(1, str, None, 50_000)
        behind = [commits.is_behind]
        gate.after(1, str, None, 50_000)
        behind.append(commits.is_behind)
        await commits.wait_room()
        assert [*behind, commits.is_behind] == [False, True, False]
        assert commits.durable == 1


@pytest.mark.skipif("log" in compiled_parts(), reason="constants of machine code cannot be replaced")
async def test_a_group_takes_less_where_a_gate_keeps_much_of_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ACCEPTED_AT_ONCE", 40)
    shown: list[int] = []
    steps: list[int] = []
    gate = DurableGate(MemoryBudget())
    gate.close()
    async with running(GroupCommit(log, gate=gate, after_group=lambda: steps.append(len(shown)))) as commits:
        for each in numbered(1, 50):
            commits.submit(each)
            for _ in range(3):
                gate.after(each.number, shown.append, each.number)
        await commits.wait_durable(50)
    assert shown == sorted([*range(1, 51)] * 3)
    assert max(b - a for a, b in pairwise([0, *steps])) <= 30, "three entries beside ten epochs"


async def test_what_a_gate_keeps_is_shown_to_nobody_when_the_disk_fails(log: Log) -> None:
    shown: list[int] = []
    gate = DurableGate(MemoryBudget())
    gate.close()
    commits = GroupCommit(log, gate=gate)
    storage_of(log)._writer.execute("PRAGMA query_only = 1")
    commits.submit(epoch(1, flight(1)))
    gate.after(1, shown.append, 1)
    with pytest.raises(LogFailed):
        await commits.run()
    assert not shown and len(gate) == 1


async def test_closing_writes_what_waits(log: Log) -> None:
    commits = GroupCommit(log)
    for each in numbered(1, 4):
        commits.submit(each)
    await commits.close()
    assert log.last == 4
    with pytest.raises(Closed):
        commits.submit(epoch(5, 5))
    with pytest.raises(Closed):
        await commits.wait_beyond(4)


async def test_a_disk_that_fails_fails_everybody_and_accepts_nothing_more(log: Log) -> None:
    storage_of(log)._writer.execute("PRAGMA query_only = 1")
    commits = GroupCommit(log)
    accepted: list[Epoch] = []
    commits.submit(epoch(1, Record("blob", b"x" * 100_000)), accepted.append)
    with pytest.RaisesGroup(pytest.RaisesExc(LogFailed), pytest.RaisesExc(LogFailed), flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.wait_durable, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(commits.run)
    assert not accepted
    assert log.last == 0
    with pytest.raises(LogFailed):
        commits.submit(epoch(2, 2))
    with pytest.raises(LogFailed):
        await commits.wait_beyond(0)


async def test_a_full_disk_is_waited_for(log: Log) -> None:
    (pages,) = storage_of(log).rows("PRAGMA page_count")[0]
    storage_of(log)._writer.execute(f"PRAGMA max_page_count = {pages + 60}")
    commits = GroupCommit(log, backlog_bytes=250_000)
    accepted: list[int] = []
    with trio.fail_after(20):
        async with running(commits):
            for number in range(1, 5):
                commits.submit(epoch(number, "x" * 100_000), lambda each: accepted.append(each.number))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commits.wait_durable, 2)
                await commits.wait_room()
            assert commits.is_behind or len(accepted) == 2, "it is the full disk that lets go"
            while len(accepted) < 2:  # noqa: ASYNC110  # a half of the group fits
                await trio.sleep(0.01)
            assert accepted == [1, 2] and log.last == 2
            await commits.wait_room()  # nobody is held up by it who only looks
            storage_of(log)._writer.execute(f"PRAGMA max_page_count = {pages + 6000}")
            await commits.wait_durable(4)
            assert accepted == [1, 2, 3, 4]
    assert [each.number for each in log.read(0)] == [1, 2, 3, 4]


async def test_closing_does_not_wait_for_room(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    (pages,) = storage_of(log).rows("PRAGMA page_count")[0]
    storage_of(log)._writer.execute(f"PRAGMA max_page_count = {pages}")
    commits = GroupCommit(log, state=dict)
    with trio.fail_after(20):
        async with running(commits):
            commits.submit(epoch(1, "x" * 100_000))
    assert "the log: 1 queued writes, none of them acknowledged, are discarded" in caplog.text


# -- snapshots ----------------------------------------------------------------------------------------


async def test_snapshots_follow_the_changes_and_the_end(log: Log) -> None:
    owners: dict[str, dict[int, Value]] = {"durable:EWR": {}}
    commits = GroupCommit(log, state=lambda: owners, snapshot_changes=10)
    async with running(commits):
        for each in numbered(1, 30):
            owners["durable:EWR"].update(each.claims[0].asserted)
            commits.submit(each)
            await commits.wait_durable(each.number)
    assert commits.statistics().snapshots >= 3
    assert log.snapshot_epoch() == 30
    asked(log, "UPDATE segments SET body = x'00'")
    assert log.recover().owners == owners, "no segment is needed"


async def test_a_snapshot_is_the_state_of_its_epoch_whatever_happens_meanwhile(log: Log) -> None:
    owners: dict[str, dict[int, Value]] = {"durable:EWR": {}}
    commits = GroupCommit(log, state=lambda: owners, snapshot_changes=1)
    async with running(commits):
        for each in numbered(1, 60):
            owners["durable:EWR"].update(each.claims[0].asserted)
            commits.submit(each)
            if each.number % 7 == 0:
                await trio.lowlevel.checkpoint()
    assert log.recover().owners == owners


async def test_who_hands_over_writes_none_at_the_end_and_who_goes_on_counts_what_it_lacks(log: Log) -> None:
    owners: dict[str, dict[int, Value]] = {"durable:EWR": {}}
    commits = GroupCommit(log, state=lambda: owners, snapshot_changes=10)
    async with running(commits):
        for each in numbered(1, 24):
            owners["durable:EWR"].update(each.claims[0].asserted)
            commits.submit(each)
            await commits.wait_durable(each.number)
        commits.end_snapshots()
    newest = log.snapshot_epoch()
    assert newest is not None and newest < 24
    assert log.changes_since_snapshot() == 24 - newest
    further = GroupCommit(
        log, state=lambda: owners, snapshot_changes=10, unsaved=log.changes_since_snapshot()
    )
    async with running(further):
        for each in numbered(25, newest + 10):  # fewer than make one due by themselves
            owners["durable:EWR"].update(each.claims[0].asserted)
            further.submit(each)
            await further.wait_durable(each.number)
        with trio.fail_after(20):
            while not further.statistics().snapshots:  # noqa: ASYNC110  # of the writer's task
                await trio.sleep(0.01)
        assert (log.snapshot_epoch() or 0) > newest
        further.end_snapshots()


async def test_without_changes_nothing_is_written_at_the_end(log: Log) -> None:
    commits = GroupCommit(log, state=dict)
    await commits.close()
    assert log.snapshot_epoch() is None
