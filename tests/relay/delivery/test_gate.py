"""With a gate an observer takes what it would take without one, but nothing that is not on disk.

All short lives of a space are tried, with observers that open, leave and come back, turns, acceptances of any
length and switches; the oracle is a list of states.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from dataspace.codec import unpack
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, SNAPSHOT
from dataspace.kernel.changes import Changes
from dataspace.kernel.space import Space
from index.patterns.patterns import capture
from index.values.values import Record, Value
from relay.delivery.gate import DurableGate
from relay.delivery.memory import MemoryBudget
from relay.delivery.queue_members import Delivery, QueueMember

PATTERN = Record("n", capture("n"))
OTHER = Record("m", capture("n"))
PLENTY = 1 << 40
STEPS = 6 if "TORTURE_ROUNDS" in os.environ else 5
"""Of the lives in which only a few things happen."""


class Observer:
    """One observer, the changes that it was sent, and the epoch of its opening."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.began = life.space.epoch
        self.waits = life.is_closed and self.began > life.durable
        self.follower = QueueMember(life.delivery, lambda _: None)
        self.seen: list[tuple[int, bool, tuple[Value, ...], tuple[Value, ...]]] = []
        self.follower.follow(life.space, PATTERN, life.gate)
        self.follower.extend(Changes(life.space.epoch, 0, life.space.matches(PATTERN), flags=SNAPSHOT))

    def read(self) -> None:
        """Takes all that waits."""
        while True:
            count, wire = self.follower.take_packed(1, PLENTY)
            if not count:
                return
            value: Any = unpack(wire)
            number, _, flags, added, _, removed, _ = value
            self.seen.append((number, bool(flags & SNAPSHOT), added, removed))


class Life:
    """A space whose gate is driven by hand, and its observers."""

    def __init__(self, *, closed: bool) -> None:
        self.space = Space("main")
        self.budget = MemoryBudget()
        self.delivery = Delivery(self.budget)
        self.gate = DurableGate(self.budget)
        if closed:
            self.gate.close()
        self.states: list[frozenset[int]] = [frozenset()]
        self.observers: list[Observer] = []
        self.is_closed = closed
        self.durable = self.shown = 0
        """The newest epoch on disk, and the newest that may be shown."""
        self._held: dict[int, int] = {}
        self._handles = 0

    def turn(self, fact: int) -> None:
        """Asserts a fact that is not there, or retracts one that is."""
        if fact in self._held:
            action: Any = (RETRACT, self._held.pop(fact))
        else:
            self._handles += 1
            self._held[fact] = self._handles
            action = (ASSERT, self._handles, Record("n", fact))
        self.space.commit("w", [action], 0)
        self.states.append(frozenset(self._held))
        if not self.is_closed:
            self.shown = self.space.epoch

    def accept(self, count: int) -> None:
        """The next epochs are on disk."""
        self.durable = min(self.durable + count, self.space.epoch)
        self.gate.release(self.durable)
        self._show(self.durable)

    def _show(self, upto: int) -> None:
        self.shown = max(self.shown, upto)
        for each in self.observers:
            each.waits &= each.began > upto

    def open(self) -> None:
        self.observers.append(Observer(self))

    def close(self) -> None:
        if self.observers:
            self.observers.pop(0).follower.close()

    def come_back(self) -> None:
        """One stops following and follows again, as an observer does that falls behind at once."""
        if self.observers:
            each = self.observers[0]
            each.follower.unfollow()
            each.read()
            each.follower.close()
            self.observers[0] = Observer(self)

    def switch(self) -> None:
        self.is_closed = not self.is_closed
        if self.is_closed:
            self.gate.close()
        else:
            self.gate.open()
            self._show(self.space.epoch)

    def act(self, step: str) -> None:
        match step:
            case "0" | "1":
                self.turn(int(step))
            case "a":
                self.accept(1)
            case "A":
                self.accept(9)
            case "o":
                self.open()
            case "c":
                self.close()
            case "b":
                self.come_back()
            case "s":
                self.switch()
            case "r":
                for each in self.observers:
                    each.read()

    def check(self) -> None:
        """Each observer has a state, then every later epoch whole, once and in order, up to what is shown."""
        for each in self.observers:
            each.read()
            due = [number for number in self._expected(each) if number <= self.shown and not each.waits]
            assert [number for number, *_ in each.seen] == due, (each.began, self.shown)
            for number, snapshot, added, removed in each.seen:
                state, before = self.states[number], self.states[number - 1] if number else frozenset()
                if snapshot:
                    assert {row[0] for row in added} == state and not removed  # type: ignore[index]  # a row
                else:
                    assert {row[0] for row in added} == state - before  # type: ignore[index]  # a row
                    assert {row[0] for row in removed} == before - state  # type: ignore[index]  # a row

    def _expected(self, each: Observer) -> Iterator[int]:
        yield each.began
        yield from range(each.began + 1, self.space.epoch + 1)

    def end(self) -> None:
        """Everything is on disk, then everybody leaves: nothing is left anywhere."""
        self.accept(len(self.states))
        self.check()
        assert not len(self.gate) and not self.gate.size
        while self.observers:
            self.close()
        assert not self.budget.used and not self.delivery.patterns and not len(self.space.interests)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("steps", ["0acosA", "01aobr", "0Acobs", "01asor"])
