"""Messages of one turn are kept by windows as if each were kept by itself, and equal ones are cheap."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings, strategies as st

from dataspace.kernel.actions import ASSERT, SEND, Action
from dataspace.kernel.space import Space
from index.values.values import Record, Value
from tests.dataspace.rules.relations.test_work import lines_of

RULES = (
    "count($k, count()) <- m($k, $v) within 100 ms.",
    "mean(avg($v)) <- m(_, $v) within 100 ms.",
    "seen($k, $v) <- m($k, $v) within 100 ms.",
    "at($k, $t, count()) <- m($k, $v) at $t within 150 ms.",
    "final(whole($w, count())) <- m(_, _) at $t within 300 ms, $w = floor($t, 100 ms).",
    "both($k, count()) <- m($k, $v) within 100 ms, f($v).",
)
START = 1_000_000_000_000
MESSAGES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 1.0, 2])), max_size=12)


def _space() -> Space:
    space = Space("main")
    rules: list[Action] = [(ASSERT, at, Record("rule", f"r{at}", text)) for at, text in enumerate(RULES)]
    facts: list[Action] = [(ASSERT, 50, Record("f", 1)), (ASSERT, 51, Record("m", "a", 1))]
    space.commit("ops", [*rules, *facts], START)
    return space


def _facts(space: Space) -> set[Value]:
    return set(space.index.values())


def _send(space: Space, messages: Sequence[Value], now: int) -> None:
    space.commit("sender", [(SEND, each) for each in messages], now)


def _apart(messages: Sequence[Value]) -> list[Value]:
    """Returns the messages so that as few as possible stand beside their equal."""
    left, found = list(messages), list[Value]()
    while left:
        for each in dict.fromkeys(left):
            left.remove(each)
            found.append(each)
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_equal_messages_count_alike_wherever_they_stand(turns: list[list[tuple[str, float]]]) -> None:
    together, apart = _space(), _space()
    for at, some in enumerate(turns, start=1):
        messages: list[Value] = [Record("m", *fields) for fields in sorted(some, key=repr)]
        now = START + at * 40_000
        _send(together, messages, now)
        _send(apart, _apart(messages), now)
        assert _facts(together) == _facts(apart)
        assert together.rules.times.rows == apart.rules.times.rows
        assert together.rules.times.value_bytes == apart.rules.times.value_bytes
        assert together.rules.times.pending == apart.rules.times.pending
    for instant in range(START, START + 700_000, 20_000):
        together.until(instant)
        apart.until(instant)
        assert _facts(together) == _facts(apart)
    assert together.rules.times.rows == apart.rules.times.rows


def test_an_equal_message_is_read_once() -> None:
    def lines(count: int, *, are_equal: bool) -> int:
        space = Space("main")
        space.commit("ops", [(ASSERT, 1, Record("rule", "r", RULES[1]))], START)
        messages = [Record("m", "a", 1 if are_equal else at) for at in range(count)]
        return lines_of(lambda: _send(space, messages, START + 20_000))

    one, two = lines(200, are_equal=True), lines(400, are_equal=True)
    assert two < 2.2 * one, "each of them costs the same"
    assert 2 * one < lines(200, are_equal=False), "and less than half of one that differs"
