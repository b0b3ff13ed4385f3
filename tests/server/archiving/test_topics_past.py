"""A topic lets epochs go while its past is looked for: no answer has a gap, wherever its epochs are then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dataspace.errors import Refused
from dataspace.topics.messages import Batch
from dataspace.topics.times import Antichain
from relay.archive.topics.past import TopicArchive
from relay.journal import history
from relay.topics import steps
from relay.topics.feed import CatchUp, Feed
from relay.topics.steps import StepLog
from server.topics.catalogue import TopicEntry
from server.topics.durable import DurableTopics
from tests.relay.archive.test_archived_topics import Topics

AGO = 3


class Home:
    """A durable topic whose oldest epochs go, as a follower sees it: its archive is read anew when lent."""

    def __init__(self, folder: Path) -> None:
        self.topics = Topics(folder)
        self.step_log = self.topics.step_log
        self.known: Any = None
        self.entry = TopicEntry(self.step_log, 0)
        self.durable = DurableTopics(cast(Any, SimpleNamespace(is_listed=lambda _: True)), lambda: None)
        self.durable.writer = cast(Any, SimpleNamespace(journal=self.topics.journal))
        self.durable.lend = self._lend

    def _lend(self, step_log: StepLog) -> None:
        step_log.archive = self.known = self.newest

    def move(self, count: int = 9) -> None:
        """Completes and archives epochs and lets all but three go; the archive that is known stays."""
        self.topics.complete(count)
        self.newest = TopicArchive(self.topics.archive())
        self.step_log.archive = self.known
        self.topics.let_go(self.step_log.completed - 3)

    async def told(self) -> list[int]:
        """Returns the times of the epochs that a subscriber gets which begins at ``AGO``."""
        said: list[int] = []

        def tell(message: object) -> None:
            if isinstance(message, Batch):
                said.append(cast(int, message.time))

        catching = CatchUp(self.step_log, 1, [0], [AGO], tell, lambda: None)
        feed = Feed(lambda: None)
        await self.durable.read_past(self.entry, feed, catching, cast(Any, None))
        return said


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.topics.journal.close()


def moving(
    home: Home, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, times: int
) -> Callable[[], int]:
    """Has the topic move each time before a function is called, a few times; returns how often it did."""
    whole, left = getattr(where, name), [times]

    def first(*of: object, **named: object) -> object:
        if left[0]:
            left[0] -= 1
            home.move()
        return whole(*of, **named)

    monkeypatch.setattr(where, name, first)
    return lambda: times - left[0]


@pytest.mark.parametrize("points", [("beginning",), ("steps_after",), ("beginning", "lend")], ids="-".join)
@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("gone", [False, True])
async def test_a_subscriber_is_told_all(
    home: Home, points: Sequence[str], times: int, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "TAIL_BYTES", 0)  # so that the disk is read
    if gone:
        home.move()
        home._lend(home.step_log)
    else:  # the journal has all at first
        home.topics.complete(9)
    moved = [
        moving(home, monkeypatch, home.durable if each == "lend" else history, each, times) for each in points
    ]
    assert await home.told() == [*range(AGO, home.step_log.completed)]
    assert moved[0]() >= min(times, 1)


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_number_is_found_where_the_archive_has_it(
    home: Home, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.move()
    home._lend(home.step_log)
    moving(home, monkeypatch, history, "number_at", times)
    found = await home.durable.read_since(home.step_log, Antichain([AGO]), history.number_at)
    assert found == AGO


async def test_what_no_archive_has_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.topics.complete(9)

    def lets_go(journal: object, **named: Any) -> int:
        home.durable.lend = None
        home.topics.let_go(6, held=False)
        monkeypatch.undo()
        return history.beginning(journal, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(history, "beginning", lets_go)
    with pytest.raises(Refused, match="epoch-gone: times before epoch 7 went"):
        await home.told()
