"""The frontier of counted times is what one finds by looking at all of them."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.topics.times import (
    Antichain,
    Change,
    ChangeBatch,
    Maxima,
    MutableAntichain,
    Time,
    join,
    less,
    less_equal,
    meet,
)

pairs = st.tuples(st.integers(0, 4), st.integers(0, 4))
orders: st.SearchStrategy[list[Time]] = st.one_of(
    st.lists(st.integers(0, 8), max_size=12), st.lists(pairs, max_size=12)
)


@given(orders)
def test_an_antichain_is_the_minimal_elements(times: list[Time]) -> None:
    chain = Antichain(times)
    assert set(chain) == {each for each in times if not any(less(other, each) for other in times)}
    assert all(chain.less_equal(each) for each in times)


@given(orders)
def test_maxima_are_the_maximal_elements(times: list[Time]) -> None:
    assert set(Maxima(times)) == {each for each in times if not any(less(each, other) for other in times)}


@given(orders)
def test_maxima_know_whether_they_grow(times: list[Time]) -> None:
    maxima = Maxima()
    for each in times:
        grows, before = maxima.grows(each), len(maxima)
        maxima.insert(each)
        assert (len(maxima) > before) == grows


@given(orders, st.integers(1, 4))
def test_coarser_maxima_cover_all_that_they_did(times: list[Time], most: int) -> None:
    maxima = Maxima(times)
    before = list(maxima)
    maxima.coarsen(most)
    assert len(maxima) <= most and all(map(maxima.covers, before))
    assert len(before) > most or list(maxima) == before
    assert set(maxima) == set(Maxima(maxima)), "none is before another"


@given(st.lists(st.lists(st.tuples(pairs, st.integers(-2, 3)), max_size=4), max_size=12))
def test_changes_tell_exactly_how_the_frontier_moved(batches: list[list[Change]]) -> None:
    held, everything, told = MutableAntichain(), ChangeBatch(), ChangeBatch()
    for batch in batches:
        everything.extend(batch)
        told.extend(held.change(batch))
        assert set(held.frontier) == set(Antichain(time for time, count in everything if count > 0))
        assert list(told) == [(each, 1) for each in held.frontier]


@given(pairs, pairs, pairs)
def test_join_and_meet_are_the_least_and_the_greatest(a: Time, b: Time, c: Time) -> None:
    assert less_equal(join(a, b), c) == (less_equal(a, c) and less_equal(b, c))
    assert less_equal(c, meet(a, b)) == (less_equal(c, a) and less_equal(c, b))
