"""Operators that wait for all of their input: sort, top, last, folds.

"The lowest value may be the last to arrive": they cannot emit anything before all input of the tick has come.
They are behind a handoff, and emit when they are released.

Always: with the lifetime ``"tick"`` their output depends on this tick's items alone; with ``"static"`` on all
present items, and then only the difference is emitted: the old result is retracted, the new one added.
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
from index.values.values import key, order_key, same

BLOCKING: Final = (Port(blocking=True),)


def _itself(item: Any) -> Any:
    return item


class Sort(Operator):
    """This tick's items in the order of ``by``: their net, removals before additions."""

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
            waiting = net(waiting)
        waiting.sort(key=lambda weighted: (weighted[1] > 0, order_key(self.by(weighted[0]))))
        for item, weight in waiting:
            self.emit(item, weight)


def net(changes: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Returns each item once with the sum of its weights, without items whose sum is zero."""
    net: dict[Hashable, list[Any]] = {}
    for item, weight in changes:
        net.setdefault(key(item), [item, 0])[1] += weight
    return [(item, weight) for item, weight in net.values() if weight]


class _Comparing(Remembering):
    """An operator whose result is a list; it emits only the difference to the previous list."""

    inputs: ClassVar[Ports] = BLOCKING

    def __init__(self, lifetime: str) -> None:
        super().__init__(lifetime)
        self.emitted: dict[Hashable, list[Any]] = {}

    def say(self, items: list[Any]) -> None:
        """Emits the changes from the previous result to this one."""
        now: dict[Hashable, list[Any]] = {}
        for item in items:
            now.setdefault(key(item), [item, 0])[1] += 1
        for at, (item, count) in self.emitted.items():
            left = now[at][1] if at in now else 0
            if count > left:
                self.emit(item, left - count)
        for at, (item, count) in now.items():
            before = self.emitted[at][1] if at in self.emitted else 0
            if count > before:
                self.emit(item, count - before)
        self.emitted = now

    def end_tick(self) -> None:
        self.emitted = {}

    def size(self) -> int:
        return len(self.emitted)


class Top(_Comparing):
    """Emits the ``n`` largest items in the order of ``by``, the smallest of them first."""

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
        """Removes an item by its position, since not every value equals itself (NaN does not)."""
        place = self._place(item)
        at = self.items.bisect_key_left(place)
        if at == len(self.items) or self._place(self.items[at]) != place:
            raise UsageError(f"top cannot retract {item!r:.60}, which it does not have")
        del self.items[at]

    def release(self) -> None:
        self.say(list(self.items[-self.n :]))

    def end_tick(self) -> None:
        super().end_tick()
        self.items.clear()

    def size(self) -> int:
        return len(self.items) + super().size()


class Last(_Comparing):
    """Emits the last ``n`` items that came, over ticks."""

    def __init__(self, n: int) -> None:
        super().__init__("static")
        if n < 1:
            raise UsageError(f"the last {n} items: 1 or more")
        self.items: deque[Any] = deque(maxlen=n)

    def receiver(self, port: str) -> Emit:
        return lambda item, weight: self.items.extend([item] * added(weight, "last"))

    def release(self) -> None:
        self.say(list(self.items))


class Fold(Remembering):
    """Emits one value made of all items: ``step(so_far, item)``, beginning with ``start()``.

    With ``undo(so_far, item)`` a retraction costs O(1); without it the remaining items are folded again.  In
    a tick without items it emits ``start()``, unless it is static and has already emitted it.
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
        self.emitted: list[Any] = []

    @property
    def every_tick(self) -> bool:
        return not self.emitted or self.lifetime == TICK

    def receiver(self, port: str) -> Emit:
        return self.group.change

    def release(self) -> None:
        value = self.group.said()
        if self.emitted:
            if same(self.emitted[0], value):
                return
            self.emit(self.emitted.pop(), -1)
        self.emitted.append(value)
        self.emit(value, 1)

    def end_tick(self) -> None:
        self.emitted.clear()
        self.group.clear()

    def size(self) -> int:
        return len(self.emitted)


class _Group:
    """The state of a fold: a value so far, and the items themselves where no step can be undone."""

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
        """Adds an item, or removes it."""
        self.count += weight
        if self._undo is None:
            self._keep(item, weight)
        if weight == 1:  # the usual case
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
        """Returns a copy of the folded value, since steps may change it in place.  O(its size)."""
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
    """Emits for pairs ``(k, v)`` the fold of the values of each key, as ``(k, folded)``."""

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
        self.emitted: dict[Hashable, Any] = {}

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
        groups, emitted, emit = self.groups, self.emitted, self.emit
        for at, name in self.touched.items():
            group, before = groups[at], emitted.get(at)
            if group.count:
                folded = group.said()
                if before is not None:
                    if same(before[1], folded):
                        continue
                    emit(before, -1)
                emitted[at] = now = (name, folded)
                emit(now, 1)
            else:
                del groups[at]
                if before is not None:
                    del emitted[at]
                    emit(before, -1)
        self.touched.clear()

    def end_tick(self) -> None:
        self.groups.clear()
        self.emitted.clear()

    def size(self) -> int:
        return len(self.groups) + len(self.emitted)


_NOTHING: Final = object()


def reduced(fn: Callable[[Any, Any], Any]) -> tuple[Callable[[], Any], Callable[[Any, Any], Any]]:
    """Returns a reduction as a fold that starts with the first item."""
    return lambda: _NOTHING, lambda so_far, item: item if so_far is _NOTHING else fn(so_far, item)


class ReduceOperator(Fold):
    """Emits all items combined two by two; nothing if there are none."""

    def __init__(self, fn: Callable[[Any, Any], Any], lifetime: str = TICK) -> None:
        super().__init__(*reduced(fn), None, lifetime)

    @property
    def every_tick(self) -> bool:
        return False

    def release(self) -> None:
        if self.group.count:
            super().release()
        elif self.emitted:
            self.emit(self.emitted.pop(), -1)
