"""Operators over two collections: joins, differences, zip.

Each keeps what came on either input, by key, so that the cost of a change is in proportion to its partners on
the other side.  They are apart from the other operators because of that state.

Always: the emitted items are the product, or the difference, of the items that the inputs hold now; after
everything has been retracted nothing is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, ClassVar

from dataspace.flows.operators import TICK, Emit, Port, Ports, Remembering, added, pair
from index.values.values import key

Side = dict[Hashable, dict[Hashable, list[Any]]]
"""By the key of the key: by the key of the value: the value and its weight."""


class Join(Remembering):
    """Joins pairs ``(k, v)`` from ``left`` and ``(k, w)`` from ``right`` with the same key: ``(k, (v, w))``.

    O(partners) for each change.
    """

    inputs: ClassVar[Ports] = (Port("left"), Port("right"))

    def __init__(self, lifetime: str = TICK) -> None:
        super().__init__(lifetime)
        self.sides: dict[str, Side] = {"left": {}, "right": {}}

    def receiver(self, port: str) -> Emit:
        mine, emit, is_left = self.sides[port], self.emit, port == "left"
        theirs = self.sides["right" if is_left else "left"]

        def receive(item: Any, weight: int) -> None:
            name, value = pair(item, "join")
            at = key(name)
            file(mine, at, value, weight)
            partners = theirs.get(at)
            if partners is None:
                return
            for other, count in list(partners.values()):
                emit((name, (value, other) if is_left else (other, value)), weight * count)

        return receive

    def end_tick(self) -> None:
        for side in self.sides.values():
            side.clear()

    def size(self) -> int:
        return sum(len(values) for side in self.sides.values() for values in side.values())


class CrossJoin(Join):
    """Joins every item of ``left`` with every item of ``right``: ``(v, w)``."""

    def receiver(self, port: str) -> Emit:
        emit = self.emit
        self.emit = lambda item, weight: emit(item[1], weight)
        receive = super().receiver(port)
        self.emit = emit
        return lambda item, weight: receive((None, item), weight)


def file(side: Side, at: Hashable, value: Any, weight: int) -> None:
    """Changes the weight of a value in a side; a value of weight 0 is not kept."""
    values = side.get(at)
    if values is None:
        values = side[at] = {}
    name = key(value)
    entry = values.get(name)
    if entry is None:
        values[name] = [value, weight]
        return
    entry[1] += weight
    if not entry[1]:
        del values[name]
        if not values:
            del side[at]


class Difference(Remembering):
    """Passes on the items of ``pos`` that are not among the items of ``neg``, which therefore blocks."""

    inputs: ClassVar[Ports] = (Port("pos"), Port("neg", blocking=True))
    keyed = False

    def __init__(self, lifetime: str = TICK) -> None:
        super().__init__(lifetime)
        self.pos: Side = {}
        self.neg: dict[Hashable, int] = {}
        self.touched: dict[Hashable, int] = {}

    def receiver(self, port: str) -> Emit:
        if port == "neg":
            return self._forbid
        emit, neg, pos = self.emit, self.neg, self.pos

        def receive(item: Any, weight: int) -> None:
            at = key(pair(item, "anti_join")[0]) if self.keyed else key(item)
            file(pos, at, item, weight)
            if at not in neg:
                emit(item, weight)

        return receive

    def _forbid(self, item: Any, weight: int) -> None:
        at = key(item)
        before = self.neg.get(at, 0)
        self.touched.setdefault(at, before)
        if before + weight:
            self.neg[at] = before + weight
        else:
            self.neg.pop(at, None)

    def release(self) -> None:
        """Retracts the items that have become excluded, and emits the items that no longer are."""
        touched, self.touched = self.touched, {}
        for at, before in touched.items():
            sign = (before > 0) - (self.neg.get(at, 0) > 0)
            if sign:
                for item, weight in list(self.pos.get(at, {}).values()):
                    self.emit(item, sign * weight)

    def end_tick(self) -> None:
        self.pos.clear()
        self.neg.clear()

    def size(self) -> int:
        return len(self.neg) + sum(map(len, self.pos.values()))


class AntiJoin(Difference):
    """Passes on the pairs ``(k, v)`` of ``pos`` whose key is not among the items of ``neg``, which blocks."""

    keyed = True


class Zip(Remembering):
    """Pairs the first of ``left`` with the first of ``right``, and so on; the rest is dropped with the
    tick."""

    inputs: ClassVar[Ports] = (Port("left"), Port("right"))

    def __init__(self, lifetime: str = TICK) -> None:
        super().__init__(lifetime)
        self.waiting: dict[str, deque[Any]] = {"left": deque(), "right": deque()}

    def receiver(self, port: str) -> Emit:
        mine, left, right = self.waiting[port], self.waiting["left"], self.waiting["right"]

        def receive(item: Any, weight: int) -> None:
            mine.extend([item] * added(weight, "zip"))
            while left and right:
                self.emit((left.popleft(), right.popleft()), 1)

        return receive

    def end_tick(self) -> None:
        for waiting in self.waiting.values():
            waiting.clear()

    def size(self) -> int:
        return sum(map(len, self.waiting.values()))


__all__ = ["Join", "CrossJoin", "Difference", "AntiJoin", "Zip", "file"]
