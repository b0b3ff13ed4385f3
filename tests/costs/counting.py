"""What work costs, counted: steps of Python, and elements that methods of lists walk in C.

Seconds say little on a machine that does other things.  A step is a line, a call or a return of Python, in
files and in generated functions; a loop in one line has a step for each round.  Steps are the same number in
every run.  C is seen in two ways: its comparisons of values, which ``counted`` and ``compared`` have done in
Python, and the length of a list or queue whose methods walk it.  Copies, as by ``list(rows)``, are not seen.

A cost law: of 3 n things the last n cost at most ``MOST`` times what the second n cost.  So what comes once
does not count, and a square is seen while it is small: where each of 20 things costs 400 steps, and 4 for
each thing before it, 40 things cost 2.2 times as much as 20, and the next 20 cost 1.15 times the 20 before.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from index.values.values import Record, Value

MOST: Final = 1.1
"""How much more further things may cost than as many before them; n log n has 1.1 as well, for 20 things."""

SQUARE: Final = 1.8
"""The same for a known exception: a square has 1.67, a cube 2.7."""

TRIES: Final = 3
"""How often what fails is counted."""

SLACK: Final = 300
"""Steps and elements that are not judged: tables grow in jumps."""

WALKS: Final = frozenset(["remove", "index", "count", "insert", "copy", "reverse", "sort"])
"""Methods of lists and queues that look at, or move, each element."""


class Cost(NamedTuple):
    """Steps of Python, and elements that were walked in C."""

    steps: int
    walked: int

    def is_beyond(self, earlier: Cost, slack: int, most: float = MOST) -> bool:
        """True if these further things cost more than as many earlier ones allow."""
        return self.steps > most * earlier.steps + slack or self.walked > most * earlier.walked + slack

    def less(self, other: Cost) -> Cost:
        """Returns the difference."""
        return Cost(self.steps - other.steps, self.walked - other.walked)

    def more(self, other: Cost) -> Cost:
        """Returns the sum."""
        return Cost(self.steps + other.steps, self.walked + other.walked)


class Known(NamedTuple):
    """A law that does not hold, and why; its cost is held to the square."""

    where: str
    """A part of the names of the costs."""
    reason: str


def judge(
    run: Callable[[int], Mapping[str, Cost]], count: int, known: Sequence[Known] = (), slack: int = SLACK
) -> None:
    """Fails unless further things cost what earlier ones did, in each of the costs that ``run`` returns.

    ``run`` is called for one, two and three times ``count`` things; ``slack`` is not judged.  A known
    exception must be one: it fails where no cost needs it.  What fails is counted again, and the least
    counts: periodic work of a daemon may come within a run on a busy machine.
    """
    one: Mapping[str, Cost] = {}
    two, three = one, one
    for _ in range(TRIES):
        gc.disable()  # or what it finds, and when, would be counted
        try:
            one = _least(one, run(count))
            two = _least(two, run(2 * count))
            three = _least(three, run(3 * count))
        finally:
            gc.enable()
        if not (wrong := _wrong(one, two, three, known, slack, count)):
            break
    assert not wrong, wrong


def _least(one: Mapping[str, Cost], other: Mapping[str, Cost]) -> dict[str, Cost]:
    both = {name: (each, one.get(name, each)) for name, each in other.items()}
    return {name: Cost(min(a.steps, b.steps), min(a.walked, b.walked)) for name, (a, b) in both.items()}


def _wrong(
    one: Mapping[str, Cost],
    two: Mapping[str, Cost],
    three: Mapping[str, Cost],
    known: Sequence[Known],
    slack: int,
    count: int,
) -> str:
    """Returns what is beyond the law: of the costs of one, two and three times ``count`` things."""
    second = {name: each.less(one[name]) for name, each in two.items()}
    third = {name: each.less(two[name]) for name, each in three.items()}
    grown = [name for name, each in third.items() if each.is_beyond(second[name], slack)]
    bad = [
        f"{name}: {count} things cost {second[name]}, {count} further ones {third[name]}"
        for name in grown
        if third[name].is_beyond(second[name], slack, SQUARE) or not any(each.where in name for each in known)
    ]
    stale = [each for each in known if not any(each.where in name for name in grown)]
    bad += [f"these laws hold now: {stale}"] if stale else []
    return "\n".join(bad)


def cost(work: Callable[[], object]) -> Cost:
    """Returns what a function does."""
    with counting() as costs:
        work()
    return costs[0]


@contextmanager
def counting(*, within: tuple[str, ...] = ("",)) -> Iterator[list[Cost]]:
    """Gives what is done until the block ends, by other tasks too where the block waits.

    ``within`` are the beginnings of the names of files whose steps count.
    """
    steps = walked = 0

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        return trace(frame, event, argument) if frame.f_code.co_filename.startswith(within) else None

    def trace(_frame: FrameType, _event: str, _argument: Any) -> Any:  # for each line: nothing but counting
        nonlocal steps
        steps += 1
        return trace

    def profile(_frame: FrameType, event: str, argument: Any) -> None:
        nonlocal walked
        if event == "c_call" and argument.__name__ in WALKS:
            of = argument.__self__
            if of.__class__ is list or of.__class__ is deque:
                walked += len(of)

    before = sys.gettrace(), sys.getprofile()
    costs: list[Cost] = []
    sys.setprofile(profile)
    sys.settrace(begin)
    try:
        yield costs
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        costs.append(Cost(steps, walked))


class _CountedText(str):
    """A text whose comparisons are steps, those within C as well."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def counted(label: str, *fields: Value) -> Record:
    """Returns a record whose comparisons in tables and lists are steps."""
    return Record.of(label, fields, _CountedText(Record(label, *fields).text))


@contextmanager
def compared(*kinds: type) -> Iterator[None]:
    """Makes comparisons of objects of these classes steps; each is equal to itself alone, as before."""

    def same(one: object, other: object) -> bool:
        return one is other

    patches = [patch.object(kind, "__eq__", same) for kind in kinds]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
