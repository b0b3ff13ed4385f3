"""What follows over time, from the definitions: the whole history is looked through for each answer.

A history has one state for each turn and for each instant of the grid, whether or not anything happens at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dataspace.rules.language.arithmetic import time_of
from index.values.values import Record, Value

GRID = 10_000
MS = 1000


@dataclass
class State:
    """One state of the past: its time, the facts at its end, and the messages of its turn."""

    time: int
    facts: set[Record]
    messages: list[Record] = field(default_factory=list)


Occurrence = tuple[Record, int, int | None]
"""A fact or message, from when until when; None if it still holds."""


class History:
    """The states up to the present one, which is being made."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.begun: dict[str, int] = {}
        """In which state each rule came, by its name."""

    @property
    def now(self) -> int:
        return self.states[-1].time // GRID * GRID

    def stays(self, label: str, rule: str) -> Iterator[Occurrence]:
        """Yields the stays of facts, as a rule sees them."""
        open_: dict[Record, int] = {}
        for state in self.states[self.begun[rule] :]:
            there = {fact for fact in state.facts if fact.label == label}
            for fact in sorted(open_.keys() - there, key=str):
                yield fact, open_.pop(fact), state.time
            for fact in there:
                open_.setdefault(fact, state.time)
        for fact, since in open_.items():
            yield fact, since, None

    def occurrences(self, label: str, rule: str) -> Iterator[Occurrence]:
        """Yields these, and messages."""
        yield from self.stays(label, rule)
        for state in self.states[self.begun[rule] :]:
            for message in state.messages:
                if message.label == label:
                    yield message, state.time, state.time

    def within(self, label: str, rule: str, span: int) -> list[Occurrence]:
        return [
            each for each in self.occurrences(label, rule) if each[2] is None or each[2] + span > self.now
        ]

    def lasting(self, rule: str, holds: Callable[[set[Record]], set[Value]], span: int) -> set[Value]:
        """Returns what has held in every state for a span."""
        found: dict[Value, int] = {}
        for state in self.states[self.begun[rule] :]:
            there = holds(state.facts)
            found = {each: found.get(each, state.time) for each in there}
        return {each for each, since in found.items() if since + span <= self.now}


Derive = Callable[[History, str, int], set[Record]]
"""What a rule derives in the present state, by its name and a span."""


def _window(h: History, name: str, span: int) -> set[Record]:
    return {Record("w", o[0].fields[0]) for o in h.within("r", name, span)}


def _totals(h: History, name: str, span: int) -> set[Record]:
    groups: dict[Value, list[int]] = {}
    for fact, _, _ in h.within("r", name, span):
        groups.setdefault(fact.fields[0], []).append(int(str(fact.fields[1])))
    return {Record("a", d, len(vs), sum(vs)) for d, vs in groups.items()}


def _times(h: History, name: str, span: int) -> set[Record]:
    return {Record("o", f.fields[0], time_of(t)) for f, t, _ in h.within("r", name, span)}


def _since(h: History, name: str, _span: int) -> set[Record]:
    return {Record("p", f.fields[0], time_of(t)) for f, t, end in h.stays("f", name) if end is None}


def _hot(h: History, name: str, span: int) -> set[Record]:
    def holds(facts: set[Record]) -> set[Value]:
        return {f.fields[0] for f in facts if f.label == "f" and int(str(f.fields[1])) > 1}

    return {Record("h", d) for d in h.lasting(name, holds, span)}


def _silent(h: History, name: str, span: int) -> set[Record]:
    if h.states[h.begun[name]].time + span > h.now:
        return set()
    heard = {o[0].fields[0] for o in h.within("r", name, span)}
    there = {f.fields[0] for f in h.states[-1].facts if f.label == "dev"}
    return {Record("s", d) for d in there - heard}


def _late(h: History, name: str, span: int) -> set[Record]:
    return {Record("l", f.fields[0]) for f, t, end in h.stays("f", name) if end is None and t + span <= h.now}


def _early(h: History, name: str, span: int) -> set[Record]:
    return {Record("e", f.fields[0]) for f, t, end in h.stays("f", name) if end is None and h.now < t + span}


WINDOW = 40 * MS


def _final(h: History, name: str, span: int) -> set[Record]:
    span += WINDOW
    groups: dict[int, int] = {}
    for _, t, _ in h.occurrences("r", name):
        start = t // WINDOW * WINDOW
        if start + WINDOW <= h.now < start + span:
            groups[start] = groups.get(start, 0) + 1
    return {Record("z", time_of(m), n) for m, n in groups.items()}


