"""What goes and comes back is the fact that it was, and little is kept for that."""

from __future__ import annotations

import random

from dataspace.rules.engine.program import Program
from dataspace.rules.relations.derived_relations import MAX_RETIRED_TEXT, HeadRelation
from index.values.values import Record, Value

REACH = "r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), e($y, $z)."


def head(program: Program) -> HeadRelation:
    (engine,) = program.components
    (found,) = engine.dependencies.heads.values()
    return found


def chain(length: int) -> list[Value]:
    return [Record("e", n, n + 1) for n in range(length)]


def test_a_fact_that_comes_back_soon_is_the_same_object() -> None:
    program = Program()
    program.add("reach", REACH)
    program.tick(chain(20))
    gone = program.tick((), [Record("e", 18, 19)]).removed
    back = program.tick([Record("e", 18, 19)]).added
    assert len(gone) == 38 and sorted(map(id, gone)) == sorted(map(id, back))


def test_of_rows_that_are_gone_no_more_are_kept_than_a_quarter_of_all() -> None:
    program, rng = Program(), random.Random(3)
    program.add("reach", REACH)
    facts = chain(40)
    program.tick(facts)
    for fact in rng.sample(facts, len(facts)):
        program.tick((), [fact])
        relation = head(program)
        assert 4 * (len(relation.states) - relation.count()) <= len(relation.states)
    assert not relation.states


def test_large_facts_that_are_gone_are_not_kept() -> None:
    program = Program()
    program.add("copy", "copy($n, $x) <- text($n, $x).")
    text = "x" * (MAX_RETIRED_TEXT // 4)
    facts: list[Value] = [Record("text", n, text) for n in range(40)]
    program.tick(facts)
    for fact in facts[:7]:
        program.tick((), [fact])
    relation = head(program)
    assert relation.count() == 33 and len(relation.states) <= 33 + 3


def test_what_came_and_went_in_one_tick_leaves_no_state() -> None:
    program = Program()
    program.add("both", "both($x) <- here($x), said($x). both($x) <- always($x).")
    program.tick([Record(label, n) for label in ("here", "always") for n in range(9)])
    program.tick((), [Record("always", 1)])
    assert len(head(program).states) == 9, "it is kept"
    assert not program.tick((), (), [Record("said", n) for n in range(2)]).added
    program.tick([Record("here", 20)])
    assert not program.tick((), (), [Record("said", 20)]).added
    assert len(head(program).states) == 8, "nobody knows how large it would have been"
