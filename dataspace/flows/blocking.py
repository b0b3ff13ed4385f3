"""Operators that wait for all of their input: sort, top, window, folds.

"The lowest value may be the last to arrive": none of them can say anything before the tick has brought
all that it will bring.  They are behind a handoff, and speak when they are released.

Always: with the lifetime ``"tick"`` they speak of this tick's items alone; with ``"static"`` of all that
there are, and then only of what is different from before: the old answer goes, the new one comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from copy import Error as CopyError, deepcopy
from typing import Any, ClassVar, Final

from sortedcontainers import SortedKeyList

from dataspace.flows.operators import TICK, Emit, Operator, Port, Ports, Remembering, added, pair
from index.errors import UsageError
from index.values.freezing import is_flat
from index.values.order import order_key
from index.values.values import key, same

BLOCKING: Final = (Port(blocking=True),)


def _itself(item: Any) -> Any:
    return item


class Sort(Operator):
    """This tick's items in the order of ``by``: the net of them, those that go before those that come."""

    inputs: ClassVar[Ports] = BLOCKING

    def __init__(self, by: Callable[[Any], Any] = _itself) -> None:
        super().__init__()
        self.by = by
        self.waiting: list[tuple[Any, int]] = []

    def receiver(self, port: str) -> Emit:
        return lambda item, weight: self.waiting.append((item, weight))

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        if any(weight < 0 for _, weight in waiting):
            waiting = _net(waiting)
        waiting.sort(key=lambda each: (each[1] > 0, order_key(self.by(each[0]))))
        for item, weight in waiting:
            self.emit(item, weight)


