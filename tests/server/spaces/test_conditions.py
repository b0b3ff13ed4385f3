"""Positions that stay filed for conditions: an exception at any line of filing them spoils no later turn."""

from __future__ import annotations

import os

import pytest

from dataspace.kernel.expectations import Condition, absent
from index.trie.trie import Index
from index.values.values import COMPILED, Record
from server.spaces import conditions as checking
from server.spaces.conditions import QUICK, Conditions
from tests.striking import strike

pytestmark = pytest.mark.skipif(COMPILED, reason="machine code has no lines that could be struck")

STRIDE = 1 if "TORTURE_ROUNDS" in os.environ else 7


def _condition(label: str, text: str = "_, 1") -> Condition:
    (condition,) = Condition.read([absent(f"{label}({text})").packed()])
    return condition


def _filed(conditions: Conditions, condition: Condition) -> None:
    for _ in conditions.filing(condition):
        pass


def _index(count: int, *labels: str) -> Index:
    index = Index()
    index.patch([Record(label, n, 0) for label in labels for n in range(count)], ())
    return index


@pytest.mark.torture
@pytest.mark.parametrize("is_full", [False, True], ids=["the first", "in place of the oldest"])
def test_an_exception_at_any_line_of_filing(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "KEPT", 2)
    monkeypatch.setattr(checking, "QUICK", 4)
    monkeypatch.setattr(checking, "FILLED", 2)
    labels = [f"p{n}" for n in range(2 if is_full else 0)]
    at, is_struck = 1, True
    while is_struck:
        index = _index(7, *labels, "q", "r")
        conditions = Conditions(index)
        for label in labels:
            _filed(conditions, _condition(label))
        is_struck = False
        try:
            with strike(at, KeyboardInterrupt):
                _filed(conditions, _condition("q"))
        except KeyboardInterrupt:
            is_struck = True
        index.check()
        assert index.statistics().handlers == len(conditions) <= 3
        for label in (*labels, "q", "r"):
            _filed(conditions, _condition(label))
            assert conditions.check(_condition(label), 10) == 0
        index.check()
        assert index.statistics().handlers == len(conditions) == 2
        at += STRIDE if at > 100 else 1
    assert at > 10


def test_what_another_turn_has_filed_meanwhile_is_not_prepared_twice() -> None:
    index = _index(QUICK + 1, "q")
    conditions = Conditions(index)
    filing = conditions.filing(_condition("q"))
    next(filing)
    _filed(conditions, _condition("q", "_, 2"))
    for _ in filing:
        pass
    assert (len(conditions), index.statistics().leaves) == (1, 1)
    index.check()