def test_every_short_life(closed: bool, steps: str) -> None:
    for lasting in range(1, 4):
        for life in product(steps, repeat=lasting):
            lived = Life(closed=closed)
            for step in ("o", *life):
                lived.act(step)
            lived.check()
            lived.end()


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("closed", [False, True])
def test_every_longer_life(closed: bool) -> None:
    for life in product("01aAocbsr"[: 8 if closed else 7], repeat=STEPS):
        lived = Life(closed=closed)
        for step in life:
            lived.act(step)
        lived.check()
        lived.end()


def test_without_observers_nothing_is_kept() -> None:
    life = Life(closed=True)
    life.turn(0)
    assert not len(life.gate)


def test_what_is_kept_is_counted_as_memory_of_observers_until_it_is_shown_or_not_wanted() -> None:
    life = Life(closed=True)
    for fact in range(100):
        life.turn(fact)
    life.open()
    assert life.gate.size == life.budget.used > 100 * 100, "the state that the observer begins with"
    life.close()
    assert life.budget.used == life.gate.size < 1000
    life.accept(1000)
    assert life.budget.used == life.gate.size == 0
    life.open()
    before = life.budget.used
    life.turn(1000)
    assert life.budget.used - before == life.gate.size > 0
    life.accept(1)
    assert life.gate.size == 0


def test_an_answer_waits_for_its_epoch_between_the_changes_before_it_and_after_it() -> None:
    life, said = Life(closed=True), list[object]()
    life.gate.after(0, said.append, "of nothing")
    assert said == ["of nothing"]
    life.open()
    life.turn(0)
    life.gate.after(life.space.epoch, said.append, "of one")
    life.turn(1)
    life.gate.after(life.space.epoch, said.append, "of two")
    life.accept(1)
    assert said == ["of nothing", "of one"]
    life.gate.open()
    assert said[2:] == ["of two"]


def test_messages_and_other_patterns_pass_in_the_order_of_their_epochs() -> None:
    life, order = Life(closed=True), list[tuple[str, int]]()
    for name, pattern in (("n", PATTERN), ("m", OTHER)):
        follower = QueueMember(life.delivery, lambda _: None)
        follower.follow(life.space, pattern, life.gate)
        queue = follower.queue
        assert queue is not None
        really = queue.interest

        class Noted:
            def __init__(self, name: str) -> None:
                self.name = name

            def offer(self, changes: Changes) -> None:
                life.gate.offer_when_durable(self.show, changes)

            def show(self, changes: Changes) -> None:
                order.append((self.name, changes.number))

        really.add(Noted(name))
    for label in "nmmn":
        life.space.commit("w", [(SEND, Record(label, 1))], 0)
    life.accept(9)
    assert order == [("n", 1), ("m", 2), ("m", 3), ("n", 4)]


def test_a_defect_of_one_observer_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    gate, said = DurableGate(MemoryBudget()), list[int]()
    gate.close()

    def wrong(_argument: object) -> None:
        raise RuntimeError("a defect")

    gate.after(1, said.append, 1)
    gate.after(1, wrong, None)
    gate.after(2, said.append, 2)
    with caplog.at_level(logging.ERROR, "dataspace"):
        gate.release(2)
    assert said == [1, 2]
    assert "please report it" in caplog.text
