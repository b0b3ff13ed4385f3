"""What the writer of topics lets go, where there is an archive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest
import trio

from dataspace.errors import Refused
from dataspace.topics.times import Order
from relay.journal.journal import Journal
from relay.journal.reader import recovered
from relay.journal.writer import TopicWriter
from relay.log.retention import Retention
from relay.topics.steps import LAST, OVERHEAD, Completed, StepLog
from relay.topics.topic import Topic

COUNT = 30
SIZE = 1000 + OVERHEAD
RETAIN = 8 * SIZE


@asynccontextmanager
async def writing(
    place: Path,
    retention: Retention,
    age: float | None = None,
    needed: Callable[[StepLog], int | None] = lambda _ledger: None,
) -> AsyncIterator[tuple[TopicWriter, StepLog]]:
    """A topic without an epoch, and the writer of its journal."""
    journal = Journal.open(place)
    writer = TopicWriter(journal, lambda _: None, lambda: retention, needed)
    step_log = StepLog(Topic("t", Order(0), 1, lasting=True), 1, 1, RETAIN, writer.submit_step, age=age)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        writer.submit_state(step_log)
        step_log.join(7)
        yield writer, step_log
        await writer.wait_durable()
        nursery.cancel_scope.cancel()
    journal.close()
    check(place, step_log)


def check(place: Path, step_log: StepLog) -> None:
    """Every step that is not archived is on disk, and every epoch from the oldest on."""
    journal = Journal.open(place)
    again = recovered(journal, 1)
    assert (again.oldest, again.archived) == (step_log.oldest, step_log.archived)
    assert [each.number for each, _ in journal.epochs(1, step_log.oldest)] == [
        *range(step_log.oldest, COUNT + 1)
    ]
    if step_log.oldest <= step_log.archived[1] + 1:
        assert journal.first_step(1) <= step_log.archived[0] + 1
    else:
        assert journal.first_step(1) > step_log.archived[0] + 1, "what was let go is not on disk any more"
    journal.close()


async def complete(writer: TopicWriter, step_log: StepLog) -> None:
    for time in range(COUNT):
        step_log.finish(7, time, bytes(1000), [(time, -1), (time + 1, +1)])
        await writer.wait_durable()
    writer.submit_state(step_log)
    await writer.wait_durable()  # what the last step let go is done by then


async def test_what_is_not_archived_stays(tmp_path: Path) -> None:
    async with writing(tmp_path, Retention(archived=True)) as (writer, step_log):
        await complete(writer, step_log)
        assert (step_log.oldest, step_log.size) == (1, COUNT * SIZE)
        for archived in (0, 1, 5, 22):
            await writer.note_archived(step_log, archived + 1, archived)
            assert step_log.oldest == archived + 1
        await writer.note_archived(step_log, COUNT + 1, COUNT)
        assert step_log.oldest == 23, "the budget holds eight"


@pytest.mark.parametrize(("archived", "waiting"), [*product([0, 5, 20, COUNT], [0, 4, 100])])
async def test_what_waits_for_the_archive_is_bounded(tmp_path: Path, archived: int, waiting: int) -> None:
    retention = Retention(archived=True, archive_size=waiting * SIZE)
    async with writing(tmp_path, retention) as (writer, step_log):
        step_log.archived = (archived + 1, archived)
        await complete(writer, step_log)
        held = COUNT - step_log.oldest + 1
        assert held <= 8 + waiting or step_log.oldest == 1
        assert held >= 7 and (held >= 8 + waiting or step_log.oldest <= archived + 1 or waiting == 0)


async def test_what_is_too_old_waits_for_the_archive(tmp_path: Path) -> None:
    async with writing(tmp_path, Retention(archived=True), age=0.0) as (writer, step_log):
        await complete(writer, step_log)
        assert not await writer.trim(step_log) and step_log.oldest == 1
        step_log.archived, step_log.archive_seen = (12, 11), True
        assert await writer.trim(step_log) and step_log.oldest == 12
        assert not await writer.trim(step_log)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_deletion_that_is_under_way_hides_nothing_that_may_go(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with writing(tmp_path, Retention(archived=True)) as (writer, step_log):
        await complete(writer, step_log)
        whole, left = writer.journal.epochs, [times]

        def epochs(slot: int, first: int = 1, last: int = LAST) -> Iterator[tuple[Completed, int]]:
            if left[0] and last == LAST:  # the segment that was found is deleted before it is read
                left[0] -= 1
                raise Refused("epoch-gone", "it was deleted while it was read")
            return whole(slot, first, last)

        monkeypatch.setattr(writer.journal, "epochs", epochs)
        await writer.note_archived(step_log, COUNT + 1, COUNT)
        assert step_log.oldest == 24, "nothing else would have it go"


async def test_nothing_goes_before_the_archive_was_seen(tmp_path: Path) -> None:
    async with writing(tmp_path, Retention(archived=True)) as (writer, step_log):
        await complete(writer, step_log)
        step_log.archived = (COUNT + 1, COUNT)  # as after a start
        assert not await writer.trim(step_log) and step_log.oldest == 1
        await writer.note_archived(step_log, 6, 5)
        assert step_log.oldest == 6, "another archive has less"


@pytest.mark.parametrize(
    ("needed", "age", "archived", "bound"),
    [
        (None, None, None, 0),
        *[(needed, None, None, bound) for needed in (0, 5, 20) for bound in (None, 4)],
        *[(needed, 0.0, None, bound) for needed in (0, 20) for bound in (None, 0)],
        *[(needed, age, 10, None) for needed in (0, 20) for age in (None, 0.0)],
        (COUNT, 0.0, None, None),
    ],
)
async def test_what_groups_need_stays_unless_it_is_archived_or_too_much(
    tmp_path: Path, needed: int | None, age: float | None, archived: int | None, bound: int | None
) -> None:
    size = Retention().reader_size if bound is None else bound * SIZE
    retention = Retention(archived=archived is not None, reader_size=size)
    async with writing(tmp_path, retention, age, lambda _: needed) as (writer, step_log):
        if archived is not None:
            step_log.archived, step_log.archive_seen = (archived + 1, archived), True
        await complete(writer, step_log)
        while await writer.trim(step_log):
            pass
        may_go = COUNT if needed is None else max(needed, archived or 0)
        if needed is not None and bound is not None:
            may_go = max(may_go, COUNT - 8 - bound)  # of these 8 are within the budget of the topic
        if archived is not None:
            may_go = min(may_go, archived)
        wanted = COUNT if age is not None else COUNT - 8
        gone = step_log.oldest - 1
        assert gone <= max(may_go, 0) + (1 if bound is not None and archived is None else 0), (gone, may_go)
        assert gone >= min(may_go, wanted), (gone, may_go, wanted)
