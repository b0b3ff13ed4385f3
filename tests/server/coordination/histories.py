"""Histories of locks: what clients did and believed, what a store took, what the log says; and a checker.

Workers, daemon and store are on one machine, so one clock orders what is not concurrent.  The checker needs
no search: the tokens say in which order the lock was held.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from index.values.values import Value


@dataclass(frozen=True)
class Grant:
    """A client's ``acquire``, from its call to its return."""

    client: str
    token: int
    began: float
    ended: float


@dataclass(frozen=True)
class Belief:
    """A check of a holder that passed, and when it was begun."""

    client: str
    token: int
    at: float


@dataclass(frozen=True)
class Write:
    """What a store did with a write, in its order."""

    client: str
    token: int
    accepted: bool


@dataclass
class History:
    """All of it; ``facts`` are the rows ``(who, term)`` of the lock that came and went, by epochs."""

    grants: list[Grant] = field(default_factory=list)
    beliefs: list[Belief] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    facts: list[tuple[int, list[Value], list[Value]]] = field(default_factory=list)


class Notes:
    """The file in which one client notes what it does."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, what: Grant | Belief) -> None:
        self._file.write(json.dumps([type(what).__name__, asdict(what)]) + "\n")


class Store:
    """A store outside of the dataspace, which takes no lower token than it has seen; processes share it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, client: str, token: int) -> bool:
        """Takes a write in one transaction with the look at its token."""
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            highest = max((each.token for each in map(_write, file) if each.accepted), default=0)
            done = Write(client, token, token >= highest)
            file.write(json.dumps(asdict(done)) + "\n")
            return done.accepted

    def writes(self) -> list[Write]:
        return [_write(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []


def _write(line: str) -> Write:
    return Write(**json.loads(line))


def read_notes(paths: Iterable[Path], history: History) -> None:
    """Adds what clients have noted; the last line of one that was killed may be torn."""
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                kind, told = json.loads(line)
            except ValueError:
                continue
            if kind == "Grant":
                history.grants.append(Grant(**told))
            else:
                history.beliefs.append(Belief(**told))


def violations(history: History) -> list[str]:
    """Returns what is wrong with a history; nothing if it is one of a lock."""
    return [
        *_facts(history.facts),
        *_grants(history.grants),
        *_beliefs(history.grants, history.beliefs),
        *_writes(history.grants, history.writes),
    ]


def _facts(changes: Sequence[tuple[int, list[Value], list[Value]]]) -> Iterable[str]:
    held: list[Value] = []
    for epoch, came, went in changes:
        held += came
        for each in went:
            held.remove(each)
        if len(held) > 1:
            yield f"a: in epoch {epoch} the lock has {len(held)} holders: {held}"


def _grants(grants: Sequence[Grant]) -> Iterable[str]:
    seen: dict[int, Grant] = {}
    for each in grants:
        if each.token in seen:
            yield f"b: token {each.token} was granted to {seen[each.token].client} and to {each.client}"
        seen[each.token] = each
    rising = sorted(grants, key=lambda each: each.ended)
    for later in grants:
        for earlier in rising:
            if earlier.ended >= later.began:
                break
            if earlier.token >= later.token:
                yield f"b: {earlier} ended before {later} began, and has no lower token"


def _beliefs(grants: Sequence[Grant], beliefs: Sequence[Belief]) -> Iterable[str]:
    for belief in beliefs:
        for grant in grants:
            if grant.token > belief.token and grant.ended < belief.at:
                yield f"c: {belief} passed {belief.at - grant.ended:.3f} s after {grant}"
                break


def _writes(grants: Sequence[Grant], writes: Sequence[Write]) -> Iterable[str]:
    owners, highest = {each.token: each.client for each in grants}, 0
    for each in writes:
        if not each.accepted:
            continue
        if each.token < highest:
            yield f"d: {each} was accepted after token {highest}"
        highest = max(highest, each.token)
        if owners.get(each.token, each.client) != each.client:
            yield f"e: {each} has the token of {owners[each.token]}"


def now() -> float:
    """Returns the time by the clock that all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
