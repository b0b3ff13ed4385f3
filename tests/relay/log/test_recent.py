"""What is told from memory is what a live observer was told, wherever the memory begins."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, strategies as st

from dataspace.kernel.changes import Changes, Epoch
from index.errors import UsageError
from index.patterns.patterns import capture
from index.patterns.skeletons import Skeleton, skeleton
from index.values.values import Record
from relay.log.log import Log
from relay.log.recent import TOLD, RecentEpochs, RecentReplay
from tests.relay.log.histories import append, epoch, flight, lived
from tests.relay.log.test_replay import ANY, PATTERNS, Turns, exactly, histories, logged

pytestmark = pytest.mark.usefixtures("home")


@given(histories(), st.integers(1, 12), st.integers(0, 13), st.data())
def test_it_tells_what_a_live_observer_was_told(
    turns: Turns, limit: int, restart: int, data: st.DataObject
) -> None:
    """Some epochs are of a former daemon, in its log; the first of the others are forgotten again."""
    space, epochs, witnesses = lived(turns, PATTERNS)
    former, later = epochs[:restart], epochs[restart:]
    begun = max([0, *[each.number for each in former]])
    recent = RecentEpochs(begun, changes=10 * limit)
    with logged(former, group=2, snapshot_after=-1) as log:
        asked = data.draw(st.integers(0, begun))
        read = recent.missing(log, asked)
        for number, each in enumerate(later):
            recent.add(each, 10)
            if read is not None and number == len(later) // 2:
                recent.put_before(asked, read)
            if data.draw(st.booleans()):
                recent.of_class(recent.after, "p")
    assert not len(recent) or recent.after < space.epoch
    after = data.draw(st.integers(min(recent.after, space.epoch), space.epoch))
    for pattern, witness in zip(PATTERNS, witnesses, strict=True):
        form = skeleton(pattern)
        retelling = _found(recent, form, after)
        told = None if retelling.is_too_much else retelling.epochs(partial(space.index.row_count, form))
        expected = [each for each in witness.told if each[0] > after]
        if recent.after <= after:
            assert told is not None and exactly(list(told)) == exactly(expected)
            values = retelling.values(partial(space.index.row_count, form))
            assert [each.packed for each in values] == [Changes(*each).packed for each in expected]


def _found(recent: RecentEpochs, form: Skeleton, after: int) -> RecentReplay:
    retelling = RecentReplay(recent, form, after)
    while retelling.step():
        pass
    return retelling


def test_it_is_bounded_in_changes_and_in_bytes() -> None:
    for recent in RecentEpochs(0, changes=10), RecentEpochs(0, size=50):
        for number in range(1, 100):
            recent.add(epoch(number, flight(number)), 10)
            if number % 7 == 0:
                recent.of_class(recent.after, "flight")
        assert len(recent) == 5 and recent.after == 94
        held = recent.of_class(recent.after, "flight")
        assert [each[0] for each in held] == [95, 96, 97, 98, 99]


def test_one_epoch_that_is_too_large_is_not_kept() -> None:
    recent = RecentEpochs(0, changes=10)
    recent.add(epoch(1, flight(1)), 10)
    recent.add(Epoch(2, 20, added=[flight(n) for n in range(20)]), 10)
    assert (len(recent), recent.after) == (0, 2)


def test_who_has_missed_much_is_told_from_the_log() -> None:
    recent = RecentEpochs(0)
    for number in range(1, TOLD + 2):
        recent.add(epoch(number, flight(number)), 10)
    assert _found(recent, skeleton(ANY), 0).is_too_much
    assert not _found(recent, skeleton(ANY), 1).is_too_much
    assert not _found(recent, skeleton(Record("other", ANY)), 0).is_too_much


def test_it_is_found_in_steps_while_epochs_come_and_go() -> None:
    recent = RecentEpochs(0, changes=2 * TOLD)
    for number in range(1, TOLD):
        recent.add(epoch(number, flight(number)), 10)
    form = skeleton(capture())
    retelling, steps = RecentReplay(recent, form, 0), 0
    while retelling.step(100):
        steps += 1
        if steps == 5:
            recent.add(epoch(TOLD, flight(TOLD)), 10)
    assert steps == (TOLD - 1) * 2 // 100
    assert [each[0] for each in retelling.epochs(lambda _: 1)] == [*range(1, TOLD + 1)]

    late = RecentReplay(recent, form, 0)
    assert late.step(100)
    for number in range(TOLD + 1, 3 * TOLD):
        recent.add(epoch(number, flight(number)), 10)
    while late.step():
        pass
    assert late.is_too_much, "what it had not looked at was forgotten"


def test_what_is_before_something_forgotten_is_not_read_again(log: Log) -> None:
    append(log, *[epoch(n, flight(n)) for n in range(1, 4)])
    recent = RecentEpochs(3, changes=4)
    assert [each[0] for each in recent.missing(log, 1) or ()] == [2, 3]
    assert recent.missing(log, 0) is None, "it is more than may be kept"
    assert recent.lacks(1) and not recent.lacks(0), "which need not be found out again"
    for number in range(4, 9):
        recent.add(epoch(number, flight(number)), 10)
    assert recent.missing(log, 2) is None
    recent.put_before(1, [])
    assert recent.after == 6


def test_only_what_is_installed_is_counted() -> None:
    space, _, _ = lived([], ())
    with pytest.raises(UsageError, match="no callback is installed"):
        space.index.row_count(skeleton(ANY), ())
