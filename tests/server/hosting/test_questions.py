"""A question about rules shows what its asker may observe, counts the rest, and looks at so many rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, SEND, Action
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine import explaining
from index.patterns.text import parse_pattern, unparse
from index.values.values import Map, Record, Value
from server.config.rights import Permit, Rights
from server.spaces.rules import QUESTIONS, ask_rules

RULES = "p($x) <- n($x), secret($x, $k), not off($x). q($x) <- p($x)."
OTHER = "hidden($k) <- secret(_, $k)."
EVERYTHING = Permit("all")


def space_of(*facts: Value) -> Space:
    space = Space("main", limits=SpaceLimits(derive_work=1 << 30))
    space.commit("ops", [(ASSERT, 0, Record("rule", "r", RULES)), (ASSERT, 1, Record("rule", "h", OTHER))], 0)
    space.commit("durable:me", [(ASSERT, n, fact) for n, fact in enumerate(facts)], 0)
    return space


def permit(*observe: str) -> Permit:
    return Permit("some", [Rights(observe=observe)])


SMALL = [Record("n", 1), Record("secret", 1, "k-e-y"), Record("n", 2)]


def answer(space: Space, asker: Permit, question: str, about: str) -> str:
    told = ask_rules(space, asker, question, parse_pattern(about))
    rows = ask_rules(space, asker, question, parse_pattern(about), "rows")
    assert isinstance(told, str) and isinstance(rows, tuple)
    return "\n".join([told, *map(repr, rows)])


def test_why_says_who_claims() -> None:
    told = ask_rules(space_of(*SMALL), EVERYTHING, "why", parse_pattern("q(1)"))
    assert isinstance(told, str)
    assert "n(1)    claimed by durable:me" in told and 'secret(1, "k-e-y")    claimed by durable:me' in told
    rows = ask_rules(space_of(*SMALL), EVERYTHING, "why", parse_pattern("q(1)"), "rows")
    assert isinstance(rows, tuple)
    assert Map({"depth": 2, "fact": Record("n", 1), "by": "claimed", "owners": ("durable:me",)}) in rows


def test_why_withholds_the_facts_and_rules_that_may_not_be_observed() -> None:
    space = space_of(*SMALL)
    told = answer(space, permit("q(_)", "p(_)", "n(_)"), "why", "q(1)")
    assert "k-e-y" not in told and "secret" not in told and "off" not in told
    assert "a rule that is withheld" in told
    assert "2 facts withheld: the token does not allow to observe them" in told
    told = answer(space, permit("q(_)", "p(_)", "n(_)", "off(_)", "rule(_, _)"), "why", "q(1)")
    assert "1 fact withheld: the token does not allow to observe it" in told and "not off(1)" in told


def test_what_may_not_be_observed_is_refused_whether_it_holds_or_not() -> None:
    space, asker = space_of(*SMALL), permit("q(_)")
    for question in ("why", "why-not"):
        for about in ('secret(1, "k-e-y")', "secret(7, 7)", "secret(_, _)", "_", "hidden(_)"):
            with pytest.raises(Refused, match="the token does not allow to observe"):
                ask_rules(space, asker, question, parse_pattern(about))


def test_why_not_shows_no_values_of_facts_that_may_not_be_observed() -> None:
    told = answer(space_of(*SMALL), permit("p(_)", "n(_)", "rule(_, _)"), "why-not", "p(2)")
    assert "1 rule withheld" in told and "secret" not in told
    told = answer(space_of(*SMALL), EVERYTHING, "why-not", "p(2)")
    assert "no match of secret($x, $k)" in told


def test_how_rules_are_carried_out_is_shown_of_what_may_be_observed() -> None:
    space = space_of(*SMALL)
    everything = answer(space, EVERYTHING, "explain", "_")
    assert "secret" in everything and "withheld" not in everything
    told = answer(space, permit("n(_)", "p(_)", "q(_)", "rule(_, _)"), "explain", "_")
    assert "secret" not in told and "hidden" not in told and "q($x) <- p($x)" in told
    assert "rules withheld" in told and "relations withheld" in told
    with pytest.raises(Refused, match="does not allow to observe all that the graph"):
        ask_rules(space, permit("n(_)", "p(_)"), "graph", None)
    assert "secret" in str(ask_rules(space, permit("_"), "graph", None))


OBSERVE = ("n(_)", "p(_)", "q(_)", "off(_)", "hidden(_)", "rule(_, _)", "secret(_, _)", "secret(1, _)")


@settings(max_examples=100, deadline=None)
@given(
    st.sets(st.sampled_from(OBSERVE)),
    st.sampled_from(QUESTIONS),
    st.sampled_from(["p(1)", "q(_)", "hidden(_)"]),
)
def test_no_answer_differs_by_what_the_asker_may_not_observe(
    observe: set[str], question: str, about: str
) -> None:
    asker = permit(*sorted(observe))
    told = []
    for mark in ("k-e-y", "other"):
        facts = [Record("n", 1), Record("secret", 1, mark)]
        try:
            told.append(answer(space_of(*facts), asker, question, about))
        except Refused as refusal:
            told.append(str(refusal))
    if not observe & {"secret(_, _)", "secret(1, _)", "hidden(_)"}:
        assert told[0] == told[1]
        assert "k-e-y" not in told[0]


def test_a_proof_among_many_rows_goes_as_deep_as_it_is_shown() -> None:
    space = Space("main", limits=SpaceLimits(derive_work=1 << 30))
    text = "reach($x, $y) <- road($x, $y, _). reach($x, $z) <- reach($x, $y), road($y, $z, _)."
    space.commit("ops", [(ASSERT, 0, Record("rule", "r", text))], 0)
    ways = [Record("road", way * 100 + n, way * 100 + n + 1, "x") for way in range(60) for n in range(25)]
    actions: list[Action] = [(ASSERT, n, road) for n, road in enumerate(ways)]
    space.commit("durable:roads", actions, 0)
    assert len(space.claims("rules")) == 60 * 25 * 26 // 2
    told = ask_rules(space, EVERYTHING, "why", Record("reach", 0, 25))
    assert isinstance(told, str)
    assert "more rows than a question may look at" not in told
    assert told.count("claimed by durable:roads") == 25 and told.count("by reach(") == 25


def test_a_question_about_many_rules_looks_at_so_many_rows_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explaining, "LOOKED_AT", 500)
    space = Space("main", limits=SpaceLimits(derive_work=1 << 30))
    texts = " ".join([f"p($x, {n}) <- n($x), m($x, $y), $y > {n + 1_000}." for n in range(50)])
    space.commit("ops", [(ASSERT, 0, Record("rule", "r", texts))], 0)
    space.commit("a", [(ASSERT, n, Record("n", n)) for n in range(400)], 0)
    space.commit("a", [(ASSERT, n + 400, Record("m", n, n)) for n in range(400)], 0)
    program = space.rules.program
    assert program is not None
    explainer = program.explainer()
    assert explainer.why_not(parse_pattern("p(_, _)")).count("nothing found among the first 500 rows") >= 49
    assert unparse(parse_pattern("p(_, _)")) == "p(_, _)"


def test_the_graph_as_rows_has_the_nodes_and_edges_of_the_drawing() -> None:
    space = space_of(*SMALL)
    rows = ask_rules(space, EVERYTHING, "graph", None, "rows")
    drawn = ask_rules(space, EVERYTHING, "graph", None)
    assert isinstance(rows, tuple) and isinstance(drawn, str)
    nodes = {(row["part"], row["node"]): row for row in rows if isinstance(row, Map) and "node" in row}
    edges = [row for row in rows if isinstance(row, Map) and "from" in row]
    assert len(nodes) + len(edges) == len(rows) > 6
    assert all({(edge["part"], edge["from"]), (edge["part"], edge["to"])} <= set(nodes) for edge in edges)
    assert sum(bool(edge["blocking"]) for edge in edges) == 1 == drawn.count("--x")
    below = [nodes[0, edge["from"]]["stratum"] for edge in edges if edge["blocking"]]
    assert [nodes[0, edge["to"]]["stratum"] for edge in edges if edge["blocking"]] == [below[0] + 1]  # type: ignore[operator]
    empty = Space("main")
    assert ask_rules(empty, EVERYTHING, "graph", None, "rows") == ()
    with pytest.raises(Refused, match="not-allowed"):
        ask_rules(space, permit("p(_)"), "graph", None, "rows")


def test_a_question_comes_after_the_whole_turn_of_an_instant() -> None:
    space = Space("s")
    space.commit("a", [(ASSERT, 0, Record("rule", "r", "recent($n) <- m($n) within 1 s."))], 10_000_000)
    space.commit("a", [(SEND, Record("m", n)) for n in range(1_000)], 10_000_000)
    steps = space.making_instant()
    for _ in range(20):
        next(steps)
    assert space.rules.claimed == 1_000
    for n in (0, 999):
        told = ask_rules(space, EVERYTHING, "why-not", Record("recent", n), now=11_000_000)
        assert f"no match of m({n})" in str(told)
    assert not space.rules.claimed and next(steps, "over") == "over"
