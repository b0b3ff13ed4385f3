"""What contradicts a declared relation is refused, with the nearest name; and nothing else is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.space import Space
from dataspace.rules.engine.program import Program
from dataspace.rules.language.declarations import KINDS, Declaration, check_fact
from dataspace.rules.language.parser import read_rules, read_text
from index.errors import UsageError
from index.patterns.text import parse
from index.values.values import Map, Record, Value

TEMP = "relation temp(device: str, celsius: number). "

REFUSED = {
    "hot($d) <- tepm($d, $v).": "no relation tepm is declared: did you mean temp?",
    "temps($d) <- q($d).": "no relation temps is declared: did you mean temp?",
    "hot($d) <- q($d), not temp($d).": "temp has 1 fields here, declared is relation temp(",
    "hot($d) <- temp($d, _, _).": "temp has 3 fields here",
    'hot($d) <- temp($d, "a").': '"a" as celsius of temp, declared is celsius: number',
    "hot($d) <- temp($d:int, $v).": "$d:int as device of temp, declared is device: str",
    "hot($d) <- $f(temp(_:bytes, $d)).": "_:bytes as device of temp",
    "hot($d) <- temp($d, lit([1])).": "lit([1]) as celsius of temp",
    "hot($d) <- temp($d, $d).": "$d is str in temp($d, $d) and number in temp($d, $d), as declared",
    "hot($d) <- temp($d, $v), temp($v, _).": "$v is number in temp($d, $v) and str in temp($v, _)",
    'hot($d) <- temp($d, $v), $v > "90".': "never holds: a number and a text",
    "hot($d) <- q($d), (temp($d, true) or r($d)).": "true as celsius of temp",
    "hot($d) <- (temp($d, $v), $v = $d) for 3 s.": "never holds: a number and a text",
    "hot($d) <- d($d), count() of (temp($d, null)) > 2.": "null as celsius of temp",
    "temp($d, lower($d)) <- q($d).": "lower($d) as celsius of temp",
    "temp(1, 2) <- q($d).": "1 as device of temp",
    "send(temp(count(), 2)) <- q($d).": "an aggregate is a fact that changes",
    "temp(collect($d), 2) <- q($d).": "collect($d) as device of temp",
    "temp($d) <- q($d).": "temp has 1 fields",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_rule_that_contradicts_a_declaration_is_refused(text: str) -> None:
    for whole in (TEMP + text, text + TEMP):
        with pytest.raises(UsageError) as caught:
            read_rules(whole)
        assert REFUSED[text] in str(caught.value)


READ = [
    "hot($d) <- temp($d, $v:float), $v > 90, not temp($d, 3), exact(temp($d, $v)).",
    "temp($d, $v) <- q($d, $v). temp(lower($d), -1.5) <- q($d, _). next(temp($d, max($v))) <- temp($d, $v).",
    "hot($x) <- $x, relation($x), strict($x), <1>($x, 1, 2), humidity($x).",
    "relation hot(d: any). hot($d) <- temp($d, _). hot($v) <- temp(_, $v).",
]


@pytest.mark.parametrize("text", READ)
def test_a_rule_that_agrees_is_read(text: str) -> None:
    assert read_rules(TEMP + text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("relation temp(device: string).", "no class 'string', which are bool"),
        ("relation temp(a: int, a: int).", "expected the name of a field"),
        ("relation temp(a).", "expected ':'"),
        ("relation a(). strict relation a().", "a is declared twice"),
    ],
)
def test_what_is_no_declaration_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_rules(text)
    assert said in str(caught.value)


VALUES: dict[str, Value] = {
    "bool": True,
    "int": 1,
    "float": 1.0,
    "str": "a",
    "bytes": b"a",
    "time": parse("@2026-01-01T00:00:00Z"),
    "record": Record("p"),
    "seq": (1,),
    "map": Map(),
    "null": None,
}


@given(
    st.lists(st.sampled_from(sorted(KINDS)), max_size=3),
    st.lists(st.sampled_from(sorted(VALUES)), max_size=3),
)
def test_a_fact_agrees_if_all_of_its_fields_do(classes: list[str], given_classes: list[str]) -> None:
    declared = Declaration("p", tuple((f"f{at}", each) for at, each in enumerate(classes)))
    assert read_text(str(declared)).declared == {"p": declared}
    agrees = len(classes) == len(given_classes) and all(
        one in ("any", other) or (one == "number" and other in ("int", "float"))
        for one, other in zip(classes, given_classes, strict=True)
    )
    fact = Record("p", *[VALUES[each] for each in given_classes])
    if agrees:
        check_fact(fact, {"p": declared})
    else:
        with pytest.raises(UsageError):
            check_fact(fact, {"p": declared})


@pytest.mark.parametrize("label", ["tmp", "etmp", "tempo", "remp", "tem", "ttemp", "temq"])
def test_a_label_that_differs_in_one_place_is_taken_for_mistyped(label: str) -> None:
    with pytest.raises(UsageError, match=f"no relation {label} is declared: did you mean temp"):
        read_rules(f"{TEMP} p($x) <- {label}($x, 1).")


@pytest.mark.parametrize("label", ["te", "pmet", "humidity", "temper", "t", "pt"])
def test_a_label_that_differs_in_more_is_another_relation(label: str) -> None:
    assert read_rules(f"{TEMP} relation t1(a: int). p($x) <- {label}($x, 1), t2($x).")


def test_relations_are_bounded_in_number() -> None:
    program = Program()
    program.add("many", " ".join([f"relation r{n}-{n}(a: int)." for n in range(0, 3000, 3)]))
    assert not errors(program)
    program.add("more", "relation other(a: int).")
    assert "1001 relations are declared in all texts, limit 1000" in errors(program)["more"]


def errors(program: Program) -> dict[str, str]:
    return {entry.name: entry.error for entry in program.entries.values() if entry.error}


def test_a_declaration_holds_for_rules_of_other_texts_while_it_is_there() -> None:
    program = Program()
    program.add("types", TEMP)
    program.add("bad", "hot($d) <- temp($d).")
    program.add("good", "hot($d) <- temp($d, $v), $v > 90.")
    assert list(errors(program)) == ["bad"]
    assert program.tick([Record("temp", "a", 95)]).added == [Record("hot", "a")]
    program.remove("types", TEMP)
    program.add("late", "cold($d) <- temp($d).")
    assert list(errors(program)) == ["bad"]


def test_a_declaration_that_others_contradict_is_refused_and_they_go_on() -> None:
    program = Program()
    program.add("first", "hot($d) <- temp($d).")
    program.tick([Record("temp", "a")])
    program.add("types", TEMP)
    assert "the rules called first do not agree: temp has 1 fields here" in errors(program)["types"]
    assert program.derived() == [Record("hot", "a")]
    program.add("one", "relation job(id: int).")
    program.add("two", "relation job(id: str).")
    assert errors(program)["two"] == "job is declared otherwise by another text: relation job(id: int)."


def test_rules_and_declarations_of_one_turn_agree_whatever_their_order() -> None:
    for pairs in (
        [("bad", "hot($d) <- temp($d)."), ("types", TEMP)],
        [("types", TEMP), ("bad", "hot($d) <- temp($d).")],
    ):
        program = Program()
        program.change(pairs, [])
        assert list(errors(program)) == ["bad"]


def test_clients_are_held_to_strict_relations_only() -> None:
    space = Space("s")
    space.commit("c", [(ASSERT, 1, Record("rule", "types", "strict relation job(id: int). " + TEMP))], 1)
    space.commit(
        "c", [(ASSERT, 2, Record("job", 1)), (ASSERT, 3, Record("temp", 1)), (ASSERT, 4, Record("other"))], 2
    )
    before = set(map(str, space.index.values()))
    for bad, said in (
        (Record("job", "a"), '"a" as id of job, declared is id: int'),
        (Record("job"), "job has 0 fields here"),
        (Record("jobs", 1), "no relation jobs is declared: did you mean job?"),
    ):
        with pytest.raises(Refused, match=re.escape(said)) as caught:
            space.commit("d", [(ASSERT, 1, Record("other", 2)), (ASSERT, 2, bad)], 3)
        assert caught.value.code == "bad-request"
        assert set(map(str, space.index.values())) == before, "nothing of the turn has happened"
    space.commit("d", [(ASSERT, 1, Record("other", 2)), (ASSERT, 2, Record("job", 2))], 4)
