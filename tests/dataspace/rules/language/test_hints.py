"""Whoever writes a rule as in another language, or mixes up names, is told what to write here."""

from __future__ import annotations

from typing import TypeGuard

import pytest

from dataspace import Record
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.space import Space
from dataspace.rules.language.parser import read_rules
from dataspace.rules.relations.failures import complaint
from index.errors import UsageError
from index.values.values import Map


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p($x) :- q($x).", "between a head and its body stands <-, and not :- (line 1, column 7)"),
        ("p($x) <= q($x).", "stands <-, and not <="),
        ("p($x) if q($x).", "stands <-, and not if"),
        ("q($x) => p($x).", "the head comes first: fact($x) <- body($x), and no =>"),
        ("q($x) -> p($x).", "the head comes first: fact($x) <- body($x), and no ->"),
        ("-- all of them\np($x) <- q($x).", "a comment begins with #, and not with --"),
        ("p($x) <- q($x). // done", "a comment begins with #, and not with //"),
        ("p($x) <- q($x) -- it\n.", "a comment begins with #, and not with --"),
        ("p($x) <-\n-- it\nq($x).", "a comment begins with #, and not with -- (line 2"),
        ("let y = 3. p($x) <- q($x), $x > $y.", "$y is a variable, and let names a constant: write y"),
        ("p($y) <- q($x), let y = $x + 1.", "in a rule write $y = $x + 1"),
        ("p($y) <- let $y = 1, q($x).", "in a rule write $y = $x + 1"),
        ("p($X) <- q($x).", "did you mean $x? Upper and lower case are two names"),
        ("p($x, $Name) <- q($x, $name).", "did you mean $name? Upper and lower case are two names"),
    ],
)
def test_what_to_write_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_rules(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "p($x) <- q($x), $x > 1 - -2.",
        "p($x) <- let($x), if($x).",
        "if($x) <- q($x).",
        "p($y) <- q($x), $y = $x + 1.",
        "let y = 3. p($y) <- q($y), $y > y.",
        "p($x, $X) <- q($x, $X).",
        "p($x) <- q($x), $x != 100 % 7.",
    ],
)
def test_what_only_looks_alike_is_read(text: str) -> None:
    assert read_rules(text)


def test_a_variable_that_nobody_wrote_is_not_shown() -> None:
    with pytest.raises(UsageError) as refused:
        read_rules("hot($d) <- min($v) of (reading($d, $v, _) within 5 s) > $w.")
    assert "unsafe rule: $w in … > $w is bound by no" in str(refused.value)
    row = Map({"x": 1, "column-1": 2, "value-1": 3, "column-2": 4})
    shown = complaint("r", "p($x) <- q($x, $column-2, _) within 5 s.", row, "why").fields[2]
    assert shown == Map({"x": 1, "column-2": 4})  # which the rule has itself


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a($x) <- b($x), not a($x).", "a -!-> a: a($x) is derived where it is absent: derive another fact"),
        ("win($x) <- move($x, $y), not win($y).", "win -!-> win: break it with next"),
        ("a($x) <- b($x), not c($x). c($x) <- a($x).", "a -> c -!-> a: break it with next"),
    ],
)
def test_next_is_proposed_where_it_can_help(text: str, said: str) -> None:
    space = Space("main")
    space.commit("owner", [(ASSERT, 1, Record("rule", "r", text))], 0)
    ((_, _, _, why),) = [each.fields for each in space.index.values() if _is_error(each)]
    assert why == said


def _is_error(value: object) -> TypeGuard[Record]:
    return isinstance(value, Record) and value.label == "rule-error"


def test_a_closure_over_a_chain_of_200_edges_in_one_turn_is_within_the_usual_limits() -> None:
    space = Space("main")
    text = "reach($x, $y) <- edge($x, $y). reach($x, $z) <- reach($x, $y), edge($y, $z)."
    space.commit("owner", [(ASSERT, 1, Record("rule", "r", text))], 0)
    space.commit("owner", [(ASSERT, 2 + n, Record("edge", n, n + 1)) for n in range(200)], 0)
    values = list(space.index.values())
    assert not any(map(_is_error, values))
    assert sum(isinstance(each, Record) and each.label == "reach" for each in values) == 200 * 201 // 2
