"""A shared queue: the changes that wait for all observers of one pattern, once.

Each member has a position in the queue and takes from there at its own speed; what all have taken is deleted.
So an epoch is queued and counted once however many observe its pattern, and a further observer costs only the
sending of its own bytes.

A member for which more waits than the bounds allow must leave: it gets what waits for it and a queue of its
own (``relay/delivery/backlog.py``), where its policy says what happens.  Until that is empty it is *apart*:
each epoch is offered to it alone.

Always: a position is between the oldest change that waits and the end; the oldest waits for some member; no
more than the bounds waits for a member that is not apart, except one epoch; a member that has taken all is
woken by the next change, once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

from dataspace.kernel.actions import MORE
from dataspace.kernel.changes import PART, Changes
from dataspace.kernel.interests import tell_each
from relay.delivery.backlog import BYTE_LIMIT, LIMIT, MESSAGE_LIMIT
from relay.delivery.gate import DurableGate
from relay.delivery.memory import LEAST, OVERHEAD, MemoryBudget
from relay.delivery.net_changes import net_of
from relay.delivery.packed import PART_BYTES, PackedChanges, pieces


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Bounds of one observer's waiting values: changes, messages among them, and bytes."""

    changes: int = LIMIT
    messages: int = MESSAGE_LIMIT
    bytes: int = BYTE_LIMIT


class Member(Protocol):
    """One observer in a shared queue."""

    position: int
    """How many values of the queue it has passed."""

    def wake(self) -> None:
        """Called when something waits again."""

    def leave(self, waiting: Sequence[PackedChanges], changes: Changes) -> None:
        """Called when ``changes`` would be too much beside what waits: takes both over, and is apart."""

    def offer(self, changes: Changes) -> None:
        """Takes one epoch while it is apart."""


Members: TypeAlias = tuple[Member, ...] | dict[Member, None]
"""Members at one place: a tuple of one, as for most patterns, takes a quarter of a table."""


