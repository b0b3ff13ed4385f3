"""Answers about rules over time have times: since when, until when, and at which time something comes."""

from __future__ import annotations

import re

import pytest

from dataspace.instants import GRID
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.kernel.space import Space
from dataspace.rules.engine.explaining import Explainer
from dataspace.rules.language.arithmetic import time_of
from dataspace.rules.relations.proofs import Sight
from index.patterns.text import parse_pattern
from index.values.values import Map, Record, Value

RULES = """
silent($d) <- device($d), not reading($d, _) within 10 s.
hot($d) <- (temp($d, $v), $v > 90) for 30 s.
mean($d, avg($v)) <- reading($d, $v) within 60 s.
overdue($job) <- job($job, $due), $due <= now.
early($job) <- job($job, $due), now < $due.
final(minute($m, $d, avg($v))) <- reading($d, $v) at $t within 3 min, $m = floor($t, 1 min).
since($d, $t) <- temp($d, _) at $t.
"""
SECOND = 1_000_000
START = 1_800_000_000 * SECOND
"""08:00 UTC."""


def space() -> Space:
    """Returns a space with rules over time, a few facts of the second 1, and messages of 3.2 s and 5.2 s."""
    made = Space("s")
    made.commit("ops", [(ASSERT, 1, Record("rule", "r", RULES))], START)
    due = time_of(START + 20 * SECOND)
    facts = [Record("device", "d1"), Record("temp", "d1", 91), Record("job", "j", due)]
    made.commit("a", [(ASSERT, at, fact) for at, fact in enumerate(facts)], START + SECOND)
    made.commit("a", [(SEND, Record("reading", "d1", 21.5))], START + 3 * SECOND + 200_000)
    made.commit("a", [(SEND, Record("reading", "d2", 22.5))], START + 5 * SECOND + 200_000)
    return made


def explainer(of: Space, now: int | None = None, sight: Sight | None = None) -> Explainer:
    assert of.rules.program is not None
    return of.rules.program.explainer(sight, now)


def advance(of: Space, time: int) -> None:
    of.until(time)
    of.advance(time)


def rows(of: Space, pattern: str, now: int | None = None) -> list[Map]:
    return list(explainer(of, now).why_not_rows(parse_pattern(pattern)))


def holds(of: Space, pattern: str) -> bool:
    return explainer(of).match(parse_pattern(pattern)) is not None


def told(of: Space, pattern: str) -> list[str]:
    asked = explainer(of)
    fact = asked.match(parse_pattern(pattern))
    assert fact is not None
    return str(asked.why(fact)).splitlines()


def test_a_proof_has_the_literals_as_they_were_written_with_their_times() -> None:
    of = space()
    advance(of, START + 35 * SECOND)
    assert told(of, "silent(_)") == [
        'silent("d1")    by silent($d) <- device($d), not reading($d, _) within 10 s.',
        '    device("d1")    claimed',
        "    the rule is 10 s old    held since 2027-01-15T08:00:00Z",
        '    not reading("d1", _) within 10 s',
    ]
    assert told(of, "hot(_)") == [
        'hot("d1")    by hot($d) <- (temp($d, $v), $v > 90) for 30 s.',
        '    (temp("d1", $v), $v > 90) for 30 s    held since 2027-01-15T08:00:01Z',
        '        temp("d1", 91)    claimed',
    ]
    (line,) = told(of, 'mean("d1", _)')[1:]
    times = "from 2027-01-15T08:00:03.2Z until 2027-01-15T08:01:03.2Z"
    assert line == f'    reading("d1", 21.5) within 1 min    {times}'
    assert told(of, "since(_, _)")[1].endswith("held since 2027-01-15T08:00:01Z")
    assert told(of, "overdue(_)")[1:] == [
        "    @2027-01-15T08:00:20Z <= now    held since 2027-01-15T08:00:20Z",
        '        job("j", @2027-01-15T08:00:20Z)    claimed',
    ]


def test_rows_have_the_times_as_values() -> None:
    of = space()
    proof = explainer(of).why(Record("mean", "d1", 21.5))
    assert proof is not None
    since, until = time_of(START + 3_200_000), time_of(START + 63_200_000)
    assert list(proof.rows())[1] == Map(
        {
            "depth": 1,
            "literal": 'reading("d1", 21.5) within 1 min',
            "holds": "from 2027-01-15T08:00:03.2Z until 2027-01-15T08:01:03.2Z",
            "since": since,
            "until": until,
        }
    )


