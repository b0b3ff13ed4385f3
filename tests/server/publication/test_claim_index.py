"""A publication finds the claims that it ends, at a cost that does not grow with what its owner claims."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.kernel.space import Space
from index.patterns.patterns import DISCARD, capture
from index.values.values import Record, Value, key
from server.spaces.turns.claim_index import ClaimIndexes
from server.spaces.turns.packed import Operations

BY = Record("p", capture("k"), DISCARD)
OWNER = "durable:w"
Batch = list[tuple[str, Value]]

facts = st.builds(lambda k, v: Record("p", k, v), st.sampled_from([1, 1.0, None]), st.integers(0, 1))
batches = st.lists(st.tuples(st.sampled_from(["assert", "retract", "send"]), facts), max_size=6)
inserts = st.lists(st.tuples(st.just("assert"), facts), min_size=1, max_size=3)
steps = st.lists(
    st.tuples(
        st.sampled_from(["by value", "once", "by key", "replace", "other", "end", "refused"]),
        batches | inserts,
    ),
    max_size=8,
)


def publish(
    space: Space,
    indexes: ClaimIndexes,
    batch: Batch,
    *,
    replace: bool = False,
    by: Value = None,
    once: bool = False,
) -> None:
    operations = Operations([verb for verb, _ in batch], [value for _, value in batch])
    before = [*map(key, claimed(space))]
    plan = indexes.plan(OWNER, operations, replace=replace, by=by, once=once)
    began, ended = plan.began, plan.ended
    space.commit(OWNER, plan.actions, 1, publication=True)
    plan.settle()
    if once:
        after = [*map(key, claimed(space))]
        assert (began, ended) == (len({*after} - {*before}), len({*before} - {*after}))


def claimed(space: Space) -> list[Value]:
    return list(space.claims(OWNER).values())


def expected_by_key(held: list[Value], batch: Batch) -> list[Value] | None:
    """The same by key, which does not depend on the order of operations; None where it is refused."""
    held = list(held)
    operations = [(verb, fact) for verb, fact in batch if verb != "send"]
    for at in {key(fact.fields[0]) for _, fact in operations}:  # type: ignore[union-attr]  # all are records
        mine = [(verb, fact) for verb, fact in operations if key(fact.fields[0]) == at]  # type: ignore[union-attr]
        here = [each for each in held if key(each.fields[0]) == at]  # type: ignore[union-attr]
        facts = {key(fact): fact for _, fact in mine}
        asserted = {each: sum(v == "assert" and key(f) == each for v, f in mine) for each in facts}
        retracted = {each: sum(v == "retract" and key(f) == each for v, f in mine) for each in facts}
        there = {each: sum(key(fact) == each for fact in here) for each in facts}
        if any(asserted.values()):
            left = [
                fact
                for each, fact in facts.items()
                if asserted[each] and min(there[each], 1) + asserted[each] - retracted[each] > 0
            ]
            if len(left) > 1:
                return None
        else:
            gone = dict(retracted)
            left = []
            for fact in here:
                gone[key(fact)] = gone.get(key(fact), 0) - 1
                left += [fact] if gone[key(fact)] < 0 else []
        held = [each for each in held if key(each.fields[0]) != at] + left  # type: ignore[union-attr]
    return held


def expected(held: list[Value], kind: str, batch: Batch) -> list[Value]:
    """What an owner claims after a publication, worked out one operation after another."""
    held = [] if kind == "replace" else list(held)
    for verb, fact in batch:
        same_fact = [each for each in held if key(each) == key(fact)]
        if kind == "replace":
            held += [fact] if verb == "assert" and not same_fact else []
        elif verb == "retract":
            for each in same_fact if kind == "once" else same_fact[:1]:
                held.remove(each)
        elif verb == "assert" and not (kind == "once" and same_fact):
            held.append(fact)
    return held


def alike(some: list[Value], others: list[Value]) -> bool:
    return sorted(map(repr, map(key, some))) == sorted(map(repr, map(key, others)))


@given(steps, st.sampled_from([0, 2, 1000]))
def test_claims_are_those_of_a_plain_computation_whatever_happens_in_between(
    done: list[tuple[str, Batch]], known: int
) -> None:
    space = Space("test")
    indexes = ClaimIndexes(space, known=known)
    held: list[Value] = []
    for kind, batch in done:
        if kind == "end":
            indexes.forget(OWNER)
            space.end([OWNER], 1)
            held = []
        elif kind == "other":  # a session of the same durable owner
            indexes.forget(OWNER)
            fresh = space.fresh_handle(OWNER)
            space.commit(OWNER, [(ASSERT, fresh + at, fact) for at, (_, fact) in enumerate(batch)], 1)
            held += [fact for _, fact in batch]
        elif kind == "refused":  # planned, and then not done
            with contextlib.suppress(Refused):
                indexes.plan(
                    OWNER, Operations([verb for verb, _ in batch], [fact for _, fact in batch]), by=BY
                )
        elif kind == "by key":
            left = expected_by_key(held, batch)
            if left is None:
                with pytest.raises(Refused, match="two facts with one key"):
                    publish(space, indexes, batch, by=BY)
            else:
                publish(space, indexes, batch, by=BY)
                held = left
        else:
            publish(space, indexes, batch, replace=kind == "replace", once=kind == "once")
            held = expected(held, kind, batch)
        assert alike(claimed(space), held)
        assert indexes.statistics().known <= known


between = st.lists(st.sampled_from(["", "", "other owner", "assert", "retract", "end"]), max_size=12)


def _change(space: Space, indexes: ClaimIndexes, what: str, fact: Value) -> None:
    """What other clients do between two steps."""
    if not what:
        return
    owner = "session:1" if what == "other owner" else OWNER
    indexes.forget(owner)
    if what == "end":
        space.end([owner], 1)
    elif what == "retract":
        space.commit(owner, [(RETRACT, handle) for handle in list(space.claims(owner))[:1]], 1)
    else:
        space.commit(owner, [(ASSERT, space.fresh_handle(owner) + 50, fact)], 1)


@given(steps, between, facts)
def test_a_plan_in_steps_is_that_of_one_step_or_none_if_the_claims_have_changed(
    done: list[tuple[str, Batch]], between: list[str], fact: Value
) -> None:
    space, changes = Space("test"), iter(between)
    indexes = ClaimIndexes(space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.spaces.turns.claim_index.STEP", 1)
        for kind, batch in done:
            operations = Operations([verb for verb, _ in batch], [value for _, value in batch])
            replace, by = kind == "replace", BY if kind == "by key" else None
            left = expected_by_key(claimed(space), batch) if by is not None else []
            once = kind == "once"
            steps, is_changed = (
                indexes.planning(OWNER, operations, replace=replace, by=by, once=once),
                False,
            )
            try:
                while True:
                    next(steps)
                    what = next(changes, "")
                    is_changed |= what in ("assert", "retract", "end")
                    _change(space, indexes, what, fact)
            except StopIteration as end:
                plan = end.value
            except Refused:
                assert left is None
                continue
            assert (plan is None) == is_changed
            if plan is None:
                continue
            held = claimed(space)
            space.commit(OWNER, plan.actions, 1, publication=True)
            want = expected_by_key(held, batch) if by is not None else expected(held, kind, batch)
            assert want is not None and alike(claimed(space), want)
            for _ in plan.settling():
                _change(space, indexes, next(changes, ""), fact)


@pytest.mark.parametrize("by", [None, BY])
def test_claims_are_read_once_and_not_for_each_batch(by: Value) -> None:
    space = Space("test")
    indexes = ClaimIndexes(space)
    publish(space, indexes, [("assert", Record("p", n, 0)) for n in range(500)])
    for n in range(100):
        old, new = Record("p", n, 0), Record("p", n, 1)
        publish(space, indexes, [("assert", new)] if by else [("assert", new), ("retract", old)], by=by)
        publish(space, indexes, [("assert", Record("p", 1000 + n, 0))], by=by)
    assert alike(claimed(space), [Record("p", n, int(n < 100)) for n in [*range(500), *range(1000, 1100)]])
    assert indexes.statistics().read == 500


def test_an_owner_without_claims_has_no_index() -> None:
    space = Space("test")
    indexes = ClaimIndexes(space)
    fact = Record("p", 1, 0)
    publish(space, indexes, [("assert", fact), ("assert", fact), ("retract", fact)])
    assert indexes.statistics().indexes == indexes.statistics().known == 1
    publish(space, indexes, [("retract", fact), ("retract", fact)])
    assert indexes.statistics().indexes == 0
    assert claimed(space) == []


def test_what_is_only_added_needs_no_index() -> None:
    space = Space("test")
    indexes = ClaimIndexes(space)
    for n in range(3):
        publish(space, indexes, [("assert", Record("p", n, 0)), ("send", n)])
    assert indexes.statistics().read == indexes.statistics().indexes == 0


def test_a_fact_that_is_there_already_is_not_touched() -> None:
    space = Space("test")
    indexes = ClaimIndexes(space)
    fact = Record("p", 1, 2)
    publish(space, indexes, [("assert", fact)], by=BY)
    assert not indexes.plan(OWNER, Operations(["assert"], [fact]), by=BY).actions


def test_what_takes_the_place_of_another_fact_comes_before_that_goes() -> None:
    space = Space("test")
    indexes = ClaimIndexes(space)
    publish(space, indexes, [("assert", Record("p", 1, 0))], by=BY)
    plan = indexes.plan(OWNER, Operations(["assert"], [Record("p", 1, 1)]), by=BY)
    assert [action[0] for action in plan.actions] == [ASSERT, RETRACT]


def test_a_fact_without_a_key_is_refused() -> None:
    with pytest.raises(Refused, match="does not match"):
        ClaimIndexes(Space("test")).plan(OWNER, Operations(["assert"], [Record("q", 1)]), by=BY)


@given(batches, st.permutations(range(6)))
def test_by_key_it_does_not_matter_in_which_order_operations_come(batch: Batch, order: list[int]) -> None:
    """Those of several tasks have none; what asserts comes first all the same."""

    def left(batch: Batch) -> list[Value] | str:
        space = Space("test")
        indexes = ClaimIndexes(space)
        publish(space, indexes, [("assert", Record("p", 1, 0))], by=BY)
        try:
            publish(space, indexes, batch, by=BY)
        except Refused as refusal:
            return refusal.code
        return sorted(claimed(space), key=repr)

    assert left([batch[at] for at in order if at < len(batch)]) == left(batch)


def test_a_fact_that_goes_and_comes_back_in_one_batch_is_there_afterwards() -> None:
    space = Space("test")
    indexes = ClaimIndexes(space)
    idle, running = Record("p", "fan", "idle"), Record("p", "fan", "running")
    publish(space, indexes, [("assert", idle)], by=BY)
    feed: list[tuple[str, Value]] = [
        ("assert", running),
        ("assert", idle),
        ("retract", idle),
        ("retract", running),
    ]
    publish(space, indexes, feed, by=BY)
    assert claimed(space) == [idle]


def test_two_facts_of_one_key_in_a_batch_are_refused_with_both() -> None:
    space = Space("test")
    indexes = ClaimIndexes(space)
    publish(space, indexes, [("assert", Record("p", "a", 0))], by=BY)
    with pytest.raises(
        Refused, match=r"two facts with one key, .*'a', 1\).* and .*'a', 2\).*publish one of them"
    ):
        publish(space, indexes, [("assert", Record("p", "a", 1)), ("assert", Record("p", "a", 2))], by=BY)
    assert claimed(space) == [Record("p", "a", 0)]
