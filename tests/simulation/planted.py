"""Planted faults: the product with one mistake, to show that lives find it.

Each is a mistake that someone could make, at the place where it would be made; ``planted`` makes it for the
length of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import trio

from dataspace.client.epoch_streams import EpochStream
from dataspace.client.session.session import ClientSession
from dataspace.kernel.changes import Epoch
from relay.delivery.gate import DurableGate
from relay.following.following import Following
from relay.groups.core import Cell, GroupCore
from relay.groups.state import At
from relay.journal.writer import TopicWriter
from relay.log.segments import Segment
from relay.log.writer import GroupCommit
from relay.store.sqlite import storage
from server.cluster.directory.contact import DirectoryContact
from server.config.model import SpaceConfig
from server.connections.dispatch import ClientPeer
from server.owners import leases
from server.spaces.sessions import Sessions, SessionState
from server.spaces.space import HostedSpace
from server.turns.conditions import Judgement
from tests.simulation.plan import MAIN


def answered_before_the_sync(held: ExitStack) -> None:
    """SQLite is told to leave the write-ahead log to the kernel."""
    changed = [each.replace("synchronous=FULL", "synchronous=OFF") for each in storage._PRAGMAS]
    held.enter_context(patch.object(storage, "_PRAGMAS", changed))


def answered_before_the_write(held: ExitStack) -> None:
    """A turn is answered when its epoch is queued."""
    really = GroupCommit.submit

    def submit(self: GroupCommit, epoch: Any, on_durable: Callable[[Any], None] | None = None) -> None:
        really(self, epoch)
        if on_durable is not None:
            on_durable(epoch)

    held.enter_context(patch.object(GroupCommit, "submit", submit))


def resumed_one_late(held: ExitStack) -> None:
    """An observer that comes back asks for what follows the epoch after the last one that it was shown."""
    really = vars(EpochStream)["_told"].fget

    def told(self: EpochStream) -> int | None:
        epoch: int | None = really(self)
        return None if epoch is None else epoch + 1

    held.enter_context(patch.object(EpochStream, "_told", property(told)))


def turn_numbers_unchecked(held: ExitStack) -> None:
    """A turn that is sent again is taken for a new one."""

    def commit_at_once(self: ClientPeer, turn: Any) -> bool:
        self._turn(turn, self.own)
        return True

    held.enter_context(patch.object(ClientPeer, "commit_at_once", commit_at_once))
    held.enter_context(patch.object(ClientPeer, "may_wait", lambda _self, _packet: False))


def gate_open(held: ExitStack) -> None:
    """Observers are shown epochs as they are committed, whatever the configuration says."""
    held.enter_context(patch.object(DurableGate, "close", lambda _: None))


def leases_end_early(held: ExitStack) -> None:
    """The deadline of a lease is reckoned in other units than its length."""
    really = leases.time_to_live

    def time_to_live(owner: str, *, most: float) -> float:
        return really(owner, most=most) * 1000 / 1024

    held.enter_context(patch.object(leases, "time_to_live", time_to_live))


def asserted_twice(held: ExitStack) -> None:
    """A client asserts its facts again in a session that was resumed."""
    really = ClientSession.release

    def release(self: ClientSession, *, fresh: bool) -> int:
        return really(self, fresh=True)

    held.enter_context(patch.object(ClientSession, "release", release))


def grace_not_renewed(held: ExitStack) -> None:
    """Sessions that a start has found have no time to come back."""

    def begin_grace(self: Sessions) -> None:
        for state in self._left.values():
            self._waiting.renew(state.owner, trio.current_time())

    held.enter_context(patch.object(Sessions, "_begin_grace", begin_grace))


def secret_unchecked(held: ExitStack) -> None:
    """Whoever knows the number of a session resumes it."""

    def admits(self: SessionState, ticket: tuple[int, bytes] | None) -> bool:
        return ticket is not None and bool(self.known.grace) and ticket[0] == self.number

    held.enter_context(patch.object(SessionState, "admits", admits))


def sessions_forgotten(held: ExitStack) -> None:
    """The log has no note of sessions, so that none outlives the daemon."""
    held.enter_context(patch.object(Sessions, "note", lambda _self, *_parts: None))


def sessions_end_by_halves(held: ExitStack) -> None:
    """The first fact of a session that ends goes in an epoch of its own."""
    really = HostedSpace._end_together

    def end_together(self: HostedSpace, owners: Sequence[str]) -> None:
        for owner in owners:
            if len(self.space.claims(owner)) > 1:
                self._retract_some(owner, 1)
        really(self, owners)

    held.enter_context(patch.object(HostedSpace, "_end_together", end_together))


def steps_answered_before_the_write(held: ExitStack) -> None:
    """The step of a publisher is answered when it is queued, so a kill loses what was answered."""

    def when_durable(_self: TopicWriter, callback: Callable[[], None]) -> None:
        callback()

    held.enter_context(patch.object(TopicWriter, "when_durable", when_durable))


def shared_turns_in_main(held: ExitStack) -> None:
    """The epoch of a turn of several owners is made in ``main``, whatever the space of its connection is."""
    homes: dict[str, HostedSpace] = {}
    really_begin, really = HostedSpace.__init__, HostedSpace.commit

    def begin(self: HostedSpace, settings: SpaceConfig, *args: Any, **options: Any) -> None:
        really_begin(self, settings, *args, **options)
        homes[settings.name] = self

    def commit(self: HostedSpace, owner: str, actions: Any, others: Any = (), **more: Any) -> Epoch:
        return really(homes[MAIN] if others else self, owner, actions, others, **more)

    held.enter_context(patch.object(HostedSpace, "__init__", begin))
    held.enter_context(patch.object(HostedSpace, "commit", commit))


def further_owners_forgotten(held: ExitStack) -> None:
    """Of a turn of several owners that of the first alone is done."""
    really = HostedSpace.commit

    def commit(self: HostedSpace, owner: str, actions: Any, _others: Any = (), **more: Any) -> Epoch:
        return really(self, owner, actions, **more)

    held.enter_context(patch.object(HostedSpace, "commit", commit))


def conditions_unchecked(held: ExitStack) -> None:
    """Turns happen whether or not what they expect holds."""
    held.enter_context(patch.object(Judgement, "decide", lambda _: True))


def half_a_segment_shown(held: ExitStack) -> None:
    """A follower shows what its leader wrote at once as whole once it has the first half of it."""
    really = Following._take_all

    async def take_all(self: Following, segment: Segment, items: Sequence[Any]) -> None:
        half = len(items) // 2
        if half:
            await really(self, segment, items[:half])
            self._durable = segment.last
            self._tell()
            await trio.sleep(self.poll)
        await really(self, segment, items[half:])

    held.enter_context(patch.object(Following, "_take_all", take_all))


def clients_sent_to_itself(held: ExitStack) -> None:
    """A follower sends its clients to its own address in place of its leader's."""
    really = DirectoryContact._note_addresses

    def note_addresses(self: DirectoryContact, url: str, web: str) -> None:
        really(self, url and self._daemon.here.url, web)

    held.enter_context(patch.object(DirectoryContact, "_note_addresses", note_addresses))


