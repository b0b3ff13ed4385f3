"""Whatever rules derive can be explained, and what they do not as well; a proof always ends."""

from __future__ import annotations

import random

import pytest

from dataspace.flows.mermaid import mermaid
from dataspace.rules.engine.explaining import Proof
from dataspace.rules.engine.program import Program
from index.patterns.text import parse, parse_pattern, unparse
from index.values.values import Record, Value, key

REACH = "reach($x, $y) <- edge($x, $y). reach($x, $z) <- reach($x, $y), edge($y, $z), not gone($y)."
MORE = "hub($x, count($y)) <- reach($x, $y). far($x) <- hub($x, $n), $n >= 2, not reach($x, 1)."


def program(text: str, *facts: str) -> Program:
    made = Program()
    made.add("test", text)
    made.tick([parse(fact) for fact in facts])
    assert not made.entries["test", text].error
    return made


def test_a_proof_goes_back_to_what_is_claimed() -> None:
    proof = program(REACH, "edge(1, 2)", "edge(2, 3)", "edge(3, 1)").explainer().why(parse("reach(1, 1)"))
    assert str(proof) == "\n".join(
        [
            "reach(1, 1)    by reach($x, $z) <- reach($x, $y), edge($y, $z), not gone($y).",
            "    reach(1, 3)    by reach($x, $z) <- reach($x, $y), edge($y, $z), not gone($y).",
            "        reach(1, 2)    by reach($x, $y) <- edge($x, $y).",
            "            edge(1, 2)    claimed",
            "        edge(2, 3)    claimed",
            "        not gone(2)",
            "    edge(3, 1)    claimed",
            "    not gone(3)",
        ]
    )


def test_the_proof_of_an_aggregate_shows_what_was_counted() -> None:
    proof = program(REACH + MORE, "edge(4, 5)", "edge(5, 6)").explainer().why(parse("far(4)"))
    assert proof is not None
    (hub,) = proof.premises
    assert unparse(hub.fact) == "hub(4, 2)" and len(hub.premises) == 2
    assert proof.absent == ("not reach(4, 1)",)


def test_the_proof_of_a_count_of_none_shows_what_is_not_there() -> None:
    text = """
        load($q, count($j), count($k)) <- maybe job($q, $j), queue($q), maybe (job($q, $k), not done($k)).
    """
    explainer = program(text, "queue(1)", "queue(2)", "job(2, 5)", "done(5)").explainer()
    none, one = explainer.why(parse("load(1, 0, 0)")), explainer.why(parse("load(2, 1, 0)"))
    assert none is not None and one is not None
    assert [unparse(each.fact) for each in none.premises] == ["queue(1)"]
    assert none.absent == ("not job(1, _)", "not (job(1, $k), not done($k))")
    assert [unparse(each.fact) for each in one.premises] == ["job(2, 5)", "queue(2)"]
    assert one.absent == ("not (job(2, $k), not done($k))",)
    assert "no match of queue($q)" in explainer.why_not(parse_pattern("load(3, _, _)"))


def test_what_does_not_follow_names_what_lacks() -> None:
    explainer = program(REACH + MORE, "edge(1, 2)", "edge(2, 1)").explainer()
    assert "no match of edge($y, $z)  with $x = 1, $z = 9, $y = 2" in explainer.why_not(parse("reach(1, 9)"))
    assert "there is a match of reach($x, 1)" in explainer.why_not(parse("far(1)"))
    assert explainer.why_not(parse_pattern("reach(1, _)")) == "reach(1, 2) is there: ask why"
    assert explainer.why_not(parse("other(1)")) == "no rule derives facts like other(1)"
    assert explainer.why(parse("reach(1, 9)")) is None