@pytest.mark.parametrize(
    ("pattern", "due", "text"),
    [
        ('silent("d1")', 13_200_000, "the last at 2027-01-15T08:00:03.2Z, silent in 7.2 s"),
        ('hot("d1")', 31_000_000, "held since 2027-01-15T08:00:01Z, not yet: in 25.0 s"),
        ('overdue("j")', 20_000_000, "not yet: in 14.0 s"),
        ('minute(_, "d2", _)', 60_000_000, "the window is not over: in 54.0 s"),
    ],
)
def test_what_is_due_comes_at_the_time_that_the_answer_has(pattern: str, due: int, text: str) -> None:
    of = space()
    (row,) = rows(of, pattern, START + 6 * SECOND)
    assert text in str(row.get("lacks"))
    assert row.get("due") == time_of(START + due)
    advance(of, START + due - GRID)
    assert not holds(of, pattern)
    advance(of, START + due)
    assert holds(of, pattern)


def test_a_rule_that_is_too_new_for_silence_says_so() -> None:
    of = space()
    (row,) = rows(of, 'silent("d3")', START + 6 * SECOND)
    assert "no match of device($d)" in str(row.get("lacks"))
    of.commit("b", [(ASSERT, 1, Record("device", "d3"))], START + 6 * SECOND)
    (row,) = rows(of, 'silent("d3")')
    why = "carried out since 2027-01-15T08:00:00Z, not yet: in 4.0 s (2027-01-15T08:00:10Z)"
    assert row.get("lacks") == f"the rule is 10 s old: {why}"


def test_of_several_groups_the_first_that_comes_by_time_is_due() -> None:
    of = space()
    text = "alarm($d) <- device($d), ((temp($d, _)) for 9 s or (temp($d, 91)) for 8 s or gone($d))."
    of.commit("b", [(ASSERT, 1, Record("rule", "or", text))], START + 6 * SECOND)
    (row,) = rows(of, 'alarm("d1")')
    assert row.get("due") == time_of(START + 14 * SECOND)
    advance(of, START + 14 * SECOND - GRID)
    assert not holds(of, 'alarm("d1")')
    advance(of, START + 14 * SECOND)
    assert holds(of, 'alarm("d1")')


def test_what_has_ended_says_when() -> None:
    of = space()
    advance(of, START + 23_100_000)
    (row,) = rows(of, 'early("j")')
    assert str(row.get("lacks")).endswith("ended 3.1 s ago (2027-01-15T08:00:20Z)")
    assert row.get("ended") == time_of(START + 20 * SECOND)


def test_a_condition_that_does_not_hold_says_what_lacks_inside() -> None:
    of = space()
    assert "$v > 90 does not hold" in str(told_not(of, 'hot("d1")', temp=80))
    assert "no match of temp($d, $v)" in str(rows(of, 'hot("d7")')[0].get("lacks"))
    assert 'no match of reading("d7", $v) within 1 min' in str(rows(of, 'mean("d7", _)')[0].get("lacks"))


def told_not(of: Space, pattern: str, temp: int) -> Value:
    of.commit("a", [(RETRACT, 1), (ASSERT, 9, Record("temp", "d1", temp))], START + 7 * SECOND)
    return rows(of, pattern)[0].get("lacks")


def test_no_answer_has_a_name_that_only_the_engine_knows() -> None:
    of = space()
    advance(of, START + 35 * SECOND)
    asked = explainer(of)
    texts = [
        asked.description.explain(),
        asked.description.monotonicity(),
        asked.why_not(Record("early", "j")),
    ]
    assert not [text for text in texts if "timed(" in text or re.search(r"\[[0-9a-f]{12}\.", text)]
    assert "not monotone: depends on time: reading($d, $v) within 1 min" in texts[1]
    listed = [str(row.get("rule")) for row in asked.description.explained_rows() if "rule" in row]
    assert listed[0] == "silent($d) <- device($d), not reading($d, _) within 10 s."
    assert len(listed) == RULES.count("<-")


def test_who_may_observe_the_facts_of_a_window_sees_its_times() -> None:
    of = space()
    advance(of, START + 35 * SECOND)

    def labels(*names: str) -> Sight:
        def may(value: Value) -> bool:
            return isinstance(value, Record) and value.label in names

        return Sight(may, may)

    fact = Record("mean", "d1", 21.5)
    open_ = explainer(of, sight=labels("rule", "reading", "mean")).why(fact)
    assert open_ is not None and open_.premises[0].since == START + 3_200_000
    closed = explainer(of, sight=labels("rule", "mean")).why(fact)
    assert closed is not None and not closed.premises and closed.withheld == 1
    (row,) = explainer(of, sight=labels("rule", "job", "early")).why_not_rows(Record("early", "j"))
    assert row.get("ended") == time_of(START + 20 * SECOND)
    (hidden,) = explainer(of, sight=labels("rule", "early")).why_not_rows(Record("early", "j"))
    assert hidden == Map({"withheld": 1})
