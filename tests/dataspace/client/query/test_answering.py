"""The rows of a query are what a rule of the same body would derive, from the facts of one epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, strategies as st

from dataspace.client.query import questions
from dataspace.client.query.questions import answered, looking, question
from dataspace.client.query.rows import Rows
from dataspace.errors import Refused, UsageError
from dataspace.rules.engine.program import Program
from index.patterns.patterns import matcher
from index.patterns.text import parse
from index.values.values import Record, Value, text_of

VALUES = st.sampled_from([0, 1, 2, 1.0, True, "a", "_", None, (1, "a"), Record("p", 1), Record("$", "x")])
FACTS = st.lists(
    st.one_of(
        st.builds(lambda *fields: Record("p", *fields), VALUES, VALUES),
        st.builds(lambda field: Record("q", field), VALUES),
        st.builds(lambda *fields: Record("p", *fields), VALUES, VALUES, VALUES),
    ),
    max_size=12,
    unique_by=text_of,
)
BODIES = [
    "p($x, $y)",
    "p($x, _), q($x)",
    "p($x, $y), not q($y)",
    "p($x, $y), p($y, $x), $x != $y",
    "p($x:int, $y), q($y), $z = $x + 1",
    "q($x), $x != $y, p($y, 1)",
    "q(p($x)), not p(_, $x)",
    "q([$x, $y])",
    "$f, q($f)",
    "p(_, $), q($x)",
    "q(lit($x))",
    "q(exact(p($x)))",
    "q($x), (p($x, _) or p(_, $x), $x != 1)",
    "q($x), not (p($x, $y), q($y))",
    "q($x), count() of (p($x, _)) = $n",
    'q($n), $n = len("a")',
]


def rows_of(text: str, facts: Sequence[Value], parameters: Mapping[str, Value] | None = None) -> Rows:
    """The rows of a query over facts that are all of one epoch."""
    asked = question(text, parameters or {})
    steps = looking(asked, None)
    look = next(steps)
    while True:
        match = matcher(look.pattern)
        found = [row for fact in facts if (row := match(fact)) is not None]
        try:
            look = steps.send((7, found))
        except StopIteration as end:
            return answered(asked, *end.value)


def texts(rows: Sequence[tuple[Value, ...]]) -> list[str]:
    return sorted(map(text_of, rows))


@pytest.mark.slow
@given(body=st.sampled_from(BODIES), facts=FACTS)
def test_a_query_finds_what_a_rule_derives(body: str, facts: list[Value]) -> None:
    rows = rows_of(body, facts)
    columns = ", ".join(f"${name}" for name in rows.names)
    program = Program(lambda: facts)
    derived = program.add("r", f"<1>({columns}) <- {body}.").added
    assert texts(rows) == texts([fact.fields for fact in derived if isinstance(fact, Record)])
    assert rows.epoch == 7


@pytest.mark.slow
@given(facts=FACTS, value=VALUES)
def test_a_parameter_is_the_value_whatever_it_looks_like(facts: list[Value], value: Value) -> None:
    by_value = rows_of("p($x, $y), $y != 2", facts, {"x": value})
    among_all = [row for row in rows_of("p($x, $y), $y != 2", facts) if text_of(row[0]) == text_of(value)]
    assert by_value.names == ("y",)
    assert texts(by_value) == texts([row[1:] for row in among_all])


def test_the_columns_are_the_variables_in_order_and_those_of_a_head_are_as_written() -> None:
    facts = [parse('at("a", 1)'), parse('at("a", 2)'), parse('at("b", 5)')]
    rows = rows_of("at($who, $n), $n > 1, $twice = 2 * $n", facts)
    assert rows.names == ("who", "n", "twice")
    assert sorted(rows) == [("a", 2, 4), ("b", 5, 10)]
    assert next(rows.dicts()).keys() == {"who", "n", "twice"}
    rows = rows_of("sums($who, sum($n), 0) <- at($who, $n).", facts)
    assert rows.names == ("who", "sum($n)", "0")
    assert sorted(rows) == [("a", 3, 0), ("b", 5, 0)]


def test_a_body_without_variables_holds_or_does_not() -> None:
    assert list(rows_of("at(1)", [Record("at", 1)])) == [()]
    assert list(rows_of("at(2)", [Record("at", 1)])) == []


def test_states_of_several_epochs_are_fetched_again_as_of_the_newest() -> None:
    steps = looking(question("a($x), b($x)", {}), None)
    assert next(steps).as_of is None
    assert steps.send((4, [])).as_of is None
    assert steps.send((6, [])).as_of == 6, "the first state is of an older epoch"
    assert steps.send((6, [(Record("a", 1),)])).as_of == 6
    with pytest.raises(StopIteration) as end:
        steps.send((6, [(Record("b", 1),)]))
    epoch, facts = end.value.value
    assert epoch == 6
    assert facts == [Record("facts-0", (Record("a", 1),)), Record("facts-1", (Record("b", 1),))]


def test_equal_patterns_are_fetched_once_and_known_values_narrow_them() -> None:
    asked = question("p($x, $y), p($y, $z), not q($x), p($x, $w)", {})
    assert len(asked.patterns) == 2
    (pattern,) = question("p($x, $y)", {"x": "a"}).patterns
    assert matcher(pattern)(Record("p", "a", 1)) == ()
    assert matcher(pattern)(Record("p", "b", 1)) is None


def test_too_many_facts_are_refused_before_they_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MOST_FACTS", 3)
    with pytest.raises(Refused, match="a query reads at most 3 facts"):
        rows_of("q($x), q($y), p($x, $y)", [*[Record("q", n) for n in range(3)], Record("p", 1, 1)])


def test_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MOST_ROWS", 1_000)
    facts = [Record("q", n) for n in range(100)]
    with pytest.raises(UsageError, match="cannot be carried out: more than 1000 rows, the last one of"):
        rows_of("q($x), q($y), q($z)", facts)
    with pytest.raises(UsageError, match="cannot be carried out: more than 5000 rows were looked at"):
        rows_of("q($x), q($y), q($z), $x + $y + $z < 0", facts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected what is asked for"),
        ("p($x),", "expected what is asked for"),
        ("p($x) q($x)", "expected"),
        ("p($x). q($x)", "expected the end"),
        ("p($x), $y > 1", r"^\$y in \$y > 1 is bound by no positive part"),
        ("not p($x)", r"\$x in not p"),
        ("$x = 1", "name at least one"),
        ("next(a($x)) <- p($x)", "without next"),
        ("a($x) <- p($x). b($x) <- p($x)", "2 rules where one is expected"),
        ("p($x), $y = 1 / $x", "division by zero"),
    ],
)
def test_a_text_that_is_no_query_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        rows_of(text, [Record("p", 0)])


def test_a_parameter_that_is_no_variable_of_the_text_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no \$z in p\(\$x\)"):
        question("p($x)", {"z": 1})


def test_facts_named_like_an_aggregate_are_read_as_any_others() -> None:
    facts = [Record("count", 5), Record("sum", Record("max", 1)), Record("top", 1, 2)]
    assert list(rows_of("count($n)", facts)) == [(5,)]
    assert list(rows_of("sum($x)", facts)) == [(Record("max", 1),)]
    assert list(rows_of("top($a, $b), count($n)", facts)) == [(1, 2, 5)]
