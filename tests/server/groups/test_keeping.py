"""The log keeps what a group has not read, and a group reads from it what is too much for memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dataspace.kernel.actions import SEND
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from index.values.values import Record
from relay.groups.members import JobDelivery
from relay.log.retention import Retention
from server.groups.space.definitions import joined
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.reading import read_behind
from tests.server.groups.spaces import BareSpace

PATTERN = parse_pattern("job($id)")
ALL_MAY_GO = Retention(age=0.0)


class Worker(StreamMember):
    """A member that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[JobDelivery] = []
        super().__init__(
            ("session", 1), 1_000, "me", lambda _group, each: self.got.append(each), lambda _: None
        )


def settle(bare: BareSpace, group: WorkGroup, worker: Worker) -> list[int]:
    """Reports everything that a worker has as done; returns the numbers of the jobs."""
    got, worker.got = worker.got, []
    flat = tuple([part for each in got for part in (*each.item.at, each.token)])
    done = bare.groups.judge([(group.name, flat)], "me")
    bare.commit("results", [(SEND, Record("settled", len(got)))], notes=bare.groups.notes(done))
    bare.groups.settled(done)
    values = [each.item.value for each in got]
    return [value.fields[0] for value in values if isinstance(value, Record)]  # type: ignore[misc]  # numbers


async def send(bare: BareSpace, first: int, count: int) -> None:
    for number in range(first, first + count):
        bare.commit("boss", [(SEND, Record("job", number))])
    await bare.commits.wait_durable(bare.space.epoch)


async def wait_live(group: WorkGroup) -> None:
    while not group.state.is_live:  # noqa: ASYNC110  # no event says so
        await trio.sleep(0.002)


async def test_unread_epochs_stay_and_undone_items_outlive_the_log(tmp_path: Path) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN))
        first = group.state.read[0] + 1
        await send(bare, 0, 5)
        bare.leading.commits.snapshot_soon()
        while not bare.commits.statistics().snapshots:  # noqa: ASYNC110  # no event says so
            await trio.sleep(0.002)
        await send(bare, 5, 5)
        far = bare.now + 10**12
        while bare.own_log.trim(ALL_MAY_GO, far).more:
            pass
        assert bare.own_log.oldest <= first, "an unread epoch was deleted"
        nursery.start_soon(read_behind, bare.groups)
        await wait_live(group)
        bare.leading.commits.snapshot_soon()
        while bare.commits.statistics().snapshots < 2:  # noqa: ASYNC110  # as above
            await trio.sleep(0.002)
        await send(bare, 10, 1)
        while bare.own_log.trim(ALL_MAY_GO, far).more:
            pass
        assert bare.own_log.oldest > first, "what is in a checkpoint holds nothing back"
        worker = Worker()
        bare.groups.join(group, worker, "session", ())
        bare.groups.deliver()
        assert settle(bare, group, worker) == list(range(11))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("by", ["items", "bytes"])
async def test_a_full_group_reads_the_rest_from_the_log(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        nursery.start_soon(read_behind, bare.groups)
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN))
        if by == "items":
            object.__setattr__(group.options, "window", 7)
        else:
            monkeypatch.setattr("server.groups.space.group.WINDOW_BYTES", 6 * 1_000)
        await wait_live(group)
        for start in range(0, 60, 3):
            actions = [(SEND, Record("job", start + more, "x" * 1_000)) for more in range(3)]
            bare.commit("boss", actions)
        await bare.commits.wait_durable(bare.space.epoch)
        assert len(group.state.undone) <= 7, "more than its window"
        worker, seen = Worker(), list[int]()
        bare.groups.join(group, worker, "session", ())
        with trio.fail_after(20):
            while len(seen) < 60:
                bare.groups.deliver()
                seen += settle(bare, group, worker) if worker.got else []
                assert len(group.state.undone) <= 7
                await trio.sleep(0.001)
            await wait_live(group)
        assert seen == list(range(60))
        nursery.cancel_scope.cancel()


async def test_a_postponed_item_costs_nothing_until_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, ticks = BareSpace(tmp_path), list[int]()
    really = bare.groups.tick

    def tick(now: float | None = None) -> None:
        ticks.append(1)
        really(now)

    monkeypatch.setattr(bare.groups, "tick", tick)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        nursery.start_soon(read_behind, bare.groups)
        nursery.start_soon(bare.groups.run)
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN))
        worker = Worker()
        bare.groups.join(group, worker, "session", ())
        await wait_live(group)
        await send(bare, 0, 2)
        bare.groups.deliver()
        for delivery, after in zip(worker.got, (60, 30), strict=True):
            bare.groups.fail(group, delivery, reason="no", after=after, blame=False)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert len(ticks) < 10
        bare.now += 31_000_000
        bare.groups.tick()
        assert [each.item.value for each in worker.got[2:]] == [Record("job", 1)]
        nursery.cancel_scope.cancel()
