"""The flow host: runs flows in the turns of a space.

A flow that is attached to a space starts from the present facts.  From then on each committed turn is a tick
of it: its input is the facts that came and went, derived facts included, and the messages; its assertions and
messages are part of the epoch of that turn.  Flows run after the rules; what rules derive from a flow's facts
is in the same epoch as well, and reaches the flows in a tick that follows by itself.

Always: a function that raises ends its own flow, whose facts are retracted, but no turn; ``flow-error(name,
reason)`` is a fact until the flow is detached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.flows.flows import Flow
from dataspace.flows.inputs import Facts, Messages
from dataspace.flows.mermaid import DiagramPart
from dataspace.flows.results import Derived
from dataspace.instants import NEVER, instant_of
from index.errors import UsageError
from index.values.values import Record, Value, key

logger = logging.getLogger("dataspace")

MAX_SELF_TICKS: Final = 10_000
"""Ticks in a row that flows cause by themselves."""


@dataclass(slots=True)
class _Driven:
    """A flow with its inputs; ``flow`` is None once it has failed, and ``error`` is the fact with the
    reason."""

    flow: Flow | None
    facts: list[Facts]
    messages: list[Messages]
    error: Value = None
    has_begun: bool = False

    @property
    def is_due(self) -> bool:
        """True if its next tick needs no further input."""
        return self.flow is not None and (self.flow.pending or not self.has_begun)


class FlowHost:
    """The flows of one space, and the facts that they assert together."""

    def __init__(self) -> None:
        self._driven: dict[str, _Driven] = {}
        self._counts: dict[Hashable, int] = {}
        self._changes: list[tuple[Value, int]] = []
        self._self_ticks = 0
        self.next = NEVER
        """The instant at which flows need a tick, with or without input."""

    def __bool__(self) -> bool:
        return bool(self._driven or self._changes)

    def attach(self, name: str, flow: Flow, facts: Iterable[Value]) -> None:
        """Runs a flow from these facts on; the next turn is its first tick.

        Raises ``UsageError`` where the name is in use, or the flow cannot be ordered in strata.
        """
        if name in self._driven:
            raise UsageError(f"a flow named {name!r} is attached already")
        flow.strata()
        operators = list(flow.operators.values())
        inlets = [each for each in operators if isinstance(each, Facts)]
        for fact in facts:
            for inlet in inlets:
                inlet.change(fact, +1)
        hearing = [each for each in operators if isinstance(each, Messages)]
        self._driven[name] = _Driven(flow, inlets, hearing)

    def detach(self, name: str) -> None:
        """Stops running a flow; the next turn retracts its facts."""
        driven = self._driven.pop(name, None)
        if driven is None:
            raise UsageError(f"no flow named {name!r} is attached")
        held = [driven.error] if driven.flow is None else driven.flow.outcome.asserted()
        self._changes += [(value, -1) for value in held]
        self._look_ahead()

    def abandon(self, asserted: Iterable[Value], reason: str) -> None:
        """Ends all flows, which may be anywhere within a tick; the next turn retracts their facts.

        ``asserted`` are the facts that they asserted together before that tick.
        """
        values = list(asserted)
        self._counts = {key(value): 1 for value in values}
        self._changes = [(value, -1) for value in values]
        for name, driven in self._driven.items():
            if driven.flow is not None:
                logger.warning("flow %s ended: %s", name, reason)
                driven.error = Record("flow-error", name, reason)
                driven.flow, driven.facts, driven.messages = None, [], []
            self._changes.append((driven.error, +1))
        self._look_ahead()

    def parts(self) -> list[DiagramPart]:
        """Returns the running flows, for a drawing."""
        return [
            driven.flow.part(f"flow {name}, ")
            for name, driven in self._driven.items()
            if driven.flow is not None
        ]

    @property
    def pending(self) -> bool:
        """True if a flow waits for a tick that no turn causes."""
        return bool(self._changes) or any(driven.is_due for driven in self._driven.values())

    def tell(self, coming: Iterable[Value], going: Iterable[Value], messages: Sequence[Value] = ()) -> None:
        """Gives these changes to the next tick.  O(changes × inputs)."""
        for driven in self._driven.values():
            for inlet in driven.facts:
                for value in coming:
                    inlet.change(value, +1)
                for value in going:
                    inlet.change(value, -1)
            for hearing in driven.messages:
                for value in messages:
                    hearing.hear(value)

    def tick(self, now: int, *, by_itself: bool = False) -> Derived:
        """Runs a tick of each flow at a time; returns the facts asserted and retracted and the messages of
        all together."""
        self._self_ticks = self._self_ticks + 1 if by_itself else 0
        derived = Derived([], [], [])
        for name, driven in self._driven.items():
            if driven.flow is None:
                continue
            if self._self_ticks > MAX_SELF_TICKS and driven.flow.pending:
                self._fail(name, driven, f"{MAX_SELF_TICKS} ticks in a row were caused by flows alone")
                continue
            driven.has_begun = True
            try:
                driven.flow.run_tick(now)
            except Exception as error:  # noqa: BLE001  # a flow's fence: its code must not end the turn of a client
                text = f"{type(error).__name__}: {error}"
                where = ", ".join(getattr(error, "__notes__", ()))
                reason = f"{text} ({where})" if where else text
                logger.warning("flow %s ended: %s", name, reason)
                self._fail(name, driven, reason)
                continue
            output = driven.flow.take()
            derived.messages += output.messages
            self._changes += [(value, +1) for value in output.added]
            self._changes += [(value, -1) for value in output.removed]
        self._look_ahead()
        changes, self._changes = self._changes, []
        counts = self._counts
        derived.added, derived.removed = transitions(changes, lambda value: counts.get(key(value), 0))
        for value, by in changes:
            at = key(value)
            counts[at] = counts.get(at, 0) + by
            if not counts[at]:
                del counts[at]
        return derived

    def _look_ahead(self) -> None:
        dues = [each.flow.due for each in self._driven.values() if each.flow is not None]
        self.next = instant_of(min(dues, default=NEVER))

    def _fail(self, name: str, driven: _Driven, reason: str) -> None:
        assert driven.flow is not None  # it fails once
        self._changes += [(value, -1) for value in driven.flow.outcome.asserted()]
        driven.error = Record("flow-error", name, reason)
        self._changes.append((driven.error, +1))
        driven.flow, driven.facts, driven.messages = None, [], []


WeightedValues: TypeAlias = list[tuple[Value, int]]


def changes_of(added: Iterable[Value], removed: Iterable[Value]) -> WeightedValues:
    """Returns values that come and values that go as one list; O(values)."""
    return [*[(value, +1) for value in added], *[(value, -1) for value in removed]]


def counted(changes: WeightedValues, before: Callable[[Value], int]) -> Callable[[Value], int]:
    """Returns what says how often a value is there after some changes; O(changes)."""
    by: dict[Hashable, int] = {}
    for value, weight in changes:
        by[key(value)] = by.get(key(value), 0) + weight
    return lambda value: before(value) + by.get(key(value), 0)


def transitions(
    changes: Iterable[tuple[Value, int]], count: Callable[[Value], int]
) -> tuple[list[Value], list[Value]]:
    """Returns which values appear and which vanish, by how often each was present before.  O(changes)."""
    values: dict[Hashable, Value] = {}
    by: dict[Hashable, int] = {}
    for value, weight in changes:
        at = key(value)
        values.setdefault(at, value)
        by[at] = by.get(at, 0) + weight
    coming, going = [], []
    for at, value in values.items():
        if by[at]:
            before = count(value)
            if before <= 0 < before + by[at]:
                coming.append(value)
            elif before > 0 >= before + by[at]:
                going.append(value)
    return coming, going
