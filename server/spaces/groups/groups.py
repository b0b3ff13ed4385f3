"""The groups of a space: their items, their members, and the ends of their deliveries.

A group is a fact of the owner ``group:NAME``, which no client can be (``definitions.py``).  It takes the
items of an epoch once that is on disk.  A group that has too many undone items stops, and reads on from the
log later (``reading.py``).  Members are streams of sessions, served by ``server/groups``.

Always: what the log says of a group is noted before anything depends on it: with the turn for items that are
done in a turn, in the order of turns for all others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, cast

import trio

from dataspace.errors import Closed, DeliveryLost, Refused
from dataspace.kernel.actions import ASSERT
from index.values.values import Map, Record
from relay.following.following import Following
from relay.groups.core import Cell
from relay.groups.members import GroupCounts, GroupMember, JobDelivery
from relay.groups.state import AGAIN, DONE, END, At, GroupStates, done_fields
from relay.log.notes import Note, of_group
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed
from server.config.rights import Permit
from server.lane import input_handled
from server.owners.accounts import Account
from server.spaces.groups.dead import bury
from server.spaces.groups.feeding import Feeding
from server.spaces.groups.group import (
    OWNER,
    GroupSpace,
    GroupTopics,
    Settled,
    StreamMember,
    WorkGroup,
    defines,
    group_of,
    place_of,
)

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

DEAD_SECONDS: Final = 30.0
"""Seconds that an item waits whose dead letter could not be written."""

Done: TypeAlias = "Sequence[tuple[str, tuple[int, ...]]]"
"""Groups with epoch, position and token of each delivery, as a turn has them."""


class SpaceGroups:
    """The groups of one space, while it is led."""

    def __init__(self, hosted: GroupSpace) -> None:
        self.hosted = hosted
        self.by_name: dict[str, WorkGroup] = {}
        self.states = GroupStates()
        self._placed: dict[Hashable, list[WorkGroup]] = {}
        """Groups by the class of their values."""
        self._dirty: dict[WorkGroup, None] = {}
        self.feeding = Feeding(self.by_name, self._placed, self.touched, self.fall_behind)
        self._quiet: deque[tuple[WorkGroup, GroupMember]] = deque()
        """Members with a passed deadline, until they have no untaken deliveries."""
        self._planned = float("inf")
        """When ``run`` wakes next."""
        self._members: dict[str, dict[Hashable, tuple[WorkGroup, StreamMember]]] = {}
        """The members of each session, by its owner."""
        self._alarm = trio.Event()
        self._due: int = NEVER
        """When the next postponed item is due for which ``run`` wakes, in microseconds since 1970."""
        self.behind = trio.Event()
        """Set when a group may read on from the log."""
        self.topics: GroupTopics
        """The durable topics of the daemon."""
        self.of_topics: list[WorkGroup] = []
        """The groups that divide one."""
        self.topics_moved = trio.Event()
        """Set when a group may read on from its topic."""
        self.moved = trio.lowlevel.ParkingLot()
        """Where tasks wait until a group has read more."""
        self._opens = 0.0
        self.past = GroupCounts()
        """What groups have counted that were deleted."""
        self.accounts: dict[str, Account] = {}
        """The account of the maker of each group, for groups made since the start."""
        self.making = trio.Lock()
        """Held while a group is made, moved or deleted."""

    @property
    def noted(self) -> GroupStates:
        """The groups as the log says that they are, also of a space that is followed."""
        commits = self.hosted.commits
        return commits.state.groups if isinstance(commits, Following) else self.states

    # -- life -----------------------------------------------------------------------------------------

    def lead(self, states: GroupStates, *, was_clean: bool) -> None:
        """Takes up the groups of the log, whose state that is; connections come later."""
        self.states = states
        for group in self.by_name.values():
            group.core.close()
        self.feeding.lead(states)
        self._quiet.clear()
        self.by_name.clear()
        self.of_topics.clear()
        self._placed.clear()
        self._members.clear()
        for name, state in states.items():
            state.is_live = False
            found = [each for each in self.hosted.space.claims(OWNER + name).values() if defines(each, name)]
            if not found:
                logger.error(
                    "group %r has no definition in space %s: it hands out nothing", name, self.hosted.name
                )
                continue
            self.add(group_of(state, found[0], self.hosted))
        if self.by_name and not was_clean:
            self._opens = trio.current_time() + SETTLE_SECONDS

    def add(self, group: WorkGroup) -> None:
        """Adds a group, which reads from the log first, or from its topic."""
        self.by_name[group.name] = group
        if group.options.topic:
            self.of_topics.append(group)
            self.topics_moved.set()
        else:
            self._placed.setdefault(place_of(group), []).append(group)
        if isinstance(self.hosted.commits, GroupCommit):
            self.hosted.commits.on_epoch = self.feeding.feed
        self.touched(group)
        self.behind.set()

    async def run(self) -> None:
        """Ends deliveries whose deadline is over, and hands out postponed items, until cancelled."""
        while True:
            self._alarm = trio.Event()
            now = trio.current_time()
            if self._has_late(now):
                await input_handled()  # the job may be done, or extended, in what waits in a socket
            self.tick(now)
            self.hosted.flush()
            self._due = min([due for g in self.by_name.values() if (due := g.core.next_due)], default=NEVER)
            self._planned = self._next_alarm()
            with trio.move_on_at(self._planned):
                await self._alarm.wait()

    def _next_alarm(self) -> float:
        now, wall = trio.current_time(), self.hosted.clock()
        times = [
            next(iter(taken.values())).deadline for g in self.by_name.values() if (taken := g.core.taken)
        ]
        if self._due < NEVER:
            times.append(now + (self._due - wall) / 1e6)
        if self._opens > now:
            times.append(self._opens)
        return min(times, default=float("inf"))

    def _has_late(self, now: float) -> bool:
        """True if the deadline of a delivery is over; O(groups)."""
        taken = [g.core.taken for g in self.by_name.values() if g.core.taken]
        return any(next(iter(each.values())).deadline <= now for each in taken)

    def tick(self, now: float | None = None) -> None:
        """Does what is due by then, or now; of deadlines at most ``EXPIRED``, and the others soon."""
        now, wall = trio.current_time() if now is None else now, self.hosted.clock()
        left = EXPIRED
        for group in self.by_name.values():
            taken = group.core.taken
            while left > 0 and taken and (delivery := next(iter(taken.values()))).deadline <= now:
                self._expire(group, delivery)
                left -= 1
        if self._take_back(left) <= 0:
            self._alarm.set()
        for group in self.by_name.values():
            if (due := group.core.next_due) is not None and due <= wall:
                group.core.come_due(wall)
                self._dirty[group] = None
        self.deliver()

    def deliver(self, first: WorkGroup | None = None) -> None:
        """Hands out what is ready in the groups in which something has changed, in ``first`` before others.

        Further deliveries than one step may hand out follow in turns of the lane.
        """
        self.feeding.renew()
        if not self._dirty or self._opens > trio.current_time():
            return
        dirty, self._dirty = self._dirty, {}
        left = HANDED if first is None else self._hand_out(first, HANDED)
        for group in dirty:
            left = self._hand_out(group, left)
        if self._dirty:
            self.feeding.more.set()

    def _hand_out(self, group: WorkGroup, left: int) -> int:
        """Hands out what is ready in a group, and costs no more than ``left``; returns what is left of that.

        Where nothing is left, the group is looked at again later.
        """
        if left > 0:
            for delivery in group.core.assign():
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
            gone, group.core.gone = group.core.gone, []
            self.note(of_group(DONE, done_fields(group.name, gone)))
        if not group.state.is_live and not group.is_full:
            (self.topics_moved if group.options.topic else self.behind).set()
        if (due := group.core.next_due) is not None and due < self._due:
            self._alarm.set()

    def note(self, note: Note) -> None:
        """Has the log note something, unless the daemon ends."""
        try:
            self.hosted.note(note)
        except (LogFailed, Closed):
            pass  # the daemon ends: the next one finds the items undone

    # -- items ----------------------------------------------------------------------------------------

    def fall_behind(self, group: WorkGroup, at: At) -> None:
        """Has a group read on from the log, from this item on."""
        state = group.state
        state.is_live = False
        state.read = max(state.read, (at[0], at[1] - 1) if at[1] else (at[0] - 1, END))
        group.forget_pending()
        group.pending_to = at[0] - 1
        if not group.is_full:
            self.behind.set()

    def go_live(self, group: WorkGroup) -> None:
        """Has a group take items as they come, since it has read everything on disk."""
        if self.feeding.is_over:  # else the others have not read all of that, and epochs come twice to this
            self.states.fed = max(self.states.fed, self.hosted.commits.durable)
        group.state.is_live = True

    def touched(self, group: WorkGroup) -> None:
        """Notes that a group may have something to hand out."""
        self._dirty[group] = None

    def is_touched(self, group: WorkGroup) -> bool:
        """True if a group may have something to hand out that was too much for one step."""
        return group in self._dirty

    def clear(self) -> None:
        """Counts no group any more, for any account: another daemon leads the space."""
        while self.accounts:
            self.accounts.popitem()[1].give("groups")

    # -- definition -----------------------------------------------------------------------------------

    def find(self, name: str) -> WorkGroup:
        """Returns a group; raises ``Refused`` if there is none of that name."""
        group = self.by_name.get(name)
        if group is None:
            raise Refused("no-group", f"there is no group {name!r:.80} in space {self.hosted.name!r}")
        return group

    def rest(self, group: WorkGroup) -> None:
        """Has a group take no items as they come."""
        group.state.is_live = False
        self._dirty.pop(group, None)

    def drop(self, group: WorkGroup) -> None:
        """Removes a group, and tells its members."""
        self.rest(group)
        if self.by_name.pop(group.name, None) is not None:
            self.past.add(group.core.counts)
            group.core.close()
            group.forget_pending()
            (self.of_topics if group.options.topic else self._placed[place_of(group)]).remove(group)
        if (account := self.accounts.pop(group.name, None)) is not None:
            account.give("groups")
        for member in list(group.core.members.values()):
            cast("StreamMember", member).mark(("ended",))

    # -- members --------------------------------------------------------------------------------------

    def join(
        self, group: WorkGroup, member: StreamMember, owner: str, holding: Iterable[tuple[int, int, int]]
    ) -> list[tuple[int, int, int, int]]:
        """Adds a member of a session; returns what it keeps: epoch, position, its old token and its token.

        What a member of the same holder had and does not name is given back.
        """
        core = group.core
        limit = self.hosted.limits.group_members
        if len(core.members) >= limit:
            raise Refused("limit", f"{len(core.members)} members, the limit is limits.group_members={limit}")
        before = core.members.get(member.holder)
        named = {token: (epoch, position) for epoch, position, token in holding}
        if before is not None:
            for delivery in reversed([*before.out.values()]):
                if delivery.token not in named and delivery.token in core.out:
                    core.give_back(delivery)
        core.join(member)
        self._members.setdefault(owner, {})[group.name, member.holder] = (group, member)
        kept: list[tuple[int, int, int, int]] = []
        for token, at in sorted(named.items(), key=lambda each: each[1]):
            mine = member.out.get(token) or core.adopt(at, token, member)
            if mine is not None and mine.item.at == at:
                kept.append((*at, token, mine.token))
                self.took(group, mine)
        self._dirty[group] = None
        return kept

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

    async def wait_read(self, group: WorkGroup, at: At) -> None:
        """Waits until a group has read an item, cannot read it, or a second is over."""
        with trio.move_on_after(SETTLE_SECONDS):
            while not (group.state.is_live or group.is_full or group.state.read >= at):
                await self.moved.park()

    def leave(self, group: WorkGroup, member: StreamMember, *, blame: bool = False) -> None:
        """Removes a member, and hands what it had to others."""
        for of_session in self._members.values():
            of_session.pop((group.name, member.holder), None)
        failed = group.core.leave(member, blame=blame)
        for delivery in failed:
            if delivery.token in group.core.out:
                group.core.counts.ended += 1
                self.fail(group, delivery, reason="ended")
        self._dirty[group] = None

    def session_ended(self, owner: str, *, blame: bool) -> None:
        """Removes the members of a session that has ended."""
        for group, member in list(self._members.pop(owner, {}).values()):
            self.leave(group, member, blame=blame)
        self.deliver()

    def took(self, group: WorkGroup, delivery: JobDelivery) -> None:
        """Notes that the program of a member has taken an item, or wants more time for it."""
        delivery.deadline = deadline = trio.current_time() + group.options.ack_within
        taken = group.core.taken
        taken.pop(delivery.token, None)
        taken[delivery.token] = delivery
        if deadline < self._planned:
            self._alarm.set()

    def shorten(self, group: WorkGroup) -> None:
        """Lets no job that is out have more time than if it was taken now; the order of deadlines stays."""
        latest = trio.current_time() + group.options.ack_within
        for delivery in group.core.taken.values():
            delivery.deadline = min(delivery.deadline, latest)
        self._alarm.set()

    # -- ends of deliveries ---------------------------------------------------------------------------

    def reported(self, done: Done, permit: Permit, principal: object) -> list[Settled]:
        """Returns the same as ``judge``; raises ``Refused`` for a group that the bearer may not use."""
        for name, _ in done:
            permit.check_group(name)
        return self.judge(done, principal)

    def judge(self, done: Done, principal: object) -> list[Settled]:
        """Returns the items that a turn reports as done; raises ``Refused``, with the lost items, for all.

        Nothing may come between this and the commit of the turn.
        """
        settled: list[Settled] = []
        for name, flat in done:
            group = self.find(name)
            cells: list[Cell] = [
                ((epoch, position), token)
                for epoch, position, token in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            ]
            lost = group.core.judge(cells, principal)
            if lost:
                raise _lost(name, lost)
            at = tuple([each for each, _ in cells])
            undone = group.state.undone
            settled.append(Settled(group, at, tuple([undone[each] for each in at if each in undone])))
        if len({each.group.name for each in settled}) < len(settled):
            raise Refused("bad-request", "a group stands twice in a turn: put its deliveries together")
        return settled

    def notes(self, settled: Sequence[Settled]) -> list[Note]:
        """Returns the notes that a turn with these items needs."""
        return [of_group(DONE, done_fields(each.group.name, each.at)) for each in settled]

    def settled(self, settled: Sequence[Settled]) -> None:
        """Frees the credit of the members, once the turn is committed."""
        for each in settled:
            for item in each.items:
                delivery = each.group.core.out.get(item.token)
                if delivery is not None:
                    each.group.core.heard(delivery.member)
                each.group.core.finished(item)
            self._dirty[each.group] = None
        self.deliver()

    def _expire(self, group: WorkGroup, delivery: JobDelivery) -> None:
        """Ends a delivery whose deadline is over, and soon what its member has not taken yet."""
        member, core = delivery.member, group.core
        core.counts.expired += 1
        self.fail(group, delivery, reason="expired")
        if not member.is_quiet:
            member.is_quiet = True
            self._quiet.append((group, member))

    def _take_back(self, left: int) -> int:
        """Takes back what quiet members have not taken, at most ``left`` deliveries; returns what is left.

        A member that says something meanwhile keeps the rest.
        """
        while self._quiet and left > 0:
            group, member = self._quiet[0]
            untaken = next((each for each in reversed(member.out.values()) if not each.is_taken), None)
            is_over = not member.is_quiet or self.by_name.get(group.name) is not group
            if is_over or untaken is None or untaken.token not in group.core.out:
                self._quiet.popleft()
                continue
            self.revoke([untaken, *group.core.give_back(untaken)])
            self._dirty[group] = None
            left -= 1
        return left

    def fail(
        self,
        group: WorkGroup,
        delivery: JobDelivery,
        *,
        reason: str,
        after: float = 0.0,
        blame: bool = True,
        tells: bool = True,
    ) -> None:
        """Ends a delivery that is not done: its item comes again, or becomes a dead letter.

        Its member is told, unless it does this itself.
        """
        item, core = delivery.item, group.core
        due = core.fails(delivery, self.hosted.clock(), after=after, blame=blame)
        if due is None and bury(self.hosted, group, item, reason):
            self._dirty[group] = None
            self.revoke([delivery] if tells else [])
            return
        if due is None:
            due = self.hosted.clock() + round(DEAD_SECONDS * 1e6)
        later = core.give_back(delivery, due=due)
        self.revoke([delivery, *later] if tells else later)
        if blame or due:
            self.note(of_group(AGAIN, (group.name, *item.at, item.attempts, due)))
        if due:
            self._alarm.set()
        self._dirty[group] = None

    def bury(self, group: WorkGroup, delivery: JobDelivery, reason: str) -> None:
        """Makes an item a dead letter at once."""
        if bury(self.hosted, group, delivery.item, reason):
            self._dirty[group] = None
        else:
            self.fail(group, delivery, reason=reason, after=DEAD_SECONDS, blame=False, tells=False)

    def lost(self, group: WorkGroup, first: int, last: int) -> None:
        """States that epochs were deleted before the group had read them, and tells its members."""
        hosted, owner = self.hosted, OWNER + group.name
        group.core.counts.lost += last - first + 1
        fact = Record("group_lost", group.name, first, last, hosted.clock())
        with suppress(Refused, LogFailed, Closed):  # it is in the daemon's log as well
            hosted.commit(owner, [(ASSERT, hosted.space.fresh_handle(owner), fact)])
        for member in group.core.members.values():
            if not member.is_ending:
                cast("StreamMember", member).mark(("lost", first, last))

    def revoke(self, deliveries: Iterable[JobDelivery]) -> None:
        """Tells members that deliveries are no longer theirs."""
        for each in deliveries:
            if not each.member.is_ending:
                cast("StreamMember", each.member).mark(("revoked", each.token))


def _lost(group: str, lost: Sequence[At]) -> DeliveryLost:
    named = ", ".join([f"{epoch}.{position}" for epoch, position in lost[:8]])
    text = f"group {group!r}: {named} is done, or is out to another member"
    return DeliveryLost("not-yours", text, found=Map({"group": group, "lost": tuple(lost)}))
