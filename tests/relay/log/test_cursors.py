"""A bag counts facts by their captures, and cursors stay within their bounds."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from threading import Barrier, Thread

import pytest
from hypothesis import given, strategies as st

from dataspace.codec import pack
from dataspace.wire.observing import NUMBERS
from index.errors import InternalError
from index.values.values import Value, key, keys
from relay.log.cursors import Cursors, RowCounts, StateShares, TimedCounts, net_counts, row_keys

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


odd = st.sampled_from([1, 1.0, True, "1", b"1", -0.0, 0.0, math.nan, -math.nan, None, 2**70, (1, math.nan)])


@given(
    st.lists(st.tuples(odd, st.integers(0, 300)), unique_by=keys),
    st.randoms(),
    st.integers(0, 1),
    st.booleans(),
)
def test_shares_have_one_order_whatever_the_order_before(
    rows: list[tuple[Value, int]], random: Random, few: int, is_large: bool
) -> None:
    """Also where many rows have one number: then a share has all of them; and where they are in a file."""
    with pytest.MonkeyPatch.context() as patched:
        if is_large:
            patched.setattr("relay.store.spilled.HELD_BYTES", 16)
            patched.setattr("relay.store.spilled._WRITTEN", 16)
        if few:
            patched.setattr("relay.log.cursors.blake2b", lambda said, digest_size: Few(said, digest_size))
        made = StateShares(zip(row_keys(rows), rows, strict=True))
        other = random.sample(rows, len(rows))
        again = StateShares(zip(row_keys(other), other, strict=True))
        since = [None if at % 3 else (at, at * 7, "me" if at % 2 else None) for at in range(len(rows))]
        timed = StateShares(zip(row_keys(rows), rows, strict=True), since)
    whole = range(len(rows))
    assert is_large or not made.spilled
    by_row = {keys(row): each for row, each in zip(rows, since, strict=True)}
    assert timed.since(whole) == [by_row[keys(row)] for row in timed.rows(whole)]
    named = [*map(keys, made.rows(whole))]
    for start in range(0, len(rows), 2):
        assert [*map(keys, made.rows(whole[start : start + 3]))] == named[start : start + 3]
    assert [keys(row) for row in made.rows(whole)] == [keys(row) for row in again.rows(whole)]
    assert {keys(row) for row in made.rows(whole)} == {keys(row) for row in rows}
    for most in (1, 2, 50):
        low, seen = 0, 0
        while low < NUMBERS:
            high = made.upto(low, most)
            places = made.places(low, high)
            assert places.start == seen
            assert len(places) <= most or few
            assert len(places) > 0 or not rows
            low, seen = high, places.stop
        assert seen == len(rows)
    for size in (1, 20, 1000) if not few else ():
        low, sizes = 0, [len(pack(row)) for row in made.rows(whole)]
        while low < NUMBERS:
            high = made.upto(low, len(rows) + 1, size)
            places = made.places(low, high)
            assert len(places) <= 1 or sum(sizes[places.start : places.stop]) <= size
            assert places.stop == len(rows) or sum(sizes[places.start : places.stop + 1]) > size
            low = high


class Few:
    """A hash with three values."""

    def __init__(self, said: bytes, size: int) -> None:
        self._number = len(said) % 3 << 8 * size - 2

    def digest(self) -> bytes:
        return self._number.to_bytes(6)


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


def test_a_state_larger_than_all_memory_of_cursors_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are in a file, whose bytes are bounded by themselves."""
    monkeypatch.setattr("relay.store.spilled.HELD_BYTES", 1 << 10)
    monkeypatch.setattr("relay.store.spilled._WRITTEN", 1 << 10)
    wide = [(at, "x" * 100) for at in range(1_000)]
    made = [StateShares(zip(row_keys(wide), wide, strict=True)) for _ in range(3)]
    assert made[0].spilled > 100_000 and made[0].bytes < 1 << 13
    cursors = Cursors(size=1 << 15, spilled=250_000)
    for epoch, each in enumerate(made):
        cursors.leave("p", epoch, each)
        assert cursors.find("p", epoch) == (epoch, each)
    assert len(cursors) == 2, "the oldest file went"
    cursors.leave("q", 1, StateShares(zip(row_keys(wide), wide, strict=True)))
    assert len(cursors) == 2
    small = Cursors(spilled=10)
    small.leave("p", 1, made[0])
    assert len(small) == 0
    cursors.clear()
    cursors.leave("p", 1, made[0])
    assert len(cursors) == 1


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


NAN_ROWS = st.tuples(
    st.sampled_from([1, 1.0, True, "1", math.nan, -math.nan, ("x", math.nan)]), st.integers(0, 1)
)


@given(st.lists(st.tuples(st.booleans(), NAN_ROWS)), st.booleans())
def test_a_bag_that_keeps_keys_only_is_sorted_as_one_that_keeps_rows(
    changes: list[tuple[bool, tuple[Value, ...]]], timed: bool
) -> None:
    """Also where a row is there several times, goes and comes again, or holds a NaN."""
    kind = TimedCounts if timed else RowCounts
    bags = whole, light = kind(), kind(keys_only=True)
    counts: Counter[object] = Counter()
    for at, (comes, row) in enumerate(changes):
        goes = not comes and counts[keys(row)] > 0
        counts[keys(row)] += -1 if goes else 1
        for bag in bags:
            if isinstance(bag, TimedCounts):
                bag.now = at, 10 * at
            bag.change([] if goes else [row], [row] if goes else [])
    found, same = [
        StateShares(bag.keyed(), bag.since() if isinstance(bag, TimedCounts) else None) for bag in bags
    ]
    every = range(len(whole))
    assert len(found) == len(same) == len(light.copy()) == len(+counts)
    assert [*map(keys, found.rows(every))] == [*map(keys, same.rows(every))]
    assert found.since(every) == same.since(every)
    assert not any(row for at, row in light.keyed() if at.__class__ is bytes), "captures are kept too"
