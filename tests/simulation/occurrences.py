"""Occurrences: what has to happen in a thousand lives, so that they are worth something.

Each is counted where it has its effect, not where it is ordered: a pause counts if work waited in it, a full
disk if it refused a write.

Always: a run of ``ENOUGH`` lives in which one of them never happened fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from tests.guarantees.validators import VALIDATORS

ENOUGH: Final = 500
"""Lives in which all of it has to happen."""


class Kind(Enum):
    """What kind of lives; the value is an option of the command."""

    FILES = ""
    """Logs and journals are SQLite's files."""
    MEMORY = "--memory"
    """They are in memory, where a write is one step."""
    FOLLOWERS = "--followers"
    """The same, and several daemons have them, of which one leads."""
    CLUSTER = "--cluster"
    """Several daemons on machines of their own have them in a simulated store."""


class Occurrence(Enum):
    """What can happen in a life, beside what clients do of themselves."""

    DELAYED = "deliveries that were delayed"
    SPLIT = "deliveries in pieces"
    OVERTAKEN = "deliveries that overtook an earlier write of another connection"
    BLOCKED = "writes for which a buffer was too full"
    CUT = "connections that were cut"
    MUTED = "connections that were mute one way"
    SILENT = "connections that fell silent with a machine"
    KILLED = "daemons that were killed"
    POWERLESS = "daemons whose power failed"
    AT_WRITE = "daemons that died in place of something asked of the disk"
    MISSING = "writes that a power failure took"
    TORN = "writes that a power failure tore"
    FULL = "writes that a full disk refused"
    SYNC = "syncs that failed"
    PAUSED = "pauses of clients in which work waited"
    DAEMON_PAUSED = "pauses of daemons in which work waited"
    CLOCK = "clocks that were set"
    VANISHED = "clients that vanished"
    PEEKED = "observations behind a gate"
    RESUMED = "connections that clients made again"
    REFUSED = "turns that were refused"
    EXPECTED = "turns whose expectation did not hold"
    SHARED = "turns of several owners"
    SIDE = "epochs of a second space"
    TOPIC = "epochs of topics"
    CRASHED = "epochs of topics in which a producer vanished"
    SEEN = "epochs that subscribers of topics were shown"
    JOB = "jobs that were done in a turn"
    ITEM = "items of topics that members of a group have divided"
    FORGOTTEN = "jobs that a worker has forgotten"
    CHEATED = "jobs that were reported by a client that had none of them"
    DERIVED = "facts that rules have derived"
    LATE = "jobs that another worker had when they were done"
    PROMOTED = "followers that led after their leader"
    MOVED = "clients that went on at another daemon"
    LOST_BEFORE = "statements that did not reach the store"
    LOST_AFTER = "answers of the store that were lost"
    LOCKED = "statements that waited for the row of a term"
    TERMINATED = "connections that a daemon ended to take a space"
    UNCONFIRMED = "writes that were seen before the standby had them"
    STORE_FULL = "writes for which the store had no room"
    FAILED_OVER = "failovers of the store"
    BARRED = "links between two hosts that were cut"
    WANTED = "moves of a space that an operator asked for"
    DRAINED = "daemons that an operator drained"
    WENT_BACK = "stores that went back, of which a daemon said so"
    STUCK = "daemons that were killed while they waited for the store"


JUDGED: Final = sorted(VALIDATORS.keys() - {"rights"})
"""The validators for which lives have material."""

COUNTED: Final = {each.name: each.value for each in Occurrence} | {
    name: f"histories that `{name}` judged" for name in JUDGED
}
"""All that is counted in lives: what it is, by its name."""


_OF_FILES: Final = frozenset([Occurrence.MISSING.name, Occurrence.TORN.name])
_OF_SEVERAL: Final = frozenset([Occurrence.PROMOTED.name, Occurrence.MOVED.name])
_OF_DISKS: Final = frozenset([Occurrence.AT_WRITE.name, Occurrence.FULL.name, Occurrence.SYNC.name])
_OF_CLUSTERS: Final = frozenset(
    [
        each.name
        for each in (
            *(Occurrence.LOST_BEFORE, Occurrence.LOST_AFTER, Occurrence.LOCKED, Occurrence.TERMINATED),
            *(Occurrence.UNCONFIRMED, Occurrence.STORE_FULL, Occurrence.STUCK, Occurrence.FAILED_OVER),
            *(Occurrence.BARRED, Occurrence.WANTED, Occurrence.DRAINED, Occurrence.WENT_BACK),
        )
    ]
)
_NEVER: Final = {
    Kind.FILES: _OF_SEVERAL | _OF_CLUSTERS,
    Kind.MEMORY: _OF_FILES | _OF_SEVERAL | _OF_CLUSTERS,
    Kind.FOLLOWERS: _OF_FILES | _OF_CLUSTERS,
    Kind.CLUSTER: _OF_FILES | _OF_DISKS,
}
"""What cannot happen in lives of a kind."""


def counted(kind: Kind) -> dict[str, str]:
    """Returns what is counted in lives of a kind, by its name."""
    return {name: what for name, what in COUNTED.items() if name not in _NEVER[kind]}


def missing(counts: Counter[str], kind: Kind = Kind.FILES) -> list[str]:
    """Returns what has never happened.

    >>> missing(Counter({name: 1 for name in COUNTED if name != Occurrence.TORN.name}))
    ['writes that a power failure tore']
    """
    return [what for name, what in counted(kind).items() if not counts[name]]


def table(counts: Counter[str], kind: Kind) -> Iterable[str]:
    """Yields a line for each."""
    for name, what in counted(kind).items():
        yield f"{counts[name]:>10} {what}"


class Counted(Protocol):
    """What is kept of one life."""

    @property
    def events(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def starts(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def cpu(self) -> float: ...
    @property
    def counts(self) -> Iterable[tuple[str, int]]: ...


@dataclass
class Total:
    """What came of many lives together."""

    began: float
    kind: Kind = Kind.FILES
    lives: int = 0
    events: int = 0
    epochs: int = 0
    starts: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def missing(self) -> list[str]:
        """What never happened, although there were lives enough for it."""
        return missing(self.counts, self.kind) if self.lives >= ENOUGH else []

    def add(self, result: Counted) -> None:
        """Adds a life."""
        self.lives += 1
        self.events += result.events
        self.epochs += result.epochs
        self.starts += result.starts
        self.seconds += result.seconds
        self.cpu += result.cpu
        self.counts.update(dict(result.counts))

    def summary(self, now: float) -> str:
        """Returns a line."""
        each = f"{self.cpu / max(1, self.lives):.3f} s of a processor each"
        return (
            f"{self.lives} lives in {now - self.began:.0f} s ({each}): {self.events} events, "
            f"{self.epochs} epochs, {self.starts} daemons, {self.seconds:.0f} virtual seconds"
        )
