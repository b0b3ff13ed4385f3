"""Handles are a mapping like a dict, and whoever chooses them does not choose their places."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from dataspace.kernel.handles import ALL, FRESH, NO_HANDLE, SECRET, Handles
from index.values.values import Value

handles = st.one_of(st.integers(0, 5), st.integers(0, NO_HANDLE - 1))


@given(st.lists(st.tuples(st.sampled_from(["set", "drop"]), handles, st.text(max_size=1))))
def test_handles_are_as_a_dict(steps: list[tuple[str, int, str]]) -> None:
    table, plain = Handles(), dict[int, Value]()
    for verb, handle, value in steps:
        if verb == "set":
            table[handle] = plain[handle] = value
        else:
            assert table.pop(handle, None) == plain.pop(handle, None)
        assert handle in plain or handle not in table
    assert list(table.items()) == list(plain.items())
    assert (list(table), list(table.values()), len(table)) == (list(plain), list(plain.values()), len(plain))
    assert table == plain == table.copy() and Handles(plain.items()) == plain


edges = st.sampled_from([0, 1, FRESH.start - 1, FRESH.start, FRESH.start + 1, FRESH.stop, NO_HANDLE - 1])


@given(st.lists(st.tuples(st.sampled_from(["set", "drop", "ask"]), handles | edges)))
def test_a_fresh_handle_is_above_all_of_its_kind_that_are_here(steps: list[tuple[str, int]]) -> None:
    table, highest = Handles([(2, "a")]), FRESH.start - 1
    for verb, handle in [*steps, ("ask", 0)]:
        if verb == "set":
            table[handle] = "a"
        elif verb == "drop":
            table.pop(handle, None)
        here = [each for each in table if each in FRESH]
        highest = max([highest, *here])
        if verb == "ask":
            assert max(here, default=FRESH.start - 1) < table.fresh() <= highest + 1


@pytest.mark.parametrize("beginning", [1, 1 << 60])
def test_a_fresh_handle_is_none_that_a_client_counts_on_to(beginning: int) -> None:
    table = Handles((beginning + n, "a") for n in range(9))
    assert table.fresh() == FRESH.start


def test_a_copy_is_apart() -> None:
    table = Handles([(7, "a")])
    table.copy()[7] = "b"
    assert table[7] == "a"


def _on_one_way(count: int, bits: int) -> list[int]:
    """Numbers that a table of small integers looks for in one place after another: a wall."""
    places, at = [], 0
    for _ in range(count):
        places.append(at)
        at = (5 * at + 1) % (1 << bits)
    return places


def _taken(places: list[int], bits: int) -> float:
    """How often the next place that a search tries is taken as well."""
    there = {place % (1 << bits) for place in places}
    return sum((5 * place + 1) % (1 << bits) in there for place in there) / len(places)


def test_a_wall_of_handles_is_none_in_the_table() -> None:
    wall = _on_one_way(2_000, 13)
    assert _taken(wall, 13) > 0.99
    chosen = Random(1)
    secrets = [chosen.getrandbits(63) | 1 for _ in range(9)]
    spread = sorted(_taken([handle * secret & ALL for handle in wall], 13) for secret in secrets)
    assert spread[4] < 0.35, f"a quarter of all places is taken, and of those after a taken one {spread}"
    table = Handles((handle, None) for handle in wall)
    assert list(table.places) == [handle * SECRET & ALL for handle in wall] != wall
