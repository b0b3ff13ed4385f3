"""Whatever rules strangers write, the turn goes on without them, in bounded rows, steps and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from dataspace.rules.engine import explaining
from dataspace.rules.engine.program import Program
from dataspace.rules.language.safety import MAX_ATOMS
from dataspace.rules.relations.budgets import Bounds
from index.patterns.text import parse, parse_pattern
from index.values.values import Record, Value

HARMLESS = "fine($x) <- n($x), $x < 3."
FACTS: Sequence[Value] = [Record("n", n) for n in range(60)]

HOSTILE = {
    "a product of three sets": ("p($x, $y, $z) <- n($x), n($y), n($z).", "new facts in one tick"),
    "a product that comes to nothing": (
        "p($x) <- n($x), n($y), n($z), $x + $y + $z < 0.",
        "rows were looked at",
    ),
    "a product that is counted": ("p(count($x)) <- n($x), n($y), n($z).", "rows were looked at"),
    "counting for ever": ("m($x) <- n($x). m($x + 1) <- m($x).", "new facts in one tick"),
    "an integer that squares itself": ("m($x) <- n($x), $x > 1. m($x * $x) <- m($x).", "too large"),
    "a text that doubles": ('m("ab") <- n(1). m($x + $x) <- m($x).', "too large"),
    "a sequence that doubles": ("m([1]) <- n(1). m($x + $x) <- m($x).", "too large"),
    "a tree that doubles": ("m([1]) <- n(1). m([$x, $x]) <- m($x).", "characters"),
    "a tree that deepens": ("m(0) <- n(1). m(t($x)) <- m($x).", "nested"),
    "a quotient by nought": ("m(1 / $x) <- n($x).", "ZeroDivisionError"),
    "an integer that no float holds": (
        "m(2) <- n(1). m($x * $x) <- m($x), $x < 10000000000000000000000000000000000000000000000000000. "
        "k($x * $x * $x * $x * $x * $x * $x * $x * 0.5) <- m($x).",
        "OverflowError",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("first", [True, False])
def test_a_hostile_rule_is_suspended_with_a_reason_and_the_others_go_on(name: str, first: bool) -> None:
    text, reason = HOSTILE[name]
    program = Program(bounds=Bounds(2_000))
    program.add("harmless", HARMLESS)
    if name.startswith("a product"):  # where it is rows that would fill the memory; it slows values down
        tracemalloc.start()
    try:
        if first:
            program.add("hostile", text)
            program.tick(FACTS)
        else:
            program.tick(FACTS)
            program.add("hostile", text)
        most = tracemalloc.get_traced_memory()[1]  # nought where it was not begun
    finally:
        tracemalloc.stop()
    assert reason in program.entries["hostile", text].error
    assert program.entries["harmless", HARMLESS].error == ""
    assert program.derived() == [Record("fine", n) for n in range(3)]
    assert program.tick((), [Record("n", 1)]).removed == [Record("fine", 1)], "and further turns are taken"
    assert most < 50 * 1024 * 1024


def test_what_is_used_up_counts_for_one_tick_only() -> None:
    program = Program(bounds=Bounds(100))  # and 500 rows looked at
    program.add("pairs", "pair($x) <- n($x), m($y), $x = $y.")
    program.add("join", "j($x, $y) <- a($k, $x), b($k, $y).")
    program.tick([Record("b", 0, n) for n in range(90)])
    for n in range(50):
        program.tick([Record("a", 0, n)])
        program.tick((), [Record("a", 0, n)])
    assert not program.has_errors


@pytest.mark.slow
def test_of_many_texts_in_one_turn_those_that_make_a_cycle_are_refused_and_the_others_are_not() -> None:
    program = Program()
    texts = [(f"good {n}", f"g{n}($x) <- n($x).") for n in range(20)]
    texts[5:5] = [("bad", "p($x) <- n($x), not q($x). q($x) <- p($x).")]
    texts += [("odd", "r($x) <- n($x), not s($x)."), ("even", "s($x) <- r($x)."), texts[0]]
    program.change(texts, [])
    failed = {entry.name for entry in program.entries.values() if entry.error}
    assert failed == {"bad", "even"} and program.statistics().rules == 21
    program.change([("more", program_text(980))], [])
    assert program.entries["more", program_text(980)].error == "more than 1000 rules"
    program.change([("less", program_text(900))], texts)
    assert program.entries["less", program_text(900)].error == "" and len(program.entries) == 2


def program_text(rules: int) -> str:
    return " ".join([f"m{n}($x) <- n($x)." for n in range(rules)])


HEAVY = {
    "look at much and find nothing": "h{n}($x) <- n($x), n($y), n($z), $x + $y + $z < 0.",
    "make many facts": "h{n}($x, $y) <- n($x), n($y).",
    "make large values": "h{n}([$t, $x]) <- n($x), text($t).",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_many_rules_that_each_take_a_moment_are_ended_together_and_not_one_by_one(name: str) -> None:
    program = Program(bounds=Bounds(4_000, made=16 << 20))
    program.add("harmless", HARMLESS)
    program.tick([*FACTS, Record("text", "x" * 100_000)])
    texts = [(f"heavy {n}", HEAVY[name].format(n=n)) for n in range(24)]
    attempts = -program.budget.tick[0]
    program.change(texts, [])
    attempts += program.budget.tick[0]
    assert attempts <= 8, "not 25"
    assert {entry.name for entry in program.entries.values() if not entry.error} == {"harmless"}
    assert program.derived() == [Record("fine", n) for n in range(3)]
    reasons = [entry.error for entry in program.entries.values() if entry.error]
    assert sum(reason.startswith("had a part in this") for reason in reasons) > 12
    assert all("in one tick" in reason for reason in reasons)


@pytest.mark.parametrize("head", ["w($x0)", "w($x0 + 1)", "w(count($x0))"])
@pytest.mark.parametrize("first", ["", "n($x) <- k($x). ", "n($x) <- k($x). n($x) <- w($x), no(). "])
def test_a_body_of_as_many_atoms_as_are_allowed_can_be_carried_out(head: str, first: str) -> None:
    if "no()" in first and "count" in head:
        return  # an aggregate of itself
    program, body = Program(), ", ".join([f"n($x{n})" for n in range(MAX_ATOMS)])
    program.add("wide", f"{first}{head} <- {body}.")
    assert not program.has_errors
    derived = program.tick([Record("k" if first else "n", 1)])
    assert any(isinstance(fact, Record) and fact.label == "w" for fact in derived.added)


def test_rules_whose_functions_take_long_to_make_are_refused_before_that() -> None:
    body = ", ".join([f"n($x{n})" for n in range(17)])
    program, wide = Program(), " ".join([f"w{n}($x0) <- {body}." for n in range(35)])
    program.add("wide", wide)
    assert program.entries["wide", wide].error == (
        "10115 loops in all rules, limit 10000: a body of n atoms has n × n"
    )
    program.add("fine", HARMLESS)
    assert program.entries["fine", HARMLESS].error == ""


def test_next_without_end_is_ended_also_where_others_have_turns_in_between() -> None:
    program, text = Program(max_self_ticks=50), "next(c($n + 1)) <- c($n)."
    program.add("count", text)
    program.tick([Record("c", 0)])
    for n in range(100):
        if program.has_errors:
            break
        program.tick_again()
        if n % 7 == 0:
            program.tick([Record("other", n)])
    assert "50 ticks in a row were caused by next alone" in program.entries["count", text].error


def test_a_question_looks_at_so_many_rows_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "LOOKED_AT", 1000)
    program = Program()
    program.tick(FACTS[:40])
    program.add("product", "q($x) <- n($x), n($y), n($z), $x + $y + $z < 0.")
    answer = program.explainer().why_not(parse_pattern("q(_)"))
    assert "nothing found among the first 1000 rows: ask with fewer fields left open" in answer
    program.add("late", "late($x) <- n($x), n($y), n($z), $y + $z = 78, $x < 2.")
    proof = program.explainer().why(parse("late(1)"))
    assert str(proof) == "late(1)    by rules, by more rows than a question may look at"
    assert program.explainer().match(parse_pattern("late(1)")) == parse("late(1)")


def test_a_proof_shows_so_many_facts_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    program, all_of = Program(), ", ".join([f"pair(0, {n})" for n in range(1, 13)])
    program.add("all", f"pair($x, $y) <- n($x), n($y), $x < $y. all(1) <- {all_of}.")
    program.tick(FACTS)
    assert "further down" not in str(program.explainer().why(parse("all(1)")))
    monkeypatch.setattr(explaining, "MOST", 5)
    shown = str(program.explainer().why(parse("all(1)")))
    assert shown.count("by pair(") == 4 and shown.count("rules, further down than is shown") == 8


@pytest.mark.parametrize("batch", [1, 500])
def test_facts_outside_of_cycles_count_however_many_rules_derive_them(batch: int) -> None:
    program = Program(bounds=Bounds(1000))
    for n in range(4):
        program.add(f"copy {n}", f"c{n}($x) <- n($x).")
    for start in range(0, 1000, batch):
        program.tick([Record("n", n) for n in range(start, start + batch)])
    assert program.has_errors is (batch > 250)