class SharedQueue:
    """The changes of one pattern that wait for its observers; an ``Observer`` of the space."""

    __slots__ = (
        "_apart",
        "_behind",
        "_bounds",
        "_eager",
        "_idle",
        "_budget",
        "_waiting",
        "end",
        "first",
        "gate",
        "newest",
    )

    def __init__(self, budget: MemoryBudget, bounds: QueueBounds) -> None:
        self._budget = budget
        self._bounds = bounds
        self._waiting: _Waiting | None = None
        """What waits; None while nothing does, as in most queues most of the time."""
        self.first = self.end = 0
        """The positions of the oldest value that waits and of the next one to come."""
        self.newest = 0
        """The newest epoch that was taken in."""
        self._idle: Members = ()
        self._behind = _NONE_BEHIND
        self._apart: dict[Member, None] | None = None
        self.gate: DurableGate | None = None
        """Where the changes wait until their epoch is on disk, if it is closed."""
        self._eager: dict[Member, None] | None = None

    def __len__(self) -> int:
        """Returns the number of members; O(members that stand at different positions)."""
        behind = sum([len(each) for each in self._behind.values()])
        return len(self._idle) + behind + (0 if self._apart is None else len(self._apart))

    @property
    def is_empty(self) -> bool:
        """True if there is no member."""
        return not (self._idle or self._behind or self._apart)

    @property
    def following(self) -> int:
        """The number of members that have a position in the queue; O(positions)."""
        return len(self._idle) + sum([len(each) for each in self._behind.values()])

    def waiting_for(self, position: int) -> int:
        """Returns how many members have yet to take the value at a position; O(positions)."""
        return sum([len(each) for at, each in self._behind.items() if at <= position])

    def oldest(self, member: Member) -> tuple[int, int] | None:
        """Returns the first epoch and the time of the oldest value that waits for a member that is not apart;
        None if nothing does."""
        if self._waiting is None or member.position >= self.end:
            return None
        head = self._waiting.heads[member.position - self.first]
        return head[2], head[1]

    # -- members --------------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Takes in a member, or one back that was apart, for which the next epoch is the first to wait."""
        if self._apart is not None:
            self._apart.pop(member, None)
            if not self._apart:
                self._apart = None
        member.position = self.end
        self._idle = _with(self._idle, member)

    def join_apart(self, member: Member) -> None:
        """Takes in a member to which each epoch is offered alone."""
        if self._apart is None:
            self._apart = {}
        self._apart[member] = None

    def part(self, member: Member) -> Sequence[PackedChanges]:
        """Sets a member apart; returns a copy of the changes that wait for it."""
        waiting = () if self._waiting is None else self._waiting.packed_from(member.position - self.first)
        self._remove(member)
        self.join_apart(member)
        return waiting

    def remove(self, member: Member) -> None:
        """Takes out a member, wherever it stands."""
        if self._apart is not None and member in self._apart:
            del self._apart[member]
        else:
            self._remove(member)

    def _remove(self, member: Member) -> None:
        if member in self._idle:
            self._idle = _without(self._idle, member)
        else:
            self._move_from(member)
            if self.first not in self._behind:
                self._delete_passed()
        if self._eager is not None:
            self._eager.pop(member, None)

    # -- what comes -----------------------------------------------------------------------------------

    def offer(self, changes: Changes) -> None:
        """Queues one epoch for all members, when the gate lets it pass; O(members that have taken all, or are
        apart)."""
        if self.gate is not None and self.gate.closed:
            self.gate.offer_when_durable(self.offer, changes)
        elif self._apart is None:
            self._take_in(changes)
        else:
            tell_each([self._take_in, *[each.offer for each in self._apart]], changes)

    def _take_in(self, changes: Changes) -> None:
        if self._idle or self._behind:
            # First, since what cannot be packed must not wait.
            packed = changes.pack() if self._apart is None else changes.packed
            waiting, bounds, budget = self._waiting, self._bounds, self._budget
            # as ``_is_beyond``, which decides where this may be too much
            if budget.used + len(packed) > budget.limit or (
                waiting is not None
                and (
                    waiting.size + changes.size > bounds.changes
                    or len(waiting.wire) + len(packed) > bounds.bytes
                    or changes.messages
                )
            ):
                self._shed(changes, len(packed))
            if self._idle or self._behind:
                self._append(changes, packed)
        self.newest = changes.number

    def _is_beyond(self, changes: Changes, more: int, at: int, size: int, messages: int) -> bool:
        """True if one epoch, of ``more`` bytes, is too much beside what waits from a place on.

        There are so many changes, and messages among them.  One epoch alone is not too much, whatever its
        size, unless no memory is left for it.
        """
        waiting, bounds = self._waiting, self._bounds
        if waiting is None or at == len(waiting.heads):
            return self._budget.denies(0, more)
        return (
            size + changes.size > bounds.changes
            or waiting.bytes_from(at) + more > bounds.bytes
            or self._budget.denies(waiting.used(at), more)
            or (bool(changes.messages) and messages + len(changes.messages) > bounds.messages)
        )

    def _append(self, changes: Changes, packed: bytes) -> None:
        size, length, before = changes.size, len(packed), self.end
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = _Waiting()
        count = 1
        if size > PART or (length > PART_BYTES and size > 1):
            values = pieces(changes)
            count, length = len(values), sum([len(each.packed) for each in values])
            for each in values:
                waiting.append_packed(each)
        else:
            waiting.append(changes, packed)
        self.end += count
        self._budget.used += count * OVERHEAD + length
        if self._idle:
            idle, self._idle = self._idle, ()
            if self._behind:
                self._behind[before] = idle
            else:
                self._behind = {before: idle}
            _wake(idle)
        if self._eager is not None:
            eager, self._eager = self._eager, None
            _wake(eager)

    def _shed(self, changes: Changes, more: int) -> None:
        """Sets apart the members whose bounds these changes, of ``more`` bytes, would exceed."""
        waiting = self._waiting
        count = at = size = messages = 0
        if waiting is not None:
            count, size, messages = len(waiting.heads), waiting.size, waiting.messages
        while self._is_beyond(changes, more, at, size, messages):
            at += 1
            if waiting is None or at > count:  # not even alone
                break
            head = waiting.heads[at - 1]
            size -= head[4]
            messages -= head[5]
        if not at:
            return
        cut = self.first + at
        leaving: list[Callable[[Changes], None]] = []
        for position in [each for each in self._behind if each < cut]:
            assert waiting is not None  # since members have yet to take it
            rest = waiting.packed_from(position - self.first)
            for member in self._behind.pop(position):
                self.join_apart(member)
                leaving.append(partial(member.leave, rest))
        if at > count:
            idle, self._idle = self._idle, ()
            for member in idle:
                self.join_apart(member)
                leaving.append(partial(member.leave, ()))
        self._delete_passed()
        tell_each(leaving, changes)

    # -- what goes ------------------------------------------------------------------------------------

    def take(self, member: Member, count: int, size: int) -> tuple[int, bytes, bool]:
        """Returns how many values a member takes, their wire form, and whether the last epoch goes on.

        They are up to ``count``, and about ``size`` bytes: the last may go beyond.
        """
        position = member.position
        waiting = self._waiting
        if waiting is None or position == self.end:
            return 0, b"", False
        if count <= 0 or size <= 0:
            self._wake_next_time(member)
            return 0, b"", False
        taken = waiting.cut(position - self.first, count, size)
        self._move(member, self._behind[position], position + taken[0])
        return taken

    def merged(self, member: Member) -> list[PackedChanges] | None:
        """Returns the net difference of what waits for a member, which is something; None if that is one
        epoch."""
        assert self._waiting is not None  # as something waits
        return self._waiting.merged(member.position - self.first)

    def take_all(self, member: Member) -> None:
        """Moves a member for which something waits on to the end."""
        self._move(member, self._behind[member.position], self.end)

    def used(self, member: Member) -> int:
        """Returns how many bytes of memory the changes take that wait for a member, at most; O(1)."""
        return 0 if self._waiting is None else self._waiting.used(member.position - self.first)

    def _wake_next_time(self, member: Member) -> None:
        if self._eager is None:
            self._eager = {}
        self._eager[member] = None

    def _move(self, member: Member, here: Members, position: int) -> None:
        """Moves a member on, and deletes what it was the last one to pass."""
        was, member.position = member.position, position
        is_last = len(here) == 1
        if is_last:
            del self._behind[was]
        elif isinstance(here, dict):  # as where there are several
            del here[member]
        there = self._idle if position == self.end else self._behind.get(position, ())
        if is_last and not there:
            there = here  # spares two changes of tables, where there is only one member
        else:
            there = _with(there, member)
        if position == self.end:
            self._idle = there
        else:
            self._behind[position] = there
        if is_last and was == self.first:
            self._delete_passed()

    def _move_from(self, member: Member) -> None:
        here = self._behind[member.position] = _without(self._behind[member.position], member)
        if not here:
            del self._behind[member.position]

    def _delete_passed(self) -> None:
        """Deletes what no member has yet to take; O(that)."""
        waiting = self._waiting
        if waiting is None:
            return
        if not self._behind:
            self.first = self.end
            self._budget.used -= waiting.used(0)
            self._waiting, self._behind = None, _NONE_BEHIND
            return
        before, self.first = self.first, min(self._behind)
        if self.first > before:
            used = waiting.used(0)
            waiting.drop(self.first - before)
            self._budget.used -= used - waiting.used(0)


