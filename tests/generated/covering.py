"""What programs had, and what was answered: so many programs with each thing, and with each two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from index.values.values import Record
from tests.generated.clients import (
    EXTREMES,
    Burst,
    Lease,
    Operation,
    Post,
    Program,
    Restart,
    Stall,
    Step,
    Strike,
    Turn,
)
from tests.model.daemon import (
    Announced,
    Broken,
    Ended,
    Event,
    Leased,
    Restarted,
    Returned,
    Segment,
    Turned,
)
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
MANY: Final = 100
"""Steps in one write that are called pipelined."""


class Covered:
    """Counts of things, of pairs that came together in one program, and of what came to pass."""

    def __init__(self) -> None:
        self.programs = self.steps = 0
        self.things: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, ...]] = Counter()
        self.answers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def add(self, program: Program, segments: Iterable[Segment], steps: int = 0) -> None:
        """Counts one program of so many steps, and what its clients were answered."""
        self.programs += 1
        self.steps += steps
        things = sorted({thing for operation in program for thing in _things(operation)})
        self.things.update(things)
        self.pairs.update(combinations(things, 2))
        events = [event for segment in segments for lane in segment.lanes for event in lane]
        self.answers.update([answer for event in events for answer in _answers(event)])
        self.faults.update([fault for event in events for fault in _faults(event)])

    def missing(self) -> list[tuple[str, ...]]:
        """Returns the pairs of things that never came together."""
        return [each for each in combinations(sorted(self.things), 2) if not self.pairs[each]]

    def kept(self) -> dict[str, Any]:
        """Returns all counts as JSON has them."""
        return vars(self) | {"pairs": {JOINT.join(each): count for each, count in self.pairs.items()}}

    def merge(self, kept: Mapping[str, Any]) -> None:
        """Adds the counts that ``kept`` has returned."""
        self.programs += kept["programs"]
        self.steps += kept["steps"]
        self.things.update(kept["things"])
        self.answers.update(kept["answers"])
        self.faults.update(kept["faults"])
        self.pairs.update({tuple(each.split(JOINT)): count for each, count in kept["pairs"].items()})

    def __str__(self) -> str:
        """A table: answers, faults, things by how many programs had them, and pairs that did not come."""
        most = len(self.things) * (len(self.things) - 1) // 2
        missing = self.missing()
        lines = [f"{self.steps} steps in {self.programs} programs"]
        lines += ["", "answers to verbs", *_table(self.answers), "", "sessions and daemons"]
        lines += [*_table(self.faults), "", "programs with", *_table(self.things)]
        lines += ["", f"{most - len(missing)} of {most} pairs came together in a program"]
        return "\n".join([*lines, *[f"  never together: {', '.join(each)}" for each in missing]])


JOINT: Final = " & "


def _table(counts: Counter[str]) -> list[str]:
    return [f"{counts[name]:10} {name}" for name in sorted(counts)]


def _things(operation: Operation) -> Iterator[str]:
    yield type(operation).__name__
    match operation:
        case Burst(_, steps, end):
            yield from [thing for step in steps for thing in _of_step(step)]
            yield from [f"with {end}"] if end else []
            yield from ["pipelined"] if len(steps) >= MANY else []
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
    yield from ["a value at a limit" for action in turn.actions if _is_extreme(action[-1])]
    yield from [CONDITIONS[kind] for kind, *_ in turn.expected]


def _is_extreme(fact: object) -> bool:
    """True for a fact with one of the values at limits, itself and not its like: 1 is ``True``."""
    return isinstance(fact, Record) and any(fact.fields[-1] is each for each in EXTREMES)


def _answers(event: Event) -> Iterator[str]:
    """Yields the verbs of an event, each with what was answered."""
    if isinstance(event, Turned | Leased):
        answer = event.answer
        said = "nobody heard" if answer is None else answer if isinstance(answer, str) else "accepted"
        if isinstance(event, Leased):
            yield f"{event.verb}: {said}"
        else:
            way = " over HTTP" if event.grants else ""
            yield f"turn{way}: {said}"
            verbs = {VERBS[action[0]] for _, actions in event.parts for action in actions}
            yield from [f"turn with {verb}{way}: {said}" for verb in verbs]
            yield from [f"turn if {CONDITIONS[kind]}{way}: {said}" for kind, *_ in event.expected]
    if isinstance(event, Announced):
        yield "observation begins" if event.pattern is not None else "observation ends"


def _faults(event: Event) -> Iterator[str]:
    match event:
        case Restarted(orderly):
            yield "daemon ends in good order" if orderly else "daemon is killed"
        case Broken():
            yield "session without a connection"
        case Returned(resumed=resumed):
            yield "session comes back" if resumed else "session is over when it comes back"
        case Ended():
            yield "session ends"
