"""A bag counts facts by their captures, and cursors stay within their bounds."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest
from hypothesis import given, strategies as st

from index.errors import InternalError
from index.values.values import key
from relay.log.cursors import Cursors, RowCounts, net_counts

pytestmark = pytest.mark.usefixtures("home")

rows = st.sampled_from([(1,), (1.0,), (True,), ("1",)])


@given(st.lists(rows))
def test_only_the_first_appears_and_only_the_last_vanishes(added: list[tuple[int]]) -> None:
    bag = RowCounts()
    for at, row in enumerate(added):
        assert bool(bag.add_all([row])) == (key(row) not in set(map(key, added[:at])))
    assert len(bag) == len(set(map(key, added)))
    for at, row in enumerate(added):
        assert bool(bag.remove_all([row])) == (key(row) not in set(map(key, added[at + 1 :])))
    assert not bag.rows()


def test_what_was_never_there_cannot_vanish() -> None:
    with pytest.raises(InternalError, match="never there"):
        RowCounts().remove_all([(1,)])


def test_a_copy_is_changed_alone() -> None:
    bag = RowCounts()
    bag.change([(1,), (1,), (2,)], [])
    copy = bag.copy()
    copy.change([(3,)], [(1,), (1,)])
    assert (bag.rows(), copy.rows()) == ([(1,), (2,)], [(2,), (3,)])
    assert not bag.remove_all([(1,)])


@given(st.lists(rows), st.lists(st.tuples(st.lists(rows), st.booleans())))
def test_net_counts_lead_back_from_a_later_bag(
    before: list[tuple[int]], turns: list[tuple[list[tuple[int]], bool]]
) -> None:
    """Each turn adds some rows, and takes away as many of the oldest, or none."""
    bag, there = RowCounts(), list(before)
    bag.add_all(before)
    epochs = []
    for added, removes in turns:
        there += added
        removed = [there.pop(0) for _ in range(len(added) if removes else 0)]
        epochs.append((added, removed))
        bag.change(added, removed)
    for by, row in net_counts(epochs).values():
        bag.change([row] * -by, [row] * by)
    bag.remove_all(before)
    assert not len(bag)


def bag_of(count: int) -> RowCounts:
    bag = RowCounts()
    bag.change([(at,) for at in range(count)], ())
    return bag


def test_the_nearest_is_the_last_before_or_else_the_first_after() -> None:
    cursors = Cursors()
    for epoch in (3, 5, 9):
        cursors.leave("p", epoch, bag_of(epoch))
    found = [cursors.find("p", at) for at in (2, 3, 4, 8, 100)]
    assert [each and each[0] for each in found] == [3, 3, 3, 5, 9]
    assert cursors.find("q", 3) is None


def test_the_least_recently_used_go_first() -> None:
    cursors = Cursors(rows=10, cursors=3)
    for epoch in (1, 2, 3):
        cursors.leave("p", epoch, bag_of(1))
    cursors.find("p", 1)
    cursors.leave("p", 4, bag_of(1))
    assert [cursors.find("p", at)[0] for at in (1, 2, 3, 4)] == [1, 1, 3, 4]  # type: ignore[index]
    cursors.leave("q", 1, bag_of(9))
    assert len(cursors) == 2, "ten rows at most"
    cursors.leave("q", 2, bag_of(11))
    assert cursors.find("q", 2) == cursors.find("q", 1), "too large to be kept at all"


def test_their_bytes_are_counted_and_bounded() -> None:
    def large(count: int) -> RowCounts:
        bag = RowCounts()
        bag.change([("x" * 1_000, at) for at in range(count)], ())
        return bag

    cursors = Cursors(size=100_000)
    for epoch in range(1, 5):
        cursors.leave("p", epoch, large(10))
        assert cursors.bytes == sum([large(10).bytes] * len(cursors)) <= 100_000
    assert len(cursors) == 3 and large(10).bytes > 30_000
    cursors.leave("p", 4, bag_of(1))
    assert cursors.bytes == 2 * large(10).bytes + bag_of(1).bytes, "another one in place of one"
    cursors.leave("q", 1, large(40))
    assert cursors.find("q", 1) is None, "too large to be kept at all"
    cursors.clear()
    assert cursors.bytes == 0


def test_of_all_threads_that_want_a_state_one_prepares_it() -> None:
    """And if that one fails, the next one does; another state waits for none of them."""
    cursors, together, made = Cursors(), Barrier(8), list[int]()

    def ask(at: int, pattern: str) -> None:
        together.wait()
        try:
            with cursors.preparing(pattern, 1):
                if cursors.find(pattern, 1) is None:
                    made.append(at)
                    if len(made) == 1:
                        raise LookupError
                    cursors.leave(pattern, 1, bag_of(at))
        except LookupError:
            made.append(-1)

    threads = [Thread(target=ask, args=(at, "p")) for at in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [at >= 0 for at in made].count(True) == 2 and made.count(-1) == 1
    with cursors.preparing("p", 1), cursors.preparing("p", 2), cursors.preparing("q", 1):
        pass
    assert not cursors._preparing
