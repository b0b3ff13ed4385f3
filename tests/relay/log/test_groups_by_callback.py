"""Groups that begin at the end of a pass, and groups of the task, write each epoch once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import trio

from dataspace.transport.reactor import Reactor
from relay.log.log import Log
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed
from relay.store.group_writer import LEAST_TRIED, MOST_TRIED, QUICK_SECONDS, SLOW_SECONDS, STREAK
from tests.relay.log.histories import epoch, flight
from tests.relay.store.files import storage_of

STEPS = ("pass", "two", "task", "both", "snapshot", "wait", "busy")
"""A turn in a pass; two in one; one of a task; a pass and a task at once; a snapshot; all on disk; the log is
used by another thread."""


class Writing:
    """A log that is written in both ways; ``quick`` as if its disk had proved to be so."""

    def __init__(self, log: Log, quick: bool) -> None:
        self.log = log
        self.reactor = Reactor()
        self.commits = GroupCommit(log, state=dict, snapshot_changes=1_000_000)
        self.commits.reactor = self.reactor
        self.commits.is_quick = quick
        self.submitted = self.size = 0
        self.accepted: list[int] = []

    def submit(self) -> None:
        self.submitted += 1
        value = "x" * self.size if self.size else flight(self.submitted)
        self.commits.submit(epoch(self.submitted, value), self._accept)

    def _accept(self, done: object) -> None:
        self.accepted.append(done.number)  # type: ignore[attr-defined]  # an epoch
        assert self.commits.durable >= self.accepted[-1]

    async def in_pass(self, *functions: Callable[[], None]) -> None:
        """Calls functions in one pass of the reactor."""
        called = trio.Event()
        for function in functions:
            self.reactor.soon(function)
        self.reactor.soon(called.set)
        await called.wait()

    async def do(self, step: str) -> None:
        match step:
            case "pass":
                await self.in_pass(self.submit)
            case "two":
                await self.in_pass(self.submit, self.submit)
            case "task":
                self.submit()
            case "both":
                self.reactor.soon(self.submit)
                self.submit()
                await self.in_pass(lambda: None)
            case "snapshot":
                self.commits.snapshot_soon()
            case "wait":
                with trio.fail_after(20):
                    await self.commits.wait_durable(self.submitted)
            case "busy":
                self.log.reserve()  # else the submission would do it, and wait
                self.log._writing.acquire()
                await self.in_pass(self.submit)
                await trio.sleep(0.001)
                self.log._writing.release()

    async def run(self, steps: Iterator[str] | tuple[str, ...]) -> None:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.commits.run)
                nursery.start_soon(self.reactor.run)
                for step in steps:
                    await self.do(step)
                await self.commits.close()
                nursery.cancel_scope.cancel()


@contextmanager
def writing(place: Path, quick: bool) -> Iterator[Writing]:
    log = Log.open(place)
    yield Writing(log, quick)
    log.close()


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("length", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
async def test_each_epoch_is_accepted_once_in_order_and_on_disk(
    tmp_path: Path, home: str, quick: bool, length: int
) -> None:
    steps_used = STEPS if length < 3 else STEPS[: 3 if home == "postgres" else 5]
    for at, steps in enumerate(product(steps_used, repeat=length)):
        place = tmp_path / str(at)
        with writing(place, quick) as made:
            await made.run(steps)
            assert made.accepted == list(range(1, made.submitted + 1)), steps
            assert made.log.last == made.submitted, steps
            statistics = made.commits.statistics()
            assert statistics.backlog_epochs == statistics.backlog_bytes == 0
            assert statistics.epochs == statistics.changes == made.submitted


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("first", ["pass", "task"])
async def test_a_failed_disk_ends_the_writer_and_accepts_nothing(
    tmp_path: Path, quick: bool, first: str
) -> None:
    with writing(tmp_path, quick) as made:
        storage_of(made.log)._writer.execute("PRAGMA query_only = 1")
        with pytest.raises(BaseExceptionGroup) as raised:  # of the writer, and of the wait for it
            await made.run((first, "wait"))
        assert raised.value.split(LogFailed)[1] is None, "nothing else"
        assert made.accepted == []
        with pytest.raises(LogFailed):
            made.submit()


@pytest.mark.slow  # each attempt on a full disk is half a second after the one before
@pytest.mark.parametrize("quick", [False, True])
async def test_a_full_disk_is_waited_for_and_nothing_is_lost(tmp_path: Path, quick: bool) -> None:
    with writing(tmp_path, quick) as made:
        ask = storage_of(made.log)._writer.execute
        (pages,) = ask("PRAGMA page_count").fetchone()
        made.size = 20_000

        async def free() -> None:
            while made.commits.full is None:  # noqa: ASYNC110  # what the writer finds out
                await trio.sleep(0.01)
            assert not made.accepted
            ask(f"PRAGMA max_page_count = {1 << 30}")

        ask(f"PRAGMA max_page_count = {pages}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(free)
            await made.run(("pass", "two", "task", "both", "wait", "pass", "wait"))
    assert made.accepted == list(range(1, made.submitted + 1))


@pytest.mark.usefixtures("home")
async def test_what_is_submitted_by_a_callback_is_written_as_well(tmp_path: Path) -> None:
    for quick in (False, True):
        with writing(tmp_path / str(quick), quick) as made:
            left = [5]

            def again(_done: object, made: Writing = made, left: list[int] = left) -> None:
                made.accepted.append(made.commits.durable)
                if left[0]:
                    left[0] -= 1
                    made.submitted += 1
                    made.commits.submit(epoch(made.submitted, flight(made.submitted)), again)

            made.submitted = 1
            begin = partial(made.commits.submit, epoch(1, flight(1)), again)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.commits.run)
                nursery.start_soon(made.reactor.run)
                await made.in_pass(begin)
                with trio.fail_after(20):
                    while len(made.accepted) < 6:  # noqa: ASYNC110  # the last callback is waited for
                        await trio.sleep(0.001)
                await made.commits.close()
                nursery.cancel_scope.cancel()
            assert made.accepted == [1, 2, 3, 4, 5, 6]


def test_the_loop_writes_while_the_disk_is_quick_and_tries_less_often_in_vain(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    commits = GroupCommit(log)
    quick, slow, between = QUICK_SECONDS / 2, SLOW_SECONDS * 2, QUICK_SECONDS * 2

    def judged(*took: float) -> bool:
        for seconds in took:
            commits._judge(seconds, 0)
        return commits.is_quick

    def tries(took: float) -> int:
        count = 0
        while not judged(took):
            count += 1
        return count + 1

    assert commits.is_quick, "the first write shows it"
    assert not judged(slow)
    assert [(tries(each), judged(slow)) for each in (slow, quick, between, quick)] == [
        (LEAST_TRIED * 2 ** (at + 1), False) for at in range(4)
    ], "whatever the thread takes, which waits for the interpreter as well"
    for _ in range(20):
        assert tries(slow) <= MOST_TRIED
        assert not judged(between)
    assert tries(quick) == MOST_TRIED
    assert judged(*[quick] * STREAK) and judged(between), "once is an exception"
    assert not judged(between), "twice is none"
    assert tries(quick) == 2 * LEAST_TRIED, "as it had proved to be quick"
    assert judged(*[quick] * STREAK) and not judged(slow), "one that is slow is enough"
    log.close()


def test_what_a_group_costs_by_its_entries_is_no_wait(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    commits = GroupCommit(log)
    kept = []
    for entries in (1000, 1):
        commits._judge(SLOW_SECONDS, entries)
        kept.append(commits.is_quick)
    assert kept == [True, False]
    log.close()
