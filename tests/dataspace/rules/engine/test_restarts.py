"""A rule that was suspended stays suspended over a start, and comes back as it would have without it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.derivation import RULES
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.relations.failures import complaint
from index.patterns.text import parse
from index.values.values import Map, Record, Value, key
from tests.strategies import values

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
LIMITS = SpaceLimits(derive_work=2_000)


def started(space: Space) -> Space:
    """A space that starts from what another one holds."""
    again = Space(space.name, limits=space.limits)
    owners = {owner: dict(space.claims(owner)) for owner in space.owners()}
    again.restore(owners, space.epoch, space.time)
    again.advance(0)
    return again


def turn(space: Space, *actions: Action) -> None:
    space.commit("me", actions, 0)


def rule(name: str, text: str, handle: int = 1_000) -> Action:
    return (ASSERT, handle, Record("rule", name, text))


def reasons(space: Space) -> dict[str, str]:
    return {name: reason for name, _, reason in space.rules.suspended()}


def test_a_runaway_of_next_is_not_repeated_by_a_start() -> None:
    space = Space("main")
    turn(space, rule("clock", "next(n($x + 1)) <- n($x)."), (ASSERT, 1, Record("n", 0)))
    while space.rules.pending:
        space.advance(0)
    before = reasons(space)
    assert "caused by next alone" in before["clock"]
    again = started(space)
    assert reasons(again) == before and not again.rules.pending
    assert again.epoch == space.epoch, "nothing has changed"


def test_a_runaway_pays_nothing_at_a_start() -> None:
    space = Space("main", limits=LIMITS)
    turn(space, *[(ASSERT, n, Record("n", n)) for n in range(100)])
    turn(space, rule("product", "p($x, $y) <- n($x), n($y)."), rule("fine", "q($x) <- n($x).", 1_001))
    before = reasons(space)
    assert before.keys() == {"product"}
    again = started(space)
    program = again.rules.program
    assert reasons(again) == before and again.epoch == space.epoch
    assert program is not None and program.statistics().work < 1_000
    assert len(again.claims(RULES)) == 101


def test_it_comes_back_when_it_is_asked_to_or_has_another_text() -> None:
    space = Space("main", limits=LIMITS)
    turn(space, *[(ASSERT, n, Record("n", n)) for n in range(60)])
    text = "p($x, $y) <- n($x), n($y)."
    turn(space, rule("product", text))
    turn(space, *[(RETRACT, n) for n in range(50)])
    again = started(space)
    assert reasons(again).keys() == {"product"}
    again.rules.resume("product")
    again.advance(0)
    assert reasons(again) == {} and len(again.claims(RULES)) == 100
    other = started(space)
    turn(other, (RETRACT, 1_000), rule("product", text + " "))
    assert reasons(other) == {} and len(other.claims(RULES)) == 100


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("p($x * 2) <- n($x).", 'n("a")'),
        ("p(1 / $x) <- n($x).", "n(0)"),
        ("p($x * $y) <- n($x), m($y).", 'm("a")'),
        ("p(sum($x)) <- n($x).", 'n("a")'),
        ("p($x * 2) <- n([$x]).", 'n(["a"])'),
        ("p($x * 2) <- n($x).", f'n("{"a" * 5_000}")'),
        ("p($x, $x) <- n($x).", f'n("{"x" * 600_000}")'),
        ("p($x + $x) <- n($x).", f'n(["{"x" * 600_000}"])'),
    ],
)
def test_it_comes_back_when_the_row_that_broke_it_goes_after_the_start(text: str, bad: str) -> None:
    space = Space("main")
    turn(space, (ASSERT, 1, parse("n(1)")), (ASSERT, 2, parse("m(1)")), (ASSERT, 3, parse(bad)))
    turn(space, rule("r", text))
    assert reasons(space).keys() == {"r"}
    again = started(started(space))
    assert reasons(again) == reasons(space)
    turn(again, (ASSERT, 4, parse("other(1)")))
    assert reasons(again) == reasons(space)
    turn(again, (RETRACT, 3))
    assert reasons(again) == {}


def test_what_was_refused_is_judged_anew_by_a_start() -> None:
    space = Space("main", limits=SpaceLimits(rules=1))
    turn(space, rule("a", "p($x) <- n($x)."), rule("b", "q($x) <- n($x).", 1_001))
    assert reasons(space).keys() == {"b"}
    again = Space("main", limits=SpaceLimits(rules=2))
    owners = {owner: dict(space.claims(owner)) for owner in space.owners()}
    again.restore(owners, space.epoch, space.time)
    again.advance(0)
    assert reasons(again) == {}


long_texts = st.builds(
    lambda text, times: text * times, st.text(min_size=1, max_size=9), st.integers(0, 1_000)
)


@settings(max_examples=200 * ROUNDS or 100, deadline=None)
@given(
    values | long_texts,
    values | long_texts,
    st.dictionaries(st.text(max_size=400), values | long_texts | st.tuples(long_texts), max_size=3),
    long_texts,
)
def test_a_complaint_about_what_a_complaint_shows_is_the_same_fact(
    name: Value, text: Value, row: dict[str, Value], reason: str
) -> None:
    first = complaint(name, text, Map.of(list(row.items())), reason)
    name, text, shown, said = first.fields
    assert isinstance(shown, Map) and isinstance(said, str)
    assert key(complaint(name, text, shown, said)) == key(first)


TEXTS = (
    "p($x * 2) <- n($x).",
    "q($x, $y) <- n($x), n($y).",
    "next(m($x)) <- n($x), not off($x).",
    "next(m($x)) <- m($x).",
    "s(sum($x)) <- n($x).",
    "r(1 / $x) <- m($x).",
)
FACTS = ("n(1)", "n(2)", "n(0)", 'n("a")', "off(1)", "m(0)", *[f"n({n})" for n in range(10, 40)])
steps = st.lists(
    st.sets(st.sampled_from([*FACTS, *TEXTS]), min_size=1, max_size=6) | st.just(frozenset({"start"})),
    min_size=1,
    max_size=10,
)


@pytest.mark.slow
@settings(max_examples=200 * ROUNDS or 40, deadline=None)
@given(steps)
def test_a_start_changes_nothing_wherever_it_happens(steps: list[frozenset[str]]) -> None:
    space = Space("main", limits=SpaceLimits(derive_work=100, derive_work_per_action=10))
    claimed: dict[str, int] = {}
    for at, step in enumerate(steps):
        if "start" in step:
            again = started(space)
            assert reasons(again) == reasons(space)
            assert again.epoch == space.epoch and again.rules.pending == space.rules.pending
            space = again
            continue
        actions: list[Action] = []
        for n, text in enumerate(sorted(step)):
            handle = claimed.pop(text, None)
            if handle is not None:
                actions.append((RETRACT, handle))
                continue
            claimed[text] = handle = 100 * at + n
            actions.append((ASSERT, handle, Record("rule", text, text) if text in TEXTS else parse(text)))
        space.commit("me", actions, 0)
        for _ in range(3):
            space.advance(0)


STEADY = (
    "b($x) <- a($x, _).",
    "c($x, $y) <- a($x, $y), $y > 3.",
    "d($x, $z) <- a($x, $y), $z = $x * 7 + $y.",
    "e($x) <- b($x), not c($x, _).",
    "reach($x, $y) <- a($x, $y).",
    "reach($x, $z) <- reach($x, $y), a($y, $z).",
    "total($x, sum($y), count()) <- a($x, $y).",
    "few($x) <- a($x, $y), a($y, $x), $x < $y.",
    "text($t) <- a($x, $y), $t = text([$x, $y]).",
    "next(seen($x)) <- b($x), not c($x, 5).",
)


@settings(max_examples=ROUNDS or 40, deadline=None)
@given(
    texts=st.sets(st.sampled_from(STEADY), min_size=1, max_size=5),
    pairs=st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=5, max_size=30),
    rows=st.integers(8, 40),
    gone=st.sampled_from(STEADY),
)
def test_what_came_in_steps_comes_at_once_after_a_start_or_without_a_rule(
    texts: set[str], pairs: set[tuple[int, int]], rows: int, gone: str
) -> None:
    """No limit of a turn holds for what many turns have reached."""
    space = Space("main", limits=SpaceLimits(derived_per_turn=rows, derived_bytes_per_turn=200 * rows))
    chosen = sorted(texts)
    for at, text in enumerate(chosen):
        turn(space, rule(f"r{at}", text, 1_000 + at))
    for at, pair in enumerate(sorted(pairs)):
        turn(space, (ASSERT, at, Record("a", *pair)))
        while space.rules.pending:
            space.advance(0)
    if reasons(space):
        return  # a step was too much already
    again = started(space)
    while again.rules.pending:
        again.advance(0)
    assert reasons(again) == {}
    assert set(again.index.values()) == set(space.index.values())
    if gone in texts:
        turn(again, (RETRACT, 1_000 + chosen.index(gone)))
        assert reasons(again) == {}


def test_bytes_that_came_in_steps_come_at_once_after_a_start() -> None:
    """Calculated values and long facts: more than one turn may make, less than all may hold."""
    limits = SpaceLimits(derived_bytes_per_turn=20_000, derived_bytes=300_000)
    space = Space("main", limits=limits)
    turn(space, rule("long", "long($x, $t) <- a($x), $t = text([$x, $x])."))
    for at in range(60):
        turn(space, (ASSERT, at, Record("a", f"{at}" * 400)))
    assert reasons(space) == {}
    again = started(space)
    assert reasons(again) == {} and set(again.index.values()) == set(space.index.values())
    turn(again, (ASSERT, 100, Record("a", "y" * 30_000)))
    assert reasons(again).keys() == {"long"}, "one turn may not"


def test_a_rule_that_goes_takes_no_other_along() -> None:
    """The rules beside it are made anew, at once; what they have done came in many turns."""
    space = Space("main", limits=LIMITS)
    turn(space, rule("pair", "pair($x, $y) <- a($x), b($y), $x + $y = 100."))
    turn(space, rule("other", "other($x) <- pair($x, _).", 1_001))
    turn(space, *[(ASSERT, n, Record("b", n)) for n in range(100)])
    for n in range(100):
        turn(space, (ASSERT, 200 + n, Record("a", n)))
    before = {each for each in space.index.values() if isinstance(each, Record) and each.label == "pair"}
    assert reasons(space) == {} and len(before) == 99
    turn(space, rule("worse", "worse($x, $y, $z) <- pair($x, _), pair($y, _), pair($z, _).", 1_002))
    assert reasons(space).keys() == {"worse"}, "nor one that is suspended"
    turn(space, (RETRACT, 1_001))
    assert reasons(space).keys() == {"worse"}
    assert before <= set(space.index.values())


@pytest.mark.parametrize("limits", [{"rule_reads": 50}, {"derived_per_turn": 50}, {"derive_work": 300}])
def test_a_row_that_breaks_a_rule_for_a_while_breaks_it_for_no_longer(limits: dict[str, int]) -> None:
    """What it had is derived again in one turn, though it came in many."""
    space = Space("main", limits=SpaceLimits(**limits))
    turn(space, rule("double", "d($x * 2) <- a($x)."), rule("beside", "e($x) <- d($x).", 1_001))
    for at in range(60):
        turn(space, (ASSERT, at, Record("a", at)))
    whole = set(space.index.values())
    assert reasons(space) == {} and len(whole) == 182
    for _ in range(2):
        turn(space, (ASSERT, 500, Record("a", "bad")), (ASSERT, 501, Record("a", "worse")))
        assert reasons(space).keys() == {"double"}
        turn(space, (RETRACT, 500))
        assert reasons(space).keys() == {"double"}, "there is another one"
        turn(space, (RETRACT, 501))
        space.rules.resume("double")  # by itself it waits longer each time that it was in vain
        space.advance(0)
        assert reasons(space) == {} and set(space.index.values()) == whole
    turn(space, (RETRACT, 1_000))
    turn(space, rule("double", "d($x * 2) <- a($x)."))
    assert reasons(space).keys() <= {"double"}, "a text that is added anew has had nothing"
