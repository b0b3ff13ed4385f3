"""Shapes: each is counted once for its label, for as long as a stream observes a pattern of it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from index.patterns.patterns import capture, skeleton
from index.values.values import Record, Value
from server.config.principals import DAEMON, Principal, Quotas
from server.owners.accounts import Accounts
from server.owners.shapes import ObservedShape

MOST = 2
PARTS = st.sampled_from([Record("_"), "a", "b", capture("x"), capture(None, "int"), Record("s"), ("a",), ()])
PATTERNS = st.one_of(
    st.builds(Record, st.sampled_from(["p", "q"]), PARTS, PARTS), st.tuples(PARTS), st.just(capture("all"))
)


def _shape(pattern: Value) -> tuple[object, object]:
    form = skeleton(pattern)
    label = form.shape[0][1] if form.shape else None
    return label, (form.shape, tuple([path for path, _ in form.constants]), form.checks)


@given(
    st.lists(
        st.tuples(st.sampled_from(["main", "side"]), PATTERNS, st.integers(0, 9)), min_size=8, max_size=60
    )
)
def test_shapes_are_counted_like_a_set_for_each_label(steps: list[tuple[str, Value, int]]) -> None:
    account = Accounts(Quotas(shapes=MOST)).of(Principal("unix"))
    held: list[tuple[tuple[str, object, object], ObservedShape]] = []
    for space, pattern, at in steps:
        if at < 3 and held:
            account.give_shape(held.pop(at % len(held))[1])
            continue
        label, shape = _shape(pattern)
        there = {each for each, _ in held if each[:2] == (space, label)}
        if (space, label, shape) in there or len(there) < MOST:
            held.append(((space, label, shape), account.take_shape(space, skeleton(pattern))))
        else:
            with pytest.raises(Refused, match=rf" {MOST + 1} shapes .*quota\.shapes={MOST} "):
                account.take_shape(space, skeleton(pattern))
        per_label = Counter(each[:2] for each in {each for each, _ in held})
        assert account.everything().get("shapes", 0) == max(per_label.values(), default=0)
    for _, taken in held:
        account.give_shape(taken)
    assert account.everything() == {}, "what was given back counts no more"


def test_the_daemon_itself_observes_as_many_shapes_as_it_needs() -> None:
    account = Accounts(Quotas(shapes=1)).of(DAEMON)
    for at in range(100):
        account.take_shape("main", skeleton(Record("p", *[Record("_")] * at, "a")))