@pytest.mark.slow
def test_every_derived_fact_has_a_proof_in_which_nothing_supports_itself() -> None:
    text = "r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), r($y, $z). s($x) <- r($x, _), not e($x, $x)."
    for seed in range(20):
        rng = random.Random(seed)
        made = program(text)
        claimed: dict[object, Value] = {}
        for _ in range(60):
            fact = Record("e", rng.randrange(5), rng.randrange(5))
            if claimed.pop(key(fact), None) is None:
                claimed[key(fact)] = fact
                made.tick([fact])
            else:
                made.tick((), [fact])
        for derived in made.derived():
            proof = made.explainer().why(derived)
            assert proof is not None
            check(proof, {key(fact) for fact in claimed.values()}, [])


def check(proof: Proof, claimed: set[object], above: list[Value]) -> None:
    assert proof.fact not in above, "nothing supports itself"
    if not proof.rule:
        assert key(proof.fact) in claimed
    elif proof.rule != "what is shown above":
        assert proof.premises
    for premise in proof.premises:
        check(premise, claimed, [*above, proof.fact])


def test_how_rules_are_carried_out_is_told_by_stratum() -> None:
    made = Program(clock=iter(range(0, 10_000_000, 500)).__next__)
    made.add("test", REACH + MORE)
    made.tick([parse("edge(1, 2)"), parse("edge(2, 3)")])
    lines = made.explainer().description.explain().splitlines()
    assert (
        lines[0] == "stratum 0" and [line for line in lines if line.startswith("stratum")][-1] == "stratum 2"
    )
    assert any("reach " in line and "3 rows" in line and "by 1: 2" in line for line in lines)
    assert "    edge($x, $y) -> not gone($x) (check)" not in lines
    assert any("rows took" in line for line in lines), "time and rows, since there is a clock"


def test_the_graph_marks_handoffs_and_what_blocks() -> None:
    graph = mermaid(program(REACH + MORE).explainer().description.part())
    assert 'subgraph s2["stratum 2"]' in graph
    assert '(["handoff"])' in graph and "--x|not|" in graph and "--x|aggregate|" in graph


def test_the_report_says_which_rules_are_monotone_and_at_which_input_others_are_not() -> None:
    told = program("a($x) <- b($x). c($x) <- a($x), not d($x). e(count($x)) <- c($x). f($x) <- e($x).")
    assert told.explainer().description.monotonicity().splitlines() == [
        "a($x) <- b($x).",
        "    monotone",
        "c($x) <- a($x), not d($x).",
        "    not monotone: waits for all of not d($x)",
        "e(count($x)) <- c($x).",
        "    not monotone: waits for all of c($x); leans on c",
        "f($x) <- e($x).",
        "    not monotone: leans on e",
    ]


def test_a_negated_conjunction_is_not_monotone() -> None:
    told = program("a($x) <- b($x), not (c($x), d($x)). e($x) <- b($x), (c($x) or d($x)).")
    assert told.explainer().description.monotonicity().splitlines() == [
        "a($x) <- b($x), not (c($x), d($x)).",
        "    not monotone: waits for all of not (c($x), d($x))",
        "e($x) <- b($x), (c($x) or d($x)).",
        "    monotone",
    ]


def test_a_cycle_through_what_blocks_is_refused_with_the_whole_cycle() -> None:
    made = Program()
    text = "a($x) <- b($x). c($x) <- a($x), n($x). b($x) <- n($x), not c($x)."
    made.add("loop", text)
    assert made.entries["loop", text].error == "b -> a -> c -!-> b: break it with next"


def test_a_proof_shows_a_claimed_fact_as_it_is_and_not_as_it_was_asked_for() -> None:
    program = Program()
    program.add("r", 'p($x) <- b($x), c($x, {"k": $y}).')
    program.tick([parse("b(2, 5)"), parse('c(2, {"k": 1, "more": 2})')])
    assert str(program.explainer().why(parse("p(2)"))).splitlines()[1:] == [
        "    b(2, 5)    claimed",
        '    c(2, {"k": 1, "more": 2})    claimed',
    ]
