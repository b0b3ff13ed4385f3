"""Positions that stay filed for conditions: an exception at any line of filing them spoils no later turn."""

from __future__ import annotations

import os

import pytest

from dataspace.errors import Refused
from dataspace.kernel.expectations import Condition, absent
from dataspace.steps import at_once
from index.trie.trie import Index
from index.values.values import COMPILED, Record
from server.config.model import Limits
from server.spaces.turns import conditions as checking
from server.spaces.turns.conditions import QUICK, Conditions
from server.turns import conditions as judging
from server.turns.conditions import Judgement
from tests.striking import strike

pytestmark = pytest.mark.skipif(COMPILED, reason="machine code has no lines that could be struck")

STRIDE = 1 if "TORTURE_ROUNDS" in os.environ else 7


def _condition(label: str, text: str = "_, 1") -> Condition:
    (condition,) = Condition.reading([absent(f"{label}({text})").packed()])
    return condition


class _Home:
    """A space, as far as expectations of facts need it."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self.limits = Limits()


def _judgement(conditions: Conditions, condition: Condition) -> Judgement:
    return Judgement(_Home(conditions), [condition])  # type: ignore[arg-type]  # a part of one


def _holds(conditions: Conditions, condition: Condition) -> bool:
    judgement = _judgement(conditions, condition)
    try:
        at_once(judgement.prepare(_admit))
        return judgement.decide()
    finally:
        judgement.close()


def _admit(_facts: int, _size: int) -> None:
    """Allows all growth."""


def _index(count: int, *labels: str) -> Index:
    index = Index()
    index.patch([Record(label, n, 0) for label in labels for n in range(count)], ())
    return index


@pytest.mark.torture
@pytest.mark.parametrize("is_full", [False, True], ids=["the first", "in place of the oldest"])
def test_an_exception_at_any_line_of_filing(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "KEPT", 2)
    monkeypatch.setattr(checking, "QUICK", 4)
    monkeypatch.setattr(judging, "QUICK", 4)
    monkeypatch.setattr(checking, "FILLED", 2)
    labels = [f"p{n}" for n in range(2 if is_full else 0)]
    at, is_struck = 1, True
    while is_struck:
        index = _index(7, *labels, "q", "r")
        conditions = Conditions(index)
        for label in labels:
            _holds(conditions, _condition(label))
        is_struck, judgement = False, _judgement(conditions, _condition("q"))
        try:
            with strike(at, KeyboardInterrupt):
                at_once(judgement.prepare(_admit))
                assert judgement.decide()
                judgement.close()
        except KeyboardInterrupt:
            is_struck = True
        judgement.close()  # as its caller does
        index.check()
        assert index.statistics().handlers == len(conditions) <= 3
        for label in (*labels, "q", "r"):
            assert _holds(conditions, _condition(label))
        index.check()
        assert index.statistics().handlers == len(conditions) == 2
        at += STRIDE if at > 100 else 1
    assert at > 10


def test_what_two_turns_file_at_a_time_is_filed_once_and_neither_drops_it_for_the_other() -> None:
    index = _index(QUICK + 1, "q")
    conditions = Conditions(index)
    first = _judgement(conditions, _condition("q"))
    steps = first.prepare(_admit)
    for _ in range(3):  # it has begun to file
        next(steps)
    assert index.is_filling(_condition("q").form)
    assert not _judgement(conditions, _condition("q")).decide_at_once(), "what is half filed decides nothing"
    assert _holds(conditions, _condition("q", "_, 2"))
    assert _holds(conditions, _condition("q"))
    at_once(steps)
    assert first.decide()
    first.close()
    assert (len(conditions), index.statistics().handlers) == (1, 1)
    index.check()


def test_what_is_filed_stays_exact_while_facts_come_and_go() -> None:
    index = _index(QUICK + 1, "q")
    conditions = Conditions(index)
    judgement = _judgement(conditions, _condition("q"))
    at_once(judgement.prepare(_admit))
    index.add(Record("q", -1, 1))
    with pytest.raises(Refused, match="found a match"):
        judgement.decide()
    index.remove(Record("q", -1, 1))
    assert judgement.decide()
    judgement.close()
    index.check()


def test_more_that_comes_before_the_last_step_is_prepared_first() -> None:
    index = _index(1, "q")
    conditions = Conditions(index)
    judgement = _judgement(conditions, _condition("q"))
    at_once(judgement.prepare(_admit))
    assert judgement.decide()
    index.patch([Record("q", n, 0) for n in range(1, QUICK + 2)], ())
    assert not judgement.decide()
    at_once(judgement.prepare(_admit))
    assert judgement.decide()
    judgement.close()
    index.check()


def test_what_is_filed_for_many_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "KEPT_VALUES", 3 * QUICK)
    labels = [f"p{n}" for n in range(6)]
    index = _index(QUICK + 1, *labels)
    conditions = Conditions(index)
    for label in labels:
        assert _holds(conditions, _condition(label))
    assert len(conditions) == 2
    assert conditions.bytes == 2 * (QUICK + 1) * checking.FILED_BYTES
    assert index.statistics().handlers == 2
    index.check()
