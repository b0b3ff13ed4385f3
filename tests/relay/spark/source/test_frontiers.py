"""A daemon that does not answer holds up nobody else's news, and is not forgotten either."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator

import pytest

from dataspace.client.bulk.frontiers import LogFrontier
from dataspace.errors import Unreachable
from relay.spark.source.frontiers import FrontierWatch, together

FOR_EVER = 60.0


class Daemons:
    """Daemons that are at an epoch, and may be silent until they are let speak."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = list(epochs)
        self.silent = {at: threading.Event() for at in range(len(epochs))}
        self.asked: list[int] = []
        self.away: set[int] = set()
        for each in self.silent.values():
            each.set()

    def ask(self, at: int, after: int | None, timeout: float) -> LogFrontier:
        self.asked.append(at)
        self.silent[at].wait(FOR_EVER)
        if at in self.away:
            raise Unreachable(f"nobody is daemon {at}")
        return LogFrontier(self.epochs[at], 1, "s")


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    made = Daemons(1, 1)
    yield made
    for each in made.silent.values():
        each.set()


def beyond(watch: FrontierWatch[LogFrontier], *after: int, timeout: float = 0.0) -> list[int]:
    told = watch.beyond(after, lambda at, now: now.epoch > after[at], timeout)
    return [each.epoch for each in told]


def test_all_are_asked_at_the_same_time() -> None:
    met = threading.Barrier(3, timeout=FOR_EVER)
    assert sorted(together([met.wait, met.wait, met.wait])) == [0, 1, 2]


def test_whoever_fails_fails_who_asks_for_all(daemons: Daemons) -> None:
    daemons.away.add(1)
    with pytest.raises(Unreachable, match="nobody is daemon 1"):
        FrontierWatch(2, daemons.ask).now()


def test_news_of_one_do_not_wait_for_another(daemons: Daemons) -> None:
    watch = FrontierWatch(2, daemons.ask)
    assert beyond(watch, 1, 1) == [1, 1]
    daemons.silent[1].clear()
    daemons.epochs[0] = 2
    assert beyond(watch, 1, 1, timeout=FOR_EVER) == [2, 1]


def test_who_does_not_answer_in_time_is_where_it_was_and_is_not_asked_again(daemons: Daemons) -> None:
    watch = FrontierWatch(2, daemons.ask)
    beyond(watch, 1, 1)
    daemons.silent[1].clear()
    asked = daemons.asked.count(1)
    assert beyond(watch, 1, 1) == [1, 1]
    assert beyond(watch, 1, 1) == [1, 1]
    assert daemons.asked.count(1) == asked + 1
    daemons.epochs[1] = 5
    daemons.silent[1].set()
    assert beyond(watch, 1, 1, timeout=FOR_EVER) == [1, 5]


def test_who_was_never_heard_of_is_waited_for(daemons: Daemons) -> None:
    daemons.silent[1].clear()
    threading.Timer(0.1, daemons.silent[1].set).start()
    assert beyond(FrontierWatch(2, daemons.ask), 0, 0) == [1, 1]


def test_who_has_been_away_for_too_long_fails_who_asks_next(daemons: Daemons) -> None:
    watch = FrontierWatch(2, daemons.ask)
    beyond(watch, 1, 1)
    daemons.silent[1].clear()
    daemons.away.add(1)
    assert beyond(watch, 1, 1) == [1, 1]
    daemons.silent[1].set()
    with pytest.raises(Unreachable, match="nobody is daemon 1"):
        beyond(watch, 1, 1, timeout=FOR_EVER)


def test_a_watch_travels_without_its_questions() -> None:
    watch = FrontierWatch(2, _told)
    watch.beyond([0, 0], lambda _at, _now: True, 0.0)
    again = pickle.loads(pickle.dumps(watch))
    assert beyond(again, 0, 0) == [0, 1]


def _told(at: int, after: int | None, timeout: float) -> LogFrontier:
    return LogFrontier(at, 1, "s")
