"""The reason why a text is suspended names the rule of it that is to blame."""

from __future__ import annotations

import pytest

from dataspace.kernel.actions import ASSERT
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine.program import Program
from dataspace.rules.relations.budgets import Bounds
from index.values.values import Record

FACTS = [Record("n", n) for n in range(60)]
WORK = Bounds(work=1_000, work_per_action=1)
ROWS = Bounds(1_000)

BLAMED = {
    "another turns its rows round": ("p($y, $x) <- p($x, $y).", "p($x, $y) <- n($x), n($y)."),
    "another copies its rows": ("q($y, $x) <- p($x, $y).", "p($x, $y) <- n($x), n($y)."),
    "another has the same head": ("p($x, 0) <- n($x).", "p($x, $y) <- n($x), n($y)."),
    "another begins it": ("m($x) <- n($x).", "m(($x + 1)) <- m($x)."),
    "another counts its rows": ("c(count($x)) <- p($x, _).", "p($x, $y) <- n($x), n($y)."),
}


@pytest.mark.parametrize("bounds", [WORK, ROWS], ids=["work", "rows"])
@pytest.mark.parametrize("name", BLAMED)
@pytest.mark.parametrize("last", [True, False])
def test_of_a_text_that_did_too_much_the_rule_is_named_that_did(
    name: str, bounds: Bounds, last: bool
) -> None:
    other, guilty = BLAMED[name]
    text = f"{other} {guilty}" if last else f"{guilty} {other}"
    program = Program(bounds=bounds)
    program.add("r", text)
    program.tick(FACTS)
    assert program.entries["r", text].error.endswith(f"(in {guilty})")


def test_of_many_texts_that_are_ended_together_each_names_its_heaviest_rule() -> None:
    heavy = [f"p{n}($x, $y) <- n($x), n($y)." for n in range(20)]
    texts = {f"r{n}": f"a{n}($x) <- n($x). {rule} b{n}($x) <- n($x)." for n, rule in enumerate(heavy)}
    program = Program(bounds=Bounds(work=2_000, work_per_action=1))
    program.change(texts.items(), [])
    program.tick(FACTS)
    errors = {entry.name: entry.error for entry in program.entries.values() if entry.error}
    assert len(errors) == 20
    for name, error in errors.items():
        assert "units of work" in error and error.endswith(f"(in {heavy[int(name[1:])]})")


@pytest.mark.parametrize("other_first", [True, False])
def test_a_chain_of_next_without_end_names_the_rule_that_goes_on_and_leaves_others(other_first: bool) -> None:
    begin, goes_on = "next(m($x)) <- go($x).", "next(m(($x + 1))) <- m($x)."
    text = f"{begin} {goes_on}" if other_first else f"{goes_on} {begin}"
    log = "next(log($x)) <- m($x)."
    space = Space("main", limits=SpaceLimits(derive_work=2_000))
    rules = [(ASSERT, 0, Record("rule", "clock", text)), (ASSERT, 1, Record("rule", "log", log))]
    space.commit("a", rules, 0)
    space.commit("a", [(ASSERT, 2, Record("go", 1))], 0)
    while space.rules.pending:
        space.advance(0)
    ((name, _, reason),) = space.rules.suspended()
    assert name == "clock" and "caused by next alone" in reason and reason.endswith(f"(in {goes_on})")


def test_of_two_states_that_follow_from_each_other_without_end_one_is_ended() -> None:
    program = Program(max_self_ticks=20)
    program.change(
        [("a", "next(m($x + 1)) <- k($x)."), ("b", "next(k($x)) <- m($x)."), ("c", "m(0) <- go(_).")], []
    )
    program.tick([Record("go", 1)])
    while program.pending:
        program.tick_again()
    assert {entry.name for entry in program.entries.values() if entry.error} <= {"a", "b"}
