"""One owner asserts so many rules, with so much text, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from dataspace.kernel.bulk_assertions import Assertions
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.rule_facts import is_rule
from dataspace.kernel.space import Space
from index.values.values import Record, Value

LIMITS = SpaceLimits(rules_per_owner=4, rule_bytes_per_owner=100)


def rule(name: str, size: int = 20) -> Value:
    return Record("rule", name, "p($x) <- n($x).".ljust(size - len(name)))


def test_an_owner_has_so_many_rules_and_others_have_theirs() -> None:
    space = Space("main", limits=LIMITS)
    space.commit("a", [(ASSERT, n, rule(str(n))) for n in range(4)], 0)
    with pytest.raises(Refused, match=r"5 rules of a, the limit is limits\.rules_per_owner=4"):
        space.commit("a", [(ASSERT, 4, rule("4"))], 0)
    assert space.rules.program is not None and space.rules.program.statistics().texts == 4
    space.commit("b", [(ASSERT, 4, rule("4"))], 0)
    space.commit("a", [(RETRACT, 0), (ASSERT, 4, rule("4"))], 0)
    space.end(["a"], 0)
    space.commit("a", [(ASSERT, n, rule(str(n))) for n in range(4)], 0)


def test_the_bytes_of_their_texts_count_as_well() -> None:
    space = Space("main", limits=LIMITS)
    space.commit("a", [(ASSERT, 0, rule("0", 90))], 0)
    with pytest.raises(
        Refused, match=r"110 bytes in rules of a, the limit is limits\.rule_bytes_per_owner=100"
    ):
        space.commit("a", [(ASSERT, 1, rule("1"))], 0)
    with pytest.raises(Refused, match="rule_bytes_per_owner=100"):
        space.commit("b", [(ASSERT, 1, Record("rule", "1", "ü" * 60))], 0)
    with pytest.raises(Refused, match="rule_bytes_per_owner=100"):
        space.commit("b", [(ASSERT, 1, Record("rule", "no text", ("x" * 50, "y" * 50)))], 0)


def test_a_publication_counts_like_any_turn_and_so_does_what_was_there_before_a_start() -> None:
    space = Space("main", limits=LIMITS)
    space.restore({"a": {n: rule(str(n)) for n in range(3)}}, 7, 0)
    with pytest.raises(Refused, match="rules_per_owner=4"):
        space.commit("a", Assertions(10, (rule("8"), rule("9"))), 0, publication=True)
    space.commit("a", Assertions(10, (rule("8"),)), 0, publication=True)
    with pytest.raises(Refused, match="rules_per_owner=4"):
        space.commit("a", [(ASSERT, 4, rule("4"))], 0)


def test_the_rules_of_the_operator_are_not_counted() -> None:
    space = Space("main", limits=LIMITS)
    space.rule_quotas.exempt = frozenset({"files"})
    space.commit("files", [(ASSERT, n, rule(str(n))) for n in range(9)], 0)


handles = st.integers(0, 7)
actions: st.SearchStrategy[Action] = st.one_of(
    st.tuples(st.just(ASSERT), handles, st.sampled_from([rule("a"), rule("b", 45), Record("n", 1)])),
    st.tuples(st.just(REPLACE), handles, handles, st.sampled_from([rule("a"), Record("n", 2)])),
    st.tuples(st.just(RETRACT), handles),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(actions, min_size=1, max_size=4) | st.just("end"), max_size=12))
def test_whatever_turns_come_an_owner_has_no_more_and_is_refused_only_for_that(
    turns: list[list[Action] | str],
) -> None:
    space, free = Space("main", limits=LIMITS), Space("free")
    for turn in turns:
        if isinstance(turn, str):
            space.end(["a"], 0)
            free.end(["a"], 0)
            continue
        before = dict(free.claims("a"))
        try:
            free.commit("a", turn, 0)
        except Refused:
            with pytest.raises(Refused):
                space.commit("a", turn, 0)
            continue
        after = [each for each in free.claims("a").values() if is_rule(each)]
        size = sum(len(str(part)) for each in after for part in each.fields)
        brings = any(action[0] != RETRACT and is_rule(action[-1]) for action in turn)
        if brings and (len(after) > 4 or size > 100):
            with pytest.raises(Refused, match="per_owner"):
                space.commit("a", turn, 0)
            free = Space("free")
            free.restore({"a": before}, 0, 0)
        else:
            space.commit("a", turn, 0)
        assert dict(space.claims("a")) == dict(free.claims("a"))
