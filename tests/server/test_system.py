"""The space in which the daemon describes itself: facts of now, each stated and withdrawn once."""

from __future__ import annotations

from itertools import count

from dataspace.kernel.changes import Changes
from index.patterns.patterns import capture
from index.values.values import Record
from server.system import SystemSpace


class Seen:
    """An observer that keeps what came and what went."""

    def __init__(self) -> None:
        self.epochs: list[tuple[list[object], list[object]]] = []

    def offer(self, changes: Changes) -> None:
        self.epochs.append(([row[0] for row in changes.added], [row[0] for row in changes.removed]))


def test_what_appears_and_vanishes_at_once_is_one_epoch() -> None:
    ticks = count(1_000)
    system, seen = SystemSpace(lambda: next(ticks)), Seen()
    system.space.observe(capture(), seen)
    one, two = Record("topic", "one"), Record("topic", "two")
    system.state([one], [])
    system.state([two], [one])
    assert seen.epochs == [([one], []), ([two], [one])]


def test_what_was_never_stated_is_not_withdrawn() -> None:
    system, seen = SystemSpace(lambda: 5), Seen()
    system.space.observe(capture(), seen)
    system.state([], [Record("topic", "one")])
    assert not seen.epochs
    assert not len(system.space.index)


def test_epochs_begin_at_the_time_of_the_start() -> None:
    system = SystemSpace(lambda: 7_000)
    system.state([Record("topic", "one")], [])
    assert system.space.epoch == 7_001


def test_what_two_callers_state_is_there_until_both_have_withdrawn_it() -> None:
    ticks, seen = count(1_000), Seen()
    flushed: list[int] = []
    system = SystemSpace(lambda: next(ticks), lambda: flushed.append(len(seen.epochs)))
    system.space.observe(capture(), seen)
    shared, own, later = Record("lag", 1), Record("lag", 2), Record("lag", 3)
    one, two = dict[Record, int](), dict[Record, int]()
    system.replace(one, {shared})
    system.replace(two, {shared, own})
    system.replace(one, {later})
    system.replace(one, {later})
    system.replace(two, set())
    assert seen.epochs[0] == ([shared], []) and seen.epochs[1:3] == [([own], []), ([later], [])]
    assert (seen.epochs[3][0], sorted(map(str, seen.epochs[3][1]))) == ([], sorted(map(str, [shared, own])))
    assert len(seen.epochs) == 4
    assert flushed == [1, 2, 3, 4], "each is sent as soon as it is there: no request may come for long"
