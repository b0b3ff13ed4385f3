"""Settling: the ends of deliveries, which are done, have failed, or become dead letters.

Always: what the log says of a group is noted before anything depends on it: with the turn for items that are
done in a turn, in the order of turns for all others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast

from dataspace.errors import Closed, DeliveryLost, Refused
from dataspace.kernel.actions import ASSERT
from index.values.values import Map, Record, Value
from relay.groups.core import Cell
from relay.groups.members import GroupMember, JobDelivery
from relay.groups.state import AGAIN, DONE, At, Item, done_fields, of_group
from relay.log.notes import Note
from relay.store.errors import LogFailed
from server.config.rights import Permit
from server.groups.space.dead import bury
from server.groups.space.failures import StepFence, fenced
from server.groups.space.group import OWNER, Settled, StreamMember, WorkGroup, check_disk
from server.groups.space.placing import FedGroups
from server.parts import Done, Report
from server.spaces.space import HostedSpace

DEAD_SECONDS: Final = 30.0
"""Seconds that an item waits whose dead letter could not be written."""


def check_source(permit: Permit, topic: str | None, pattern: Value) -> None:
    """Raises ``Refused`` for a bearer that may not have the items of a source, as far as that is named."""
    if topic:
        permit.check_topic("subscribe", topic)
    elif pattern is not None and not permit.open:
        permit.check_observe(pattern)


class SettledGroups(FedGroups):
    """Groups whose deliveries end."""

    def __init__(self, hosted: HostedSpace) -> None:
        super().__init__(hosted)
        self._quiet: deque[tuple[WorkGroup, GroupMember]] = deque()
        """Members with a passed deadline, until they have no untaken deliveries."""

    @abstractmethod
    def find(self, name: str) -> WorkGroup:
        """Returns a group; raises ``Refused`` if there is none of that name."""

    @abstractmethod
    def deliver(self, first: WorkGroup | None = None) -> None:
        """Hands out what is ready; raises nothing."""

    def note_gone(self, group: WorkGroup) -> None:
        """Notes in the log that items are done whose facts are gone."""
        self.queue_note(of_group(DONE, done_fields(group.name, group.core.gone)))
        group.core.gone = []

    def queue_note(self, note: Note) -> None:
        """Queues a note for the log, unless the daemon ends."""
        try:
            self.hosted.queue_note(note)
        except (LogFailed, Closed):
            pass  # the daemon ends: the next one finds the items undone

    def report(self, done: Done, permit: Permit, principal: object) -> Report:
        """Judges what a turn reports as done; raises ``Refused`` for a group that the bearer may not use.

        To report a job as done needs the rights that are needed to get it.
        """
        for name, _ in done:
            permit.check_group(name)
            group = self.find(name)
            check_source(permit, group.options.topic, group.pattern)
        if done:  # also where the turn only retracts, as else it would wait without an answer
            check_disk(self.hosted)
        settled = self.judge(done, principal)
        return Report(self.notes(settled), partial(self.settled, settled))

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
            self._finish(each.group, each.items)
        self.deliver()

    @fenced
    def _finish(self, group: WorkGroup, items: Sequence[Item]) -> None:
        """Frees the credit of items that the log has as done."""
        for item in items:
            delivery = group.core.out.get(item.token)
            if delivery is not None:
                group.core.heard(delivery.member)
            group.core.finished(item)
        self._dirty[group] = None

    def _expire(self, group: WorkGroup, delivery: JobDelivery) -> None:
        """Ends a delivery whose deadline is over, and soon what its member has not taken yet."""
        member, core = delivery.member, group.core
        core.counts.expired += 1
        self._fail(group, delivery, reason="expired")
        if not member.is_quiet:
            member.is_quiet = True
            self._quiet.append((group, member))

    def _take_back(self, left: int) -> int:
        """Takes back what quiet members have not taken, at most ``left`` deliveries; returns what is left.

        A member that says something meanwhile keeps the rest.
        """
        while self._quiet and left > 0:
            group, member = self._quiet[0]
            with StepFence(self, group, "take_back"):
                if self._takes_back(group, member):
                    left -= 1
                    continue
            self._quiet.popleft()
        return left

    def _takes_back(self, group: WorkGroup, member: GroupMember) -> bool:
        """Takes back the last delivery that a quiet member has not taken; returns False if there is none."""
        untaken = next((each for each in reversed(member.out.values()) if not each.is_taken), None)
        is_over = not member.is_quiet or self.by_name.get(group.name) is not group
        if is_over or untaken is None or untaken.token not in group.core.out:
            return False
        self.touched(group)
        self.revoke([untaken, *group.core.give_back(untaken)])
        return True

    @fenced
    def fail(
        self,
        group: WorkGroup,
        delivery: JobDelivery,
        *,
        reason: str,
        after: float = 0.0,
        blame: bool = True,
    ) -> None:
        """Ends a delivery that its member gives back: its item comes again, or becomes a dead letter."""
        self._fail(group, delivery, reason=reason, after=after, blame=blame, tells=False)

    def _fail(
        self,
        group: WorkGroup,
        delivery: JobDelivery,
        *,
        reason: str,
        after: float = 0.0,
        blame: bool = True,
        tells: bool = True,
    ) -> None:
        item, core = delivery.item, group.core
        due = core.fails(delivery, self.hosted.clock(), after=after, blame=blame)
        if due is None and bury(self.hosted, group, item, reason):
            self._dirty[group] = None
            self.revoke([delivery] if tells else [])
            return
        if due is None:
            due = self.hosted.clock() + round(DEAD_SECONDS * 1e6)
        later = core.give_back(delivery, due=due)
        if due:
            group.park(item)
        self.revoke([delivery, *later] if tells else later)
        if blame or due:
            self.queue_note(of_group(AGAIN, (group.name, *item.at, item.attempts, due)))
        if due:
            self.wake()
        self._dirty[group] = None

    @fenced
    def bury(self, group: WorkGroup, delivery: JobDelivery, reason: str) -> None:
        """Makes an item a dead letter at once."""
        if bury(self.hosted, group, delivery.item, reason):
            self._dirty[group] = None
        else:
            self._fail(group, delivery, reason=reason, after=DEAD_SECONDS, blame=False, tells=False)

    @fenced
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