def _net(changes: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Each item once, with the sum of its weights, unless that is nought."""
    net: dict[Hashable, list[Any]] = {}
    for item, weight in changes:
        net.setdefault(key(item), [item, 0])[1] += weight
    return [(item, weight) for item, weight in net.values() if weight]


class _Comparing(Remembering):
    """An operator whose answer is a list, of which only the difference to the one before is told."""

    inputs: ClassVar[Ports] = BLOCKING

    def __init__(self, lifetime: str) -> None:
        super().__init__(lifetime)
        self.said: dict[Hashable, list[Any]] = {}

    def say(self, items: list[Any]) -> None:
        """Emits what makes the old answer into this one."""
        now: dict[Hashable, list[Any]] = {}
        for item in items:
            now.setdefault(key(item), [item, 0])[1] += 1
        for at, (item, count) in self.said.items():
            left = now[at][1] if at in now else 0
            if count > left:
                self.emit(item, left - count)
        for at, (item, count) in now.items():
            before = self.said[at][1] if at in self.said else 0
            if count > before:
                self.emit(item, count - before)
        self.said = now

    def end_tick(self) -> None:
        self.said = {}

    def size(self) -> int:
        return len(self.said)


class Top(_Comparing):
    """The ``n`` largest items in the order of ``by`` (the smallest of them first to be told)."""

    def __init__(self, n: int, by: Callable[[Any], Any] = _itself, lifetime: str = TICK) -> None:
        super().__init__(lifetime)
        if n < 1:
            raise UsageError(f"top of {n} items: 1 or more")
        self.n = n
        self._by = by
        self.items = SortedKeyList(key=self._place)

    def _place(self, item: Any) -> tuple[Any, Any]:
        return order_key(self._by(item)), order_key(item)

    def receiver(self, port: str) -> Emit:
        def receive(item: Any, weight: int) -> None:
            for _ in range(weight):
                self.items.add(item)
            for _ in range(-weight):
                self._remove(item)

        return receive

    def _remove(self, item: Any) -> None:
        """Takes an item out by its place, since not everything equals itself (NaN does not)."""
        place = self._place(item)
        at = self.items.bisect_key_left(place)
        if at == len(self.items) or self._place(self.items[at]) != place:
            raise UsageError(f"top was told that {item!r:.60} has gone, which it does not have")
        del self.items[at]

    def release(self) -> None:
        self.say(list(self.items[-self.n :]))

    def end_tick(self) -> None:
        super().end_tick()
        self.items.clear()

    def size(self) -> int:
        return len(self.items) + super().size()


class WindowOperator(_Comparing):
    """The last ``n`` items that came, over ticks."""

    def __init__(self, n: int) -> None:
        super().__init__("static")
        if n < 1:
            raise UsageError(f"a window of {n} items: 1 or more")
        self.items: deque[Any] = deque(maxlen=n)

    def receiver(self, port: str) -> Emit:
        return lambda item, weight: self.items.extend([item] * added(weight, "window"))

    def release(self) -> None:
        self.say(list(self.items))


class Fold(Remembering):
    """One value made of all items: ``step(so_far, item)``, beginning with ``start()``.

    With ``undo(so_far, item)`` a retraction costs O(1); without it the rest is folded anew.  In a tick
    without items it says ``start()``, unless it is static and has said so.
    """

    inputs: ClassVar[Ports] = BLOCKING

    def __init__(
        self,
        start: Callable[[], Any],
        step: Callable[[Any, Any], Any],
        undo: Callable[[Any, Any], Any] | None = None,
        lifetime: str = TICK,
    ) -> None:
        super().__init__(lifetime)
        self.group = _Group(start, step, undo)
        self.said: list[Any] = []

    @property
    def every_tick(self) -> bool:
        return not self.said or self.lifetime == TICK

    def receiver(self, port: str) -> Emit:
        return self.group.change

    def release(self) -> None:
        value = self.group.said()
        if self.said:
            if same(self.said[0], value):
                return
            self.emit(self.said.pop(), -1)
        self.said.append(value)
        self.emit(value, 1)

    def end_tick(self) -> None:
        self.said.clear()
        self.group.clear()

    def size(self) -> int:
        return len(self.said)


class _Group:
    """What is being folded: a value so far, and the items themselves where nothing can be undone."""

    __slots__ = ("_items", "_start", "_step", "_undo", "count", "so_far")

    def __init__(
        self,
        start: Callable[[], Any],
        step: Callable[[Any, Any], Any],
        undo: Callable[[Any, Any], Any] | None,
    ) -> None:
        self._start, self._step, self._undo = start, step, undo
        self.so_far = start()
        self._items: dict[Hashable, list[Any]] = {}
        self.count = 0

    def change(self, item: Any, weight: int) -> None:
        """Takes an item in, or out again."""
        self.count += weight
        if self._undo is None:
            self._keep(item, weight)
        if weight == 1:  # as nearly always
            self.so_far = self._step(self.so_far, item)
        elif weight < 0:
            self._take_out(item, -weight)
        else:
            for _ in range(weight):
                self.so_far = self._step(self.so_far, item)

    def _keep(self, item: Any, weight: int) -> None:
        entry = self._items.setdefault(key(item), [item, 0])
        entry[1] += weight
        if not entry[1]:
            del self._items[key(item)]

    def _take_out(self, item: Any, times: int) -> None:
        if self._undo is None:
            self.so_far = self._start()
            for each, count in self._items.values():
                for _ in range(count):
                    self.so_far = self._step(self.so_far, each)
        else:
            for _ in range(times):
                self.so_far = self._undo(self.so_far, item)

    def said(self) -> Any:
        """What has been folded, as no further step changes it: steps may work in place.  O(its size)."""
        if is_flat(self.so_far):
            return self.so_far
        try:
            return deepcopy(self.so_far)
        except (TypeError, CopyError):  # what cannot be copied is its owner's to keep
            return self.so_far

    def clear(self) -> None:
        self.so_far = self._start()
        self._items.clear()
        self.count = 0


class FoldKeyed(Remembering):
    """For pairs ``(k, v)``: for each key that has any, the fold of its values, as ``(k, folded)``."""

    inputs: ClassVar[Ports] = BLOCKING

    def __init__(
        self,
        start: Callable[[], Any],
        step: Callable[[Any, Any], Any],
        undo: Callable[[Any, Any], Any] | None = None,
        lifetime: str = TICK,
    ) -> None:
        super().__init__(lifetime)
        self._of = (start, step, undo)
        self.groups: dict[Hashable, _Group] = {}
        self.touched: dict[Hashable, Any] = {}
        self.said: dict[Hashable, Any] = {}

    def receiver(self, port: str) -> Emit:
        groups, touched, of = self.groups, self.touched, self._of

        def receive(item: Any, weight: int) -> None:
            name, value = pair(item, "a keyed fold")
            at = key(name)
            group = groups.get(at)
            if group is None:
                group = groups[at] = _Group(*of)
            group.change(value, weight)
            touched[at] = name

        return receive

    def release(self) -> None:
        groups, said, emit = self.groups, self.said, self.emit
        for at, name in self.touched.items():
            group, before = groups[at], said.get(at)
            if group.count:
                folded = group.said()
                if before is not None:
                    if same(before[1], folded):
                        continue
                    emit(before, -1)
                said[at] = now = (name, folded)
                emit(now, 1)
            else:
                del groups[at]
                if before is not None:
                    del said[at]
                    emit(before, -1)
        self.touched.clear()

    def end_tick(self) -> None:
        self.groups.clear()
        self.said.clear()

    def size(self) -> int:
        return len(self.groups) + len(self.said)


_NOTHING: Final = object()


def reduced(fn: Callable[[Any, Any], Any]) -> tuple[Callable[[], Any], Callable[[Any, Any], Any]]:
    """A reduction as a fold: the first item is where it begins."""
    return lambda: _NOTHING, lambda so_far, item: item if so_far is _NOTHING else fn(so_far, item)


class ReduceOperator(Fold):
    """All items combined two by two; nothing at all of none."""

    def __init__(self, fn: Callable[[Any, Any], Any], lifetime: str = TICK) -> None:
        super().__init__(*reduced(fn), None, lifetime)

    @property
    def every_tick(self) -> bool:
        return False

    def release(self) -> None:
        if self.group.count:
            super().release()
        elif self.said:
            self.emit(self.said.pop(), -1)
