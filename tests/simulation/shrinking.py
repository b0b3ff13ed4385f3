"""Shrinking: what of a life that goes wrong is needed for that?

Actors and faults are taken away one by one, from the latest on, for as long as the same goes wrong; then the
network is made calm.  It is greedy, so another life may be smaller still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.simulation.network import Weather
from tests.simulation.occurrences import Kind
from tests.simulation.plan import Plan, draw

CALM = Weather(delay=0.001, split=0.0, buffer=200_000)


@dataclass(frozen=True, slots=True)
class Less:
    """What is left out of the life of a seed."""

    actors: frozenset[int] = frozenset()
    faults: frozenset[int] = frozenset()
    calm: bool = False
    kind: Kind = Kind.FILES

    def plan(self, seed: int) -> Plan:
        """Returns the plan without what is left out."""
        return draw(seed, self.kind).without(self.actors, self.faults, CALM if self.calm else None)

    def arguments(self) -> str:
        """Returns the options of the command that live this life."""
        said = [
            f"--without-{name} {','.join(map(str, sorted(places)))}"
            for name, places in (("actors", self.actors), ("faults", self.faults))
            if places
        ]
        return " ".join(filter(None, [self.kind.value, *said, "--calm" if self.calm else ""]))


def shrink(seed: int, kind: Kind, fails: Callable[[Plan], bool]) -> Less:
    """Returns what can be left out of the life of a seed, so that it still ``fails``."""
    whole = draw(seed, kind)
    less = Less(kind=kind)
    again = True
    while again:
        again = False
        for more in (
            *[replace(less, actors=less.actors | {at}) for at in _left(whole.actors, less.actors)],
            *[replace(less, faults=less.faults | {at}) for at in _left(whole.faults, less.faults)],
            *([] if less.calm else [replace(less, calm=True)]),
        ):
            if fails(more.plan(seed)):
                less, again = more, True
                break
    return less


def _left(parts: tuple[object, ...], gone: frozenset[int]) -> list[int]:
    return [at for at in reversed(range(len(parts))) if at not in gone]
