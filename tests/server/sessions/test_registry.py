"""Sessions of a space without sockets: who gets which, what it announces, and when it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import trio

from dataspace.errors import ProtocolError
from dataspace.kernel.actions import ASSERT, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.space import Space
from dataspace.wire.features import Wanted
from index.patterns.patterns import capture, observe
from index.values.values import Record
from relay.log.notes import Note
from server.config.model import Limits
from server.config.principals import Quotas
from server.owners.accounts import Accounts
from server.owners.bearers import TRUSTED
from server.owners.turn_numbers import Clients
from server.spaces.sessions import Sessions

N = Record("n", capture())


class Held:
    """``server.spaces.sessions.SessionSpace`` over a real space."""

    term = 3
    leads = True
    limits = Limits()

    def __init__(self) -> None:
        self.space = Space("main")
        self.clients = Clients({})
        self.flushed = 0
        self.noted: list[Note] = []
        self.ended: list[str] = []
        self.left: list[tuple[str, bool]] = []

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        *,
        reads: bool = False,
    ) -> Epoch:
        return self.space.commit(owner, actions, 0)

    def end_owners(self, owners: Sequence[str]) -> None:
        self.end_soon(owners)
        self.end_due()

    def end_soon(self, owners: Sequence[str]) -> None:
        self.ended += owners

    def end_due(self) -> None:
        if self.ended:
            self.space.end(self.ended, 0)
            self.ended = []

    def flush(self) -> None:
        self.flushed += 1

    def queue_note(self, note: Note) -> None:
        self.noted.append(note)

    def session_back(self, owner: str) -> None:
        """Does nothing: there are no groups."""

    def session_ended(self, owner: str, *, blame: bool) -> None:
        self.left.append((owner, blame))


class Caller:
    """``server.spaces.sessions.SessionPeer``."""

    bearer = TRUSTED
    account = Accounts(Quotas()).of(TRUSTED.principal)
    address = "nowhere"

    def __init__(self, number: int, name: str = "caller") -> None:
        self.number = number
        self.name = name
        self.lost = False
        self.superseded = ""

    def supersede(self, by: str) -> None:
        self.superseded = by


def test_interests_are_facts_of_the_session_until_they_are_withdrawn() -> None:
    held = Held()
    session, _ = Sessions(held).greet(Caller(1), "~a", Wanted())
    session.announce(5, N)
    session.announce(5, N)
    assert [*held.space.claims("session:3.1 interests").values()] == [observe(N)]
    assert held.space.epoch == 1
    session.announce(5, capture())
    assert [*held.space.claims("session:3.1 interests").values()] == [observe(capture())]
    session.withdraw(5)
    session.withdraw(5)
    assert not held.space.claims("session:3.1 interests")


def test_a_session_ends_with_its_connection_and_all_it_owns() -> None:
    held = Held()
    sessions, caller = Sessions(held), Caller(1)
    session, resumed = sessions.greet(caller, "~a", Wanted(grace=10.0))
    assert not resumed
    session.announce(5, N)
    held.commit(session.owner, [(ASSERT, 1, Record("n", 1))])
    sessions.leave(session, Caller(2))
    assert len(held.space.index) == 2, "the connection of another session has ended"
    sessions.leave(session, caller)
    held.end_due()
    assert not len(held.space.index)


async def test_a_lost_connection_may_come_back_within_the_grace_period(autojump_clock: object) -> None:
    held = Held()
    sessions, first, second = Sessions(held), Caller(1), Caller(2)
    session, _ = sessions.greet(first, "~a", Wanted(grace=10.0))
    held.commit(session.owner, [(ASSERT, 1, Record("n", 1))])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.run)
        first.lost = True
        sessions.leave(session, first)
        await trio.sleep(9)
        again, resumed = sessions.greet(second, "~a", Wanted(grace=10.0, resume=(1, session.secret)))
        assert resumed
        assert again is session
        second.lost = True
        sessions.leave(session, second)
        assert (sessions.waiting, sessions.resumed) == (1, 1)
        await trio.sleep(11)
        assert sessions.waiting == 0
        assert not len(held.space.index)
        assert held.flushed == 1
        nursery.cancel_scope.cancel()


def test_a_second_connection_of_one_client_replaces_the_first() -> None:
    held = Held()
    sessions, first = Sessions(held), Caller(1)
    before, _ = sessions.greet(first, "owner:me", Wanted())
    held.commit(before.owner, [(ASSERT, 1, Record("n", 1))])
    after, resumed = sessions.greet(Caller(2, "other"), "owner:me", Wanted())
    assert not resumed
    assert "named 'other', has come as the same durable owner 'me'" in first.superseded
    assert after.owner == "session:3.2"
    assert not len(held.space.index)


def test_an_older_attempt_of_the_same_process_is_refused() -> None:
    sessions = Sessions(Held())
    sessions.greet(Caller(1), "~a", Wanted(attempt=(2, b"p")))
    with pytest.raises(ProtocolError, match="has connected again since"):
        sessions.greet(Caller(2), "~a", Wanted(attempt=(1, b"p")))


def test_grace_is_bounded_by_the_limits() -> None:
    session, _ = Sessions(Held()).greet(Caller(1), "~a", Wanted(grace=math.inf))
    assert session.grace == Limits().grace_seconds
