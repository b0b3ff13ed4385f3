"""Operators: the parts of a flow, each with named inputs; some inputs block.

An item travels with a weight: +1 adds one copy, -1 removes one, so that what an operator has emitted can be
retracted.  An operator is given the function to which it *emits*, returns a receiver for each input, and has
two more calls: ``release`` when its blocking inputs are complete, ``end_tick`` when the tick is over.
Operators that hold collections are in ``joins``, the sorted and folding ones in ``blocking``; here are the
operators that pass items on as they come.

Always: an operator streams the inputs in which it is monotone, and blocks on the others (the source,
"Determining whether an operator should block"); an operator of lifetime ``"tick"`` holds nothing between
ticks, an operator of lifetime ``"static"`` remembers its items and emits nothing twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from index.errors import UsageError
from index.values.values import Value, key

Emit: TypeAlias = Callable[[Any, int], None]
"""Takes an item and its weight.  Items are values, and pairs of values where keys matter."""

TICK: Final = "tick"
STATIC: Final = "static"


@dataclass(frozen=True, slots=True)
class Port:
    """An input: ``blocking`` where the operator is not monotone in it; ``many`` edges may end there."""

    name: str = ""
    blocking: bool = False
    many: bool = False


Ports: TypeAlias = tuple[Port, ...]


def nowhere(item: Any, weight: int) -> None:
    """Drops the output of an operator without a target."""


class Operator:
    """The common part of all operators: by default, one streaming input and no state."""

    inputs: ClassVar[Ports] = (Port(),)
    outputs: ClassVar[tuple[str, ...]] = ("",)
    delays: ClassVar[bool] = False

    def __init__(self) -> None:
        self.emit: Emit = nowhere
        self.emits: dict[str, Emit] = {}

    @property
    def every_tick(self) -> bool:
        """True if it may emit even in a tick without input."""
        return False

    @property
    def forgets(self) -> bool:
        """True if ``end_tick`` has anything to do."""
        return False

    @abstractmethod
    def receiver(self, port: str) -> Emit:
        """Returns the receiver of an input; called once, when the function to emit to is known."""

    def release(self) -> None:
        """Called when all items of the blocking inputs have come."""

    def end_tick(self) -> None:
        """Called when the tick is over."""

    def size(self) -> int:
        """Returns how many items it holds."""
        return 0


def known_lifetime(lifetime: str) -> str:
    """Returns the lifetime; raises ``UsageError`` for an unknown one."""
    if lifetime not in (TICK, STATIC):
        raise UsageError(f"no lifetime {lifetime!r}, known are {TICK!r} and {STATIC!r}")
    return lifetime


class Remembering(Operator):
    """An operator with a lifetime."""

    def __init__(self, lifetime: str) -> None:
        super().__init__()
        self.lifetime = known_lifetime(lifetime)

    @property
    def forgets(self) -> bool:
        return self.lifetime == TICK


class Identity(Operator):
    """Passes on what comes: ``union``, ``tee``, sources."""

    inputs: ClassVar[Ports] = (Port(many=True),)

    def receiver(self, port: str) -> Emit:
        return self.emit


class SourceOperator(Identity):
    """The entry of items, which wait until a tick takes them."""

    inputs: ClassVar[Ports] = ()

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Any, int]] = []

    def size(self) -> int:
        return len(self.waiting)


def _itself(item: Any) -> Any:
    return item


class MapOperator(Operator):
    """Passes each item through a function."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        super().__init__()
        self.fn = fn

    def receiver(self, port: str) -> Emit:
        fn, emit = self.fn, self.emit
        return lambda item, weight: emit(fn(item), weight)


class Filter(MapOperator):
    """Passes on the items for which a function is true."""

    def receiver(self, port: str) -> Emit:
        fn, emit = self.fn, self.emit

        def receive(item: Any, weight: int) -> None:
            if fn(item):
                emit(item, weight)

        return receive


class FilterMap(MapOperator):
    """Passes each item through a function, and drops it where that returns None."""

    def receiver(self, port: str) -> Emit:
        fn, emit = self.fn, self.emit

        def receive(item: Any, weight: int) -> None:
            result = fn(item)
            if result is not None:
                emit(result, weight)

        return receive


class FlatMap(MapOperator):
    """Passes on all items that a function makes of each."""

    fn: Callable[[Any], Iterable[Any]]

    def receiver(self, port: str) -> Emit:
        fn, emit = self.fn, self.emit

        def receive(item: Any, weight: int) -> None:
            for result in fn(item):
                emit(result, weight)

        return receive


