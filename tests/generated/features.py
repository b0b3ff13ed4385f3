"""Features of the product, and which two of them act in one space of one program, life or matrix.

Programs of the kernel, programs of clients and simulated lives are drawn, and counted by what is in them.
The matrices have one world each, in which all of their features act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from random import Random
from typing import Final

from dataspace.rules.engine.rebuilding import forms_of
from index.values.values import Record
from tests.generated import clients, programs
from tests.model.space import SEND
from tests.simulation.deriving import DRAWN
from tests.simulation.plan import FOLLOWS, STANDS_BY, Plan

FEATURES: Final = {
    "session": "facts of a session",
    "durable": "facts of a durable owner",
    "lease": "facts of a lease, a hold or a lock",
    "grace": "a session that outlives its connection",
    "conditions": "turns that expect something",
    "messages": "messages",
    "observers": "patterns that are observed",
    "rules": "rules",
    "time": "rules with time",
    "next": "rules with next",
    "groups": "groups that divide work",
    "topics": "durable topics",
    "publication": "staged operations and publications",
    "http": "turns and questions over HTTP",
    "events": "server-sent events",
    "actors": "hosted actors",
    "retention": "a past that is deleted",
    "restart": "a daemon that ends and is started again",
    "follower": "a daemon that follows",
    "take-over": "a daemon that leads after another one",
    "drain": "a daemon that is drained",
    "archive": "a past that is archived",
}

_WORLD: Final = "session durable lease messages groups topics publication"

MATRICES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "verbs": ((f"{_WORLD} conditions grace drain", ""),),
    "roles": ((_WORLD, "follower"), (_WORLD, "restart"), (_WORLD, "drain"), ("follower", "drain")),
    "deaths": ((f"{_WORLD} conditions observers", "restart"),),
    "resuming": (
        ("observers events", "durable topics"),
        ("durable topics observers events", "restart retention"),
    ),
    "limits": (
        ("session durable messages publication http topics rules groups observers restart retention", ""),
    ),
}
"""What acts together in the worlds of a matrix: each of some features with each of others, or all of them
with each other.  ``verbs`` is ``test_verbs`` and ``test_tables``, the others are modules of their names."""

Pair = tuple[str, str]


class Together:
    """Pairs of features, by how many programs, lives and worlds of each door had both."""

    def __init__(self) -> None:
        self.met: dict[Pair, Counter[str]] = {pair: Counter() for pair in combinations(FEATURES, 2)}

    def add(self, door: str, features: Iterable[str]) -> None:
        """Counts a program, or a space of a life, in which all of these act."""
        had = set(features)
        for pair in combinations([each for each in FEATURES if each in had], 2):
            self.met[pair][door] += 1

    def add_matrices(self) -> None:
        """Counts what the matrices bring together."""
        for name, worlds in MATRICES.items():
            for some, others in worlds:
                if not others:
                    self.add(name, some.split())
                for one in some.split():
                    for other in others.split():
                        self.add(name, (one, other))

    @property
    def missing(self) -> list[Pair]:
        """The pairs that no door brings together."""
        return [pair for pair, doors in self.met.items() if not doors]

    def __str__(self) -> str:
        """The figure, and how many pairs each door has."""
        count = len(self.met) - len(self.missing)
        doors = Counter(door for each in self.met.values() for door in each)
        said = ", ".join(f"{door} {pairs}" for door, pairs in doors.most_common())
        return f"pairs of features: {count} of {len(self.met)}, {count / len(self.met):.0%} ({said})"


# -- what there is in a program ----------------------------------------------------------------------


def of_text(text: str) -> Iterator[str]:
    """Yields the features of a text of rules."""
    yield "rules"
    yield from ["next"] if "next(" in text else []
    yield from ["time"] if forms_of([Record("rule", "r", text)]) else []


def of_program(program: programs.Program) -> Iterator[str]:
    """Yields the features of a program of the kernel."""
    for operation in program:
        match operation:
            case programs.Turn(owner, actions, others):
                for who, what in ((owner, actions), *others):
                    yield "session" if who.startswith("s:") else "durable"
                    yield from ["messages"] if any(action[0] == SEND for action in what) else []
            case programs.Toggle(_, text):
                yield from of_text(text)
            case programs.Watch():
                yield "observers"
            case programs.Restart(form):
                yield "restart"
                yield from ["retention"] if form in (programs.RETAINED, programs.RESTED) else []
                yield from ["follower", "take-over"] if form == programs.FOLLOWED else []


def of_clients(program: clients.Program) -> Iterator[str]:
    """Yields the features of a program of clients of a daemon."""
    lost = set[str]()
    for operation in program:
        match operation:
            case clients.Stall(bursts, _, kills):
                for burst in bursts:
                    yield from _of_burst(burst, lost)
                yield from ["restart"] if kills else []
            case clients.Strike(burst):
                yield from _of_burst(burst, lost)
                yield "restart"
            case clients.Burst():
                yield from _of_burst(operation, lost)
            case clients.Come(client, anew):
                yield from ["grace"] if client in lost and not anew and clients.GRACES[client] else []
            case clients.Restart():
                lost |= clients.GRACES.keys()
                yield "restart"
            case clients.Forget():
                yield "retention"
            case clients.Post(owner, actions, expected):
                yield "http"
                yield from _of_turn(owner, actions, expected)


def _of_burst(burst: clients.Burst, lost: set[str]) -> Iterator[str]:
    for step in burst.steps:
        match step:
            case clients.Turn(owner, actions, others, expected):
                yield from _of_turn(owner, actions, expected)
                for who, what in others:
                    yield from _of_turn(who, what, ())
            case clients.Lease():
                yield "lease"
            case clients.Watch():
                yield "observers"
    if burst.end == clients.CUT:
        lost.add(burst.client)


def _of_turn(owner: str, actions: Iterable[clients.Action], expected: tuple[object, ...]) -> Iterator[str]:
    yield "session" if not owner else "lease" if owner.startswith("lease:") else "durable"
    yield from ["conditions"] if expected else []
    for verb, *rest in actions:
        yield from ["messages"] if verb == SEND else []
        for each in rest:
            if isinstance(each, Record) and each.label == "rule":
                yield from of_text(str(each.fields[1]))


# -- what there is in a life -------------------------------------------------------------------------

ACTORS: Final = {
    "writer": "durable messages",
    "guest": "session",
    "borrower": "lease",
    "keeper": "session grace",
    "locker": "lease",
    "claimer": "durable conditions",
    "publisher": "topics",
    "subscriber": "topics",
    "worker": "durable groups",
    "divider": "durable groups topics",
    "cheat": "durable groups",
    "deriver": "durable conditions messages rules",
    "watcher": "observers",
    "peeker": "observers",
    "glancer": "durable messages observers",
}
FAULTS: Final = {
    **dict.fromkeys(("kill", "power", "kill at a write", "power at a write", "end", "unfinished"), "restart"),
    "move": "take-over",
}


def of_life(plan: Plan, space: str) -> Iterator[str]:
    """Yields the features that act in one space of a life, as it is planned."""
    for actor in plan.actors:
        if actor.space == space:
            yield from ACTORS[actor.kind].split()
            if actor.kind == "deriver":
                kinds = Random(f"{plan.seed} profile {space}").choice(DRAWN).kinds
                yield from ["time"] if {"within", "at", "for", "now", "final"} & set(kinds) else []
    faults = {feature for fault in plan.faults for feature in FAULTS.get(fault.kind, "").split()}
    yield from faults
    yield from ["follower"] if {FOLLOWS, STANDS_BY} & set(plan.roles) else []
    yield from ["take-over"] if STANDS_BY in plan.roles and "restart" in faults else []
