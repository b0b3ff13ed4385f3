"""A shared queue: the changes that wait for all observers of one pattern, once.

Each member has a position in the queue and takes from there at its own speed; what all have taken is deleted.
So an epoch is queued and counted once however many observe its pattern, and what one more of them costs is
what its own bytes cost to send.  The last piece that was cut for a member is kept as it is sent, since the
next one usually stands at the same place.

A member for which more waits than the bounds allow must leave: it gets what waits for it and a queue of its
own (``relay/delivery/backlog.py``), where its policy says what happens.  Until that is empty it is *apart*:
each epoch is offered to it alone.

Always: a position is between the oldest change that waits and the end; the oldest waits for some member; no
more than the bounds waits for a member that is not apart, except one epoch; a member that has taken all is
woken by the next change, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from dataspace.kernel.actions import MORE
from dataspace.kernel.changes import PART, Changes
from dataspace.kernel.interests import tell_each
from relay.delivery.backlog import BYTE_LIMIT, LIMIT, MESSAGE_LIMIT, PART_BYTES
from relay.delivery.memory import OVERHEAD, MemoryBudget


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may wait for one observer: changes, messages among them, and bytes."""

    changes: int = LIMIT
    messages: int = MESSAGE_LIMIT
    bytes: int = BYTE_LIMIT


class Member(Protocol):
    """One observer in a shared queue."""

    position: int
    """How many values of the queue it has passed."""

    def wake(self) -> None:
        """Called when something waits again."""

    def leave(self, waiting: Sequence[Changes], changes: Changes) -> None:
        """Called when ``changes`` would be too much beside what waits: takes both over, and is apart."""

    def offer(self, changes: Changes) -> None:
        """Takes one epoch while it is apart."""