# -- of a cluster over a store ------------------------------------------------------------------------------


def _without(held: ExitStack, name: str, text: str) -> None:
    """Has a statement of fenced writes lack a text."""
    from relay.store.postgres import fenced  # other lives need no psycopg

    statement = vars(fenced)[name]
    assert text in statement
    held.enter_context(patch.object(fenced, name, statement.replace(text, "")))


def no_fence(held: ExitStack) -> None:
    """A write does not ask under which term it is."""
    _without(held, "_LEAD", " AND term = %(term)s AND nonce = %(nonce)s FOR SHARE")
    _without(held, "SEGMENT", " AND term = $2 AND nonce = $3 FOR SHARE")


def fence_without_lock(held: ExitStack) -> None:
    """A write reads the row of its term, and another daemon may take the space before the write is there."""
    _without(held, "_LEAD", " FOR SHARE")
    _without(held, "SEGMENT", " FOR SHARE")


def no_predecessor(held: ExitStack) -> None:
    """A segment is written although the one before it is missing."""
    from relay.store.postgres import fenced
    from tests.simulation.store import rows

    assert rows.FOLLOWS == fenced._FOLLOWS  # the store knows the right form before the wrong one is here
    held.enter_context(patch.object(fenced, "_FOLLOWS", fenced._UNCONDITIONAL))
    _without(held, "SEGMENT", fenced.SEGMENT.partition("AS lead")[2])


