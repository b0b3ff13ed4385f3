"""A history: what clients asked for, were answered and were shown, and what the log holds in the end.

Always: plain data, so that a validator is a function of it, and a planted fault is a change of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dataspace.client.session.turns import Ticket
from dataspace.kernel.epochs import Epoch
from dataspace.kernel.expectations import Expectation
from index.values.values import Value

Row: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that a client handed over; ``answer`` is its epoch, the code of its refusal, or None.

    ``others`` are the actions of further owners, ``expected`` what had to hold.
    """

    client: str
    sequence: int
    actions: Sequence[tuple[Any, ...]]
    answer: int | str | None
    others: Sequence[tuple[str, Sequence[tuple[Any, ...]]]] = ()
    expected: Sequence[Expectation] = ()

    @classmethod
    def of(cls, client: str, ticket: Ticket, answer: int | str | None) -> Turn:
        """Returns a turn as it was submitted."""
        return cls(client, ticket.sequence, ticket.actions, answer, ticket.others, ticket.expected)

    @property
    def all_actions(self) -> list[tuple[Any, ...]]:
        """The actions of all owners; handles of durable owners are random, so they do not meet."""
        return [*self.actions, *[action for _, actions in self.others for action in actions]]


@dataclass(frozen=True, slots=True)
class Shown:
    """One epoch as an observer was shown it: rows of captures."""

    number: int
    first: int
    added: Sequence[Row]
    messages: Sequence[Row]
    removed: Sequence[Row]
    is_state: bool = False
    """True if the additions are all that held after this epoch."""


@dataclass(slots=True)
class View:
    """What an observer of a pattern was shown, from the state on, up to and including epoch ``upto``."""

    pattern: Value
    epochs: list[Shown] = field(default_factory=list)
    upto: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """A lease by the name of its client, and the time in microseconds before which it must not end."""

    owner: str
    until: int


@dataclass(slots=True)
class History:
    """One run, in one space.  ``ended`` has the facts of each session that was ended from outside."""

    turns: list[Turn] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    ended: list[frozenset[Value]] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    log: list[Epoch] = field(default_factory=list)
