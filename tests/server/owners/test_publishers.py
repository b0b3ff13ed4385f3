"""Of two who publish under one writer, the one that began last has it, and the other is told."""

from __future__ import annotations

import pytest

from dataspace.errors import Refused
from server.owners.publishers import Publishers


def test_whoever_begins_takes_the_writer_and_whoever_had_it_is_refused() -> None:
    both = Publishers()
    both.check("w", "a", began=False)
    both.published("w", "a", 1)
    both.check("w", "a", began=True)
    both.check("w", "b", began=False)
    both.published("w", "b", 2)
    with pytest.raises(Refused, match="writer 'w' has been written to by b since epoch 2") as refusal:
        both.check("w", "a", began=True)
    assert refusal.value.code == "writer-taken"
    both.check("w", "b", began=True)
    both.check("another", "a", began=True)


def test_after_a_restart_the_first_that_goes_on_has_it() -> None:
    both = Publishers()
    both.check("w", "a", began=True)
    both.published("w", "a", 5)
    with pytest.raises(Refused):
        both.check("w", "b", began=True)


def test_the_epoch_is_that_of_taking_over() -> None:
    one = Publishers()
    for epoch in (1, 2, 3):
        one.published("w", "a", epoch)
    with pytest.raises(Refused, match="since epoch 1"):
        one.check("w", "b", began=True)


def test_those_who_have_not_published_for_longest_are_forgotten() -> None:
    many = Publishers(most=2)
    for owner in ("v", "w", "v", "x"):
        many.published(owner, "a", 1)
    assert len(many) == 2
    many.check("w", "b", began=True)
    with pytest.raises(Refused):
        many.check("v", "b", began=True)