def _derived(h: History, name: str, span: int) -> set[Record]:
    return {Record("x", o[0].fields[0]) for o in h.within("w", name, span)}


def _lonely(h: History, name: str, span: int) -> set[Record]:
    def holds(facts: set[Record]) -> set[Value]:
        there = {f.fields[0] for f in facts if f.label == "dev"}
        return there - {f.fields[0] for f in facts if f.label == "w"}

    return {Record("g", d) for d in h.lasting(name, holds, span)}


def _counted(h: History, name: str, span: int) -> set[Record]:
    count = len(h.within("x", name, span))
    return {Record("c", count)} if count else set()


def _f(h: History) -> list[tuple[Value, int]]:
    return [(f.fields[0], int(str(f.fields[1]))) for f in h.states[-1].facts if f.label == "f"]


def _devices(h: History) -> set[Value]:
    return {f.fields[0] for f in h.states[-1].facts if f.label == "dev"}


def _either(h: History, name: str, span: int) -> set[Record]:
    heard = {o[0].fields[0] for o in h.within("r", name, span)} | {d for d, v in _f(h) if v == 2}
    return {Record("v", d) for d in _devices(h) & heard}


def _number(h: History, name: str, span: int) -> set[Record]:
    heard = [o[0].fields[0] for o in h.within("r", name, span)]
    return {Record("n", d, heard.count(d)) for d in _devices(h) if d in heard}


def _calm(h: History, name: str, span: int) -> set[Record]:
    loud = {o[0].fields[0] for o in h.within("r", name, span) if int(str(o[0].fields[1])) > 1}
    return {Record("q", d) for d in _devices(h) - loud}


def _extreme(h: History, name: str, span: int) -> set[Record]:
    def holds(facts: set[Record]) -> set[Value]:
        there = {f.fields[0] for f in facts if f.label == "dev"}
        return there & {f.fields[0] for f in facts if f.label == "f" and int(str(f.fields[1])) in (0, 3)}

    return {Record("y", d) for d in h.lasting(name, holds, span)}


def _old(h: History, name: str, span: int) -> set[Record]:
    old = {f.fields[0] for f, t, end in h.stays("dev", name) if end is None and t + span <= h.now}
    return {Record("m", d) for d in old | (_devices(h) & {d for d, v in _f(h) if v == 3})}


RULES: dict[str, tuple[str, Derive]] = {
    "w": ("w($d) <- r($d, _) within {D}.", _window),
    "a": ("a($d, count($v), sum($v)) <- r($d, $v) within {D}.", _totals),
    "o": ("o($d, $t) <- r($d, $v) at $t within {D}.", _times),
    "p": ("p($d, $t) <- f($d, _) at $t.", _since),
    "h": ("h($d) <- (f($d, $v), $v > 1) for {D}.", _hot),
    "s": ("s($d) <- dev($d), not r($d, _) within {D}.", _silent),
    "l": ("l($d) <- f($d, _) at $t, $t + {D} <= now.", _late),
    "e": ("e($d) <- f($d, _) at $t, now < $t + {D}.", _early),
    "z": ("final(z($m, count($v))) <- r($d, $v) at $t within {L}, $m = floor($t, 40 ms).", _final),
    "x": ("x($d) <- w($d) within {D}.", _derived),
    "g": ("g($d) <- (dev($d), not w($d)) for {D}.", _lonely),
    "c": ("c(count($d)) <- x($d) within {D}.", _counted),
    "v": ("v($d) <- dev($d), (r($d, _) within {D} or f($d, 2)).", _either),
    "n": ("n($d, $n) <- dev($d), count() of (r($d, _) within {D}) = $n.", _number),
    "q": ("q($d) <- dev($d), not (r($d, $v) within {D}, $v > 1).", _calm),
    "y": ("y($d) <- (dev($d), (f($d, 0) or f($d, $v), $v > 2)) for {D}.", _extreme),
    "m": ("m($d) <- dev($d) at $t, ($t + {D} <= now or f($d, 3)).", _old),
}
"""Rules by their names, in the order in which they follow from each other: texts, and the same in Python."""


def text_of(name: str, span: int) -> str:
    """Returns the text of a rule with a span in microseconds."""
    milliseconds, longer = f"{span // MS} ms", f"{(span + WINDOW) // MS} ms"
    return RULES[name][0].replace("{D}", milliseconds).replace("{L}", longer)
