"""Proofs: why a fact is there, as a tree of facts and of the rules that derive them.

What an asker may not observe is not in its proof, and counted.  A proof is data: ``explaining`` finds it, and
it is shown as text or as rows.

Always: a fact is in a proof only if the asker may observe it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, depth: int = 0, owners: Owners = _UNKNOWN) -> Iterator[str]:
        """Yields the proof as indented text, with the owners of claimed facts where they are known."""
        because = f"by {self.rule}" if self.rule else "claimed"
        if not self.rule and (names := owners.get(key(self.fact))):
            because = f"claimed by {', '.join(names)}"
        yield f"{'    ' * depth}{unparse(self.fact)}    {because}"
        for premise in self.premises:
            yield from premise.lines(depth + 1, owners)
        for text in self.absent:
            yield f"{'    ' * (depth + 1)}{text}"
        if self.withheld:
            yield f"{'    ' * (depth + 1)}{withheld(self.withheld, 'fact')}"

    def rows(self, depth: int = 0, owners: Owners = _UNKNOWN) -> Iterator[Map]:
        """Yields the same for programs: a row for each fact, and for each pattern that must have no match."""
        row: dict[str, Value] = {"depth": depth, "fact": self.fact, "by": self.rule or "claimed"}
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


WITHHELD: Final = Proof(None, withheld=1)
"""Stands for a premise that may not be observed."""

HIDDEN_RULE: Final = "a rule that is withheld"