class SharedQueue:
    """The changes of one pattern that wait for its observers; an ``Observer`` of the space."""

    __slots__ = (
        "_apart",
        "_behind",
        "_bounds",
        "_bytes",
        "_eager",
        "_idle",
        "_messages",
        "_piece",
        "_room",
        "_size",
        "_values",
        "end",
        "first",
        "newest",
    )

    def __init__(self, room: MemoryBudget, bounds: Bounds) -> None:
        self._room = room
        self._bounds = bounds
        self._values = _NO_VALUES
        self.first = self.end = 0
        """The positions of the oldest value that waits and of the next one to come."""
        self.newest = 0
        """The newest epoch that was taken in."""
        self._size = self._bytes = self._messages = 0
        self._idle: dict[Member, None] = {}
        self._behind = _NONE_BEHIND
        self._apart: dict[Member, None] | None = None
        self._eager: dict[Member, None] | None = None
        self._piece: _Piece | None = None

    def __len__(self) -> int:
        """Returns the number of members; O(members that stand at different positions)."""
        behind = sum([len(each) for each in self._behind.values()])
        return len(self._idle) + behind + (0 if self._apart is None else len(self._apart))

    @property
    def is_empty(self) -> bool:
        """True if there is no member."""
        return not (self._idle or self._behind or self._apart)

    # -- members --------------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Takes in a member, or one back that was apart, for which the next epoch is the first to wait."""
        if self._apart is not None:
            self._apart.pop(member, None)
            if not self._apart:
                self._apart = None
        member.position = self.end
        self._idle[member] = None

    def join_apart(self, member: Member) -> None:
        """Takes in a member to which each epoch is offered alone."""
        if self._apart is None:
            self._apart = {}
        self._apart[member] = None

    def part(self, member: Member) -> Sequence[Changes]:
        """Lets a member be apart from now on; returns what waits for it."""
        waiting = self._values[member.position - self.first :]
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
            del self._idle[member]
        else:
            self._move_from(member)
            if self.first not in self._behind:
                self._delete_passed()
        if self._eager is not None:
            self._eager.pop(member, None)

    # -- what comes -----------------------------------------------------------------------------------

    def offer(self, changes: Changes) -> None:
        """Queues one epoch for all members; O(members that have taken all, or are apart)."""
        if self._apart is None:
            self._take_in(changes)
        else:
            tell_each([self._take_in, *[each.offer for each in self._apart]], changes)

    def _take_in(self, changes: Changes) -> None:
        if self._size and self._is_beyond(changes, self._size, self._bytes, self._messages):
            self._shed(changes)
        if self._idle or self._behind:
            self._append(changes)
        self.newest = changes.number

    def _is_beyond(self, changes: Changes, size: int, length: int, messages: int) -> bool:
        """True if one more epoch beside so much is more than may wait for a member."""
        bounds = self._bounds
        return (
            size + changes.size > bounds.changes
            or length + len(changes._packed or changes.packed) > bounds.bytes  # saves a call
            or self._room.denies(size * OVERHEAD + length)
            or (bool(changes.messages) and messages + len(changes.messages) > bounds.messages)
        )

    def _append(self, changes: Changes) -> None:
        length = len(changes._packed or changes.packed)  # first: what cannot be packed must not wait
        size, before = changes.size, self.end
        if size > PART or (length > PART_BYTES and size > 1):
            values = _pieces(changes)
            length = sum([len(each.packed) for each in values])
            self._values = [*self._values, *values]
            self.end += len(values)
        elif self._values:
            self._values.append(changes)
            self.end += 1
        else:
            self._values = [changes]
            self.end += 1
        self._count(size, length, len(changes.messages))
        if self._idle:
            idle, self._idle = self._idle, {}
            if self._behind:
                self._behind[before] = idle
            else:
                self._behind = {before: idle}
            _wake(idle)
        if self._eager is not None:
            eager, self._eager = self._eager, None
            _wake(eager)

    def _count(self, size: int, length: int, messages: int) -> None:
        self._size += size
        self._bytes += length
        self._messages += messages
        self._room.used += size * OVERHEAD + length

    def _shed(self, changes: Changes) -> None:
        """Has those members leave for which these changes would be too much."""
        size, length, messages = self._size, self._bytes, self._messages
        cut = self.first
        for each in self._values:
            cut += 1
            size -= each.size
            length -= len(each.packed)
            messages -= len(each.messages)
            if cut == self.end or not self._is_beyond(changes, size, length, messages):
                break
        leaving: list[Callable[[Changes], None]] = []
        for position in [each for each in self._behind if each < cut]:
            waiting = self._values[position - self.first :]
            for member in self._behind.pop(position):
                self.join_apart(member)
                leaving.append(partial(member.leave, waiting))
        self._delete_passed()
        tell_each(leaving, changes)

    # -- what goes ------------------------------------------------------------------------------------

    def take(self, member: Member, count: int, size: int) -> tuple[int, bytes, bool]:
        """Returns how many values a member takes, their wire form, and whether the last epoch goes on.

        They are up to ``count``, and about ``size`` bytes: the last may go beyond.
        """
        position = member.position
        if position == self.end:
            return 0, b"", False
        if count <= 0 or size <= 0:
            self._wake_next_time(member)
            return 0, b"", False
        here, piece = self._behind[position], self._piece
        if piece is None or piece.position != position or not piece.suits(count, size, self.end):
            piece = self._cut(position, count, size, piece)
            if len(here) > 1:
                self._piece = piece
        self._move(member, here, position + piece.count)
        return piece.count, piece.packed, piece.goes_on

    def used(self, member: Member) -> int:
        """Returns about how many bytes of memory the changes take that wait for a member; O(those)."""
        waiting = self._values[member.position - self.first :]
        return sum([each.size * OVERHEAD + len(each.packed) for each in waiting])

    def _wake_next_time(self, member: Member) -> None:
        if self._eager is None:
            self._eager = {}
        self._eager[member] = None

    def _cut(self, position: int, count: int, size: int, last: _Piece | None) -> _Piece:
        """Returns what a member at a position takes: the ``last`` piece with what has come since, if it
        may."""
        start = position - self.first
        if position + 1 == self.end or count == 1:
            only = self._values[start]
            return _Piece(position, 1, only.packed, 0, bool(only.flags & MORE))
        taken: list[bytes] = []
        known = before = 0
        if last is not None and last.position == position and last.is_within(count, size):
            taken, known, before = [last.packed], last.count, len(last.packed)
        end = start + known
        for each in self._values[start + known : start + count]:
            packed = each._packed or each.packed
            taken.append(packed)
            end += 1
            if before + len(packed) >= size:
                break
            before += len(packed)
        else:
            before -= len(packed)
        goes_on = bool(self._values[end - 1].flags & MORE)
        return _Piece(position, end - start, b"".join(taken), before, goes_on)

    def _move(self, member: Member, here: dict[Member, None], position: int) -> None:
        """Moves a member on, and deletes what it was the last one to pass."""
        was, member.position = member.position, position
        is_last = len(here) == 1
        if is_last:
            del self._behind[was]
        else:
            del here[member]
        if position == self.end:
            there = self._idle
        else:
            there = self._behind.setdefault(position, {})
        if is_last and position == self.end and not there:
            self._idle = here  # spares two changes of tables, where there is only one member
        else:
            there[member] = None
        if is_last and was == self.first:
            self._delete_passed()

    def _move_from(self, member: Member) -> None:
        here = self._behind[member.position]
        del here[member]
        if not here:
            del self._behind[member.position]

    def _delete_passed(self) -> None:
        """Deletes what no member has yet to take; O(that)."""
        if not self._behind:
            self.first = self.end
            self._values, self._behind, self._piece = _NO_VALUES, _NONE_BEHIND, None
            self._count(-self._size, -self._bytes, -self._messages)
            return
        before, self.first = self.first, min(self._behind)
        gone = self._values[: self.first - before]
        del self._values[: self.first - before]
        messages = sum([len(each.messages) for each in gone])
        length = sum([len(each._packed or each.packed) for each in gone])
        self._count(-sum([each.size for each in gone]), -length, -messages)


