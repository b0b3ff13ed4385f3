"""What programs had, and what was answered: so many programs with each thing, and with each two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

from tests.generated.clients import Burst, Lease, Operation, Post, Program, Restart, Stall, Step, Strike, Turn
from tests.model.daemon import Leased, Segment, Turned
from tests.model.space import ASSERT, PUT, REPLACE, RETRACT, SEND, STATE, SWEEP, UNSTATE

VERBS: Final = {
    ASSERT: "assert",
    RETRACT: "retract",
    SEND: "send",
    REPLACE: "replace",
    SWEEP: "sweep",
    PUT: "put",
    STATE: "state",
    UNSTATE: "unstate",
}
CONDITIONS: Final = ("absent", "exactly", "unchanged")


class Covered:
    """Counts of things, and of pairs that came together in one program."""

    def __init__(self) -> None:
        self.programs = 0
        self.things: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, ...]] = Counter()
        self.answers: Counter[str] = Counter()

    def add(self, program: Program, segments: Iterable[Segment]) -> None:
        """Counts one program, and what its clients were answered."""
        self.programs += 1
        things = sorted({thing for operation in program for thing in _things(operation)})
        self.things.update(things)
        self.pairs.update(combinations(things, 2))
        self.answers.update(
            _answered(event)
            for segment in segments
            for lane in segment.lanes
            for event in lane
            if isinstance(event, Turned | Leased)
        )

    def missing(self) -> list[tuple[str, ...]]:
        """Returns the pairs of things that never came together."""
        return [each for each in combinations(sorted(self.things), 2) if not self.pairs[each]]

    def __str__(self) -> str:
        """A table: things by how often they came, the answers, and the pairs that did not come."""
        most = len(self.things) * (len(self.things) - 1) // 2
        missing = self.missing()
        lines = [f"{self.programs} programs, {most - len(missing)} of {most} pairs"]
        lines += [f"{count:8} {name}" for name, count in self.things.most_common()]
        lines += [f"{count:8} {name}" for name, count in self.answers.most_common()]
        return "\n".join([*lines, *[f"  never together: {', '.join(each)}" for each in missing]])


def _things(operation: Operation) -> Iterator[str]:
    yield type(operation).__name__
    match operation:
        case Burst(_, steps, end):
            yield from [thing for step in steps for thing in _of_step(step)]
            yield from [f"with {end}"] if end else []
        case Stall(bursts):
            yield from [thing for burst in bursts for thing in _things(burst)]
        case Strike(burst):
            yield from _things(burst)
        case Restart(orderly):
            yield "orderly" if orderly else "killed"
        case Post():
            yield from _of_turn(operation)


def _of_step(step: Step) -> Iterator[str]:
    yield step.verb if isinstance(step, Lease) else type(step).__name__
    if isinstance(step, Turn):
        yield from _of_turn(step)
        yield from ["several owners"] if step.others else []


def _of_turn(turn: Turn | Post) -> Iterator[str]:
    yield "of a lease" if turn.owner.startswith("lease:") else "of a session" if not turn.owner else "durable"
    yield from [VERBS[action[0]] for action in turn.actions]
    yield from [CONDITIONS[kind] for kind, *_ in turn.expected]


def _answered(event: Turned | Leased) -> str:
    verb = event.verb if isinstance(event, Leased) else "turn over HTTP" if event.grants else "turn"
    if event.answer is None:
        return f"{verb}: nobody heard"
    return f"{verb}: {event.answer if isinstance(event.answer, str) else 'accepted'}"
