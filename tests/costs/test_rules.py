"""What a rule costs grows with its facts and messages, for each construct of the language.

Measured are equal and different facts, in one turn or in many, of one owner or of many; as they come, while
time passes, as they go, and when a restart rebuilds what rules remember.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Final, get_args

import pytest

from dataspace.rules.language.lowering import lowered
from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import AGGREGATES, Literal, TimeKind, Verb
from tests.costs.constructs import RULES, VALUES, present
from tests.costs.counting import Cost, Known, judge
from tests.costs.kernel import LIVES, SPREADS, MeasuredSpace

N: Final = 16
LONG: Final = 100
JUMP: Final = 5_000
"""Steps that are not judged of the long form: what is much is done in steps of 256 rows."""

QUICK: Final = (
    ("equal", "in one turn"),
    ("different", "of n owners"),
    ("of one key", "in one turn"),
)
"""Values and turns of the quick form."""

PAIRS: Final = "each fact has a derived fact with each other one"
KNOWN: Final = {
    "self join": [Known("of one key", PAIRS)],
    "comparison of two": [Known("of one key", "each fact is compared with each other one")],
    "negation of all": [Known("messages come", "n facts go and come back with each message")],
}


def _costs(construct: str, cells: Iterable[tuple[str, str]], count: int) -> dict[str, Cost]:
    found: dict[str, Cost] = {}
    for (values, spread), life in product(cells, LIVES):
        space = MeasuredSpace(RULES[construct], present(count))
        life(space, SPREADS[spread], VALUES[values](count))
        for name, each in space.costs.items():
            found[f"{values}, {name} {spread}"] = each
    return found


def test_each_construct_has_a_rule() -> None:
    read = [rule for texts in RULES.values() for text in texts for rule in read_rules(text)]
    made = lowered(read)
    assert {each.__class__ for rule in read for each in rule.body} == set(get_args(Literal))
    assert {rule.head.verb for rule in (*read, *made)} == set(Verb)
    assert {rule.form.kind for rule in made if rule.form is not None} == set(TimeKind)
    assert {each.name for rule in read for each in rule.head.aggregates} == set(AGGREGATES)


@pytest.mark.slow
@pytest.mark.parametrize("construct", RULES)
def test_a_rule_costs_as_much_as_it_reads_and_derives(construct: str) -> None:
    judge(partial(_costs, construct, QUICK), N, KNOWN.get(construct, ()))


@pytest.mark.torture(long=True)
@pytest.mark.parametrize("construct", RULES)
def test_many_facts_of_a_rule(construct: str) -> None:
    judge(partial(_costs, construct, list(product(VALUES, SPREADS))), LONG, KNOWN.get(construct, ()), JUMP)