_NO_VALUES: Final[list[Changes]] = []
_NONE_BEHIND: Final[dict[int, dict[Member, None]]] = {}
"""What a queue has while nothing waits in it, and most queues are like that; never changed."""


class _Piece:
    """Values in a row as they are sent, to whichever member stands before them."""

    __slots__ = ("before_last", "count", "goes_on", "packed", "position")

    def __init__(self, position: int, count: int, packed: bytes, before_last: int, goes_on: bool) -> None:
        self.position = position
        self.count = count
        self.packed = packed
        self.before_last = before_last
        """Bytes of all values but the last."""
        self.goes_on = goes_on
        """True if the epoch of the last value goes on in the next one."""

    def is_within(self, count: int, size: int) -> bool:
        """True if a member that may take so many values of so many bytes takes these and a further one."""
        return self.count < count and len(self.packed) < size

    def suits(self, count: int, size: int, end: int) -> bool:
        """True if a member that may take so many values of so many bytes would take just these."""
        if self.count > count or self.before_last >= size:
            return False
        return self.count == count or len(self.packed) >= size or self.position + self.count == end


def _wake(members: Iterable[Member]) -> None:
    """Wakes each; what one of them raises is raised once all were woken."""
    try:
        for member in members:
            member.wake()
    except BaseException:
        tell_each([member.wake for member in members])
        raise


def _pieces(changes: Changes) -> Sequence[Changes]:
    """Returns the values in which one epoch is sent: none is too large, unless one change alone is."""
    values: list[Changes] = []
    for part in changes.parts():
        if len(part.packed) > PART_BYTES and part.size > 1:
            for each in part.parts(max(1, part.size * PART_BYTES // len(part.packed))):
                values += _pieces(each)
        else:
            values.append(part)
    return values
