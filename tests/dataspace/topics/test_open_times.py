"""Open times: what a frontier passes is what the definition says, whatever the order of the times."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.topics.epochs import OpenTimes
from dataspace.topics.times import Antichain, Time

integers = st.integers(0, 12)
KINDS: st.SearchStrategy[st.SearchStrategy[Time]] = st.sampled_from(
    [integers, st.tuples(integers), st.tuples(integers, integers)]
)


@given(st.data())
def test_what_a_frontier_passes_is_at_or_after_none_of_it(data: st.DataObject) -> None:
    kind: st.SearchStrategy[Time] = data.draw(KINDS)
    times = OpenTimes()
    known: set[Time] = set()
    for added, elements in data.draw(st.lists(st.tuples(st.lists(kind), st.lists(kind, max_size=4)))):
        for each in added:
            times.add(each)
        known.update(added)
        frontier = Antichain(elements)
        passed = times.passed(frontier)
        assert passed == sorted(each for each in known if not frontier.less_equal(each))
        known -= set(passed)
        assert set(times) == known and len(times) == len(known)
        assert all(each in times for each in known)


class Watched(int):
    """An integer that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Watched.compared += 1
        return super().__lt__(other)

    def __le__(self, other: int) -> bool:
        Watched.compared += 1
        return super().__le__(other)

    __hash__ = int.__hash__


def test_a_step_of_the_frontier_looks_at_few_of_those_that_stay_open() -> None:
    times = OpenTimes([Watched(1000 + each) for each in range(1000)])
    Watched.compared = 0
    for step in range(100):
        assert times.passed([step]) == []
    assert Watched.compared <= 1000
    assert times.passed([1002]) == [1000, 1001]