def no_barrier(held: ExitStack) -> None:
    """A write that is found to be there is acknowledged although the standby may lack it."""
    from relay.store.postgres.fenced import _BARRIER, FencedWriter

    really = FencedWriter._committed

    def committed(self: FencedWriter, connection: Any, statement: str, values: Any) -> Any:
        is_barrier = statement == self._database.statement(_BARRIER)
        return [] if is_barrier else really(self, connection, statement, values)

    held.enter_context(patch.object(FencedWriter, "_committed", committed))


def members_sent_to_themselves(held: ExitStack) -> None:
    """A daemon that follows sends its clients to its own address in place of the leader's."""
    from server.cluster.database.contact import StoreContact

    really = StoreContact._leaders

    def leaders(self: StoreContact, standings: Any) -> Any:
        own = self._daemon.here.url
        found = really(self, standings)
        for hosted in self._daemon.spaces.values():
            if not hosted.leads and hosted.leader.url:
                hosted.leader.url = own
        return found

    held.enter_context(patch.object(StoreContact, "_leaders", leaders))


def contact_ended_too_early(held: ExitStack) -> None:
    """A daemon that takes its last space asks no more who leads, although it hands one over meanwhile."""
    from server.daemon import serve

    really = serve._promote

    async def promote(daemon: Any, held: Any, writers: Any, taken: Any) -> None:
        if len(taken) == len(daemon.followed):
            daemon.link.end()
        await really(daemon, held, writers, taken)

    held.enter_context(patch.object(serve, "_promote", promote))


def jobs_unjudged(held: ExitStack) -> None:
    """Whatever a turn says of a job is believed, also when another member has it, or it is done."""

    def judge(_self: GroupCore, _cells: Sequence[Cell], _principal: object) -> list[At]:
        return []

    held.enter_context(patch.object(GroupCore, "judge", judge))


OF_CLUSTERS: Final[Mapping[str, int]] = {
    "no_fence": 40,
    "fence_without_lock": 40,
    "no_predecessor": 40,
    "no_barrier": 120,
    "members_sent_to_themselves": 40,
    "contact_ended_too_early": 120,
}
"""The mistakes that only a cluster can show, and the lives within which each is found.

A term by its number alone is planted in ``tests/relay/store/postgres/test_wrong_forms.py``.
"""

OF_FOLLOWERS: Final = ("half_a_segment_shown", "clients_sent_to_itself")
"""The mistakes that only lives with followers can show."""

PLANTED: Final[Mapping[str, Callable[[ExitStack], None]]] = {
    each.__name__: each
    for each in (
        answered_before_the_sync,
        answered_before_the_write,
        resumed_one_late,
        gate_open,
        turn_numbers_unchecked,
        leases_end_early,
        asserted_twice,
        grace_not_renewed,
        secret_unchecked,
        sessions_forgotten,
        sessions_end_by_halves,
        steps_answered_before_the_write,
        shared_turns_in_main,
        further_owners_forgotten,
        conditions_unchecked,
        jobs_unjudged,
        half_a_segment_shown,
        clients_sent_to_itself,
        no_fence,
        fence_without_lock,
        no_predecessor,
        no_barrier,
        members_sent_to_themselves,
        contact_ended_too_early,
    )
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Makes a mistake of this name, if there is one to make."""
    with ExitStack() as held:
        if name is not None:
            PLANTED[name](held)
        yield