def _with(members: Members, member: Member) -> Members:
    """Returns members with one more of them."""
    if isinstance(members, dict):
        members[member] = None
        return members
    return {members[0]: None, member: None} if members else (member,)


def _without(members: Members, member: Member) -> Members:
    """Returns members with one less of them."""
    if isinstance(members, dict):
        del members[member]
        return members
    return ()


_NONE_BEHIND: Final[dict[int, Members]] = {}
"""Where members stand while nothing waits, as in most queues most of the time; never changed."""


def _wake(members: Iterable[Member]) -> None:
    """Wakes each member; raises an error of a member once all were woken."""
    try:
        for member in members:
            member.wake()
    except BaseException:
        tell_each([member.wake for member in members])
        raise


# -- values in a row -------------------------------------------------------------------------------
#
# Values that wait for observers are kept as their wire form in one buffer. Observers stand at different
# places in it, and each takes from there as much as its credit allows: a part of the buffer, found by its end
# and copied in one step, however many values that is; observers that take the same part in a row share one
# copy. Beside the buffer there are a few numbers for each value: the rows themselves are not kept
# (``packed.py`` says why). The buffer holds the wire form of exactly these values, in their order; ``used``
# is at least the memory of all values, without the one copy, which is small.


_Head: TypeAlias = tuple[int, int, int, int, int, int]
"""The number, the time, the first epoch and the flags of a value; its changes, and the messages of these."""

_FLAGS: Final = 3
_SIZE: Final = 4
_MESSAGES: Final = 5


