"""Plans: who acts in a life and what goes wrong in it, drawn from the seed before it begins.

Each part has a seed of its own, so a life without one of them is the same life otherwise, as far as the
others allow: that is what shrinking takes away, one by one.

Always: the plan is a function of the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from server.config.model import DURABLE
from tests.simulation.network import Weather
from tests.simulation.occurrences import Kind

SECONDS: Final = 6.0
"""The time in which everything begins that goes wrong."""

MAIN: Final = "main"
SIDE: Final = "side"
SPACES: Final = (MAIN, SIDE)
TOPIC: Final = "news"

DOERS: Final = (
    "writer", "writer", "writer", "guest", "guest", "borrower", "keeper", "locker", "locker", "claimer",
    "claimer", "publisher", "publisher",
)  # fmt: skip
OF_TOPICS: Final = ("publisher", "subscriber")
FAULTS: Final = (
    "kill", "kill", "power", "power", "kill at a write", "power at a write", "cut", "cut", "cut", "mute up",
    "mute down", "pause", "pause daemon", "full disk", "failed sync", "clock",
)  # fmt: skip
FAULTS_OF_SEVERAL: Final = ("kill", "kill", "kill at a write", "end", "end", "pause daemon", "cut")
"""What goes wrong besides where several daemons have one log."""

FAULTS_OF_CLUSTERS: Final = (
    "kill", "kill", "power", "end", "pause daemon", "pause daemon", "move", "move", "drain member",
    "drain member", "store restart",
    "store failover", "store failover", "store slow", "store cut", "store cut", "store full", "store clock",
    "no standby", "unconfirmed", "unconfirmed", "unfinished", "unfinished", "store went back",
    "store went back", "daemons cut", "client cut",
)  # fmt: skip
"""What goes wrong besides in a cluster over a store."""

OF_ONE_MACHINE: Final = ("power", "kill at a write", "power at a write", "full disk", "failed sync", "kill")
"""What goes wrong with a daemon that has a disk."""

LEADS: Final = "leads"
STANDS_BY: Final = "stands by"
FOLLOWS: Final = "follows"


@dataclass(frozen=True, slots=True)
class Part:
    """Someone who acts, or something that goes wrong: what, when, for how long, and for whom."""

    kind: str
    seed: int
    at: float
    lasting: float = 0.0
    target: int = 0
    number: int = 0
    """The place in the plan that was drawn, which stays when others are left out."""
    space: str = MAIN
    """The space that an actor is in."""
    rank: int = 0
    """How many actors of its kind are before it in its space."""

    def __str__(self) -> str:
        lasting = f" for {self.lasting:g} s" if self.lasting else ""
        return f"{self.at:.3f} s: {self.kind}{lasting} ({self.target})"


@dataclass(frozen=True, slots=True)
class Plan:
    """One life."""

    seed: int
    weather: Weather
    actors: tuple[Part, ...]
    faults: tuple[Part, ...]
    show: str | None = None
    """What observers are shown, by the configuration of the daemon."""
    memory: bool = False
    """Whether logs and journals are in memory, where a write is one step, in place of SQLite's files."""
    roles: tuple[str, ...] = ()
    """What the daemons of a cluster do; none for a single one."""
    store: bool = False
    """Whether they are a cluster over a store, where each may lead."""
    loss: float = 0.0
    """How often an answer of the store is lost."""

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces of the daemon besides ``main``."""
        return (SIDE,) if any(each.space == SIDE for each in self.actors) else ()

    def __str__(self) -> str:
        actors = ", ".join(f"{each.kind} in {each.space} at {each.at:.3f} s" for each in self.actors)
        faults = "".join(f"\n  {each}" for each in self.faults)
        daemons = f", daemons: {', '.join(self.roles)}" if self.roles else ""
        return f"seed {self.seed}: {self.weather}, shows {self.show}{daemons}\n  {actors}{faults}"

    def without(self, actors: frozenset[int], faults: frozenset[int], weather: Weather | None = None) -> Plan:
        """Returns the same without the actors and the faults of these places, in another weather if given."""
        return replace(
            self,
            weather=weather or self.weather,
            actors=tuple([each for at, each in enumerate(self.actors) if at not in actors]),
            faults=tuple([each for at, each in enumerate(self.faults) if at not in faults]),
        )


def draw(seed: int, kind: Kind = Kind.FILES) -> Plan:
    """Returns the plan of a seed."""
    plan = _single(seed)
    match kind:
        case Kind.FILES:
            return plan
        case Kind.MEMORY:
            return replace(plan, memory=True)
        case Kind.FOLLOWERS:
            return _several(plan)
        case Kind.CLUSTER:
            return _stored(plan)


def _single(seed: int) -> Plan:
    random = Random(f"plan {seed}")
    weather = Weather(
        delay=random.choice((0.0, 0.001, 0.001, 0.01, 0.05)),
        split=random.choice((0.0, 0.1, 0.5)),
        buffer=random.choice((2_000, 16_384, 200_000)),
    )
    doers = ["writer", *random.choices(DOERS, k=random.randint(1, 5))]
    watchers = ["watcher", *random.choices(("watcher", "peeker"), k=random.randint(0, 2))]
    if "publisher" in doers:
        watchers += ["subscriber"] * random.randint(1, 2)
    actors = list(_placed([*watchers, *doers], random))
    actors += _workers(seed, len(actors))
    if "publisher" in doers:
        actors += _dividers(seed, len(actors))
    actors += _derivers(seed, len(actors))
    faults = _faults(random, FAULTS, random.randint(0, 7))
    show = Random(f"show {seed}").choice((DURABLE, DURABLE, DURABLE, None))
    return Plan(seed, weather, tuple(actors), tuple(sorted(faults, key=lambda each: each.at)), show)


def _several(plan: Plan) -> Plan:
    """Returns the plan with several daemons, of whom more is asked."""
    random = Random(f"several {plan.seed}")
    glancers = _glancers(plan, random)
    roles = [LEADS, STANDS_BY, *random.choices((STANDS_BY, FOLLOWS), k=random.choice((0, 0, 1, 1, 2)))]
    faults = [*plan.faults, *_faults(random, FAULTS_OF_SEVERAL, random.randint(1, 4))]
    faults.sort(key=lambda each: each.at)
    return replace(
        plan,
        actors=(*plan.actors, *glancers),
        roles=tuple(roles),
        faults=tuple(faults),
        memory=True,
    )


def _glancers(plan: Plan, random: Random) -> list[Part]:
    """Returns clients that read from any daemon what they have written."""
    number = len(plan.actors)
    return [
        Part("glancer", random.getrandbits(32), _instant(random, 1.0), number=number + at, rank=at)
        for at in range(random.randint(0, 2))
    ]


def _stored(plan: Plan) -> Plan:
    """Returns the plan with a cluster over a store."""
    random = Random(f"stored {plan.seed}")
    faults = [each for each in plan.faults if each.kind not in OF_ONE_MACHINE]
    faults += _faults(random, FAULTS_OF_CLUSTERS, random.randint(1, 5))
    faults.sort(key=lambda each: each.at)
    return replace(
        plan,
        actors=(*plan.actors, *_glancers(plan, random)),
        roles=(STANDS_BY,) * random.choice((2, 2, 2, 3, 3, 4)),
        faults=tuple(faults),
        show=DURABLE,
        store=True,
        loss=random.choice((0.0, 0.0, 0.01, 0.05)),
    )


def _workers(seed: int, number: int) -> list[Part]:
    """Returns the members of a group, in half of all lives, and one that is none and reports their jobs."""
    random = Random(f"workers {seed}")
    workers = [
        Part("worker", random.getrandbits(32), _instant(random, 1.0), number=number + at, rank=at)
        for at in range(random.choice((0, 0, 2, 3)))
    ]
    cheats = [Part("cheat", random.getrandbits(32), 0.0, number=number + len(workers))] if workers else []
    return [*workers, *cheats]


def _derivers(seed: int, number: int) -> list[Part]:
    """Returns owners whose turns and rules are drawn, in half of all lives."""
    random = Random(f"derivers {seed}")
    space = random.choice((MAIN, MAIN, SIDE))
    return [
        Part(
            "deriver", random.getrandbits(32), _instant(random, 4.0), number=number + at, space=space, rank=at
        )
        for at in range(random.choice((0, 0, 1, 2)))
    ]


def _dividers(seed: int, number: int) -> list[Part]:
    """Returns the members of a group that divides the topic, in half of all lives that have one."""
    random = Random(f"dividers {seed}")
    return [
        Part("divider", random.getrandbits(32), _instant(random, 2.0), number=number + at, rank=at)
        for at in range(random.choice((0, 0, 2, 3)))
    ]


def _faults(random: Random, kinds: Sequence[str], count: int) -> list[Part]:
    return [
        Part(
            kind,
            random.getrandbits(32),
            _instant(random, SECONDS),
            random.choice((0.05, 0.5, 1.5, 4.0)),
            random.randrange(64),
        )
        for kind in random.choices(kinds, k=count)
    ]


def _placed(kinds: Sequence[str], random: Random) -> Iterator[Part]:
    """Yields actors of these kinds, in one space or in both."""
    spaces = random.choice(((MAIN,), (MAIN, SIDE)))
    ranks: Counter[tuple[str, str]] = Counter()
    for number, kind in enumerate(kinds):
        within = 3.0 if kind == "publisher" else 1.0  # so that faults find it at work
        seed, at, space = random.getrandbits(32), _instant(random, within), random.choice(spaces)
        yield Part(kind, seed, at, number=number, space=space, rank=ranks[kind, space])
        ranks[kind, space] += 1


def _instant(random: Random, within: float) -> float:
    """Returns an instant; often a round one, so that several things happen at once."""
    instant = random.uniform(0, within)
    return instant if random.random() < 0.5 else round(instant * 4) / 4
