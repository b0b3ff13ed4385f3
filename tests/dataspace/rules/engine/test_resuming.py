"""A suspended rule comes back when what broke it has changed, or when it is asked to."""

from __future__ import annotations

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.kernel.space import Space
from dataspace.rules.engine.program import Program
from dataspace.rules.engine.texts import WAITS
from dataspace.rules.relations.budgets import Bounds
from index.patterns.text import parse
from index.values.values import Record, Value


def facts(*texts: str) -> list[Value]:
    return [parse(text) for text in texts]


def failed(program: Program) -> bool:
    """Whether any text is not carried out now."""
    return program.has_errors


def waits(program: Program) -> bool:
    """Whether it asks for a tick now."""
    return program.pending


CASES = {
    "a fact": ("p($x * 2) <- n($x).", ["n(1)", 'n("a")'], ([], ['n("a")']), ["p(2)"]),
    "one of two premises": ("p($x * $y) <- n($x), m($y).", ["n(1)", 'm("a")'], ([], ["n(1)"]), []),
    "a part of a fact": ("p($x * 2) <- n([$x]).", ["n([1])", 'n(["a"])'], ([], ['n(["a"])']), ["p(2)"]),
    "what is negated comes": (
        "p($x * 2) <- n($x), not off($x).",
        ["n(1)", 'n("a")'],
        (['off("a")'], []),
        ["p(2)"],
    ),
    "a sum": ("p(sum($x)) <- n($x).", ["n(1)", 'n("a")'], ([], ['n("a")']), ["p(1)"]),
    "a fact that is too large": (
        "p($x, $x) <- n($x).",
        ["n(1)", f'n("{"x" * 600_000}")'],
        ([], [f'n("{"x" * 600_000}")']),
        ["p(1, 1)"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_resumes_when_what_broke_it_has_changed(name: str) -> None:
    text, before, (added, removed), expected = CASES[name]
    program = Program()
    program.add("r", text)
    program.tick(facts(*before))
    assert program.entries["r", text].error and program.derived() == []
    program.tick(facts("other(1)"), ())
    assert program.entries["r", text].error, "what does not concern it changes nothing"
    derived = program.tick(facts(*added), facts(*removed))
    assert not program.entries["r", text].error
    assert program.derived() == derived.added == facts(*expected)


def test_a_rule_resumes_a_tick_after_what_another_derived_for_it_has_gone() -> None:
    program = Program()
    program.change([("of", "n($x) <- raw($x)."), ("p", "p($x * 2) <- n($x).")], [])
    program.tick(facts("raw(1)", 'raw("a")'))
    assert failed(program) and not waits(program)
    program.tick((), facts('raw("a")'))
    assert waits(program)
    program.tick_again()
    assert not failed(program) and not waits(program)
    assert Record("p", 2) in program.derived()


def test_a_rule_resumes_after_a_message_that_broke_it() -> None:
    program = Program()
    program.add("r", "p($x, 2 * $y) <- n($x), say($y).")
    program.tick(facts("n(1)"))
    program.tick((), (), facts('say("a")'))
    assert failed(program) and waits(program)
    program.tick_again()
    assert not failed(program)


def test_a_rule_that_is_broken_again_and_again_waits_for_longer_each_time() -> None:
    program = Program()
    program.add("r", "p($x * 2) <- n($x).")
    bad = facts('n("a")')
    attempts = []
    for n in range(3 * WAITS[2]):
        engines = program.statistics().engines
        program.tick(*((bad, ()) if n % 2 else ((), bad if n else ())))
        if program.statistics().engines > engines:
            attempts.append(n)
    assert len(attempts) <= 2 * len(WAITS), "each is a suspension or a resumption"
    program.tick((), bad)
    while failed(program) and program.ticks < 10_000:
        program.tick(facts(f"x({program.ticks})"))
    assert not failed(program)


def test_a_rule_that_ran_away_resumes_only_when_it_is_asked_to() -> None:
    program = Program(bounds=Bounds(100))
    program.add("r", "p($x, $y) <- n($x), n($y).")
    program.tick([Record("n", n) for n in range(20)])
    program.tick((), [Record("n", n) for n in range(5, 20)])
    assert failed(program) and not waits(program)
    assert len(program.resume(["r"]).added) == 25
    assert not failed(program)
    assert not program.resume(["r"]).added, "it is carried out already"


def test_a_text_that_is_removed_is_not_watched() -> None:
    program, text = Program(), "p($x * 2) <- n($x)."
    program.add("r", text)
    program.tick(facts('n("a")'))
    program.remove("r", text)
    assert not program.texts.resuming.watched
    program.tick((), facts('n("a")'))
    assert program.derived() == [] and not program.entries


def test_in_a_space_the_error_goes_in_the_epoch_in_which_the_rule_resumes() -> None:
    space = Space("main")
    space.commit("me", [(ASSERT, 1, Record("rule", "r", "p($x * 2) <- n($x)."))], 0)
    space.commit("me", [(ASSERT, 2, Record("n", "a")), (ASSERT, 3, Record("n", 1))], 0)
    assert [fact.label for fact in space.claims("rules").values() if isinstance(fact, Record)] == [
        "rule-error"
    ]
    epoch = space.commit("me", [(RETRACT, 2)], 0)
    assert epoch.added == [Record("p", 2)]
    assert [fact.label for fact in epoch.removed if isinstance(fact, Record)] == ["n", "rule-error"]
    space.index.check()


def test_an_attempt_that_was_asked_for_does_not_make_the_next_one_wait() -> None:
    program = Program()
    program.add("r", "p($x * 2) <- n($x).")
    program.tick(facts('n("a")'))
    program.resume(["r"])
    assert failed(program)
    program.tick((), facts('n("a")'))
    assert not program.entries["r", "p($x * 2) <- n($x)."].error
