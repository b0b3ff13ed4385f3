"""What both writers promise: no entry is called durable that is not, and no task waits for a dead disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from dataspace.errors import Closed
from dataspace.topics.times import Order
from relay.journal.journal import Journal
from relay.journal.writer import TopicWriter
from relay.log.log import Log
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed
from relay.store.sqlite.storage import Storage
from relay.topics.steps import StepLog
from relay.topics.topic import Topic
from tests.relay.log.histories import epoch
from tests.relay.store.files import storage_of


class Kind:
    """A writer with its file; ``submit`` queues about 100 kB, ``wait`` waits for all that was queued."""

    def __init__(self, writer: GroupCommit | TopicWriter, storage: Storage) -> None:
        self.writer, self.storage = writer, storage
        self.count = 0

    def submit(self) -> None:
        self.count += 1
        if isinstance(self.writer, GroupCommit):
            self.writer.submit(epoch(self.count, "x" * 100_000))
        else:
            topic = Topic("t" * 100_000, Order(0), 1, lasting=True)
            self.writer.submit_state(StepLog(topic, self.count, self.count, 1 << 20, self.writer.submit_step))

    async def wait(self) -> None:
        if isinstance(self.writer, GroupCommit):
            await self.writer.wait_durable(self.count)
        else:
            await self.writer.wait_durable()

    @contextmanager
    def pages(self, more: int) -> Iterator[None]:
        """Lets the file grow by so many pages of 4 KiB at most."""
        (pages,) = self.storage.rows("PRAGMA page_count")[0]
        self.storage._writer.execute(f"PRAGMA max_page_count = {pages + more}")
        yield
        self.storage._writer.execute(f"PRAGMA max_page_count = {1 << 30}")


def _log(place: Path) -> tuple[Kind, Callable[[], None]]:
    log = Log.open(place)
    return Kind(GroupCommit(log), storage_of(log)), log.close


def _journal(place: Path) -> tuple[Kind, Callable[[], None]]:
    journal = Journal.open(place)
    return Kind(TopicWriter(journal, lambda moved: None), storage_of(journal)), journal.close


@pytest.fixture(params=[_log, _journal])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made, close = request.param(tmp_path)
    yield made
    close()


async def test_a_failed_disk_ends_every_wait_and_accepts_nothing_more(kind: Kind) -> None:
    kind.storage._writer.execute("PRAGMA query_only = 1")
    kind.submit()
    with trio.fail_after(20):
        with pytest.RaisesGroup(
            pytest.RaisesExc(LogFailed), pytest.RaisesExc(LogFailed), flatten_subgroups=True
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kind.wait)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(kind.writer.run)
        with pytest.raises(LogFailed):
            await kind.wait()
    with pytest.raises(LogFailed):
        kind.submit()


async def test_what_a_failed_disk_has_lost_is_never_called_durable(tmp_path: Path) -> None:
    kind, close = _journal(tmp_path)
    assert isinstance(kind.writer, TopicWriter)
    kind.storage._writer.execute("PRAGMA query_only = 1")
    kind.submit()
    with pytest.raises(LogFailed):
        await kind.writer.run()
    called: list[str] = []
    kind.writer.when_durable(lambda: called.append("durable"))
    assert not called
    close()


@pytest.mark.slow  # each attempt on a full disk is half a second after the one before
async def test_a_full_disk_is_tried_with_less(kind: Kind) -> None:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            with kind.pages(60):
                for _ in range(4):
                    kind.submit()
                nursery.start_soon(kind.writer.run)
                while kind.writer.full is None or kind.writer.statistics().groups < 1:  # noqa: ASYNC110  # a half fits
                    await trio.sleep(0.01)
            await kind.wait()
            await kind.writer.close()
    assert kind.writer.full is None


async def test_closing_does_not_wait_for_free_space(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    with trio.fail_after(20), kind.pages(0):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kind.writer.run)
            kind.submit()
            await kind.writer.close()
    assert f"{kind.writer.NAME}: 1 queued writes, none of them acknowledged, are discarded" in caplog.text
    with pytest.raises(Closed):
        await kind.wait()
