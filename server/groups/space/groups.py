"""The groups of a space: how they begin and are served, and their members.

A group is a fact of the owner ``group:NAME``, which no client can be (``definitions.py``).  It takes items as
they come (``feeding.py``), and its deliveries end (``settling.py``).  Members are streams of sessions, served
by ``server/groups``.

Always: each group that the log has is served, or a member is told why it cannot be.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import trio

from dataspace.errors import Closed, Refused
from relay.groups.members import GroupCounts, GroupMember, GroupOptions, JobDelivery
from relay.groups.memory import ItemMemory
from relay.groups.state import GroupStates
from relay.log.log import Log
from relay.store.errors import LogFailed
from server.groups.space.awaiting import AwaitedMembers
from server.groups.space.dividing import DividedTopics
from server.groups.space.failures import (
    StepFence,
    fenced,
    give_up,
    guarded,
    state_failures,
    stop,
    stop_refused,
)
from server.groups.space.group import (
    StreamMember,
    WorkGroup,
    definitions_of,
    group_of,
    place_of,
    redefine,
)
from server.groups.space.settling import SettledGroups
from server.lane import input_handled
from server.owners.accounts import Account
from server.parts import Awaited
from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")

EXPIRED: Final = 24
"""Deliveries in one step whose deadlines are over, in about 3 ms."""

HANDED: Final = 256
"""Deliveries in one step, in about 4 ms."""

HANDED_BYTES: Final = 2_048
"""Bytes of an item with which its delivery counts twice: they are packed."""

SETTLE_SECONDS: Final = 1.0
"""Seconds after a start in which members that come back keep what they had, and nothing is handed out."""

NEVER: Final = 1 << 63

RETRY_SECONDS: Final = 1.0
"""Seconds after an error that belongs to no group until all groups are looked at again."""


class SpaceGroups(SettledGroups):
    """The groups of one space, while it is led."""

    def __init__(self, hosted: HostedSpace) -> None:
        super().__init__(hosted)
        self.items: Final = ItemMemory()
        self.is_busy = False
        """True once there was a group."""
        self._planned = float("inf")
        """When ``run`` wakes next."""
        self._heard = 0.0
        """The time up to which deadlines are judged: all input of clients that was there then was handled."""
        self._members: dict[str, dict[Hashable, tuple[WorkGroup, StreamMember]]] = {}
        """The members of each session, by its owner."""
        self._alarm = trio.Event()
        self._due: int = NEVER
        """When the next postponed item is due for which ``run`` wakes, in microseconds since 1970."""
        self.topics: DividedTopics
        """The durable topics of the daemon."""
        self.moved = trio.lowlevel.ParkingLot()
        """Where tasks wait until a group has read more."""
        self.awaited = AwaitedMembers(self.by_name, self.wake)
        self.past = GroupCounts()
        """What groups have counted that were deleted."""
        self.accounts: dict[str, Account] = {}
        """The account of the maker of each group, for groups made since the start."""
        self.making = trio.Lock()
        """Held while a group is made, moved or deleted."""
        self._unended: dict[str, bool] = {}
        """Owners of sessions that have ended, whose members could not be removed, and whether they are
        blamed."""
        self._look_again = float("inf")
        """When all groups are looked at again after an error that belongs to no group."""

    @property
    def noted(self) -> GroupStates:
        """The groups as the log says that they are, also of a space that is followed."""
        return self.hosted.role.registers.of(GroupStates)

    # -- life -----------------------------------------------------------------------------------------

    def lead(self, log: Log, *, was_clean: bool, awaited: Sequence[Awaited] = ()) -> None:
        """Takes up the groups of the log; connections come later."""
        self.states = log.registers.of(GroupStates)
        try:
            self._lead(was_clean=was_clean)
            self.awaited.expect(awaited)
        except Exception as error:  # noqa: BLE001  # a fence: ``run`` takes up the groups that are left
            self.defect(error)

    def _lead(self, *, was_clean: bool) -> None:
        for group in self.by_name.values():
            group.core.close()
        self.feeding.lead(self.states)
        self._quiet.clear()
        self.awaited.clear()
        self.by_name.clear()
        self.of_topics.clear()
        self._placed.clear()
        self._members.clear()
        self.failed.clear()
        for name in list(self.states):
            if (begun := self.begin(name)) is not None:
                begun.begun = self.hosted.space.epoch
        if self.states.refused:
            stop_refused(self)
        for group in self.by_name.values() if not was_clean else ():
            group.opens = trio.current_time() + SETTLE_SECONDS

    def begin(self, name: str) -> WorkGroup | None:
        """Serves a group as its definition and its state in the log are; returns None if it cannot be."""
        try:
            state = self.states[name]
            state.is_live = False
            found = definitions_of(self.hosted, name)
            if found:
                group = group_of(state, found[-1][1], self.hosted, self.items)
                self._add(group)
                return group
        except Exception as error:  # noqa: BLE001  # a fence: one group must not keep a daemon from starting
            give_up(self, name, f"a defect in the daemon (begin): {error!r}", error)
            return None
        logger.error("group %r has no definition in space %s: it hands out nothing", name, self.hosted.name)
        return None

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Excludes other tasks that make, move, change or delete groups."""
        async with self.making:
            try:
                yield
            finally:
                self._follow_log()

    def _follow_log(self) -> None:
        """Serves the groups that the log has, whatever came between a commit and what follows it here."""
        if len(self.by_name) == len(self.states):
            return
        for name in [each for each in self.by_name if each not in self.states]:
            self.drop(name)
        for name in [each for each in self.states if each not in self.by_name and each not in self.failed]:
            if definitions_of(self.hosted, name):
                self.begin(name)

    def _add(self, group: WorkGroup) -> None:
        """Adds a group, which reads from the log first, or from its topic."""
        self.by_name[group.name], self.is_busy = group, True
        if group.options.topic:
            self.of_topics.append(group)
            self.topics_moved.set()
        else:
            self._placed.setdefault(place_of(group), []).append(group)
        self.hosted.leading.commits.on_epoch = self.feeding.feed
        self.touched(group)
        self.behind.set()

    async def run(self) -> None:
        """Ends deliveries whose deadline is over, and hands out postponed items, until cancelled."""
        while True:
            self._alarm = trio.Event()
            self._planned = trio.current_time() + RETRY_SECONDS
            try:
                now = trio.current_time()
                if self._has_late(now):
                    if not self._has_late(self._heard):
                        await input_handled()  # the job may be done, or extended, in what waits in a socket
                        self._heard = now
                    now = self._heard
                self.tick(now)
                self.hosted.flush()
                self._due = min(
                    [due for g in self.by_name.values() if (due := g.core.next_due)], default=NEVER
                )
                self._planned = self._next_alarm()
            except (LogFailed, Closed):
                raise
            except Exception as error:  # noqa: BLE001  # a fence: what belongs to no group is tried again
                self.defect(error)
            with trio.move_on_at(self._planned):
                await self._alarm.wait()

    def wake(self) -> None:
        """Wakes ``run``, which looks for due items."""
        self._alarm.set()

    def defect(self, error: Exception) -> None:
        """Notes an error in the work for groups that belongs to no group: all are looked at again."""
        logger.error("space %s: a defect in the work for groups", self.hosted.name, exc_info=error)
        self._look_again = min(self._look_again, trio.current_time() + RETRY_SECONDS)
        self._planned = min(self._planned, self._look_again)

    def _look_at_all(self) -> None:
        """Does again what an error may have left undone."""
        self._look_again = float("inf")
        for owner in list(self._unended):
            self._end_session(owner, blame=self._unended[owner])
            del self._unended[owner]
        for placed in (self.of_topics, *self._placed.values()):
            placed[:] = [each for each in placed if self.by_name.get(each.name) is each]
        self._follow_log()
        self._dirty |= dict.fromkeys(self.by_name.values())
        self.behind.set()
        self.topics_moved.set()

    def _next_alarm(self) -> float:
        now, wall = trio.current_time(), self.hosted.clock()
        times = [
            next(iter(taken.values())).deadline for g in self.by_name.values() if (taken := g.core.taken)
        ]
        times += [g.core.resumes for g in self.by_name.values()]
        times.append(self._look_again)
        if self._due < NEVER:
            times.append(now + (self._due - wall) / 1e6)
        times += self.awaited.times(now)
        return min(times, default=float("inf"))

    def _has_late(self, now: float) -> bool:
        """True if the deadline of a delivery is over; O(groups)."""
        taken = [g.core.taken for g in self.by_name.values() if g.core.taken]
        return any(next(iter(each.values())).deadline <= now for each in taken)

    def tick(self, now: float | None = None) -> None:
        """Does what is due by then, or now; of deadlines at most ``EXPIRED``, and the others soon."""
        now, wall = trio.current_time() if now is None else now, self.hosted.clock()
        left = EXPIRED
        if self._look_again <= now:
            self._look_at_all()
        self._follow_log()
        self._dirty |= dict.fromkeys(self.awaited.settled(now))
        for group in list(self.by_name.values()):
            with StepFence(self, group, "come_due"):
                left = self._come_due(group, now, wall, left)
        if self._take_back(left) <= 0:
            self.wake()
        state_failures(self)
        self.deliver()

    def _come_due(self, group: WorkGroup, now: float, wall: int, left: int) -> int:
        """Ends at most ``left`` deliveries of a group whose deadlines are over, and gets its postponed items
        ready; returns what is left."""
        while left > 0 and (taken := group.core.taken):
            delivery = next(iter(taken.values()))
            if delivery.deadline > now:
                break
            left -= 1
            self._expire(group, delivery)
        if group.core.resumes <= now:
            group.core.resumes = float(
                "inf"
            )  # else it is looked at again and again while nothing is handed out
            self.touched(group)
        if (due := group.core.next_due) is not None and due <= wall:
            self.touched(group)
            group.core.come_due(wall)
        return left

    def deliver(self, first: WorkGroup | None = None) -> None:
        """Hands out what is ready in the groups in which something has changed, in ``first`` before others;
        raises nothing.

        Further deliveries than one step may hand out follow in turns of the lane.

        Nothing is handed out while the disk is full and the backlog of the log at its limit, as each job
        that fails adds to that.
        """
        try:
            self._deliver(first)
        except Exception as error:  # noqa: BLE001  # a fence: the caller may be any session, or the log
            self.defect(error)
            self.wake()

    def _deliver(self, first: WorkGroup | None) -> None:
        self.feeding.renew()
        if self.states.refused:
            stop_refused(self)
        if not self._dirty or self.is_stuck():
            return
        dirty, left, now = list(self._dirty), HANDED, trio.current_time()
        if first is not None and first in self._dirty:
            dirty.insert(0, first)
        for group in dirty:
            if self._dirty.pop(group, group) is None and not group.failure:
                if self.awaited.holds(group, now):
                    continue
                left = self._hand_out(group, left)
        if self._dirty:
            self.feeding.more.set()

    def is_stuck(self) -> bool:
        """True while the disk is full, and the backlog of the log is beyond its limits."""
        commits = self.hosted.commits
        return commits.full is not None and commits.is_behind

    def _hand_out(self, group: WorkGroup, left: int) -> int:
        """Hands out what is ready in a group, and costs no more than ``left``; returns what is left of that.

        Where nothing is left, the group is looked at again later.
        """
        with StepFence(self, group, "hand_out"):
            if left > 0:
                for delivery in group.core.assign(trio.current_time()):
                    cast("StreamMember", delivery.member).give(group, delivery)
                    left -= 1 + delivery.item.size // HANDED_BYTES
                    if left <= 0:
                        break
            if left <= 0:
                self._dirty[group] = None
            self._handed_out(group)
        return left

    def _handed_out(self, group: WorkGroup) -> None:
        """Notes what handing out has found, and what the group has room for."""
        if group.core.gone:
            self.note_gone(group)
        if group.wants_values:
            self.behind.set()
        if not group.state.is_live and (group.is_stuck or not group.is_full):
            (self.topics_moved if group.options.topic else self.behind).set()
        if (due := group.core.next_due) is not None and due < self._due:
            self.wake()
        if group.core.resumes < self._planned:
            self.wake()

    def clear(self) -> None:
        """Counts no group any more, for any account: another daemon leads the space."""
        while self.accounts:
            self.accounts.popitem()[1].release("groups")

    # -- definition -----------------------------------------------------------------------------------

    def find(self, name: str) -> WorkGroup:
        """Returns a group; raises ``Refused`` if there is none of that name."""
        group = self.by_name.get(name)
        if group is None:
            self.check_served(name)
            raise Refused("no-group", f"there is no group {name!r:.80} in space {self.hosted.name!r}")
        return group

    def check_served(self, name: str) -> None:
        """Raises ``Refused`` for a group that cannot be served until the next start."""
        if (why := self.failed.get(name)) is not None:
            said = f"group {name!r:.80} is not served until the next start, or until it is deleted: {why}"
            raise Refused("group-failed", said)

    def drop(self, name: str) -> None:
        """Removes a group that the log has as ended, and tells its members."""
        group = self.by_name.get(name)
        try:
            if (account := self.accounts.pop(name, None)) is not None:
                account.release("groups")
            if group is not None:
                self.displace(group)
                self.past.add(group.core.counts)
                group.core.close()
                group.forget_pending()
                for member in list(group.core.members.values()):
                    cast("StreamMember", member).mark(("ended",))
        except Exception as error:  # noqa: BLE001  # a fence: the log has it as ended already
            self.defect(error)
        self.by_name.pop(name, None)
        self.failed.pop(name, None)

    def moved_to(self, group: WorkGroup, least: int) -> None:
        """Restarts a group where the log has it now, with tokens from ``least`` on."""
        with guarded(self, group, "seek"):
            self.rest(group)
            group.begin_anew(least)
            (self.topics_moved if group.options.topic else self.behind).set()

    def redefine(self, group: WorkGroup, options: GroupOptions) -> None:
        """Changes the options of a group; raises ``Refused``, and nothing has happened.

        A group that was stopped goes on where it is resumed.
        """
        with guarded(self, group, "redefine"):
            redefine(self.hosted, group, options)
            if not options.paused and group.failure:
                group.failure = ""
                (self.topics_moved if options.topic else self.behind).set()
            self.shorten(group)
            self.touched(group)

    # -- members --------------------------------------------------------------------------------------

    def join(
        self, group: WorkGroup, member: StreamMember, owner: str, holding: Iterable[tuple[int, int, int]]
    ) -> list[tuple[int, int, int, int]]:
        """Adds a member of a session; returns what it keeps: epoch, position, its old token and its token.

        What a member of the same holder had and does not name is given back.
        """
        if self.by_name.get(group.name) is not group:
            self.find(group.name)
            raise Refused("no-group", f"group {group.name!r:.80} was deleted meanwhile, and made again")
        limit = self.hosted.limits.group_members
        if len(group.core.members) >= limit and member.holder not in group.core.members:
            excess = f"{len(group.core.members)} members, the limit is limits.group_members={limit}"
            raise Refused("limit", excess)
        if group.failure:
            holding = ()
        try:
            with guarded(self, group, "join"):
                return self._join(group, member, owner, holding)
        except Exception:  # whatever it is, the session has no member
            if (other := group.core.members.get(member.holder)) is not None:
                group.core.leave(other, blame=False)  # it has nothing any more
            raise

    def _join(
        self, group: WorkGroup, member: StreamMember, owner: str, holding: Iterable[tuple[int, int, int]]
    ) -> list[tuple[int, int, int, int]]:
        core = group.core
        before = core.members.get(member.holder)
        named = {token: (epoch, position) for epoch, position, token in holding}
        if before is not None:
            for delivery in reversed([*before.out.values()]):
                if delivery.token not in named and delivery.token in core.out:
                    core.give_back(delivery)
        member.owner = owner
        if owner:  # else it is a request, which has no session that could end
            self._members.setdefault(owner, {})[group.name, member.holder] = (group, member)
        core.join(member)
        group.awaited.discard(owner)
        kept: list[tuple[int, int, int, int]] = []
        for token, at in sorted(named.items(), key=lambda pair: pair[1]):
            mine = member.out.get(token) or core.adopt(at, token, member)
            if mine is not None and mine.item.at == at:
                kept.append((*at, token, mine.token))
                self.took(group, mine)
        self._dirty[group] = None
        return kept

    @fenced
    def heard(self, group: WorkGroup, member: GroupMember) -> None:
        """Notes that a member says something, so that it gets items again."""
        if member.is_quiet:
            group.core.heard(member)
            self._dirty[group] = None

    def forget(self, owner: str, stream: int) -> None:
        """Removes the member that a stream of a session was, if there is one."""
        for group, member in list(self._members.get(owner, {}).values()):
            if member.holder == (owner, stream):
                self.leave(group, member)
        self.deliver()

    def leave(self, group: WorkGroup, member: StreamMember, *, blame: bool = False) -> None:
        """Removes a member, and hands what it had to others."""
        try:
            self._leave(group, member, blame=blame)
        except Exception as error:  # noqa: BLE001  # as ``StepFence``: the end of a session goes on
            stop(self, group, "leave", error)
            group.core.leave(member, blame=False)  # of the core that was made anew, where it has nothing
        self._members.get(member.owner, {}).pop((group.name, member.holder), None)

    def _leave(self, group: WorkGroup, member: StreamMember, *, blame: bool) -> None:
        failed = group.core.leave(member, blame=blame)
        for delivery in failed:
            if delivery.token in group.core.out:
                group.core.counts.ended += 1
                self._fail(group, delivery, reason="ended")
        self._dirty[group] = None

    def session_ended(self, owner: str, *, blame: bool) -> None:
        """Removes the members of a session that has ended; raises nothing."""
        try:
            self._end_session(owner, blame=blame)
        except Exception as error:  # noqa: BLE001  # a fence: the session ends whatever its groups do
            self._unended[owner] = blame
            self.defect(error)
            self.wake()
        self.deliver()

    def _end_session(self, owner: str, *, blame: bool) -> None:
        for group, member in list(self._members.get(owner, {}).values()):
            self.leave(group, member, blame=blame)
        self._members.pop(owner, None)
        self.awaited.expect_no_more(owner)

    @fenced
    def took(self, group: WorkGroup, delivery: JobDelivery) -> None:
        """Notes that the program of a member has taken an item, or wants more time for it."""
        delivery.deadline = deadline = trio.current_time() + group.options.ack_within
        taken = group.core.taken
        taken.pop(delivery.token, None)
        taken[delivery.token] = delivery
        if deadline < self._planned:
            self._alarm.set()

    @fenced
    def shorten(self, group: WorkGroup) -> None:
        """Caps the deadline of every outstanding job at now + ``ack_within``."""
        latest = trio.current_time() + group.options.ack_within
        for delivery in group.core.taken.values():
            delivery.deadline = min(delivery.deadline, latest)
        self._alarm.set()
