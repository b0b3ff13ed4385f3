"""Sessions with grace outlive the daemon: a grid of all small cases, without sockets or a writer.

The writer does not run, so a test decides how many of the queued entries a crash leaves on the disk.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from dataspace.codec import pack
from dataspace.errors import ProtocolError
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.kernel.changes import Epoch
from dataspace.wire.features import Wanted
from index.patterns.patterns import capture, observe
from index.values.values import Record, Value
from relay.log.log import Log
from relay.log.reader import verify
from relay.space_registers import SESSION, KnownSessions, space_registers
from server.cluster.homes import home_of
from server.config.model import Config, Limits
from server.config.principals import Principal, Quotas
from server.config.rights import OPEN
from server.daemon.daemon import Daemon
from server.owners.accounts import Account
from server.owners.bearers import Bearer
from server.spaces.sessions import NUMBERS, SessionState
from server.topics.part import TOPICS

pytestmark = pytest.mark.slow

GRACE: Final = 10.0
FACT: Final = Record("mine", 1)
SHARED: Final = Record("shared", 1)
PATTERN: Final = Record("n", capture("n"))
INTEREST: Final = observe(PATTERN)

HOLDINGS: Final = ("nothing", "message", "fact", "shared", "interest", "both")
ENDS: Final = ("crash", "stop")
RETURNS: Final = ("in time", "late", "wrong secret", "wrong number", "another client", "anew", "twice")


class Caller:
    """A connection of a client on this machine."""

    bearer = Bearer(OPEN, Principal("unix"))
    address = "unix"

    def __init__(self, daemon: Daemon) -> None:
        self.account: Account = daemon.accounts.of(self.bearer.principal)
        self.number = daemon.guests.new_number()
        self.name = "caller"
        self.lost = False

    def supersede(self, by: str) -> None:
        raise AssertionError(by)


class Life:
    """One start of a daemon, whose writer writes what a test says."""

    def __init__(self, data: Path, limits: Limits | None = None) -> None:
        config = Config(listen=(), data=data, limits=limits or Limits())
        (settings,) = config.all_spaces()
        self.data = data
        self.log = Log.open(data, registers=space_registers)
        self.daemon = Daemon(config, [(settings, self.log)], home_of(config))
        self.hosted = self.daemon.main
        self.sessions = self.hosted.sessions
        self.noted = False
        """True once a session is on the disk."""

    def greet(self, client: str, grace: float, ticket: tuple[int, bytes] | None = None) -> SessionState:
        state, resumed = self.sessions.greet(Caller(self.daemon), client, Wanted(grace=grace, resume=ticket))
        assert resumed == (ticket is not None and state.number == ticket[0])
        return state

    def write(self, most: int | None = None) -> list[Epoch]:
        """Writes that many of the entries that wait, or all; returns the epochs that wait no more."""
        waiting = self.hosted.leading.commits._waiting
        group = list(itertools.islice(waiting, most))
        self.log.append([each.encoded() for each in group])
        self.noted = self.noted or any(pack(SESSION) in each.encoded().body for each in group)
        for _ in group:
            waiting.popleft()
        return [each.epoch for each in group]

    def lose(self, *states: SessionState) -> None:
        for state in states:
            connection = state.connection
            assert isinstance(connection, Caller)
            connection.lost = True
            self.sessions.leave(state, connection)

    def facts(self) -> set[Value]:
        return set(self.hosted.space.index.values())

    def end(self) -> None:
        self.hosted.leading.staging.close()
        self.daemon.parts[TOPICS].durable.writer.journal.close()
        self.log.close()


@contextmanager
def living(data: Path, limits: Limits | None = None) -> Iterator[Life]:
    life = Life(data, limits)
    try:
        yield life
    finally:
        life.end()


def hold(life: Life, state: SessionState, what: str) -> None:
    """Makes the session hold that, one turn after another."""
    turns: list[tuple[object, ...]] = []
    match what:
        case "message":
            turns = [(SEND, FACT)]
        case "fact":
            turns = [(ASSERT, 1, FACT), (ASSERT, 2, Record("mine", 2))]
        case "shared":
            turns = [(ASSERT, 1, SHARED)]
        case "both":
            turns = [(ASSERT, 1, FACT)]
    for sequence, action in enumerate(turns, state.client.sequence + 1):
        life.hosted.commit(state.owner, [action], client=state.client, sequence=sequence)  # type: ignore[list-item]  # one of the above
    if what in ("interest", "both"):
        state.announce(5, PATTERN)


def queued(tmp_path: Path, grace: float, what: str) -> int:
    """Returns how many entries wait for the disk in such a case."""
    with living(tmp_path / "counted") as life:
        life.hosted.commit("durable:other", [(ASSERT, 1, SHARED)])
        life.write()
        hold(life, life.greet("~me", grace), what)
        count = len(life.hosted.leading.commits._waiting)
    shutil.rmtree(tmp_path / "counted")
    return count


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("what", HOLDINGS)
@pytest.mark.parametrize("grace", [0.0, GRACE])
async def test_every_small_case(
    grace: float, what: str, end: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    numbers = itertools.count()
    for written in range(queued(tmp_path, grace, what) + 1) if end == "crash" else (None,):
        for back in RETURNS:
            await one_case(tmp_path / str(next(numbers)), grace, what, written, back)


async def one_case(folder: Path, grace: float, what: str, written: int | None, back: str) -> None:
    """Ends a daemon so that so many of its entries are on the disk (None: it was stopped), and comes back."""
    data, after = folder / "data", folder / "after"
    with living(data) as life:
        life.hosted.commit("durable:other", [(ASSERT, 1, SHARED)])
        life.write()
        state = life.greet("~me", grace)
        ticket = state.number, state.secret
        hold(life, state, what)
        turn = state.client.sequence
        if written is None:
            life.sessions.close()
            life.lose(state)
            life.hosted.end_due()
        done = life.write(written)
        shutil.copytree(data, after)
        known = life.noted
    assert grace or not known
    kept = bool(grace) and any("session:0." in owner for epoch in done for owner, *_ in epoch.claims)
    with living(after) as life:
        begun = [fact for epoch in done if kept for fact in epoch.added]
        there = {SHARED, *begun}
        assert life.facts() == there, "what a session with grace holds, and what others do"
        assert life.sessions.waiting == known
        again = [epoch for epoch in life.write() if not epoch.silent]
        assert not [fact for epoch in again for fact in (*epoch.added, *epoch.removed) if fact in there]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.sessions.run)
            await trio.testing.wait_all_tasks_blocked()
            await come_back(life, back, ticket, there, known=known, turn=turn)
            nursery.cancel_scope.cancel()
        life.write()
    assert not verify(after, space_registers).damages
    shutil.rmtree(folder)


async def come_back(
    life: Life, back: str, ticket: tuple[int, bytes], there: set[Value], *, known: bool, turn: int
) -> None:
    number, secret = ticket
    match back:
        case "late":
            await trio.sleep(GRACE + 1)
            assert life.facts() == {SHARED}
            assert life.greet("~me", GRACE, ticket).number > number
            return
        case "wrong secret" | "wrong number" if known:
            wrong = (number, bytes(16)) if back == "wrong secret" else (number + 1, secret)
            with pytest.raises(ProtocolError, match="not the number and secret"):
                life.greet("~me", GRACE, wrong)
            assert life.facts() == there
            await trio.sleep(GRACE + 1)
            assert life.facts() == {SHARED}
            return
        case "another client":
            other = life.greet("~other", GRACE, ticket)
            assert other.number > number
            assert life.sessions.waiting == known and life.facts() == there
            return
        case "anew":
            assert life.greet("~me", GRACE).number > number
            assert life.facts() == {SHARED}
            return
    epoch = life.hosted.space.epoch
    await trio.sleep(GRACE - 1)
    for _ in range(1 + (back == "twice")):
        state = life.greet("~me", GRACE, ticket)
        if not known:
            assert state.number > number
            return
        assert (state.number, state.secret, state.grace) == (*ticket, GRACE)
        assert state.client.sequence <= turn
        await trio.sleep(GRACE + 1)
        if INTEREST in there and not state.announced:
            there.discard(INTEREST)  # the stream was not opened again in time
            epoch += 1
        assert (life.facts(), life.hosted.space.epoch) == (there, epoch)
        life.lose(state)
        await trio.sleep(GRACE - 1)
    await trio.sleep(2)
    assert life.facts() == {SHARED} and not life.log.registers.of(KnownSessions)


# -- more than one ------------------------------------------------------------------------------------


def restarted(data: Path, after: Path, life: Life) -> None:
    life.write()
    shutil.copytree(data, after)


async def test_a_stream_that_is_opened_again_makes_no_epoch(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with living(tmp_path / "1") as life:
        state = life.greet("~me", GRACE)
        ticket = state.number, state.secret
        state.announce(5, PATTERN)
        state.announce(7, FACT)
        restarted(tmp_path / "1", tmp_path / "2", life)
    with living(tmp_path / "2") as life:
        epoch = life.hosted.space.epoch
        state = life.greet("~me", GRACE, ticket)
        state.announce(5, PATTERN)
        assert life.hosted.space.epoch == epoch
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.sessions.run)
            await trio.sleep(GRACE + 1)
            nursery.cancel_scope.cancel()
        assert life.facts() == {INTEREST}, "the end of the other stream was lost in the crash"
        state.withdraw(5)
        assert not life.facts()


async def test_sessions_without_grace_end_together_in_the_first_epoch(tmp_path: Path) -> None:
    with living(tmp_path / "1") as life:
        for at in range(5):
            state = life.greet(f"~{at}", GRACE if at == 2 else 0.0)
            life.hosted.commit(state.owner, [(ASSERT, 1, Record("n", at))])
        restarted(tmp_path / "1", tmp_path / "2", life)
    with living(tmp_path / "2") as life:
        (epoch,) = life.write()
        assert sorted(fact.fields[0] for fact in epoch.removed if isinstance(fact, Record)) == [0, 1, 3, 4]  # type: ignore[type-var]  # numbers
        assert life.facts() == {Record("n", 2)}


async def test_no_number_and_no_owner_comes_twice(tmp_path: Path) -> None:
    """Also if nothing was written that moves the epochs on, and whatever was on the disk."""
    seen: set[object] = set()
    data = tmp_path / "data"
    for term in range(4):
        with living(data) as life:
            for at in range(2):
                state = life.greet(f"~{term} {at}", GRACE)
                assert state.owner.startswith(f"session:{term}.")
                assert state.number // NUMBERS == term
                assert not {state.number, state.owner} & seen
                seen |= {state.number, state.owner}
                life.hosted.commit(state.owner, [(ASSERT, 1, Record("n", term, at))])
                if term % 2:
                    life.write()


async def test_a_session_goes_on_over_several_starts_and_snapshots(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    data = tmp_path / "data"
    with living(data) as life:
        state = life.greet("~me", GRACE)
        ticket = state.number, state.secret
        life.hosted.commit(state.owner, [(ASSERT, 1, FACT)], client=state.client, sequence=1)
        life.write()
    for sequence in range(2, 5):
        with living(data) as life:
            life.log.recover(snapshot=sequence == 3)
            state = life.greet("~me", GRACE, ticket)
            assert state.client.sequence == sequence - 1
            life.hosted.commit(state.owner, [(SEND, FACT)], client=state.client, sequence=sequence)
            assert life.facts() == {FACT}
            life.write()
    with living(data) as life:
        state = life.greet("~me", GRACE, ticket)
        life.hosted.commit(state.owner, [(RETRACT, 1)])
        life.hosted.commit(state.owner, [(ASSERT, 1, FACT)])
        life.write()
    with living(data) as life:
        assert life.facts() == {FACT}, "all had gone meanwhile, and the session had not"


async def test_a_session_that_ends_in_steps_is_over_before_the_first(tmp_path: Path) -> None:
    limits = Limits()
    with living(tmp_path / "1", limits) as life:
        most = life.hosted.space.limits.actions_per_turn
        state = life.greet("~me", GRACE)
        for turn in range(2):
            first = turn * most
            life.hosted.commit(
                state.owner, [(ASSERT, first + at, Record("n", first + at)) for at in range(most)]
            )
        life.write()
        connection = state.connection
        assert isinstance(connection, Caller)
        life.sessions.leave(state, connection)
        life.hosted.end_due()
        assert life.facts(), "it ends in steps"
        restarted(tmp_path / "1", tmp_path / "2", life)
    with living(tmp_path / "2", limits) as life:
        assert not life.sessions.waiting and not life.facts()


# -- rights, limits and accounts ----------------------------------------------------------------------


@pytest.mark.parametrize("why", ["no grace any more", "its bearer is not admitted any more"])
async def test_a_session_that_could_not_come_back_ends_at_the_start(why: str, tmp_path: Path) -> None:
    with living(tmp_path / "1") as life:
        state = life.greet("~me", GRACE)
        life.hosted.commit(state.owner, [(ASSERT, 1, FACT)])
        restarted(tmp_path / "1", tmp_path / "2", life)
    limits = Limits(grace_seconds=0.0) if why == "no grace any more" else Limits()
    with pytest.MonkeyPatch.context() as patch:
        if not why.startswith("no grace"):
            patch.setattr(Daemon, "returning", lambda _self, _known: None)
        with living(tmp_path / "2", limits) as life:
            assert not life.facts() and not life.log.registers.of(KnownSessions) and not life.sessions.waiting
            life.write()
    assert not verify(tmp_path / "2", space_registers).damages


async def test_facts_are_counted_anew_and_waiting_for_a_restart_is_not(tmp_path: Path) -> None:
    limits = Limits(waiting_sessions=1)
    with living(tmp_path / "1", limits) as life:
        for at in range(3):
            state = life.greet(f"~{at}", GRACE)
            life.hosted.commit(state.owner, [(ASSERT, 1, Record("n", at))])
        restarted(tmp_path / "1", tmp_path / "2", life)
    with living(tmp_path / "2", limits) as life:
        account = life.daemon.accounts.of(Principal("unix"))
        assert life.sessions.waiting == 3
        assert (account.used("facts"), account.used("waiting_sessions")) == (3, 0)
        state = life.greet("~new", GRACE)
        life.hosted.commit(state.owner, [(ASSERT, 1, Record("n", 9))], account=account)
        life.lose(state)
        assert (life.sessions.waiting, account.used("waiting_sessions")) == (4, 1)
        for number in [each.number for each in life.sessions.suspended()]:
            assert life.sessions.end_suspended(number)
        assert (account.used("facts"), account.used("waiting_sessions")) == (0, 0)
        assert Quotas().waiting_sessions > 0
