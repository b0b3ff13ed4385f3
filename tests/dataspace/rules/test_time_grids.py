"""Rules over time derive what the definitions say in all small histories: for each form, every sequence of a
few steps at a few times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from dataspace.kernel.space import Space
from index.values.values import Record
from tests.dataspace.rules.test_times import MS, RULES, WINDOW, Run, in_order
from tests.model.rules import GRID

SPAN = 20 * MS

SEND = "send"
TWICE = "twice"
BOTH = "both"
TOGGLE = "toggle"
OTHER = "other"
REPLACE = "replace"
DEVICE = "device"

STEPS = {
    **dict.fromkeys("wao", (SEND, TOGGLE, TWICE, BOTH)),
    **dict.fromkeys("zxc", (SEND, TWICE, BOTH)),
    **dict.fromkeys("ple", (TOGGLE, OTHER)),
    "h": (TOGGLE, OTHER, REPLACE),
    "s": (SEND, TOGGLE, DEVICE),
    "g": (SEND, DEVICE),
    **dict.fromkeys("vq", (SEND, DEVICE)),
    "n": (SEND, BOTH, DEVICE),
    **dict.fromkeys("ym", (REPLACE, DEVICE)),
}
"""What may happen in a turn, for each form of ``RULES``."""

TIMES = (0, 10 * MS, 15 * MS)
"""How much later it may happen than what came before."""

ON_F = "plehym"


class Small(Run):
    """A history with given steps, in which one form is watched."""

    def __init__(self, name: str) -> None:
        super().__init__(0)
        self.space = Space("s")
        self.space.submit_timed = self.past_append
        self.name = name
        for each in in_order([name]):
            self.add_with(each, SPAN)

    def step(self, what: str, later: int) -> None:
        self.time += later
        label = "f" if self.name in ON_F else "r"
        one, other, device = Record(label, "a", 2), Record(label, "a", 3), Record("dev", "a")
        match what:
            case "send" | "twice":
                self.make([], [], [one] * (2 if what == TWICE else 1))
            case "both":
                self.make(*(([], [one]) if one in self.base else ([one], [])), [one])
            case "toggle":
                self.toggle(one)
            case "other":
                self.toggle(Record(label, "a", 1))
            case "replace":
                there = [each for each in (one, other) if each in self.base]
                left = [each for each in (other, one) if each not in there]
                self.make(left[:1] if there else [one], there, [])
            case "device":
                self.toggle(device)
        self.check()

    def toggle(self, fact: Record) -> None:
        self.make(*(([], [fact]) if fact in self.base else ([fact], [])), [])

    def end(self) -> None:
        """Looks at every instant until nothing changes any more."""
        for _ in range((2 * SPAN + 2 * WINDOW) // GRID):
            self.time += GRID
            self.probe()
            self.check()


def carry_out(name: str, history: Sequence[tuple[str, int]]) -> None:
    one = Small(name)
    for what, later in history:
        one.step(what, later)
    one.end()


def histories(name: str, length: int) -> int:
    """Carries out all of some length; returns how many."""
    count = 0
    for history in product(product(STEPS[name], TIMES), repeat=length):
        carry_out(name, history)
        count += 1
    return count


@pytest.mark.parametrize("name", RULES)
def test_all_histories_of_two_turns(name: str) -> None:
    choices = len(STEPS[name]) * len(TIMES)
    assert histories(name, 1) + histories(name, 2) == choices + choices**2


@pytest.mark.torture(long=True)
@pytest.mark.parametrize("name", RULES)
def test_all_histories_of_three_and_four_turns(name: str) -> None:
    histories(name, 3)
    histories(name, 4)
