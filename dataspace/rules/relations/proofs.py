"""Proofs: why a fact is there, as a tree of facts and of the rules that derive them.

What an asker may not observe is not in its proof, and counted.  A proof is data: ``explaining`` finds it, and
it is shown as text or as rows.

Always: a fact is in a proof only if the asker may observe it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.foreign import tame
from dataspace.instants import NEVER, instant_of
from dataspace.rules.language.arithmetic import time_of
from dataspace.rules.language.syntax import TimeKind
from dataspace.rules.relations.past_rows import PastRows, RowTimes, bounds_of, next_showing
from dataspace.rules.relations.terms import Row
from index.patterns.text import unparse
from index.values.values import Map, Value, key


@dataclass(frozen=True, slots=True)
class Sight:
    """What the asker may observe: which facts, and which patterns."""

    fact: Callable[[Value], bool]
    pattern: Callable[[Value], bool]


Owners: TypeAlias = Mapping[Hashable, Sequence[str]]
"""The owners of facts, by the keys of the facts."""

_UNKNOWN: Final[Owners] = {}


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a fact is there: by a rule and its premises, or because it is claimed (``rule`` is then empty).

    ``withheld`` counts the facts that the asker may not observe: the fact itself, or some of its causes.
    """

    fact: Value
    rule: str = ""
    premises: tuple[Proof, ...] = ()
    absent: tuple[str, ...] = ()
    withheld: int = 0
    literal: str = ""
    """What holds by time, in place of a fact."""
    since: int | None = None
    until: int | None = None
    """From when until when that is so, in microseconds, as far as it is known."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, depth: int = 0, owners: Owners = _UNKNOWN) -> Iterator[str]:
        """Yields the proof as indented text, with the owners of claimed facts where they are known."""
        because = f"by {self.rule}" if self.rule else "claimed"
        if not self.rule and (names := owners.get(key(self.fact))):
            because = f"claimed by {', '.join(names)}"
        if self.literal:
            because = _span_text(self.since, self.until)
        yield tame(f"{'    ' * depth}{self.literal or unparse(self.fact)}    {because}")
        for premise in self.premises:
            yield from premise.lines(depth + 1, owners)
        for text in self.absent:
            yield tame(f"{'    ' * (depth + 1)}{text}")
        if self.withheld:
            yield f"{'    ' * (depth + 1)}{withheld(self.withheld, 'fact')}"

    def rows(self, depth: int = 0, owners: Owners = _UNKNOWN) -> Iterator[Map]:
        """Yields the same for programs: a row for each fact, and for each pattern that must have no match."""
        row: dict[str, Value] = {"depth": depth, "fact": self.fact, "by": self.rule or "claimed"}
        if self.literal:
            times = {"since": self.since, "until": self.until}
            holds = _span_text(self.since, self.until)
            row = {"depth": depth, "literal": self.literal, "holds": holds, **_as_times(times)}
        if not self.rule and (names := owners.get(key(self.fact))):
            row["owners"] = tuple(names)
        yield Map(row)
        for premise in self.premises:
            yield from premise.rows(depth + 1, owners)
        yield from [Map({"depth": depth + 1, "absent": text}) for text in self.absent]
        if self.withheld:
            yield Map({"depth": depth + 1, "withheld": self.withheld})

    def claimed(self) -> Iterator[Value]:
        """Yields the facts of the proof that are claimed."""
        if not self.rule:
            yield self.fact
        for premise in self.premises:
            yield from premise.claimed()


def withheld(count: int, what: str) -> str:
    """Returns what is said of things that the asker may not observe.

    >>> withheld(2, "rule")
    '2 rules withheld: the token does not allow to observe them'
    """
    them = "them" if count > 1 else "it"
    return f"{count} {what}{'s' * (count > 1)} withheld: the token does not allow to observe {them}"


@dataclass(frozen=True, slots=True)
class Lack:
    """What a rule lacks to derive a fact.

    ``due`` is when that comes to hold if only time passes, ``ended`` when it ceased to, in microseconds.
    """

    text: str
    due: int | None = None
    ended: int | None = None

    @property
    def times(self) -> dict[str, Value]:
        """Returns the times that there are, as values."""
        return _as_times({"due": self.due, "ended": self.ended})


def lack_of(text: str, past: PastRows, row: Row, now: int) -> Lack | None:
    """Returns why a row that is kept is not shown at a time; None if it says nothing about that."""
    of, since = past.of, past.since.get(row)
    match of.kind:
        case TimeKind.FOR if since is not None:
            due = instant_of(since + of.span)
            held = (
                f"held since {time_text(since)}" if of.literals else f"carried out since {time_text(since)}"
            )
            return Lack(f"{text}: {held}, not yet: {_in(due, now)}", due)
        case TimeKind.FINAL if (until := past.kept.get(row)) is not None:
            due = instant_of(past.ends(until - of.span))
            return Lack(f"{text}: the window is not over: {_in(due, now)}", due)
        case TimeKind.NOW:
            begins, ends = bounds_of(of.operators, row)
            if begins >= ends:
                return Lack(f"{text} never holds")
            if begins > now:
                return Lack(f"{text}: not yet: {_in(begins, now)}", begins)
            return Lack(f"{text}: ended {_ago(ends, now)}", ended=ends)
        case TimeKind.CLOCK:
            next_due = next_showing(of, now)
            later = "" if next_due is None else f": not yet: {_in(next_due, now)}"
            return Lack(f"{text} does not hold{later}", next_due)
    return None


def lack_of_silence(text: str, last: RowTimes, now: int) -> Lack:
    """Returns why something is not silent; ``text`` says that it is."""
    heard = text.removeprefix("not ")
    if last.until is None or last.since is None:
        since = "" if last.since is None else f", since {time_text(last.since)}"
        return Lack(f"{heard}: it is there{since}")
    due = instant_of(last.until)
    return Lack(f"{heard}: the last at {time_text(last.since)}, silent {_in(due, now)}", due)


def sooner(one: Lack | None, other: Lack | None) -> Lack | None:
    """Returns the lack that ends first; where neither ends by time, the lack that began last."""
    if one is None or other is None:
        return one or other
    if one.due is not None or other.due is not None:
        return min(one, other, key=lambda lack: NEVER if lack.due is None else lack.due)
    return max(one, other, key=lambda lack: lack.ended or -1)


def time_text(micros: int) -> str:
    """Returns a time as answers show it, in UTC.

    >>> time_text(1_800_000_003_200_000)
    '2027-01-15T08:00:03.2Z'
    """
    whole, _, part = unparse(time_of(micros)).strip("@Z").partition(".")
    part = part.rstrip("0")
    return f"{whole}.{part}Z" if part else f"{whole}Z"


def _span_text(since: int | None, until: int | None) -> str:
    if until is None:
        return "holds" if since is None else f"held since {time_text(since)}"
    return (
        f"until {time_text(until)}" if since is None else f"from {time_text(since)} until {time_text(until)}"
    )


def _in(due: int, now: int) -> str:
    return f"in {_seconds(due - now)} ({time_text(due)})" if due > now else f"due now ({time_text(due)})"


def _ago(time: int, now: int) -> str:
    return f"{_seconds(now - time)} ago ({time_text(time)})"


def _seconds(micros: int) -> str:
    """Returns a duration for people: in tenths of the unit that suits it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if micros >= 2 * size * 1_000_000:
            return f"{micros / size / 1_000_000:.1f} {unit}"
    return f"{max(0, micros) / 1_000_000:.1f} s"


def _as_times(given: Mapping[str, int | None]) -> dict[str, Value]:
    return {name: time_of(micros) for name, micros in given.items() if micros is not None}


WITHHELD: Final = Proof(None, withheld=1)
"""Stands for a premise that may not be observed."""

HIDDEN_RULE: Final = "a rule that is withheld"
