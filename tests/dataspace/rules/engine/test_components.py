"""Rules that are not connected are nobody else's matter: not when they come or go, and not when they fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from dataspace.flows.results import Derived
from dataspace.rules.engine.components import Components, parted, placed
from dataspace.rules.engine.program import Program
from dataspace.rules.language.parser import read_rules
from dataspace.rules.relations.budgets import Bounds
from dataspace.rules.relations.tables import WrittenTable
from index.patterns.text import unparse
from index.values.values import Record, Value, key
from tests.model.rules import follow


def components(text: str) -> list[list[int]]:
    """The numbers of rules that are of one component."""
    rules = [placed(number, rule) for number, rule in enumerate(read_rules(text))]
    return sorted([each.number for each in component] for component in parted(rules))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a($x) <- n($x). b($x) <- n($x).", [[0], [1]]),
        ("a($x) <- n($x). b($x) <- a($x).", [[0, 1]]),
        ("b($x) <- n($x), not a($x). a($x) <- m($x).", [[0, 1]]),
        ("a($x) <- n($x). a($x) <- m($x).", [[0, 1]]),
        ("a($x) <- n($x). a($x, $x) <- m($x).", [[0], [1]]),
        ("a($x) <- n($x). a($x, $x) <- m($x). b($x) <- a($x).", [[0, 1, 2]]),
        ("a($x) <- n($x). a($x, $x) <- m($x). b($x) <- a($x, _).", [[0], [1, 2]]),
        ("next(a($x)) <- n($x). a($x) <- m($x).", [[0, 1]]),
        ("next(a($x)) <- n($x). b($x) <- a($x).", [[0, 1]]),
        ("send(a($x)) <- n($x). b($x) <- a($x).", [[0], [1]]),
        ("send(a($x)) <- n($x). send(a($x)) <- m($x).", [[0, 1]]),
        ("a($x) <- n($x). b($x) <- m($x). c($x) <- a($x), b($x). d($x) <- n($x).", [[0, 1, 2], [3]]),
        ("a($x) <- n($x). b($x) <- m($x). c(count($x)) <- $x(k(_)).", [[0], [1], [2]]),
        ("a($x) <- n($x). b($x) <- m($x). c($x) <- $x, n($x).", [[0, 1, 2]]),
    ],
)  # fmt: skip
def test_what_leans_on_each_other_or_derives_the_same_is_one_island(
    text: str, expected: list[list[int]]
) -> None:
    assert components(text) == expected


def many(count: int, each: int) -> Program:
    """Independent rules, with so many facts for each."""
    program = Program()
    program.change([(f"r{n}", f"a{n}($x) <- b{n}($x, $y), $y > 0.") for n in range(count)], [])
    program.tick([Record(f"b{n}", m, m) for n in range(count) for m in range(each)])
    return program


def test_a_rule_that_comes_costs_one_engine_and_reads_the_facts_that_it_asks_for() -> None:
    program = many(20, 10)
    before = program.statistics()
    assert (before.components, before.engines, before.read) == (20, 20, 0)
    program.tick([Record("other", n) for n in range(7)])
    assert len(program.add("late", "c($x) <- other($x).").added) == 7
    after = program.statistics()
    assert (after.components, after.engines - 20, after.read) == (21, 1, 7)
    assert len(program.remove("late", "c($x) <- other($x).").removed) == 7
    gone = program.statistics()
    assert (gone.components, gone.engines, gone.read) == (20, 21, 7), "and one that goes costs nothing"


def test_rules_that_ask_for_the_same_share_it_whatever_island_they_are_of() -> None:
    program = many(1, 50)
    size = program.size()
    assert len(program.add("late", "c($x) <- b0($x, $y), $y > 0.").added) == 49
    assert program.statistics().read == 0 and program.statistics().components == 2
    assert program.size() == size + 49, "what it derives, and no other row"
    program.remove("r0", "a0($x) <- b0($x, $y), $y > 0.")
    assert program.tick([Record("b0", 50, 50)]).added == [Record("c", 50)]
    program.remove("late", "c($x) <- b0($x, $y), $y > 0.")
    assert program.size() == 51, "the facts themselves"


def test_an_index_is_made_for_rows_that_are_there_and_goes_with_the_last_rule_that_wants_it() -> None:
    program = Program()
    program.add("all", "all($x) <- edge($x, $y).")
    program.tick([Record("edge", n, n % 3) for n in range(9)] + [Record("start", 1)])
    size = program.size()
    assert len(program.add("join", "to($x) <- start($y), edge($x, $y).").added) == 3
    program.tick([Record("start", 2)])
    derived, starts, index, fact = 6, 2, 9, 1
    assert program.size() == size + derived + starts + index + fact
    program.remove("join", "to($x) <- start($y), edge($x, $y).")
    assert program.size() == size + 1


def test_a_rule_may_join_islands_and_part_them_again() -> None:
    program = many(3, 4)
    glue = "d($x) <- a0($x), a1($x)."
    assert len(program.add("glue", glue).added) == 3
    joined = program.statistics()
    assert (joined.components, joined.engines) == (2, 4)
    assert not program.remove("glue", glue).added
    parted = program.statistics()
    assert (parted.components, parted.engines, parted.read) == (3, 6, 0)


def test_a_rule_that_fails_takes_its_island_along_and_no_other_engine() -> None:
    program = many(5, 4)
    program.add("bad", "c(1 / $x) <- n($x).")
    program.add("leans", "d($x) <- c($x).")
    engines = program.statistics().engines
    assert len(program.tick([Record("n", 1), Record("b0", 9, 9)]).added) == 3
    derived = program.tick([Record("n", 0), Record("b1", 9, 9)])
    assert derived.added == [Record("a1", 9)] and len(derived.removed) == 2
    assert program.statistics().engines == engines + 1, "for the rule that leans on it"
    assert program.entries["bad", "c(1 / $x) <- n($x)."].error.startswith("ZeroDivisionError")


def test_all_rules_of_a_text_are_suspended_with_it_in_whichever_island_they_are() -> None:
    program = Program()
    program.add("two", "c(1 / $x) <- n($x). send(d($x)) <- m($x). e($x) <- m($x).")
    program.add("good", "f($x) <- m($x).")
    program.tick([Record("m", 1)])
    derived = program.tick([Record("m", 2), Record("n", 0)])
    assert derived.added == [Record("f", 2)] and derived.removed == [Record("e", 1)]
    assert derived.messages == [], "nor does it send what it would have in this tick"


def test_what_is_sent_in_a_tick_is_sent_although_another_rule_of_the_island_fails_in_it() -> None:
    program = Program()
    program.add("good", "b($x) <- a($x). send(seen($x)) <- b($x).")
    program.add("bad", "c(1 / $x) <- b($x).")
    assert program.tick([Record("a", 0)]).messages == [Record("seen", 0)]
    assert program.has_errors


def test_a_limit_is_for_all_islands_together_and_what_grew_most_is_blamed() -> None:
    program = Program(bounds=Bounds(100))
    program.add("small", "small($x) <- n($x).")
    program.add("large", "large($x, $y) <- n($x), m($y).")
    program.add("third", "third($x) <- n($x).")
    program.tick([Record("m", n) for n in range(4)])
    derived = program.tick([Record("n", n) for n in range(20)])
    (error,) = [entry for entry in program.entries.values() if entry.error]
    assert error.name == "large" and "more than 100 new facts in one tick" in error.error
    assert Counter(value.label for value in derived.added) == {"small": 20, "third": 20}  # type: ignore[union-attr]  # records


def test_many_rules_on_one_view_are_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program()
    texts = [(f"r{n}", f"a{n}($x) <- b($x).") for n in range(30)] + [("bad", "c(1 / $x) <- b($x).")]
    texts += [(f"s{n}", f"d{n}($x) <- b($x).") for n in range(30)]
    program.change(texts, [])
    assert len(program.tick([Record("b", 0)]).added) == 60, "although one in the middle fails"
    assert len(program.tick([Record("b", 1)]).added) == 60
    program.change([], texts[5:])
    assert len(program.tick((), [Record("b", 0)]).removed) == 5


def test_a_defect_is_logged_and_all_is_computed_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = many(3, 4)
    (view,) = [view for view in program.base_facts.views.values() if view.root == "b1"]

    def take(_value: Value, _by: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(view, "table", WrittenTable(take=take))
    derived = program.tick([Record("b0", 9, 9), Record("b1", 9, 9)], [Record("b2", 1, 1)])
    assert [unparse(value) for value in derived.added] == ["a0(9)", "a1(9)"]
    assert [unparse(value) for value in derived.removed] == ["a2(1)"]
    assert "this is a defect" in caplog.text and not program.has_errors


# -- laws ---------------------------------------------------------------------------------------------

TEXTS = [
    "r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), e($y, $z).",
    "far($x, $y) <- r($x, $y), not e($x, $y).",
    "d($x, count($y)) <- r($x, $y). most(max($n)) <- d(_, $n).",
    "p($x) <- n($x), not gone($x).",
    "p($x) <- q($x).",
    "q($x) <- p($x), e($x, $x).",
    "lone($x) <- n($x), not r($x, _), not r(_, $x).",
    "hub($x) <- d($x, $n), $n >= 2.",
    "both($x) <- hub($x), p($x).",
    "s($v) <- p($v:int). any() <- e(_, _). n($x) <- hub($x), e($x, 1).",
    "bad($x, 12 / $y) <- e($x, $y), n($y). worse($x) <- gone($x).",
    "sum(sum(12 / $x)) <- p($x). t($x) <- gone($x), p($x).",
    "u($f) <- $f(e(0, _)). v($x) <- exact(e($x, _)).",
]
SPEAKING = [
    "next(seen($x)) <- said($x). next(seen($x)) <- seen($x), not forget($x).",
    "send(ack($x)) <- said($x). heard($x) <- said($x), p($x).",
    "send(new($x)) <- p($x).",
    "send(new($x)) <- seen($x), not p($x). old($x) <- seen($x).",
    "next(turn($x)) <- n($x), not turn($x), gone($x).",
    "said(12 / $x) <- turn($x), n($x).",
    "quiet($x) <- n($x), not said($x). send(loud(12 / $x)) <- said($x), not quiet($x), r($x, _).",
]


def universe() -> list[Value]:
    facts: list[Value] = [Record("e", a, b) for a in range(4) for b in range(4)]
    return facts + [Record(label, a) for label in ("n", "gone", "q", "p") for a in range(4)]


def error(program: Program) -> dict[str, str]:
    return {entry.text: entry.error.split(":")[0] for entry in program.entries.values() if entry.error}


class Author:
    """Adds and removes texts and facts, at random."""

    def __init__(self, seed: int, texts: list[str]) -> None:
        self.rng = random.Random(seed)
        self.texts = texts
        self.there: list[str] = []
        self.facts = universe()
        self.claimed: dict[object, Value] = {}

    def changes(self) -> tuple[list[Value], list[Value]]:
        """Facts that come, or facts that go: a rule could see both together for a moment, and fail."""
        is_coming, changed = self.rng.random() < 0.6, []
        for fact in self.rng.sample(self.facts, self.rng.choice([0, 1, 1, 3, 8])):
            if is_coming and len(self.claimed) < 14 and key(fact) not in self.claimed:
                self.claimed[key(fact)] = fact
                changed.append(fact)
            elif not is_coming and self.claimed.pop(key(fact), None) is not None:
                changed.append(fact)
        return (changed, []) if is_coming else ([], changed)

    def rules(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        added: list[tuple[str, str]] = []
        removed: list[tuple[str, str]] = []
        for text in self.rng.sample(self.texts, self.rng.choice([0, 0, 0, 1, 1, 2, 4])):
            (removed if text in self.there else added).append(("t", text))
        self.there = [each for each in self.there if ("t", each) not in removed]
        self.there += [text for _, text in added]
        return added, removed


def told(state: dict[object, Value], derived: Derived) -> None:
    """Takes over what a tick says, which must be a difference."""
    for value in derived.added:
        assert key(value) not in state
        state[key(value)] = value
    for value in derived.removed:
        del state[key(value)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_texts_that_come_go_and_fail_leave_what_follows_from_those_that_are_carried_out(seed: int) -> None:
    author, program, state = Author(seed, TEXTS), Program(), dict[object, Value]()
    joined = failed = 0
    for _ in range(70):
        before = program.statistics()
        told(state, program.declare_and_tick(author.rules(), *author.changes(), ()))
        sound = [text for text in author.there if not program.entries["t", text].error]
        everything = follow(read_rules(" ".join(sound)), author.claimed.values())
        derived = {key(value) for value in program.derived()}
        assert set(state) == derived, "the changes add up to the state"
        assert derived | set(author.claimed) == set(everything)
        after = program.statistics()
        joined += after.components < before.components
        failed += after.failed > before.failed
    assert joined > 4 and failed > 1
    told(state, program.tick((), list(author.claimed.values())))
    assert not state and program.size() == 0, "when nothing is claimed no table has an entry"
    program.change([], [("t", text) for text in author.there])
    assert not program.base_facts.views and not program.base_facts._routes and not list(program.components)


def all_in_one(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has programs carry out all rules by one engine, which is made anew whenever they change."""

    def one(rules: Iterable[Any]) -> list[list[Any]]:
        return [sorted(rules)]

    def near(components: Components[Any], _rules: object) -> dict[Any, None]:
        return dict.fromkeys(components)

    monkeypatch.setattr("dataspace.rules.engine.pool.parted", one)
    monkeypatch.setattr(Components, "near", near)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_islands_say_what_one_engine_of_all_rules_would(seed: int) -> None:
    said = []
    for as_one in (False, True):
        with pytest.MonkeyPatch.context() as monkeypatch:
            if as_one:
                all_in_one(monkeypatch)
            said.append(conversation(seed))
    for step, (apart, whole) in enumerate(zip(*said, strict=True)):
        assert apart == whole, (seed, step)


def conversation(seed: int) -> list[object]:
    """What a program says, tick by tick, in no stated order within one."""
    author, program, state = Author(seed, TEXTS + SPEAKING), Program(), dict[object, Value]()
    lines: list[object] = []
    for _ in range(60):
        messages: list[Value] = [
            Record(author.rng.choice(["said", "forget"]), author.rng.randrange(4))
            for _ in range(author.rng.choice([0, 0, 0, 1, 2]))
        ]
        derived = [program.declare_and_tick(author.rules(), *author.changes(), messages)]
        while program.pending and len(derived) < 4:
            derived.append(program.tick_again())
        for each in derived:
            told(state, each)
            sent = Counter(map(unparse, each.messages))
            lines.append((sorted(map(unparse, state.values())), sent, error(program), program.pending))
    return lines
