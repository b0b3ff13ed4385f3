"""What waits for an observer is the truth, bounded, whatever its speed."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from dataspace.kernel.actions import CONFLATED, MORE, SNAPSHOT
from dataspace.kernel.changes import PART, Changes, Lost
from dataspace.wire.observing import Policy
from index.values.values import Value
from relay.delivery.backlog import STATE_PART, DeliveryQueue, SlowCounts
from relay.delivery.memory import MemoryBudget
from relay.delivery.packed import PART_BYTES

Row = tuple[Value, ...]


def _nothing() -> None:
    pass


def _added(number: int, *rows: int) -> Changes:
    return Changes(number, number * 10, [(row,) for row in rows])


def _removed(number: int, *rows: int) -> Changes:
    return Changes(number, number * 10, (), (), [(row,) for row in rows])


def test_epochs_wait_as_they_are_while_there_is_room() -> None:
    waiting = DeliveryQueue(_nothing, limit=4)
    offered = [_added(1, 1), _added(2, 2), _removed(3, 1)]
    for changes in offered:
        waiting.offer(changes)
    assert [each.packed for each in waiting.take(10, 10_000)] == [each.packed for each in offered]
    assert len(waiting) == 0


def test_beyond_the_limit_only_the_net_difference_waits() -> None:
    waiting = DeliveryQueue(_nothing, limit=2)
    for changes in (_added(1, 1), _added(2, 2), _removed(3, 1), _added(4, 3), _removed(5, 2), _added(6, 2)):
        waiting.offer(changes)
    assert len(waiting) == 1
    (difference,) = waiting.take(10, 10_000)
    assert difference.flags == CONFLATED
    assert (difference.first, difference.number, difference.time) == (1, 6, 60)
    assert sorted(difference.added) == [(2,), (3,)]
    assert difference.removed == []


def test_conflation_is_bounded_by_the_state_however_long_it_lasts() -> None:
    waiting = DeliveryQueue(_nothing, limit=2)
    for number in range(1, 10_000, 2):
        waiting.offer(_added(number, 7))
        waiting.offer(_removed(number + 1, 7))
    waiting.offer(_added(10_001, 8))
    (difference,) = waiting.take(10, 10_000)
    assert [difference.added, difference.removed] == [[(8,)], []]
    assert waiting.statistics().conflated_epochs > 9_000


def test_messages_are_never_conflated_and_too_many_end_the_observation() -> None:
    waiting = DeliveryQueue(_nothing, limit=1, message_limit=3)
    for number in range(1, 4):
        waiting.offer(Changes(number, 0, [(number,)], [("hello", number)]))
    (whole,) = waiting.take(10, 10_000)
    assert whole.messages == [("hello", 1), ("hello", 2), ("hello", 3)]
    for number in range(4, 8):
        waiting.offer(Changes(number, 0, (), [("hello", number)]))
    assert str(waiting.failure) == "slow-observer: 4 messages wait, limit 3"
    assert waiting.take(10, 10_000) == []


def test_a_large_epoch_leaves_in_parts_and_is_not_conflated_once_begun() -> None:
    waiting = DeliveryQueue(_nothing, limit=1)
    waiting.extend(Changes(1, 0, [(n,) for n in range(2 * STATE_PART + 1)], flags=SNAPSHOT))
    (first,) = waiting.take(1, 10_000)
    assert first.flags == SNAPSHOT | MORE
    waiting.offer(_removed(2, 0))
    waiting.offer(_added(3, -1))
    second, third, later = waiting.take(10, 10_000_000)
    assert (second.flags, third.flags) == (SNAPSHOT | MORE, SNAPSHOT)
    assert sum(map(len, (first, second, third))) == 2 * STATE_PART + 1
    assert (later.flags, later.added, later.removed) == (CONFLATED, [(-1,)], [(0,)])


def test_the_last_value_taken_may_overdraw_the_bytes() -> None:
    waiting = DeliveryQueue(_nothing)
    waiting.offer(Changes(1, 0, [("x" * 1000,)]))
    waiting.offer(_added(2, 1))
    assert waiting.take(10, 0) == []
    assert [changes.number for changes in waiting.take(10, 1)] == [1]
    assert [changes.number for changes in waiting.take(10, 1)] == [2]


def test_the_observer_is_woken_for_each_offer() -> None:
    woken: list[int] = []
    waiting = DeliveryQueue(lambda: woken.append(1))
    waiting.offer(_added(1, 1))
    waiting.offer(_added(2, 2))
    assert len(woken) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 0, 0, 0, 1, 2, 3])), max_size=40
    ),
    st.integers(1, 6),
    st.sets(st.integers(0, 3)),
)
@example([(2, 2, 0), (3, 3, 0), (2, 2, 3)], 1, {0, 1})  # a state and a difference in one frame
def test_taken_and_waiting_add_up_to_the_state(
    steps: list[tuple[int, int, int]], limit: int, state: set[int]
) -> None:
    """A slow reader that applies what it takes always arrives at the newest state, and nothing is left."""
    budget = MemoryBudget()
    waiting = DeliveryQueue(_nothing, limit=limit, budget=budget)
    waiting.extend(Changes(0, 0, [(n,) for n in state], flags=SNAPSHOT))
    seen: set[Row] = set()
    newest = -1

    def apply(changes: Changes) -> None:
        nonlocal newest
        assert changes.first > newest or changes.number == newest
        newest = changes.number
        for row in changes.added:
            assert row not in seen, "told twice"
            seen.add(row)
        for row in changes.removed:
            seen.remove(row)

    for number, (row, other, take) in enumerate(steps, 1):
        added = sorted({row, other} - state) if number % 3 else []
        removed = sorted({row, other} & state)
        if added or removed:
            waiting.offer(Changes(number, 0, [(n,) for n in added], (), [(n,) for n in removed]))
            state = (state | set(added)) - set(removed)
        for changes in waiting.take(take, 10_000):
            apply(changes)
        assert waiting.size >= 0 and (budget.used > 0) == (len(waiting) > 0)
    while len(waiting):
        for changes in waiting.take(2, 10_000):
            apply(changes)
    assert seen == {(n,) for n in state}
    assert (waiting.size, budget.used) == (0, 0)


def test_what_is_large_leaves_in_parts_down_to_a_single_change() -> None:
    waiting = DeliveryQueue(_nothing)
    text = "x" * (PART_BYTES // 3)
    waiting.offer(Changes(7, 70, [(n, text) for n in range(10)], [("m", text)], [(20, text), (21, text)]))
    waiting.offer(_added(8, 1))
    waiting.offer(Changes(9, 90, [("y" * 2 * PART_BYTES,)]))
    *parts, small, single = waiting.take(100, 1 << 30)
    assert all(len(part.packed) <= PART_BYTES for part in parts)
    assert [part.flags for part in parts] == [MORE] * (len(parts) - 1) + [0]
    assert {part.number for part in parts} == {7}
    assert [row[0] for part in parts for row in part.added] == list(range(10))
    assert [row[0] for part in parts for row in (*part.messages, *part.removed)] == ["m", 20, 21]
    assert (small.number, single.number, len(single)) == (8, 9, 1)
    assert waiting.size == len(waiting) == 0


def test_messages_from_the_log_count_like_others() -> None:
    waiting = DeliveryQueue(_nothing, message_limit=3)
    waiting.extend(Changes(1, 0, (), [("a",)] * 10))
    assert len(waiting.take(10, 10_000)) == 1
    for number in range(2, 5):
        waiting.offer(Changes(number, 0, (), [("b",)]))
        assert waiting.failure is None
    waiting.offer(Changes(5, 0, (), [("b",)]))
    assert waiting.failure is not None


def test_what_waits_is_bounded_in_bytes_as_well() -> None:
    facts = DeliveryQueue(_nothing, byte_limit=10_000)
    for number in range(1, 100):
        facts.offer(Changes(number, 0, [(number, "x" * 1000)], (), [(number - 1, "x" * 1000)]))
    assert facts.statistics().conflated_epochs > 80
    messages = DeliveryQueue(_nothing, byte_limit=10_000)
    for number in range(1, 100):
        messages.offer(Changes(number, 0, (), [("x" * 1000,)]))
    assert str(messages.failure) == "slow-observer: 10 messages wait in 10120 bytes, limit 10000"


# -- policies -----------------------------------------------------------------------------------------


def _told(taken: list[Changes]) -> list[object]:
    return [
        ("lost", each.count, each.first, each.number) if isinstance(each, Lost) else each.number
        for each in taken
    ]


def test_dropping_leaves_a_mark_where_the_oldest_were() -> None:
    counts = SlowCounts()
    waiting = DeliveryQueue(_nothing, limit=4, policy=Policy.DROP, counts=counts)
    for number in range(1, 6):
        waiting.offer(Changes(number, 0, (), [(number,)]))
    assert _told(waiting.take(10, 10_000)) == [("lost", 2, 1, 2), 3, 4, 5]
    assert counts.dropped == waiting.statistics().dropped == 2


def test_one_mark_grows_while_nobody_reads() -> None:
    waiting = DeliveryQueue(_nothing, limit=4, policy=Policy.DROP)
    for number in range(1, 1001):
        waiting.offer(Changes(number, 0, (), [(number,)]))
    mark, *rest = _told(waiting.take(10, 10_000))
    assert rest == list(range(1001 - len(rest), 1001))
    assert mark == ("lost", 1000 - len(rest), 1, 1000 - len(rest))


@pytest.mark.parametrize("policy", Policy)
def test_what_has_begun_to_leave_leaves_whole(policy: Policy) -> None:
    waiting = DeliveryQueue(_nothing, limit=4, policy=policy)
    waiting.extend(Changes(1, 0, [(n,) for n in range(PART + 1)]))
    (first,) = waiting.take(1, 10_000)
    for number in range(2, 12):
        waiting.offer(Changes(number, 0, [(-number,)]))
    rest = waiting.take(100, 1 << 30)
    if policy is Policy.FAIL:
        assert rest == [] and waiting.failure is not None
    else:
        assert (first.flags, rest[0].flags, rest[0].number, len(rest[0])) == (MORE, 0, 1, 1)


def test_a_state_that_waits_counts_apart() -> None:
    waiting = DeliveryQueue(_nothing, limit=4, policy=Policy.FAIL)
    waiting.extend(Changes(1, 0, [(n,) for n in range(100)], flags=SNAPSHOT))
    for number in range(2, 6):
        waiting.offer(_added(number, -number))
    assert waiting.failure is None
    assert [len(each) for each in waiting.take(10, 1 << 30)] == [100, 1, 1, 1, 1]


def test_failing_says_how_much_was_waiting() -> None:
    counts = SlowCounts()
    waiting = DeliveryQueue(_nothing, limit=2, policy=Policy.FAIL, counts=counts)
    for number in range(1, 5):
        waiting.offer(Changes(number, 0, [(number,)], [(number,)] if number == 1 else ()))
    assert waiting.failure is not None
    assert waiting.failure.text.startswith("3 changes wait, 1 of them messages, in ")
    assert waiting.failure.text.endswith("bytes; limits 2, 4096, 16777216")
    assert waiting.take(10, 10_000) == []
    assert counts.failed == 1


def test_waiting_takes_nothing_more_until_it_has_caught_up() -> None:
    counts, behind = SlowCounts(), []
    waiting = DeliveryQueue(
        _nothing, limit=2, policy=Policy.WAIT, counts=counts, behind=lambda: behind.append(True)
    )
    for number in range(1, 9):
        waiting.offer(_added(number, number))
    assert (behind, waiting.newest, counts.fallen_behind) == ([True], 2, 1)
    assert _told(waiting.take(10, 10_000)) == [1, 2]
    for number in range(3, 9):
        waiting.extend(_added(number, number))  # as somebody reads them from the log
    waiting.take(10, 10_000)
    waiting.catch_up()
    waiting.offer(_added(9, 9))
    assert _told(waiting.take(10, 10_000)) == [9]


@given(
    st.lists(st.one_of(st.integers(1, 5), st.none()), max_size=60),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_dropping_loses_only_what_its_marks_say(steps: list[int | None], limit: int, messages: int) -> None:
    """Numbers are epochs of so many messages, None a reader that takes one value."""
    waiting = DeliveryQueue(_nothing, limit=limit, message_limit=messages, policy=Policy.DROP)
    offered = told = lost = number = newest = 0
    taken: list[Changes] = []
    for step in [*steps, *[None] * 80]:
        if step is None:
            taken += waiting.take(1, 10_000)
            continue
        number += 1
        offered += step
        waiting.offer(Changes(number, 0, (), [(number, n) for n in range(step)]))
        assert waiting.size <= max(limit, messages, step) + 5
    for each in taken:
        assert each.first > newest, "in order"
        newest = each.number
        if isinstance(each, Lost):
            assert each.count > 0
            lost += each.count
        else:
            told += len(each)
    assert told + lost == offered
    assert len(waiting) == 0 and waiting.size == 0
