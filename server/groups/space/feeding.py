"""Feeding: items of new epochs go to the groups that take items as they come, and to members, in steps.

A turn of thousands of messages under hundreds of groups is millions of items.  Small epochs are offered in
the step in which they are on disk; the rest waits here for slices of the lane.  If too much waits, the groups
fall behind instead, and read from the log.

Always: the rows of epochs are offered in order, and each group gets each row once; all rows up to the epoch
``fed`` of the groups were offered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import trio

from dataspace.kernel.changes import ADDED, MESSAGE, REMOVED, Epoch
from index.values.positions import class_of
from index.values.values import Value
from relay.groups.memory import VALUE_FACTOR
from relay.groups.state import At, GroupStates, Item
from server.groups.space.group import ANY, StreamMember, WorkGroup

AT_ONCE: Final = 1_024
"""Rows times groups that are offered at once for the epochs of one flush, in about 3 ms."""

STEP: Final = 64
"""Rows times groups in one step of the lane."""

WAITING_BYTES: Final = 4 << 20
"""Bytes of epochs that may wait, packed; groups fall behind beyond that."""

ROW_BYTES: Final = 64
"""What a row counts there at least."""


class _Waiting(NamedTuple):
    """An epoch that waits to be offered, or its number alone if no group divides its rows."""

    number: int
    epoch: Epoch | None
    size: int
    counted: int


class Feeding:
    """The epochs of one space that are offered to its groups."""

    def __init__(
        self,
        groups: Mapping[str, WorkGroup],
        placed: Mapping[Hashable, Sequence[WorkGroup]],
        touched: Callable[[WorkGroup], None],
        fall_behind: Callable[[WorkGroup, At], None],
        stop: Callable[[WorkGroup, str, Exception], None],
        defect: Callable[[Exception], None],
    ) -> None:
        """``groups`` and ``placed`` are tables that change: the groups by name, and by the class of their
        values.  ``touched`` is called for a group that takes an item, ``fall_behind`` for a group that has
        to read from the log, from a row on.  ``stop`` is called for a group whose step has raised, and
        ``defect`` with an error that belongs to no group."""
        self._groups = groups
        self._placed = placed
        self._touched = touched
        self._has_fallen_behind = fall_behind
        self._stop = stop
        self._defect = defect
        self._states = GroupStates()
        self._waiting: deque[_Waiting] = deque()
        self._under_way: Iterator[int] | None = None
        """The rest of the first epoch that waits."""
        self._at = (0, 0)
        """The next row of that."""
        self._size = 0
        self._allowance = AT_ONCE
        self.more = trio.Event()
        """Set when something waits for a turn of the lane."""

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory the epochs take that wait."""
        return VALUE_FACTOR * self._size

    @property
    def is_over(self) -> bool:
        """True if no epoch waits."""
        return not self._waiting

    def lead(self, states: GroupStates) -> None:
        """Feeds groups of these states from now on."""
        self.clear()
        self._states = states

    def clear(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()
        self._under_way, self._size = None, 0

    def renew(self) -> None:
        """Allows ``AT_ONCE`` again."""
        self._allowance = AT_ONCE

    def feed(self, epoch: Epoch, size: int) -> None:
        """Takes an epoch of so many bytes that is on disk; O(rows), and O(rows × groups) up to a bound.

        Raises nothing, as the caller is the writer of the log.
        """
        try:
            self._feed(epoch, size)
        except Exception as error:  # noqa: BLE001  # a fence: the groups read the epoch from the log
            self._fall_behind(epoch.number)
            self._defect(error)

    def _feed(self, epoch: Epoch, size: int) -> None:
        number, _, added, messages, removed, _, _, _, is_silent = epoch
        if is_silent:
            return
        concerns = self._concerns(added) or self._concerns(messages) or self._concerns(removed)
        if not concerns and not self._waiting:
            self._states.fed = number
            return
        counted = size + ROW_BYTES * (len(added) + len(messages) + len(removed)) if concerns else ROW_BYTES
        self._size += counted
        self._waiting.append(_Waiting(number, epoch if concerns else None, size, counted))
        self._allowance -= self._go_on(self._allowance)
        if self._waiting:
            self.more.set()
            if self._size > WAITING_BYTES:
                self._fall_behind(number)

    def steps(self) -> Iterator[None]:
        """Offers what waits, in steps; raises nothing."""
        while self._waiting:
            try:
                self._go_on(STEP)
            except Exception as error:  # noqa: BLE001  # as in ``feed``
                self._fall_behind(self._waiting[-1].number if self._waiting else self._states.fed)
                self._defect(error)
            yield

    def _go_on(self, most: int) -> int:
        """Offers rows to groups, about ``most`` times; returns how often."""
        count = 0
        while self._waiting and count < most:
            if self._under_way is None:
                first = self._waiting[0]
                self._at = (first.number, 0)
                self._under_way = self._offers(first.epoch, first.size)
            offered = next(self._under_way, None)
            if offered is None:
                self._under_way = None
                done = self._waiting.popleft()
                self._size -= done.counted
                self._states.fed = max(self._states.fed, done.number)
                offered = 1
            count += offered
        return count

    def _fall_behind(self, newest: int) -> None:
        """Moves all groups off the live feed: they read from the log, from the first row that waits on, or
        else from the epoch ``newest``."""
        at = (self._waiting[0].number if self._waiting else newest, 0)
        if self._waiting and self._under_way is not None and self._at > at:
            at = self._at
        for group in self._groups.values():
            if group.state.is_live and not group.options.topic:
                self._has_fallen_behind(group, at)
        self.clear()
        self._states.fed = max(self._states.fed, newest)

    def _offers(self, epoch: Epoch | None, size: int) -> Iterator[int]:
        """Offers each row to each group that may divide it; yields after each row how many groups those were,
        at least 1."""
        if epoch is None:
            return
        number, time, added, messages, removed, *_ = epoch
        size //= max(1, len(added) + len(messages) + len(removed))
        for position, value in enumerate([*added, *messages]):
            self._at = (number, position)
            offered = 1
            is_message = position >= len(added)
            kind = MESSAGE if is_message else ADDED
            for group in self.of(value):
                offered += 1
                try:
                    if kind in group.kinds and self._takes(group, (number, position), value):
                        group.core.take(Item((number, position), time, value, size, is_message=is_message))
                        self._touched(group)
                except Exception as error:  # noqa: BLE001  # a ``StepFence`` costs as much as this
                    self._stop(group, "take", error)
            self._at = (number, position + 1)
            yield offered
        for position, value in enumerate(removed, len(added) + len(messages)):
            self._at = (number, position)
            offered = 1
            for group in self.of(value):
                offered += 1
                try:
                    if REMOVED in group.kinds and self._takes(group, (number, position), value):
                        item = Item(self._at, time, value, size, is_message=True, is_ending=True)
                        group.core.take(item)
                        self._touched(group)
                    if (delivery := group.core.out_of(value)) is not None and not delivery.member.is_ending:
                        cast("StreamMember", delivery.member).mark(("gone", delivery.token))
                except Exception as error:  # noqa: BLE001  # as above
                    self._stop(group, "gone", error)
            self._at = (number, position + 1)
            yield offered

    def _takes(self, group: WorkGroup, at: At, value: Value) -> bool:
        """True if a group takes a row now; it falls behind if it is full."""
        state = group.state
        if not state.is_live or at <= state.read or group.matches(value) is None:
            return False
        if group.is_full:
            self._has_fallen_behind(group, at)
            return False
        return True

    def _concerns(self, values: Iterable[Value]) -> bool:
        """True if a group may divide any of the values; each turn asks."""
        placed = self._placed
        for value in values:
            if class_of(value) in placed:
                return True
        return ANY in placed

    def of(self, value: Value) -> Iterable[WorkGroup]:
        """Returns the groups that may divide a value."""
        placed = self._placed
        return (*placed.get(class_of(value), ()), *placed.get(ANY, ()))