class _Waiting:
    """Values that wait, the oldest first; ``size`` counts their changes, and ``messages`` their messages.

    >>> waiting = _Waiting()
    >>> for number in range(3):
    ...     waiting.append(Changes(number, 0), b"<%d>" % number)
    >>> waiting.cut(1, 10, 100), waiting.cut(0, 10, 4), waiting.cut(0, 1, 100)
    ((2, b'<1><2>', False), (2, b'<0><1>', False), (1, b'<0>', False))
    """

    __slots__ = ("_begin", "_ends", "_last", "_merged", "heads", "messages", "size", "wire")

    def __init__(self) -> None:
        self.heads: list[_Head] = []
        self.size = self.messages = 0
        self.wire = bytearray()
        """The wire form of all waiting values; only to be looked at."""
        self._ends: list[
            int
        ] = []  # where each value ends, counted from the first that ever was in the buffer
        self._begin = 0  # where the buffer begins, so counted
        self._last = 0, 0, b""  # what was cut last, and where: the next one is often the same
        self._merged: tuple[int, int, list[PackedChanges]] | None = None  # what was merged last, and where

    def append(self, value: Changes, packed: bytes) -> None:
        """Takes in a value by its wire form; O(bytes)."""
        messages = len(value.messages) if value.messages else 0
        self._add((value.number, value.time, value.first, value.flags, value.size, messages), packed)

    def append_packed(self, value: PackedChanges) -> None:
        """The same for a packed value."""
        self._add(
            (value.number, value.time, value.first, value.flags, value.size, value.messages), value.packed
        )

    def _add(self, head: _Head, packed: bytes) -> None:
        self.heads.append(head)
        self.size += head[_SIZE]
        self.messages += head[_MESSAGES]
        self._merged = None
        wire = self.wire
        wire += packed
        self._ends.append(self._begin + len(wire))

    def cut(self, at: int, count: int, size: int) -> tuple[int, bytes, bool]:
        """Returns how many values are taken from a place on, their wire form, and whether the last epoch goes
        on.

        They are up to ``count``, and about ``size`` bytes: the last may go beyond.  O(bytes).
        """
        ends = self._ends
        begin = ends[at - 1] if at else self._begin
        stop = at + count
        if stop > len(ends):
            stop = len(ends)
        if ends[stop - 1] - begin > size:
            stop = bisect_left(ends, begin + size, at, stop) + 1
        end = ends[stop - 1]
        more = bool(self.heads[stop - 1][_FLAGS] & MORE)
        if self._last[0] != begin or self._last[1] != end:
            wire = bytes(memoryview(self.wire)[begin - self._begin : end - self._begin])
            if end - begin > LEAST:  # it is not counted, so it must be small to be kept
                return stop - at, wire, more
            self._last = begin, end, wire
        return stop - at, self._last[2], more

    def merged(self, at: int) -> list[PackedChanges] | None:
        """Returns the net difference of the values from a place on; None if they are one epoch.

        It is computed once for all observers at that place; O(bytes).
        """
        begin, end = self._ends[at - 1] if at else self._begin, self._ends[-1]
        known = self._merged
        if known is not None and known[0] == begin and known[1] == end:
            return known[2]
        if self.heads[at][0] == self.heads[-1][0]:
            return None
        changes = net_of(self.packed_from(at))
        self._merged = begin, end, changes
        return changes

    def packed_from(self, at: int) -> list[PackedChanges]:
        """Returns a copy of the values from a place on; O(bytes)."""
        values: list[PackedChanges] = []
        begin = (self._ends[at - 1] if at else self._begin) - self._begin
        for (number, time, first, flags, size, messages), until in zip(
            self.heads[at:], self._ends[at:], strict=True
        ):
            end = until - self._begin
            packed = bytes(memoryview(self.wire)[begin:end])
            values.append(PackedChanges(number, time, first, flags, size, messages, packed))
            begin = end
        return values

    def bytes_from(self, at: int) -> int:
        """Returns the bytes of the values from a place on."""
        begin = self._ends[at - 1] if at else self._begin
        return self._begin + len(self.wire) - begin

    def used(self, at: int) -> int:
        """Returns how many bytes of memory the values from a place on take, at most; O(1)."""
        return (len(self.heads) - at) * OVERHEAD + self.bytes_from(at)

    def drop(self, count: int) -> Sequence[_Head]:
        """Deletes the oldest values, but not all, and returns their heads; O(those)."""
        gone = self.heads[:count]
        begin = self._ends[count - 1]
        del self.heads[:count], self._ends[:count], self.wire[: begin - self._begin]
        if self.wire.__sizeof__() > 2 * len(self.wire) + LEAST:
            self.wire = bytearray(self.wire)  # what is deleted at the beginning would stay allocated
        self._begin = begin
        self.size -= sum([head[_SIZE] for head in gone])
        if self.messages:
            self.messages -= sum([head[_MESSAGES] for head in gone])
        return gone
