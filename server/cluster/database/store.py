"""A store in PostgreSQL as the home of a daemon: it leads while its lease lasts and its terms stand.

The daemons that name one store are a cluster.  Each space is led by one of them, the first that was there;
all others follow it, and one takes it over once the lease of its leader has run out in the clock of the
database, or the leader's counter has stood still for a lease by the clock of this machine, whatever the
database's says.  Of several spaces that are free, each daemon takes its share.  A leader that cannot renew
its lease steps down before it ends.  All of that is for liveness: a write of an earlier leader is refused by
its fence.

Always: what this daemon writes is under a term that it took; it gives its terms back at an orderly end, after
its logs are closed.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

import trio

from dataspace.version import __version__
from dataspace.wire.features import MAIN
from relay.journal.followed import FollowedJournal
from relay.journal.journal import Journal
from relay.log.log import Log
from relay.space_registers import space_registers
from relay.store.errors import LogAway, LogDamaged, LogFailed, closed_on_failure
from relay.store.postgres.daemons import DaemonNotes
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import Fence, FencedWriter
from relay.store.postgres.members import Confirmations, Membership, Profile, SpaceTerms, Standing
from relay.store.postgres.places import SeenPlaces
from relay.store.postgres.sizes import store_sizes
from relay.store.postgres.staged import PostgresStaged, StagedWriter, StagingLine
from relay.store.postgres.tables import PostgresLog
from relay.store.postgres.topics import PostgresTopics
from server.cluster.database.agreement import digest
from server.cluster.database.cluster_state import ENDED, FIRST, LAPSED, MOVED, SILENT, VIEW, StoreView
from server.cluster.database.drained import DaemonRole, role_of
from server.cluster.database.lease import MemberLease
from server.cluster.database.looks import CALM_SECONDS, LOOK_SECONDS, StoreLooks
from server.cluster.database.proofs import FollowerProofs, proof_of
from server.cluster.database.seen import StoreFollowedJournal, StoreFollowedLog
from server.config.model import BESIDE_SPACES, READING, own_name
from server.home import SteppedDown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from uuid import UUID

    from relay.following.following import FollowedLog
    from relay.store.address import StoreAddress
    from server.config.model import Config

logger = logging.getLogger("dataspace")

TOPICS: Final = ""
"""The name of the space that the journal of topics is in the store; it has the term of ``main``."""

SEEN_TOPICS: Final = "(topics)"
"""The name of what a daemon has seen of that journal, beside the names of spaces."""

LEAVE_SECONDS: Final = 2.0
"""How long the end of a daemon waits for the database."""

MOVE_SECONDS: Final = 0.2
"""How often a leader looks whether a space is to go to another daemon."""

SPREAD_SECONDS: Final = 5.0
"""Seconds between two spaces that go to a member which leads fewer."""

MEASURE_SECONDS: Final = 5.0
"""Seconds between two measurements of what the store takes, at least."""


class StoreHome:
    """One run of a daemon as a member of the cluster of a store."""

    def __init__(self, config: Config, address: StoreAddress, before: StoreHome | None = None) -> None:
        """``before`` is the home of this process until now, which has seen places and counts of its lease."""
        cluster = config.cluster
        self.place: str = str(address)
        self.stands_by: bool = True
        self.has_stand_by: bool = False
        self.leads_each: bool = True
        self._names: Final = [each.name for each in config.all_spaces()]
        profile = Profile(cluster.name or own_name(), config=digest(config))
        self.given_up: Callable[[], None] = lambda: None
        """Called when a space was given up: followers look who leads it."""
        self._allowed: Final = cluster.connections or len(self._names) + BESIDE_SPACES + READING
        reading = self._allowed - len(self._names) - BESIDE_SPACES
        self._database: Final = Database(address, readers=reading, name=profile.name)
        self._staging: Final = StagingLine()
        self._member: Final = Membership(self._database, profile, cluster.lease, VIEW)
        self.places: Final[SeenPlaces] = SeenPlaces(cluster.state) if before is None else before.places
        self._accept_damage: Final = config.accept_damage
        lease = None if before is None else before.lease
        self._lease = MemberLease(self._member, Confirmations(self._database), lease)
        self._taking: Final = threading.RLock()
        """Held while spaces are taken, and while another lease is begun."""
        self._proofs: Final = FollowerProofs(self._member)
        self._sizes: dict[str, dict[str, int]] = {}
        self._terms: Final = SpaceTerms(self._database)
        self.looks: Final = StoreLooks(self._terms, lambda: self._lease.view)
        self.notes: Final = DaemonNotes(self._terms)
        self._url = ""
        """Where clients reach this daemon, also once it gives no address to others."""
        self._spaces: dict[str, int] = {}
        """The number of each space in the store."""
        self._fences: dict[str, Fence] = {}
        """The terms of the spaces that this daemon leads."""
        self._preferred: Final = {each.name: each.prefer for each in config.all_spaces()}
        self._spread_at = monotonic() + SPREAD_SECONDS
        """When a space may go to a member that leads fewer, at the earliest."""
        self._moved_here: set[str] = set()
        """The spaces that another member handed over to this one."""
        self._refusal: LogDamaged | None = None
        """Why the store does not take this daemon as a member again: it has a later level by now."""
        self._is_retired = False
        """True once this daemon is to end, so that it becomes no member again."""
        self._successors: dict[str, str] = {}
        """The members to which spaces go."""
        self._ends_at = 0.0
        """When this daemon ended the turns of all that it still leads, as of ``monotonic``; 0 before."""
        self._writers: list[FencedWriter] = []
        self._untils: dict[str, tuple[float, float]] = {}
        """When the lease of each member ends, as it was last seen, and since when it stands still."""
        self._seen: dict[str, tuple[Standing, float]] = {}
        """The leader of each space as it was last seen, and since when its counter stands still."""

    # -- the life of a member -------------------------------------------------------------------------

    async def enter(self, held: ExitStack) -> Collection[str]:
        held.callback(self._database.close)
        held.callback(self._leave)
        await trio.to_thread.run_sync(self._join, abandon_on_cancel=True)
        return await trio.to_thread.run_sync(self._take_free, self._names)

    def _join(self) -> None:
        self._database.prepare()
        for name in (*self._names, TOPICS):
            self._spaces[name] = self._terms.space(name)
        self._lease.begin()

    def _leave(self) -> None:
        """Gives the terms back, and ends the lease; not for long."""
        patience = threading.Timer(LEAVE_SECONDS, self._database.abandon)
        patience.daemon = True
        patience.start()
        with suppress(LogFailed):
            for name, fence in self._fences.items():
                self._give_up(fence, self._successors.get(name), monotonic() - (self._ends_at or monotonic()))
            if url := self._member.profile.url or self._url:
                self.notes.leave(self._member.profile.name, url, __version__)
        self._terms.close()
        self._lease.end()
        patience.cancel()

    async def keep(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._measure)
            await self._keep_leading()

    async def _keep_leading(self) -> None:
        while self._lease.left > 0 or not self._fences:
            if self._refusal is not None:
                raise self._refusal
            if self._lease.left <= 0:  # a question may wait for ever, and a daemon that ends for it
                self._database.interrupt()
            await trio.sleep(max(self._lease.left, LEAVE_SECONDS if not self._fences else 0.01))
        for each in self._writers:
            each.abandon()
        self._database.abandon()
        raise SteppedDown(f"the lease of {self._member.profile.name} in {self.place} has run out")

    def is_sure(self) -> bool:
        return not self._fences or (self._lease.left > 0 and self._lease.sure > 0)

    def numbering(self, log: Log | FollowedLog) -> int:
        return self._member.number

    async def follower(self, proof: str) -> str | None:
        return await self._proofs.follower(proof)

    @property
    def lease(self) -> MemberLease:
        """The present lease."""
        return self._lease

    def now(self) -> int:
        return self._lease.now()

    def durability(self) -> str:
        found = self._lease.durability
        return "" if found is None else found.words

    def level(self) -> int:
        return self._lease.level

    @property
    def connections(self) -> tuple[int, int]:
        """How many connections to the database this daemon has, and how many it may have."""
        return self._database.held, self._allowed

    def sizes(self, space: str) -> dict[str, int]:
        """Returns the bytes as they were measured last."""
        return self._sizes.get(space, {})

    async def _measure(self) -> None:
        """Measures the store again and again, for a hundredth of the time."""
        while True:
            began = monotonic()
            with suppress(LogFailed):
                asked = partial(store_sizes, self._database, TOPICS, self._names[0])
                self._sizes = await trio.to_thread.run_sync(asked, abandon_on_cancel=True)
            await trio.sleep(max(MEASURE_SECONDS, 100 * (monotonic() - began)))

    def tell(self, url: str, web: str, config: Config) -> None:
        if self._is_retired:
            return
        self._url = url
        self._member.profile = Profile(self._member.profile.name, url, web, digest(config))
        self._lease.hasten()

    # -- leading --------------------------------------------------------------------------------------

    async def wait_turn(self, held: ExitStack, followed: Callable[[], Collection[str]]) -> Collection[str]:
        within = CALM_SECONDS
        while True:
            names, left = followed(), [LOOK_SECONDS]
            try:
                view = await self.looks.view(within)
                standings = self._standings_of(view)
                if free := self._free(names, view):
                    await trio.sleep(random.random() / 10)  # of several, one is first
                    if taken := await trio.to_thread.run_sync(self._take_share, free):
                        return taken
                for standing in [standings[name] for name in names]:
                    if standing.wanted_lives and standing.wanted == self._member.profile.name:
                        left.append(0.0)
                    elif standing.lives:
                        left.append(standing.left)
            except LogAway as away:
                logger.warning("%s; nobody can lead now", away)
            hurries = min(left) < LOOK_SECONDS
            within = 0.0 if hurries else CALM_SECONDS
            await self.looks.pause(min(left) + 0.01)  # to the instant, as far as a lease is the last one

    async def wait_move(self) -> tuple[str, str]:
        while True:
            await trio.sleep(MOVE_SECONDS)
            with suppress(LogAway):  # the lease says how long that may be
                if (move := self._move(await self.looks.view())) is not None:
                    return move

    def _move(self, view: StoreView) -> tuple[str, str] | None:
        """Returns the next space to hand over and its new leader, or None."""
        standings, living = self._standings_of(view), view.candidates
        own = self._member.profile.name
        led = [name for name in self._names if standings[name].nonce == self._member.nonce]
        for name in led:
            for wanted in (standings[name].wanted, self._preferred[name]):
                if wanted != own and wanted in living:
                    return self._moves(name, wanted)
        leaders = [each.name for each in standings.values() if each.lives]
        if own not in view.noted.drained:
            return self._spared(leaders, led, living)
        if led and (renewing := self._renewing(view)):  # ``main`` last, as with it all that is led goes
            return self._moves(led[-1] if led[0] == MAIN else led[0], fewest(renewing, leaders))
        return None

    def _moves(self, name: str, successor: str) -> tuple[str, str]:
        """Notes to which member a space goes, and from when on no turn of ``main`` is made here."""
        self._successors[name] = successor
        if name == MAIN:
            self._ends_at = monotonic()
        return name, successor

    def _stays_out(self, view: StoreView) -> bool:
        """True if this daemon is drained, and another one lives that may lead."""
        return self._member.profile.name in view.noted.drained and bool(self._renewing(view))

    def _renewing(self, view: StoreView) -> list[str]:
        """Returns the candidates but for those whose lease has stood still for a lease by the clock of this
        machine."""
        now, before = monotonic(), self._untils
        living = {each.name: each.until for each in reversed(view.members) if each.left > 0}
        self._untils = seen = {
            name: before[name] if before.get(name, (None,))[0] == until else (until, now)
            for name, until in living.items()
        }
        return [name for name in view.candidates if now - seen[name][1] <= self._member.lease]

    def _spared(
        self, leaders: Sequence[str | None], led: Sequence[str], living: Sequence[str]
    ) -> tuple[str, str] | None:
        """Returns a space to spare, and the member that leads the fewest; None if none leads two less.

        ``main`` stays, as its move would end sessions about other spaces, and so do spaces with a preference.
        A space that was moved here goes last: an operator may have wanted that.
        """
        spare = [name for name in led[::-1] if name != MAIN and not self._preferred[name]]
        spare.sort(key=self._moved_here.__contains__)
        if not spare or not living or monotonic() < self._spread_at:
            return None
        least = fewest(living, leaders)
        if len(led) - leaders.count(least) < 2:
            return None
        self._spread_at = monotonic() + SPREAD_SECONDS
        return spare[0], least

    async def retire(self) -> bool:
        self._is_retired = True
        with suppress(LogFailed):  # others learn it when the lease runs out
            return await trio.to_thread.run_sync(self._retire, abandon_on_cancel=True)
        return False

    def _retire(self) -> bool:
        """Refuses further spaces; a follower leaves the members.  Returns True if others stay."""
        self._member.profile = replace(self._member.profile, url="", web="")
        if self._fences:
            self._member.renew()
        else:
            self._lease.end()
        if others := self._terms.living():
            self._ends_at = monotonic()
        return bool(others)

    async def give_up(self, space: str, successor: str, ago: float) -> None:
        fence = self._fences[space]
        with suppress(LogFailed):  # then this daemon takes it again
            await trio.to_thread.run_sync(self._give_up, fence, successor or None, ago)
        self.given_up()
        del self._fences[space]
        self._writers = [each for each in self._writers if each.fence != fence]

    def _give_up(self, fence: Fence, successor: str | None, ago: float) -> None:
        """Ends a term whose turns have ended so many seconds ago."""
        self.notes.stopped(fence.space, fence.term, ago)
        self._terms.give_up(fence, successor)

    async def note_served(self, spaces: Collection[str]) -> None:
        with suppress(LogFailed):
            for fence in [self._fences[name] for name in spaces if name in self._fences]:
                await trio.to_thread.run_sync(self.notes.served, fence.space, fence.term)

    def _is_due(self) -> bool:
        return not self._fences and self._lease.left <= 0 and not self._is_retired

    def _renew(self) -> None:
        """Begins another lease, if the last one has run out while nothing was led."""
        if self._is_due():
            self._lease.end()
            self._lease = MemberLease(self._member, Confirmations(self._database), self._lease)
            self._lease.begin()

    async def view(self, within: float) -> StoreView:
        """Returns the store as it was so many seconds ago at most, after this daemon has begun a lease where
        the last one has run out."""
        if self._is_due():
            await trio.to_thread.run_sync(self._begin_another, abandon_on_cancel=True)
        view = await self.looks.view(within)
        self._standings_of(view)
        return view

    def _begin_another(self) -> None:
        with self._taking:
            try:
                self._renew()
            except LogDamaged as refusal:
                self._refusal = refusal  # ``keep`` ends the daemon; the caller is kept up as long as it runs

    @property
    def nonce(self) -> UUID:
        """The nonce of this daemon as a member."""
        return self._member.nonce

    def proof_for(self, leader: UUID) -> str:
        """Returns the token by which a leader knows that this daemon follows it."""
        return proof_of(leader, self._member.nonce)

    def _standings_of(self, view: StoreView) -> dict[str, Standing]:
        """Returns who leads each space of this daemon.

        Raises ``LogAway`` where a space is gone that was there: the database has failed over since.
        """
        if gone := [name for name in self._names if name not in view.standings]:
            raise LogAway(f"{self.place}: space {gone[0]!r} was there, and is gone")
        return {name: view.standings[name] for name in self._names}

    async def overview(self, said: str) -> StoreView:
        """Returns the store as it was a moment ago.

        ``said`` is what this daemon says of itself, as JSON, which is written where it is new.  Raises
        ``LogFailed``.
        """
        profile, view = self._member.profile, await self.looks.view()
        noted = view.noted.daemons.get(profile.name)
        if profile.url and self.notes.is_new(noted, view.at, profile.url, said):
            say = partial(self.notes.say, profile.name, profile.url, __version__, said)
            await trio.to_thread.run_sync(say, abandon_on_cancel=True)
        return view

    def role_of(self, name: str, do: str) -> DaemonRole:
        """Returns the role of a daemon, as ``drained.role_of``; the tasks of this one see it at once."""
        role = role_of(self._database, self.notes, name, do)
        with suppress(LogFailed):  # it is done
            self.looks.ask()
        return role

    @property
    def settings(self) -> str:
        """The digest of this daemon's settings, as in ``MemberSeen``."""
        return self._member.profile.config.hex()

    def _may_take(self, name: str, standing: Standing) -> bool:
        """True if no member that lives leads a space, and it is not meant for another living one, which has a
        lease for taking it."""
        if standing.nonce == self._member.nonce:  # taken, and perhaps the answer was lost
            return name not in self._fences
        is_still = self._is_still(name, standing)
        if standing.wanted_lives and standing.wanted != self._member.profile.name:
            return is_still
        return not standing.lives or is_still

    def _free(self, names: Iterable[str], view: StoreView) -> list[str]:
        """Returns which of these spaces this daemon may take; of a drained one, what its term is of."""
        standings, stays_out = self._standings_of(view), self._stays_out(view)
        return [
            name
            for name in names
            if self._may_take(name, (found := standings[name]))
            and (not stays_out or found.nonce == self._member.nonce)
        ]

    def _is_still(self, name: str, standing: Standing) -> bool:
        """True if the counter of a leader has not moved for a lease by the clock of this machine."""
        now = monotonic()
        if name not in self._seen or self._seen[name][0][:7] != standing[:7]:
            self._seen[name] = standing, now
        return now - self._seen[name][1] > self._member.lease

    def _why(self, standing: Standing) -> str:
        """Returns why a space is free that this daemon may take."""
        if standing.nonce is None:
            own = standing.wanted == self._member.profile.name
            return FIRST if standing.term == 0 else MOVED if own else ENDED
        return SILENT if standing.lives else LAPSED

    def _take_share(self, free: Sequence[str]) -> list[str]:
        """Takes one living member's part of these spaces."""
        share = math.ceil(len(free) / max(1, len(self.looks.ask().candidates)))
        return self._take_free(random.sample(free, len(free)), share)

    def _take_free(self, names: Sequence[str], most: int | None = None) -> list[str]:
        """Takes spaces that are still free, at most so many, and returns them; none if the lease ran out
        meanwhile."""
        taken: dict[str, Fence] = {}
        with self._taking:
            view = self.looks.ask()
            standings = self._standings_of(view)
            for name in self._free(names, view):
                if len(taken) == most:
                    break
                if not taken:
                    self._renew()
                why = self._why(standings[name])
                fence = self._terms.take_space(self._spaces[name], standings[name], self._member.nonce, why)
                if fence is not None:
                    taken[name] = fence
                    (self._moved_here.add if why == MOVED else self._moved_here.discard)(name)
            if self._lease.left <= 0:
                return []
            self._fences |= taken
        return [*taken]

    def _writer(self, space: str) -> FencedWriter:
        self._writers.append(FencedWriter(self._database, self._fences[space]))
        return self._writers[-1]

    # -- what is there --------------------------------------------------------------------------------

    async def wait_log(self, space: str) -> bool:
        while not await trio.to_thread.run_sync(self._has_log, space):
            logger.warning("there is no log of space %s in %s yet", space, self.place)
            await trio.sleep(LOOK_SECONDS)
            if await trio.to_thread.run_sync(self._take_free, [space]):  # its leader has made none
                return True
        return False

    def _has_log(self, space: str) -> bool:
        return bool(PostgresLog(self._database, self._spaces[space]).moment().names)

    def open_log(self, space: str, *, accept_damage: bool) -> Log:
        tables = PostgresLog(self._database, self._spaces[space], self._writer(space), self.places.of(space))
        with closed_on_failure(tables):
            term = self._fences[space].term
            return Log(tables, accept_damage=accept_damage, term=term, registers=space_registers)

    def follow_log(self, space: str, held: ExitStack) -> FollowedLog:
        tables = PostgresLog(self._database, self._spaces[space], state=self.places.of(space))
        log = StoreFollowedLog.over(tables, registers=space_registers)
        with closed_on_failure(log):
            log.check(accept_damage=self._accept_damage)
        return log

    def open_journal(self, *, accept_damage: bool) -> Journal:
        writer, seen = self._writer(self._names[0]), self.places.of(SEEN_TOPICS)
        tables = PostgresTopics(self._database, self._spaces[TOPICS], writer, seen)
        with closed_on_failure(tables):
            return Journal(tables, accept_damage=accept_damage)

    def follow_journal(self) -> FollowedJournal:
        tables = PostgresTopics(self._database, self._spaces[TOPICS], state=self.places.of(SEEN_TOPICS))
        with closed_on_failure(tables):
            journal = StoreFollowedJournal(tables)
            journal.check(accept_damage=self._accept_damage)
        return journal

    def open_staged(self, space: str) -> PostgresStaged:
        writer = StagedWriter(self._database, self._fences[space], self._staging)
        self._writers.append(writer)
        return PostgresStaged(self._database, self._spaces[space], writer)


def fewest(names: Iterable[str], leaders: Sequence[str | None]) -> str:
    """Returns the member that leads the fewest spaces, by the names of all leaders; of several the first."""
    return min(names, key=lambda name: (leaders.count(name), name))
