"""A world: what the actors, the daemon and the faults of one life share, and the trace of what happened.

Always: the trace is the same for the same plan, in whatever process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import trio

from dataspace.kernel.changes import Epoch
from relay.log.notes import Note
from tests.guarantees.history import History, View
from tests.model.groups import Report, Told
from tests.model.topics import TopicHistory
from tests.simulation.hosts import Host
from tests.simulation.network import Network
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import MAIN, SPACES, TOPIC, Plan

PORT: Final = 7377
URL: Final = f"tcp://127.0.0.1:{PORT}"
"""Where a daemon is; further daemons have the ports after it."""


MOST_EVENTS: Final = 50_000
"""A life has some hundreds; one of so many does the same again and again, perhaps in one instant."""


class GivenBack(NamedTuple):
    """A job as it was, with the attempt that comes next, and when that may come."""

    told: Told
    due: float


class World:
    """One life."""

    network: Network

    def __init__(self, plan: Plan, place: Path, *, keep_trace: bool = False) -> None:
        self.plan: Final = plan
        self.place: Final = place
        self.histories: Final = {space: History() for space in SPACES}
        self.topic: Final = TopicHistory()
        self.histories[MAIN].topics[TOPIC] = self.topic
        self.told: Final[defaultdict[str, list[Told]]] = defaultdict(list)
        """By group, the jobs that its members have taken."""
        self.taken: Final[dict[tuple[str, int], float]] = {}
        """When these were taken, by group and token."""
        self.given_back: Final[defaultdict[str, list[GivenBack]]] = defaultdict(list)
        """By group, the jobs that its members have given back."""
        self.reports: Final[defaultdict[str, list[Report]]] = defaultdict(list)
        """By group, what its members have reported, and had an answer to."""
        self.entries: list[Epoch | Note] = []
        """What the log of ``main`` has in the end, with its notes."""
        self.topic_end: int | None = None
        """The last epoch of the topic, once it is taken."""
        self.watched: Final[dict[str, tuple[str, View]]] = {}
        """What the observers see now, and in which space; the history has what they saw before as well."""
        self.eager: Final[dict[str, tuple[str, View]]] = {}
        """What observers saw that do not wait for the disk."""
        self.faults: Final[list[str]] = []
        """What is wrong beside what the validators say."""
        self.clients: Final[dict[str, Host]] = {}
        self.lines: Final[list[str] | None] = [] if keep_trace else None
        self.scope: Final = trio.CancelScope()
        """All that clients do; it ends once anything is wrong."""
        self.counts: Final[Counter[str]] = Counter()
        """How often something happened that a test demands of many lives."""
        self.begun_at = 0.0
        """When the latest daemon was started."""
        self.starts = 0
        """How many daemons there were, in the end."""
        self.events = 0
        self.last = dict.fromkeys(SPACES, 0)
        """The latest epoch of each space that was acknowledged."""
        self.asked: Final[set[tuple[str, str, int]]] = set()
        """Turns that were sent: space, client and number."""
        self.may_be_lost: set[tuple[str, str, int]] = set()
        """The turns that had been sent when the store went back to a copy that lacked some."""
        self.went_back: Callable[[], bool] = lambda: False
        """Returns True once the store, if there is one, lacks what was shown."""
        self.lost_acknowledged: Callable[[], bool] = lambda: False
        """Returns True once that store lacks what was acknowledged, too."""
        self.is_cut_short = False
        """True if the life ended because a daemon has found and said that the store went back."""
        self.changed = trio.Event()
        self._digest = blake2b(digest_size=16)

    @property
    def urls(self) -> list[str]:
        """The addresses of all daemons."""
        return [f"tcp://127.0.0.1:{PORT + at}" for at in range(max(1, len(self.plan.roles)))]

    @property
    def digest(self) -> str:
        """What stands for all that has happened."""
        return self._digest.hexdigest()

    def trace(self, *what: object) -> None:
        """Notes something that happens now."""
        self.events += 1
        if self.events == MOST_EVENTS:
            self.accuse(
                f"{MOST_EVENTS} events at {trio.current_time():.3f} s: something goes on without a pause"
            )
        said = f"{trio.current_time():.9f} {' '.join(map(_short, what))}"
        self._digest.update(said.encode())
        if self.lines is not None:
            self.lines.append(said)

    def count(self, what: Occurrence, times: int = 1) -> None:
        """Counts what has to happen in many lives."""
        self.counts[what.name] += times

    def random(self, name: str) -> Random:
        """Returns the random numbers of something with a name."""
        return Random(f"{self.plan.seed} {name}")

    def accuse(self, what: str) -> None:
        """Notes something that must not be."""
        self.trace("wrong:", what)
        self.faults.append(what)
        self.scope.cancel()

    def cut_short(self) -> None:
        """Ends the life, since a daemon has said that the store went back."""
        if not self.is_cut_short:
            self.trace("cut short")
            self.count(Occurrence.WENT_BACK)
            self.is_cut_short = True
            self.may_be_lost = self.may_be_lost if self.lost_acknowledged() else set()
            self.scope.cancel()

    def reach(self, space: str, epoch: int) -> None:
        """Notes that an epoch was acknowledged."""
        self.last[space] = max(self.last[space], epoch)

    def note(self) -> None:
        """Wakes those who wait for something to change."""
        self.changed.set()
        self.changed = trio.Event()


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} {blake2b(value, digest_size=6).hexdigest()}"
    return str(value)
