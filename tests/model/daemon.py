"""A daemon: sessions, leases and durable owners change a space, and what explains what was seen of it.

There is no clock here and no schedule.  A search (``tests/generated/explaining.py``) is given what clients
did, what they were answered, and the epochs that an observer of everything was shown, and looks for a cause
of each: the next thing that a client did, or a step that the daemon makes on its own.  How fast it is, and in
which order it does what is not ordered, are its choice; an epoch without a cause is wrong, and so are a turn
that was accepted and has none, and a refusal for which there is no reason.

Times are microseconds since 1970: those of epochs are the daemon's, those of events their client's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import combinations, islice, product
from typing import Any, Final, NamedTuple, Self, TypeAlias

from index.values.values import Record, Value, key
from tests.model import space as model
from tests.model.conditions import UNCHANGED, holds

FOREVER: Final = 1 << 62
LONGEST: Final = 400_000
"""Nothing changes by time alone so long after the latest state: rules here look back less."""

# -- what was seen ------------------------------------------------------------------------------------


class Turned(NamedTuple):
    """A client has sent a turn; the answer is its epoch, the code of a refusal, or None if nobody heard it.

    ``number`` is 0 for a turn that has none.  ``grants`` is true where a turn begins the lease of its owner.
    """

    client: str
    number: int
    parts: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]
    expected: tuple[tuple[Any, ...], ...] = ()
    answer: int | str | None = None
    sent: int = 0
    heard: int = FOREVER
    grants: bool = False


class Leased(NamedTuple):
    """A client has asked for a lease, renewed it or released it; the answer is a code if it was denied, else
    whether it is a new one."""

    verb: str
    owner: str
    answer: bool | str | None
    sent: int
    heard: int = FOREVER


class Announced(NamedTuple):
    """A stream of a session has begun to observe a pattern, or has ended: then there is none."""

    session: str
    stream: int
    pattern: Value = None
    sender: str | None = None
    """Its client if the line was cut by then: the daemon may have heard neither of it nor of what follows.

    It is empty if what follows does not depend on it."""


class Ended(NamedTuple):
    """A session is over: it said goodbye, or has lost its connection and may not come back."""

    session: str


class Broken(NamedTuple):
    """A session has lost its connection, and may come back ``until`` a time at least."""

    session: str
    until: int


class Returned(NamedTuple):
    """A session was asked for again; it goes on if it was ``resumed``."""

    session: str
    resumed: bool
    sent: int


class Restarted(NamedTuple):
    """The daemon has ended, in good order or not, and was started again; each lease has a length, and each
    session that may come back its grace, which begin anew."""

    orderly: bool
    ended: int
    begun: int
    graces: tuple[tuple[str, int], ...] = ()


Claims: TypeAlias = frozenset[tuple[tuple[str, object], int]]
"""The owners of facts, each with how often it claims the fact."""

Event: TypeAlias = Turned | Leased | Announced | Ended | Broken | Returned | Restarted


class Seen(NamedTuple):
    """An epoch as an observer of everything is shown it."""

    number: int
    time: int
    added: frozenset[object]
    messages: tuple[object, ...]
    removed: frozenset[object]


class Segment(NamedTuple):
    """What came to pass between two moments at which everything was known.

    The events of one lane happened in their order, those of several lanes in any.  ``time`` is that of the
    second moment; ``claims`` are those of all facts then, where that was asked, and ``oldest`` is the first
    epoch in the log, 0 for a log that keeps all.
    """

    lanes: tuple[tuple[Event, ...], ...]
    epochs: tuple[Seen, ...]
    time: int
    claims: Claims | None = None
    is_open: bool = False
    """True if some of the epochs are of the next segment: an observer came back later."""
    oldest: int = 0

    @property
    def size(self) -> int:
        """How much there is to explain."""
        return sum(map(len, self.lanes)) + len(self.epochs)


# -- what is allowed ----------------------------------------------------------------------------------


class Daemon:
    """One space of a daemon, in one state."""

    def __init__(self) -> None:
        self.space = model.Space()
        self.number = self.time = 0
        self.oldest = 0
        """The first epoch that is in its log for sure."""
        self.is_exact = True
        """False after an end that was not orderly: numbers go on above some that are left out."""
        self.changes: tuple[tuple[int, Value], ...] = ()
        """What came and went, with its epoch."""
        self.turns: dict[str, dict[int, int]] = {}
        """The turns of each client that have happened, with their epochs."""
        self.done = 0
        """What stands for them in a state, of which it takes long to compare them all."""
        self.deaf: frozenset[str] = frozenset()
        """Clients of which something did not come, although nothing was against it, nor does what follows."""
        self.ending: frozenset[str] = frozenset()
        """Sessions that are over, and whose facts must go."""
        self.graces: dict[str, int] = {}
        """Sessions without a connection, with the times until which they stay at least."""
        self.leases: dict[str, int] = {}
        """The same of leases."""

    def _copy(self) -> Self:
        other = copy(self)
        for name in ("space", "turns", "graces", "leases"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def is_through(self, segment: Segment, lanes: Lanes, epochs: Epochs) -> bool:
        """True if all that came to pass in a segment is explained."""
        return not any(lanes) and (segment.is_open or not epochs) and segment.claims in (None, self._claims())

    def state(self) -> object:
        """Returns what two states have in common that go on alike."""
        claims = self.space.claims.items()
        held = frozenset((owner, at, key(fact)) for owner, each in claims for at, fact in each.items())
        asked = self.space.is_settled or (*self.space.coming, self.space.past.times[-1])
        ends = str(self.graces), str(self.leases)
        known = self.done, self.is_exact, self.deaf, self.ending
        return held, frozenset(self.space.carried), asked, *known, *ends

    def _claims(self) -> Claims:
        held = self.space.claims.items()
        claims = Counter((owner, key(fact)) for owner, each in held for fact in each.values())
        return frozenset(claims.items())

    def wrong(self, segment: Segment, lanes: Lanes, epochs: Epochs) -> str:
        """Says what has no cause, if nothing more has one."""
        said = [self._against(lane[0]) for lane in lanes if lane]
        if epochs:
            said.append(f"an epoch follows from nothing that was done: {epochs[0]}")
        if not said and segment.claims is not None:
            more, less = segment.claims - self._claims(), self._claims() - segment.claims
            said.append(f"owners claim {sorted(more)}, and should not; or should claim {sorted(less)}")
        return "; ".join(said)

    def _against(self, event: Event) -> str:
        if not isinstance(event, Turned):
            return f"it cannot be that {event}"
        reasons = self._reasons(event)
        model_says = f"the model says {sorted(reasons)}: {event}"
        if isinstance(event.answer, str):
            return f"a turn is refused with {event.answer}, {model_says}"
        return f"a turn is accepted, {model_says}" if reasons else f"the effect of a turn is another: {event}"

    # -- steps ------------------------------------------------------------------------------------------

    def steps(self, lanes: Lanes, epochs: Epochs, now: int) -> Iterator[tuple[Self, Lanes, Epochs]]:
        """Yields what may happen next: something that was done, an end, a turn that ``next`` asks for, or
        before an epoch the first of its instants.

        What nobody sees may happen before these as well.
        """
        one, time, next_epochs = self, self.time, epochs
        if epochs:
            now, one = epochs[0].time, self._copy()
            timed = [*islice(one.space.until(min(now, self.time + LONGEST)), 1)]
            for made in timed:
                if made is None or one._takes(made, epochs):
                    yield one, lanes, epochs[made is not None :]
            # What ``next`` asks for may come before them.
            one, timed = (one, timed) if self.space.is_settled else (self, [])
            one, time, next_epochs = (self, time, ()) if timed else (one, now, epochs)
        for at, lane in enumerate(lanes):
            if lane:
                others = (*lanes[:at], lane[1:], *lanes[at + 1 :])
                for new, taken in one._after(lane[0], next_epochs, time):
                    yield new, others, epochs[taken:]
        for sessions in one._may_end(now):
            new = one._copy()
            made = new._end(sessions, time) if sessions else new.space.settle(time)
            if made is None or new._takes(made, next_epochs):
                yield new, lanes, epochs[made is not None :]

    def _takes(self, made: model.Epoch, epochs: Epochs) -> bool:
        """Notes an epoch if it is the next that was seen: its number is the next as well."""
        if not epochs:
            return False
        number, time, added, messages, removed = epochs[0]
        shown = time, added, messages[: len(made.messages)], Counter(messages[len(made.messages) :]), removed
        if shown != (made.time, made.added, made.messages, Counter(made.said), made.removed):
            return False
        if number <= self.number or (self.is_exact and number != self.number + 1):
            return False
        self.is_exact, self.number, self.time = True, number, time
        facts = {at: fact for past in self.space.past.facts[-2:] for at, fact in past.items()}
        self.changes = (*self.changes, *[(number, facts[at]) for at in (*added, *removed)])
        return True

    def _may_end(self, time: int) -> Iterator[tuple[str, ...]]:
        """Yields which sessions and leases may end together at a time; none for a turn of ``next``.

        What a session owns goes in one epoch; several that end at once may go together.  A session ends when
        its connection has, or within its grace not; a lease not before its length after the last renewal was
        sent.
        """
        over = [each for ends in (self.graces, self.leases) for each, until in ends.items() if until <= time]
        able = sorted({*self.ending, *over}, key=lambda each: (each not in self.ending, each))
        owners = [each for each in able if any(name in self.space.claims for name in _owners(each))]
        for many in range(self.space.is_settled, len(owners) + 1):
            yield from combinations(owners, many)

    def _end(self, owners: Sequence[str], time: int) -> model.Epoch | None:
        """Retracts all that sessions and leases own."""
        self.ending -= {*owners}
        for each, ends in product(owners, (self.graces, self.leases)):
            ends.pop(each, None)
        return self.space.end([name for each in owners for name in _owners(each)], time)

    # -- events -----------------------------------------------------------------------------------------

    def _after(self, event: Event, epochs: Epochs, time: int) -> Iterator[tuple[Self, int]]:
        """Yields the states after an event, each with how many epochs it makes."""
        new = self if isinstance(event, Turned) else self._copy()
        new.deaf = new.deaf if isinstance(event, Turned | Leased | Announced) else frozenset()
        match event:
            case Turned():
                yield from self._turned(event, epochs, time)
            case Leased():
                if new._lease(event):
                    yield new, 0
            case Announced(session, stream, pattern, sender):
                lost = copy(self)
                made = None if sender in self.deaf else new._announce(session, stream, pattern, time)
                if made is None or new._takes(made, epochs):
                    yield new, int(made is not None)
                if sender is not None:
                    lost.deaf |= {sender} - {""}
                    yield lost, 0
            case Ended(session):
                new.ending |= {session}
                new.graces.pop(session, None)
            case Broken(session, until):
                new.graces[session] = until
            case Returned(session, resumed, sent):
                is_away, until = session in new.graces, new.graces.pop(session, 0)
                new.ending |= {session} if is_away and not resumed else set()
                if is_away if resumed else until <= sent:
                    yield new, 0
            case Restarted():
                new._restart(event)
        if isinstance(event, Ended | Broken | Restarted):
            yield new, 0

    def _turned(self, turn: Turned, epochs: Epochs, time: int) -> Iterator[tuple[Self, int]]:
        """A turn happens whole and once, or not at all; one that nobody has heard of may do either, but does
        not after another one that did not.  A refusal comes at once: a crash may have lost its reason.

        Sent again under its number it is answered with the epoch that it has made.
        """
        done = self.turns.get(turn.client, {})
        if turn.number and turn.number <= max(done, default=0):
            wanted = {None, done.get(turn.number, "not-applied")}
            if turn.answer in wanted or (turn.answer == "old-sequence" and self.oldest):
                yield self, 0
            return
        reasons = self._reasons(turn)
        is_able = self._runs(turn, True) and turn.client not in self.deaf
        if not isinstance(turn.answer, str) and is_able and reasons <= {"no-lease", "epoch-gone"}:
            new = self._copy()
            made = new.space.turn(turn.parts, time)
            is_shown = made is None or new._takes(made, epochs)
            is_told = turn.answer is None or turn.answer == new.number
            if is_shown and (is_told or (made is None and not new.is_exact and turn.answer > new.number)):  # type: ignore[operator]
                answered = new.number if turn.answer is None else int(turn.answer)
                new.turns[turn.client] = {**done, turn.number: answered}
                new.done ^= hash((turn.client, turn.number, answered))
                for owner in _leases(turn.parts):
                    new.leases[owner] = turn.sent + _length(owner)
                yield new, int(made is not None)
        may_be_lost = turn.answer is None and is_able and reasons <= {"no-lease", "epoch-gone"}
        if turn.answer is None or turn.answer in reasons or (self.deaf and isinstance(turn.answer, str)):
            for is_lost in {may_be_lost, may_be_lost and not reasons}:
                new = copy(self)
                new.deaf |= {turn.client} if is_lost else set()
                over = set(_leases(turn.parts)) if turn.answer and reasons == {"no-lease"} else set()
                new.leases = {at: until for at, until in self.leases.items() if at not in over}
                yield new, 0

    def _reasons(self, turn: Turned) -> set[str]:
        """Returns all codes with which a turn may be refused now; the order of checks is not promised."""
        found = set(self._unmet(turn.expected))
        if not self._runs(turn, True) or self._runs(turn, False):
            found.add("no-lease")
        for owner, actions in turn.parts:
            try:
                self.space.carried_out(owner, actions)
            except model.Refused as refused:
                found.add(refused.args[0])
        return found

    def _unmet(self, expected: Iterable[tuple[Any, ...]]) -> Iterator[str]:
        """Yields the codes of conditions that do not hold in the state before a turn, in its own epoch."""
        for kind, pattern, *more in expected:
            argument: Any = more[0] if more else None
            if not holds(kind, pattern, argument, self.space.facts.values(), self.changes):
                yield "expectation"
            if kind == UNCHANGED and argument > self.number:
                yield "epoch-ahead"
            if kind == UNCHANGED and argument < self.oldest - 1:
                yield "epoch-gone"

    def _runs(self, event: Turned | Leased, wanted: bool) -> bool:
        """True if the leases of an event may run, or may not, when the daemon comes to it.

        One that has facts runs for as long as they are there.
        """
        if isinstance(event, Turned) and event.grants:
            return wanted
        owners = [event.owner] if isinstance(event, Leased) else list(_leases(event.parts))
        known = [each for each in owners if each in self.leases]
        sure = [each for each in known if each in self.space.claims or self.leases[each] > event.heard]
        return known == owners if wanted else len(sure) < len(owners)

    def _lease(self, asked: Leased) -> bool:
        """Takes what became of a lease; returns False if that cannot be."""
        if asked.answer is None:  # whatever it was, the lease may not run any more
            self.leases |= {asked.owner: 0} if asked.owner in self.leases or asked.verb == "lease" else {}
            return True
        if asked.answer == "no-lease":
            return asked.verb == "renew" and self._runs(asked, False)
        if asked.verb == "release":
            if asked.owner in self.leases:
                self.leases[asked.owner] = 0
                self.ending |= {asked.owner}
            return not isinstance(asked.answer, str)
        if isinstance(asked.answer, str) or not self._runs(asked, not asked.answer):
            return False
        self.leases[asked.owner] = asked.sent + _length(asked.owner)
        return True

    def _announce(self, session: str, stream: int, pattern: Value, time: int) -> model.Epoch | None:
        """An interest is a fact for as long as a stream asks for it; it stays if its session comes back."""
        owner = _owners(session)[1]
        before = self.space.claims.get(owner, {}).get(stream)
        fact = None if pattern is None else Record("Observe", pattern)
        if key(fact) == key(before):
            return None
        ended = [] if before is None else [(model.RETRACT, stream)]
        begun = [] if fact is None else [(model.ASSERT, stream, fact)]
        return self.space.turn([(owner, [*ended, *begun])], time)

    def _restart(self, restarted: Restarted) -> None:
        """Sessions end with a daemon, but for those with grace that own something; leases with facts go on.

        Their times begin anew, unless they were over before.
        """
        self.is_exact = self.is_exact and restarted.orderly
        for session, grace in restarted.graces:
            was = self.graces.get(session, FOREVER)
            holds = any(name in self.space.claims for name in _owners(session))
            if session not in self.ending:
                self.graces[session] = restarted.begun + grace if was > restarted.ended and holds else 0
        for owner, until in self.leases.items():
            again = until > restarted.ended and owner in self.space.claims
            self.leases[owner] = restarted.begun + _length(owner) if again else 0


Lanes: TypeAlias = "tuple[tuple[Event, ...], ...]"
Epochs: TypeAlias = "tuple[Seen, ...]"


def _owners(owner: str) -> tuple[str, ...]:
    """Returns an owner, and the owner of the interests of a session."""
    return owner, f"{owner} interests"


def _leases(parts: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Yields the leases among the owners of a turn."""
    return (owner for owner, _ in parts if owner.startswith("lease:"))


def _length(lease: str) -> int:
    """Returns the microseconds in ``lease:MILLISECONDS:NAME``."""
    return 1_000 * int(lease.split(":")[1])
