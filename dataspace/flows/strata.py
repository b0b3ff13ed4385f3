"""Handoffs: where items wait between operators, and the strata that lie between handoffs.

"The runtime provides a mechanism to buffer output and notify that there is no more data to send" (the source,
"Examples of Blocking Operators").  An item waits for its stratum to begin, for its turn in a cycle, or for
the next tick; everywhere else operators call each other.

Always: a buffer is emptied in the order in which it was filled; an item in a buffer makes its stratum run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dataspace.flows.graphs import Edge
from dataspace.flows.operators import Emit, Operator, nowhere
from index.errors import UsageError


@dataclass(slots=True)
class Handoff:
    """An edge at which items wait; ``receive`` takes them from here."""

    edge: Edge
    looped: bool
    buffer: list[tuple[Any, int]] = field(default_factory=list)
    receive: Emit = nowhere


@dataclass(slots=True)
class Stratum:
    """The part of a flow between handoffs: the order in which buffers are emptied and operators released."""

    blocking: list[Handoff] = field(default_factory=list)
    streaming: list[Handoff] = field(default_factory=list)
    loops: list[Handoff] = field(default_factory=list)
    released: list[Operator] = field(default_factory=list)
    every_tick: bool = False
    dirty: bool = True

    def file(self, hand: Handoff) -> Emit:
        """Adds a handoff that is emptied here; returns what puts items into it."""
        if hand.looped:
            self.loops.append(hand)
            return _growing(hand, self)
        (self.blocking if hand.edge.blocking else self.streaming).append(hand)
        return waiting_in(hand, self)

    def take(self, operator: Operator) -> None:
        """Adds an operator that runs here; it is released before the operators that were added earlier."""
        if type(operator).release is not Operator.release:
            self.released.append(operator)
        self.every_tick |= operator.every_tick

    def release(self) -> None:
        """Releases the operators whose blocking input is complete, so that they emit their results."""
        for hand in self.blocking:
            if hand.buffer:
                drain(hand)
        for operator in self.released:
            operator.release()
        if self.every_tick:  # ends once the operators without input have emitted their result
            self.every_tick = any(operator.every_tick for operator in self.released)


def waiting_in(hand: Handoff, stratum: Stratum) -> Emit:
    """Returns what puts items into a handoff of a stratum."""
    buffer = hand.buffer

    def wait(item: Any, weight: int) -> None:
        buffer.append((item, weight))
        stratum.dirty = True

    return wait


def _growing(hand: Handoff, stratum: Stratum) -> Emit:
    """Returns the same for a handoff within a cycle, where nothing can be retracted."""
    wait, edge = waiting_in(hand, stratum), hand.edge

    def grow(item: Any, weight: int) -> None:
        if weight < 0:
            raise UsageError(
                f"a retraction reached the cycle through {edge.source} and {edge.target}: what goes round"
                " could support itself; write it as rules, which retract correctly"
            )
        wait(item, weight)

    return grow


def drain(hand: Handoff) -> bool:
    """Empties a buffer, in place, since others hold it; True if anything was in it."""
    buffer = hand.buffer
    if not buffer:
        return False
    items = buffer[:]
    buffer.clear()
    receive = hand.receive
    for item, weight in items:
        receive(item, weight)
    return True
