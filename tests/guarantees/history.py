"""A history: what clients asked for, were answered and were shown, and what the log holds in the end.

Every kind of run records one: ``tests/guarantees``, torture, soak, simulation and abuse.  A run of hours cuts
its history into pieces: ``continued`` returns the one that follows one that was judged.

Always: plain data, so that a validator is a function of it, and a planted fault is a change of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dataspace.client.session.turns import Ticket
from dataspace.kernel.changes import Claims, Epoch
from dataspace.kernel.expectations import Expectation
from index.patterns.patterns import matcher
from index.values.values import Value, key
from tests.model.locks import LockHistory
from tests.model.topics import TopicHistory

Row: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """An epoch that a client heard of: its turn was answered with it, or it was shown a state or a change.

    ``asked`` is how many epochs the client had heard of when it asked.
    """

    epoch: int
    process: str
    asked: int


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
    at: str = ""
    """The process that answered it, if that was noted."""
    after: int = 0
    """An epoch with which some turn had been answered when this one was submitted."""

    @classmethod
    def of(cls, client: str, ticket: Ticket, answer: int | str | None, at: str = "", after: int = 0) -> Turn:
        """Returns a turn as it was submitted."""
        return cls(client, ticket.sequence, ticket.actions, answer, ticket.others, ticket.expected, at, after)

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
    process: str = ""
    """The process from which it came, if that was noted."""


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
class Graced:
    """A session with grace: the facts that it put in the place of one another, and how its client came back.

    ``returns`` are pairs of the seconds since the client was last answered and whether its session was
    resumed.
    """

    client: str
    grace: float
    facts: list[Value] = field(default_factory=list)
    returns: list[tuple[float, bool]] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """One run, in one space; topics are in the history of ``main``."""

    turns: list[Turn] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    ended: list[frozenset[Value]] = field(default_factory=list)
    """The facts of each session that was ended from outside."""
    terms: list[Term] = field(default_factory=list)
    graced: list[Graced] = field(default_factory=list)
    stolen: list[str] = field(default_factory=list)
    """Clients whose session was resumed without its secret."""
    topics: dict[str, TopicHistory] = field(default_factory=dict)
    lock: LockHistory = field(default_factory=LockHistory)
    heard: dict[str, list[Heard]] = field(default_factory=dict)
    """By client: the epochs that the client heard of, in order, from whatever process."""
    firsts: dict[int, int] = field(default_factory=dict)
    """By term of the log, its first epoch."""
    leaders: dict[str, int] = field(default_factory=dict)
    """By process, the term of the log in which it leads; empty if processes are not noted."""
    chain: list[tuple[int, int]] = field(default_factory=list)
    """The term in the store under which each segment of the log was written, and its first epoch."""
    rights: Mapping[str, str] = field(default_factory=dict)
    """By tenant, the label of the facts and messages that it may make; it puts ``by-TENANT`` into each."""
    secret: frozenset[str] = frozenset()
    """Labels that none of these tenants may observe."""
    strangers: bool = False
    """True if clients with durable owners act whose turns are not recorded."""
    log: list[Epoch] = field(default_factory=list)
    base: int = 0
    """The epoch whose whole state the first entry of the log is, or 0 if the log is whole."""

    @property
    def changes(self) -> list[Epoch]:
        """The entries of the log that are epochs, and not the state at its beginning."""
        return self.log[1:] if self.base else self.log

    def continued(self) -> History:
        """Returns the history of what follows; it begins with the state at an epoch.

        It is the last epoch that all observers have reached.  Call it once all turns were answered and all
        sessions in ``ended`` have ended.
        """
        upto = min([self.log[-1].number, *[view.upto for view in self.views.values()]])
        state = held(self.log, upto)
        return History(
            turns=[turn for turn in self.turns if isinstance(turn.answer, int) and turn.answer > upto],
            views={name: _rest(view, state, upto) for name, view in self.views.items()},
            terms=self.terms,
            topics={name: topic.continued() for name, topic in self.topics.items()},
            rights=self.rights,
            secret=self.secret,
            strangers=self.strangers,
            firsts=self.firsts,
            leaders=self.leaders,
            log=[state, *[epoch for epoch in self.changes if epoch.number > upto]],
            base=upto,
        )


def held(log: Sequence[Epoch], upto: int) -> Epoch:
    """Returns all that holds after an epoch, as one epoch that adds it; O(log)."""
    claims: dict[str, dict[int, Value]] = {}
    facts: dict[Hashable, Value] = {}
    time = 0
    for epoch in log:
        if epoch.number > upto:
            break
        time = epoch.time
        take_in(claims, epoch)
        facts |= {key(fact): fact for fact in epoch.added}
        for fact in epoch.removed:
            facts.pop(key(fact), None)
    all_claims = [Claims(owner, list(handles.items())) for owner, handles in claims.items()]
    return Epoch(upto, time, list(facts.values()), [], [], all_claims)


def take_in(claims: dict[str, dict[int, Value]], epoch: Epoch) -> None:
    """Adds what an epoch changes to the claims of each owner: what it begins, and then what it ends."""
    for owner, asserted, retracted in epoch.claims:
        handles = claims.setdefault(owner, {})
        handles.update(asserted)
        for handle in retracted:
            handles.pop(handle, None)


def _rest(view: View, state: Epoch, upto: int) -> View:
    rows = {key(row): row for row in map(matcher(view.pattern), state.added) if row is not None}
    first = Shown(upto, upto, list(rows.values()), [], [], is_state=True)
    return View(view.pattern, [first, *[each for each in view.epochs if each.number > upto]], view.upto)
