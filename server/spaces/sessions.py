"""The sessions of a space, connected or suspended.

A session outlives its connection if its client asked for a *grace period*: when the connection is lost, its
facts and interests stay, and a connection that shows its number and secret in time resumes it.  So the state
of a session is kept apart from the connection that it has at the moment.

Such a session outlives the daemon as well.  The log has a note of it before its first claim and before its
end; the next daemon finds the sessions between the two, suspended, and their grace begins anew.

Always: a session has at most one connection; when it ends, all its facts are retracted; a session whose
client sent a goodbye, or broke the protocol, ends at once; no claim of a session with grace is in the log
before its note.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.errors import ProtocolError, Refused
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.wire.features import Wanted
from index.patterns.patterns import observe
from index.values.values import Record, Value, same
from relay.log.notes import Note
from relay.space_registers import KnownSession, began, digest_of, ended
from server.config.rights import Permit
from server.owners.bearers import beside, stated
from server.owners.leases import Deadlines
from server.owners.turn_numbers import PASSING, Client

if TYPE_CHECKING:
    from dataspace.kernel.actions import Action
    from dataspace.kernel.changes import Epoch
    from dataspace.kernel.space import Space
    from server.config.model import Limits
    from server.owners.accounts import Account
    from server.owners.bearers import Bearer
    from server.owners.turn_numbers import Clients


class SessionSpace(Protocol):
    """The space in which sessions own facts."""

    @property
    def term(self) -> int:
        """The term of the log, which no other start has; the names of sessions contain it."""

    @property
    def leads(self) -> bool:
        """True if turns are made here, and sessions own facts."""

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def space(self) -> Space:
        """The facts and their owners."""

    @property
    def clients(self) -> Clients:
        """The turn numbers of every client."""

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        *,
        reads: bool = False,
    ) -> Epoch:
        """Commits one turn; one that ``reads`` is of interests, for which a full memory has a reserve."""

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts all claims of these owners: in one turn, or in several if they are very many."""

    def end_soon(self, owners: Sequence[str]) -> None:
        """Like ``end_owners``, but with ``end_due`` or before the next turn, for all of those in one turn."""

    def end_due(self) -> None:
        """Retracts what owners claim for which ``end_soon`` was called, or begins to where that is much."""

    def session_back(self, owner: str) -> None:
        """Notes that a session of an earlier daemon has all its streams again."""

    def session_ended(self, owner: str, *, blame: bool) -> None:
        """Gives back what the members of a session have from groups; with ``blame`` they have failed."""

    def flush(self) -> None:
        """Hands to the kernel what connections have to send."""

    def queue_note(self, note: Note) -> None:
        """Queues a note for the log, before the next epoch."""