class Inspect(MapOperator):
    """Calls a function with each item and its weight, and passes it on."""

    def __init__(self, fn: Emit) -> None:
        super().__init__(_itself)
        self.show = fn

    def receiver(self, port: str) -> Emit:
        show, emit = self.show, self.emit

        def receive(item: Any, weight: int) -> None:
            show(item, weight)
            emit(item, weight)

        return receive


class Demux(MapOperator):
    """Passes each item to the output that a function names."""

    def __init__(self, fn: Callable[[Any], str], *outputs: str) -> None:
        super().__init__(fn)
        self.names = outputs

    def receiver(self, port: str) -> Emit:
        fn, emits = self.fn, {name: self.emits.get(name, nowhere) for name in self.names}

        def receive(item: Any, weight: int) -> None:
            to = emits.get(output := fn(item))
            if to is None:
                raise UsageError(f"demux has no output {output!r}, it has {', '.join(map(repr, emits))}")
            to(item, weight)

        return receive


class Enumerate(Remembering):
    """Passes on items with their number; retractions cannot be numbered and are refused."""

    def __init__(self, lifetime: str = TICK) -> None:
        super().__init__(lifetime)
        self.next = 0

    def receiver(self, port: str) -> Emit:
        def receive(item: Any, weight: int) -> None:
            for _ in range(added(weight, "enumerate")):
                self.emit((self.next, item), 1)
                self.next += 1

        return receive

    def end_tick(self) -> None:
        self.next = 0


class ForEach(Operator):
    """Calls a function with each added item, and another with each retracted one."""

    def __init__(self, fn: Callable[[Any], Any], gone: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.fn = fn
        self.gone = gone

    def receiver(self, port: str) -> Emit:
        fn, gone = self.fn, self.gone

        def receive(item: Any, weight: int) -> None:
            if weight > 0:
                for _ in range(weight):
                    fn(item)
            elif gone is None:
                raise UsageError("for_each cannot handle a retraction; give it gone=, or use each_change")
            else:
                for _ in range(-weight):
                    gone(item)

        return receive


class EachChange(Operator):
    """Calls a function with each item and its weight."""

    def __init__(self, fn: Emit) -> None:
        super().__init__()
        self.fn = fn

    def receiver(self, port: str) -> Emit:
        return self.fn


class NextTick(Operator):
    """Passes everything on, a tick later; what waits in it causes that tick."""

    inputs: ClassVar[Ports] = (Port(many=True),)
    delays = True

    def receiver(self, port: str) -> Emit:
        return self.emit


class UniqueOperator(Remembering):
    """Passes on each item once: when its first copy comes, and when its last copy goes."""

    def __init__(self, lifetime: str = TICK) -> None:
        super().__init__(lifetime)
        self.counts: dict[Any, int] = {}

    def receiver(self, port: str) -> Emit:
        counts, emit = self.counts, self.emit

        def receive(item: Any, weight: int) -> None:
            at = key(item)
            before = counts.get(at, 0)
            after = before + weight
            if after:
                counts[at] = after
            else:
                counts.pop(at, None)
            if before <= 0 < after:
                emit(item, 1)
            elif after <= 0 < before:
                emit(item, -1)

        return receive

    def end_tick(self) -> None:
        self.counts.clear()

    def size(self) -> int:
        return len(self.counts)


class Persist(UniqueOperator):
    """Keeps a stream as a collection: says each item once, and remembers it over ticks."""

    def __init__(self) -> None:
        super().__init__(STATIC)


class ReplayOperator(UniqueOperator):
    """Keeps a stream as a collection, and emits the whole collection in each tick, for consumers that forget.

    It waits for the tick to be complete, so that nothing is shown that goes in it.
    """

    inputs: ClassVar[Ports] = (Port(blocking=True),)

    def __init__(self) -> None:
        super().__init__(STATIC)
        self.held: dict[Any, Any] = {}

    @property
    def every_tick(self) -> bool:
        return True

    def receiver(self, port: str) -> Emit:
        held = self.held

        def keep(item: Any, weight: int) -> None:
            if weight > 0:
                held[key(item)] = item
            else:
                del held[key(item)]

        self.emit = keep
        return super().receiver(port)

    def release(self) -> None:
        emit = self.emits[""]
        for item in list(self.held.values()):
            emit(item, 1)


def added(weight: int, name: str) -> int:
    """Returns a weight that must not be a retraction; raises ``UsageError`` if it is."""
    if weight < 0:
        raise UsageError(f"{name} cannot retract an item that it has passed on")
    return weight


def pair(item: Any, name: str) -> tuple[Value, Any]:
    """Returns an item that must be a key and a value; raises ``UsageError`` otherwise."""
    if item.__class__ is not tuple or len(item) != 2:
        raise UsageError(f"{name} takes pairs of a key and a value, not {item!r:.60}")
    return item
