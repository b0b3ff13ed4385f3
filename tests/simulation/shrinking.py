"""Shrinking: what of a life that goes wrong is needed for that?

Actors and faults are taken away one by one, from the latest on, for as long as the same goes wrong; then the
network is made calm.  It is greedy, so another life may be smaller still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.network import Weather
from tests.simulation.plan import Plan, draw

CALM = Weather(delay=0.001, split=0.0, buffer=200_000)


@dataclass(frozen=True, slots=True)
class Less:
    """What is left out of the life of a seed."""

    actors: frozenset[int] = frozenset()
    faults: frozenset[int] = frozenset()
    calm: bool = False

    def plan(self, seed: int) -> Plan:
        """Returns the plan without what is left out."""
        return draw(seed).without(self.actors, self.faults, CALM if self.calm else None)

    def arguments(self) -> str:
        """Returns the options of the command that live this life."""
        said = [
            f"--without-{name} {','.join(map(str, sorted(places)))}"
            for name, places in (("actors", self.actors), ("faults", self.faults))
            if places
        ]
        return " ".join([*said, *(["--calm"] if self.calm else [])])


def shrink(seed: int, fails: Callable[[Plan], bool]) -> Less:
    """Returns what can be left out of the life of a seed, so that it still ``fails``."""
    whole = draw(seed)
    less = Less()
    again = True
    while again:
        again = False
        for more in (
            *[Less(less.actors | {at}, less.faults, less.calm) for at in _left(whole.actors, less.actors)],
            *[Less(less.actors, less.faults | {at}, less.calm) for at in _left(whole.faults, less.faults)],
            *([] if less.calm else [Less(less.actors, less.faults, True)]),
        ):
            if fails(more.plan(seed)):
                less, again = more, True
                break
    return less


def _left(parts: tuple[object, ...], gone: frozenset[int]) -> list[int]:
    return [at for at in reversed(range(len(parts))) if at not in gone]