class SessionPeer(Protocol):
    """A connection as the sessions of a space use it."""

    @property
    def number(self) -> int:
        """The number of the connection."""

    @property
    def name(self) -> str:
        """What the client calls itself."""

    @property
    def address(self) -> str:
        """Where the client connects from."""

    @property
    def bearer(self) -> Bearer:
        """The client's identity and its rights."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def lost(self) -> bool:
        """True if the connection was lost, rather than ended by one of its two ends."""

    def supersede(self, by: str) -> None:
        """Ends the connection, since its client has another one."""


logger = logging.getLogger("dataspace")

SECRET_BYTES: Final = 16

NUMBERS: Final = 1_000_000_000
"""Numbers of connections in one term: beyond the term, in billions, they count from 1."""

Returning = Callable[[KnownSession], "tuple[Bearer, Account] | None"]
"""Returns what a session of an earlier daemon belongs to; None if its client would not be admitted now."""

SESSION: Final = "session:"
ENDING: Final = (SESSION, "actor:")
"""Prefixes of the owners whose claims end with the daemon, but for sessions with grace."""

WAITING: Final = "waiting_sessions"
"""What a session without a connection counts as."""


class SessionState:
    """The state of one session: its owner names, its announced interests, and the secret to resume it with.

    The owner names end with the bearer of a token.  ``announced`` are the patterns of its streams that are
    facts, by stream; ``grace`` is in seconds.  For a session of an earlier daemon, ``secret`` is empty until
    its client has shown it, and ``unopened`` are the streams announced then that are not opened again.
    """

    __slots__ = (
        "_space",
        "account",
        "announced",
        "attempt",
        "bearer",
        "client",
        "connection",
        "follows",
        "grace",
        "interests",
        "known",
        "number",
        "owner",
        "secret",
        "unopened",
    )

    def __init__(
        self, space: SessionSpace, known: KnownSession, client: Client, bearer: Bearer, account: Account
    ) -> None:
        self._space = space
        self.known = known
        self.number = known.number
        self.bearer = bearer
        self.owner = known.owner
        self.interests = beside(known.owner, "interests")
        self.client = client
        self.connection: SessionPeer | None = None
        self.account = account
        self.grace = known.grace
        self.secret = b""
        self.announced: dict[int, Value] = {}
        self.attempt: tuple[int, bytes] | None = None
        self.unopened: set[int] = set()
        self.follows = not space.leads
        """True if its turns are refused, also once the daemon leads: it was begun at a follower.

        Its client has been told so, and counts on it where the connection breaks.
        """

    @classmethod
    def of(cls, space: SessionSpace, client: Client, connection: SessionPeer, grace: float) -> SessionState:
        """Returns a new session of a connection."""
        bearer, principal = connection.bearer, connection.bearer.principal
        secret = os.urandom(SECRET_BYTES) if grace else b""
        owner = bearer.own(_owner(space.term, connection.number))
        digest = digest_of(secret) if grace else b""
        known = KnownSession(
            owner, client.name, connection.number, digest, grace, bearer.holder, str(principal)
        )
        state = cls(space, known, client, bearer, connection.account)
        state.connection, state.secret = connection, secret
        return state

    @property
    def id(self) -> str:
        """The name of the session, as operators have it."""
        return id_of(self.owner)

    def begin(self, term: int, client: Client) -> None:
        """Goes on at the space of a new leader: a session of a follower owns nothing, and takes no turn.

        So its client comes back with its first turn, and gets a session of the leader.
        """
        self.owner = self.bearer.own(_owner(term, self.number))
        self.interests = beside(self.owner, "interests")
        self.known, self.client = self.known._replace(owner=self.owner), client

    def recover(self) -> None:
        """Takes up the interests that an earlier daemon announced for the session."""
        for stream, fact in self._space.space.claims(self.interests).items():
            if isinstance(fact, Record):
                self.announced[stream] = fact.fields[0]
        self.unopened = set(self.announced)

    def comes_from(self, connection: SessionPeer) -> None:
        """Notes that the next turns of the client come by this connection."""
        self.client.comes_from(connection.name, str(connection.bearer.principal), connection.address)

    def is_of(self, attempt: tuple[int, bytes] | None) -> bool:
        """True if the same process tried another connection with this attempt."""
        return attempt is not None and self.attempt is not None and attempt[1] == self.attempt[1]

    def is_after(self, attempt: tuple[int, bytes] | None) -> bool:
        """True if the same process tried this connection later: hellos may be read in any order."""
        return (
            self.is_of(attempt)
            and attempt is not None
            and self.attempt is not None
            and attempt[0] < self.attempt[0]
        )

    def admits(self, ticket: tuple[int, bytes] | None) -> bool:
        """True if this is the number and the secret of the session."""
        if ticket is None or not self.known.grace:
            return False
        number, secret = ticket
        return number == self.number and hmac.compare_digest(digest_of(secret), self.known.digest)

    def announce(self, stream: int, pattern: Value) -> None:
        """Asserts the interest of a stream, for an owner whose handles no client can name.

        A session that is resumed opens its streams again; their interests are asserted already.
        """
        self._note_opened(stream)
        before = self.announced.get(stream)
        if before is not None and same(before, pattern):
            return
        ended = [(RETRACT, stream)] if before is not None else []
        fact = (ASSERT, stream, observe(pattern))
        self._space.commit(self.interests, (*ended, fact), reads=True)
        self.announced[stream] = pattern

    def withdraw(self, stream: int) -> None:
        """Retracts the interest of a stream, if it is a fact."""
        self._note_opened(stream)
        if self.announced.pop(stream, None) is not None:
            self._space.commit(self.interests, ((RETRACT, stream),))

    def _note_opened(self, stream: int) -> None:
        """Notes that a stream of an earlier daemon is there again, or will not be."""
        if stream in self.unopened:
            self.unopened.discard(stream)
            if not self.unopened:
                self._space.session_back(self.owner)


class Sessions:
    """The sessions of a space, by the identities of their clients."""

    def __init__(self, hosted: SessionSpace) -> None:
        self._hosted = hosted
        self._by_client: dict[str, SessionState] = {}
        self._passing: dict[str, str] = {}
        """Which of several bearers has come with a passing identity, by the identity that was stated."""
        self._waiting: Final = Deadlines(self._expire)
        self._left: dict[str, SessionState] = {}
        self._empty: dict[str, SessionState] = {}
        self._unopened: dict[str, SessionState] = {}
        """Sessions of an earlier daemon that have a connection, and perhaps announce streams in vain."""
        self._recovered: set[str] = set()
        """Suspended sessions whose connection was not lost, but ended with an earlier daemon."""
        self.unnoted: Final[dict[str, SessionState]] = {}
        """Sessions with grace that the log does not know yet, by their owners; each turn asks."""
        self._noted: set[str] = set()
        """The owners of sessions that the log knows."""
        self._is_closing = False
        self.resumed = 0
        """How often a session was resumed."""

    @property
    def waiting(self) -> int:
        """Suspended sessions: without a connection, within their grace period."""
        return len(self._left)

    async def run(self) -> None:
        """Ends sessions whose grace period is over, until cancelled.

        The grace of recovered sessions begins now: before, no client could come.
        """
        self._begin_grace()
        await self._waiting.run()

    def _begin_grace(self) -> None:
        for state in self._left.values():
            self._waiting.renew(state.owner, trio.current_time() + state.grace)

    def recover(self, known: Mapping[str, KnownSession], returning: Returning) -> frozenset[str]:
        """Takes up the sessions of an earlier daemon or leader, suspended; their grace begins now.

        Returns the owners whose claims stay.  Sessions are left out whose client would not be admitted now,
        and all if the limit for grace is 0.  Sessions of a follower, which this was until now, go on.
        """
        kept: set[str] = set()
        connected, self._by_client = list(self._by_client.values()), {}
        for session in known.values():
            state = self._recovered_state(session, returning)
            if state is None:
                self._hosted.clients.unhold(session.client)
            else:
                kept |= {state.owner, state.interests}
                self._by_client[session.client] = self._left[state.owner] = state
                self._recovered.add(state.owner)
                if session.client.startswith(PASSING):
                    self._passing[stated(session.client)] = session.client
                if not self._holds(state):
                    self._empty[state.owner] = state
        for state in connected:
            client = self._hosted.clients.connect(state.client.name, state.account)
            state.begin(self._hosted.term, client)
            self._by_client.setdefault(client.name, state)
        self._begin_grace()
        self._noted.update(known)
        self.note_ended([owner for owner in known if owner not in kept])
        return frozenset(kept)

    def _recovered_state(self, known: KnownSession, returning: Returning) -> SessionState | None:
        grace = min(known.grace, self._hosted.limits.grace_seconds)
        found = returning(known)
        if not grace or found is None or known.client in self._by_client:
            return None
        bearer, account = found
        try:
            client = self._hosted.clients.connect(known.client, account)
        except Refused:  # its name is longer than names may be now
            return None
        client.holder = known.holder
        state = SessionState(self._hosted, known, client, bearer, account)
        state.grace = grace
        state.recover()
        return state

    def close(self) -> None:
        """Keeps sessions for the next daemon whose connections this one ends from now on."""
        self._is_closing = True

    def clear(self) -> None:
        """Waits for no session any more: they go on at another daemon."""
        for state in [*self._left.values()]:
            self._stop_waiting(state)

    def note_sessions(self, *parts: tuple[str, Sequence[Action]]) -> None:
        """Notes in the log the sessions that claim something for the first time, of the parts of a turn."""
        for owner, actions in parts:
            state = self.unnoted.get(owner)
            if state is not None and any(action[0] not in (SEND, RETRACT) for action in actions):
                self._hosted.queue_note(began(state.known))
                self._forget_unnoted(state)
                self._noted.add(state.owner)

    def note_ended(self, owners: Sequence[str]) -> None:
        """Notes in the log the end of the sessions among these owners that it knows."""
        if self._noted and (sessions := [each for each in owners if each in self._noted]):
            self._hosted.queue_note(ended(sessions))
            self._noted.difference_update(sessions)

    def _forget_unnoted(self, state: SessionState) -> None:
        self.unnoted.pop(state.owner, None)
        self.unnoted.pop(state.interests, None)

    def greet(self, connection: SessionPeer, identity: str, wanted: Wanted) -> tuple[SessionState, bool]:
        """Returns the session of a connection after its hello, and True if it was resumed.

        An older connection of the same identity is replaced, so that a dead one cannot lock its client out.
        Raises ``ProtocolError`` for a connection that its process tried before the present one.
        """
        self._check_passing(identity)
        before = self._by_client.get(identity)
        if before is not None:
            _check_successor(before, connection, identity, wanted)
            if before.connection is not None:
                before.connection.supersede(_superseded(identity, connection.name))
            if before.admits(wanted.resume):
                self._stop_waiting(before)
                self._settle_later(before)
                assert wanted.resume is not None  # it was admitted
                before.secret = wanted.resume[1]
                before.connection, before.attempt = connection, wanted.attempt
                before.bearer, before.account = connection.bearer, connection.account
                before.comes_from(connection)
                self.resumed += 1
                return before, True
            self._end(before)
            # now, as the welcome has the epoch from which the client may go on
            self._hosted.end_owners((before.owner, before.interests))
        hosted = self._hosted
        client = hosted.clients.connect(identity, connection.account)
        grace = min(wanted.grace, hosted.limits.grace_seconds) if hosted.leads else 0.0
        state = SessionState.of(hosted, client, connection, grace)
        if grace and connection.bearer.principal.kind != "daemon":  # an actor's ends with the daemon
            self.unnoted[state.owner] = self.unnoted[state.interests] = state
        state.attempt = wanted.attempt
        state.client.holder = connection.bearer.holder
        state.comes_from(connection)
        self._by_client[identity] = state
        if identity.startswith(PASSING):
            self._passing[stated(identity)] = identity
        return state, False

    def _check_passing(self, identity: str) -> None:
        """Raises ``ProtocolError`` for a passing identity while another bearer has a session under it.

        Nothing of that session could be reached under this one, but it is a mistake or an attempt.
        """
        if self._passing.get(stated(identity), identity) != identity:
            text = f"{stated(identity)!r:.80} has connected with another token"
            raise ProtocolError("not-allowed", text)

    def leave(self, state: SessionState, connection: SessionPeer) -> None:
        """Ends a session whose connection has ended, or keeps it for its client; may be called again.

        Its facts are retracted with the next ``end_due`` of its space, or before the next turn.
        """
        if state.connection is not connection:
            return
        state.connection = None
        self._unopened.pop(state.owner, None)
        if self._is_closing and connection.lost and state.owner in self._noted:
            return
        if connection.lost and not self._is_closing and self._may_wait(state):
            self._left[state.owner] = state
            state.account.release(WAITING, -1)
            if not self._holds(state):
                self._empty[state.owner] = state
            self._waiting.renew(state.owner, trio.current_time() + state.grace)
            logger.info("session %s may come back within %g s", state.id, state.grace)
        else:
            self._end(state, lost=connection.lost and not self._is_closing)

    def abandon(self, state: SessionState) -> None:
        """Ends a session at once, after a defect in ``leave``."""
        self._end(state)

    def end_waiting(self, stands: Callable[[Permit], bool]) -> int:
        """Ends suspended sessions whose permit no longer stands; returns how many.  O(suspended sessions)."""
        ended = [state for state in self._left.values() if not stands(state.bearer.permit)]
        for state in ended:
            self._end(state)
        self._hosted.end_due()
        return len(ended)

    def suspended(self) -> list[SessionState]:
        """Returns the sessions that are without a connection now."""
        return list(self._left.values())

    def awaited(self) -> list[tuple[str, float, Value]]:
        """Returns the owners of suspended sessions, with their grace and each pattern of their streams."""
        return [
            (state.owner, state.grace, pattern)
            for state in self._left.values()
            for pattern in state.announced.values()
        ]

    def end_suspended(self, number: int) -> bool:
        """Ends the suspended session of a number; False if there is none."""
        for state in self.suspended():
            if state.number == number:
                self._end(state)
                self._hosted.end_due()
                return True
        return False

    def _may_wait(self, state: SessionState) -> bool:
        """True if there is room to keep a session: a session that holds nothing makes room for a session that
        does.

        Where its principal has too many, that is one of its own.
        """
        if not state.grace:
            return False
        empty = list(self._empty.values())
        try:
            state.account.check(WAITING)
        except Refused as refusal:
            logger.info("session %s may not come back: %s", state.id, refusal)
            empty = [each for each in empty if each.account is state.account]
        else:
            if self.waiting - len(self._recovered) < self._hosted.limits.waiting_sessions:
                return True
        if empty and self._holds(state):
            self._end(empty[0])
            return True
        return False

    def _holds(self, state: SessionState) -> bool:
        """True if facts or interests go with the session."""
        return bool(state.announced or self._hosted.space.claims(state.owner))

    def _expire(self, owners: Sequence[str]) -> None:
        for owner in owners:
            state = self._left.get(owner)
            if state is None:
                if (unopened := self._unopened.pop(owner, None)) is not None:  # else it was settled before
                    self._settle(unopened)
                continue
            logger.info("session %s did not come back", state.id)
            self._end(state)
        self._hosted.end_due()
        self._hosted.flush()

    def _settle_later(self, state: SessionState) -> None:
        """Gives a session of an earlier daemon the time of its grace to open its streams again.

        Its client may have ended a stream whose interest is in the log: a crash has lost the retraction.
        """
        if state.unopened:
            self._unopened[state.owner] = state
            self._waiting.renew(state.owner, trio.current_time() + state.grace)

    def _settle(self, state: SessionState) -> None:
        """Retracts the interests of streams that were not opened again."""
        for stream in sorted(state.unopened):
            state.withdraw(stream)

    def _stop_waiting(self, state: SessionState) -> None:
        self._waiting.forget(state.owner)
        if self._left.pop(state.owner, None) is not None and state.owner not in self._recovered:
            state.account.release(WAITING)
        self._recovered.discard(state.owner)
        self._empty.pop(state.owner, None)
        self._unopened.pop(state.owner, None)

    def _end(self, state: SessionState, *, lost: bool = True) -> None:
        """Retracts all facts of a session, together with other sessions which end before ``end_due``.

        Deliveries that it has are given back, and count as failed where its connection was ``lost``.
        """
        self._hosted.end_soon((state.owner, state.interests))
        self._hosted.session_ended(state.owner, blame=lost)
        self._forget_unnoted(state)
        name = state.client.name
        if self._by_client.get(name) is state:
            del self._by_client[name]
            self._passing.pop(stated(name), None)
            self._hosted.clients.left(state.client)
        self._stop_waiting(state)  # the last: after a defect above it is found again


def session_id(term: int, number: int) -> str:
    """Returns the name of a session, as operators have it: ``2.5`` is the fifth of the space's second term.

    It is the name of the session's owner, and stays when the session is resumed or the daemon is started
    again; ``Welcome`` has the number, in which the term stands in billions.

    >>> session_id(2, 2_000_000_005)
    '2.5'
    """
    return f"{term}.{number % NUMBERS}"


def _owner(term: int, number: int) -> str:
    return f"{SESSION}{session_id(term, number)}"


def id_of(owner: str) -> str:
    """Returns the name of the session that an owner is.

    >>> id_of("session:2.5 @ token:gateway")
    '2.5'
    """
    return stated(owner).removeprefix(SESSION)


def _check_successor(before: SessionState, connection: SessionPeer, identity: str, wanted: Wanted) -> None:
    """Raises ``ProtocolError`` for a connection that may not take the place of another one's session.

    A process that lost the ``Welcome`` still has the old ticket; that is not an error.
    """
    identity = stated(identity)
    if before.bearer.holder != connection.bearer.holder:
        raise ProtocolError("not-allowed", f"{identity!r:.80} has connected with another token")
    if before.connection is not None and before.is_after(wanted.attempt):
        raise ProtocolError("superseded", "the same client has connected again since")
    if wanted.resume and not before.admits(wanted.resume) and not before.is_of(wanted.attempt):
        text = f"resume has not the number and secret of the session of {identity!r:.80}, which goes on"
        raise ProtocolError("not-allowed", f"{text}: come back without resume to take its place")


def _superseded(identity: str, name: str) -> str:
    """Returns the text for the earlier of two connections with one identity."""
    identity = stated(identity)
    owner = identity.removeprefix("owner:")
    what = f"client {identity!r:.80}" if owner == identity else f"durable owner {owner!r:.80}"
    return (
        f"another connection, named {name!r:.80}, has come as the same {what}: of one identity only the "
        f"latest stays, and those that are to share an owner need one each (client=…)"
    )
