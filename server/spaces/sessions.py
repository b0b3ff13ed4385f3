"""The sessions of a space, connected or suspended.

A session outlives its connection if its client asked for a *grace period*: when the connection is lost, its
facts and interests stay, and a connection that shows its number and secret in time resumes it.  So the state
of a session is kept apart from the connection that it has at the moment.

Always: a session has at most one connection; when it ends, all its facts are retracted; a session whose
client sent a goodbye, or broke the protocol, ends at once.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.errors import ProtocolError, Refused
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.wire.features import Wanted
from index.patterns.patterns import observe
from index.values.values import Value, same
from server.config.rights import Permit
from server.owners.bearers import stated
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
    def incarnation(self) -> int:
        """The epoch at which the daemon opened the space; the names of sessions contain it."""

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
    ) -> Epoch:
        """Commits one turn."""

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts all claims of these owners: in one turn, or in several if they are very many."""

    def end_soon(self, owners: Sequence[str]) -> None:
        """Like ``end_owners``, but with ``end_due`` or before the next turn, for all of those in one turn."""

    def end_due(self) -> None:
        """Retracts what owners claim for which ``end_soon`` was called, or begins to where that is much."""

    def flush(self) -> None:
        """Hands to the kernel what connections have to send."""


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

WAITING: Final = "waiting_sessions"
"""What a session without a connection counts as."""


class SessionState:
    """The state of one session: its owner names, its announced interests, and the secret to resume it with.

    The owner names end with the bearer of a token.  ``announced`` are the patterns of its streams that are
    facts, by stream; ``grace`` is in seconds.
    """

    __slots__ = (
        "_space",
        "account",
        "announced",
        "attempt",
        "bearer",
        "client",
        "connection",
        "grace",
        "interests",
        "number",
        "owner",
        "secret",
    )

    def __init__(
        self, space: SessionSpace, owner: str, client: Client, connection: SessionPeer, grace: float
    ) -> None:
        self._space = space
        self.number = connection.number
        self.bearer = connection.bearer
        self.owner = self.bearer.own(owner)
        self.interests = self.bearer.own(f"{owner} interests")
        self.client = client
        self.connection: SessionPeer | None = connection
        self.account = connection.account
        self.grace = grace
        self.secret = os.urandom(SECRET_BYTES) if grace else b""
        self.announced: dict[int, Value] = {}
        self.attempt: tuple[int, bytes] | None = None

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
        if ticket is None or not self.secret:
            return False
        number, secret = ticket
        return number == self.number and hmac.compare_digest(secret, self.secret)

    def announce(self, stream: int, pattern: Value) -> None:
        """Asserts the interest of a stream, for an owner whose handles no client can name.

        A session that is resumed opens its streams again; their interests are asserted already.
        """
        before = self.announced.get(stream)
        if before is not None and same(before, pattern):
            return
        ended = [(RETRACT, stream)] if before is not None else []
        fact = (ASSERT, stream, observe(pattern))
        self._space.commit(self.interests, (*ended, fact))
        self.announced[stream] = pattern

    def withdraw(self, stream: int) -> None:
        """Retracts the interest of a stream, if it is a fact."""
        if self.announced.pop(stream, None) is not None:
            self._space.commit(self.interests, ((RETRACT, stream),))


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
        self.resumed = 0
        """How often a session was resumed."""

    @property
    def waiting(self) -> int:
        """Suspended sessions: without a connection, within their grace period."""
        return len(self._left)

    async def run(self) -> None:
        """Ends sessions whose grace period is over, until cancelled."""
        await self._waiting.run()

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
                before.connection, before.attempt = connection, wanted.attempt
                before.bearer, before.account = connection.bearer, connection.account
                before.comes_from(connection)
                self.resumed += 1
                return before, True
            self._end(before)
            # now, as the welcome has the epoch from which the client may go on
            self._hosted.end_owners((before.owner, before.interests))
        hosted = self._hosted
        state = SessionState(
            hosted,
            f"session:{hosted.incarnation}.{connection.number}",
            hosted.clients.connect(identity, connection.account),
            connection,
            min(wanted.grace, hosted.limits.grace_seconds),
        )
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
        if connection.lost and self._may_wait(state):
            self._left[state.owner] = state
            state.account.give(WAITING, -1)
            if not self._holds(state):
                self._empty[state.owner] = state
            self._waiting.renew(state.owner, trio.current_time() + state.grace)
            logger.info("session %d may come back within %g s", state.number, state.grace)
        else:
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
            logger.info("session %d may not come back: %s", state.number, refusal)
            empty = [each for each in empty if each.account is state.account]
        else:
            if self.waiting < self._hosted.limits.waiting_sessions:
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
            state = self._left[owner]
            logger.info("session %d did not come back", state.number)
            self._end(state)
        self._hosted.end_due()
        self._hosted.flush()

    def _stop_waiting(self, state: SessionState) -> None:
        self._waiting.forget(state.owner)
        if self._left.pop(state.owner, None) is not None:
            state.account.give(WAITING)
        self._empty.pop(state.owner, None)

    def _end(self, state: SessionState) -> None:
        """Retracts all facts of a session, together with other sessions which end before ``end_due``."""
        self._stop_waiting(state)
        self._hosted.end_soon((state.owner, state.interests))
        name = state.client.name
        if self._by_client.get(name) is state:
            del self._by_client[name]
            self._passing.pop(stated(name), None)
            self._hosted.clients.left(state.client)


def _check_successor(before: SessionState, connection: SessionPeer, identity: str, wanted: Wanted) -> None:
    """Raises ``ProtocolError`` for a connection that may not take the place of another one's session.

    A ticket that is not the session's is no mistake of a process that has lost the welcome with the new one.
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
