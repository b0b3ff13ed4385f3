"""Size limits: how much fits into one turn or request?

The daemon's welcome contains its limits.  A turn beyond them would end the session, so it is refused here; a
turn that may be sent in several pieces is split.  No event loop is loaded: Spark executors use this too.

Always: no portion exceeds the daemon's limits, unless it is a single item that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dataspace.codec import most_elements, pack
from dataspace.errors import Refused, UsageError
from dataspace.kernel.actions import Action, are_by_handle
from dataspace.wire.outgoing import CLIENT_DEPTH, FrameLimits
from index.values.freezing import bounded, is_flat
from index.values.values import Value

T = TypeVar("T")

FACT_DEPTH: Final = CLIENT_DEPTH - 3
"""Levels of a value in a turn, around which are the packet, its actions and the action."""

SPARE: Final = 4096 * 4 + 256
"""Bytes of a frame kept for the packet around a portion: a name and some numbers."""


@dataclass(frozen=True, slots=True)
class TurnLimits(FrameLimits):
    """The daemon's limits for one turn."""

    actions_per_turn: int = 16_384

    @property
    def portion_bytes(self) -> int:
        """Bytes that the packed actions of one turn may take, so that neither bytes nor elements exceed the
        limits."""
        return max(1, min(self.frame_bytes, self.frame_elements) - SPARE)

    def check(self, framed: bytes, actions: Sequence[Action]) -> None:
        """Refuses the frame of a turn that the daemon would end the session for; O(actions) unless large."""
        if not are_by_handle(actions):
            self.check_frame(framed)  # the fact of an action is not always the last of it
            return
        for action in actions:
            if not is_flat(action[-1]):
                _check_depth(action[-1])
        self.check_size(framed, "turn")


def _check_depth(value: Value) -> None:
    try:
        bounded(value, depth=FACT_DEPTH)
    except UsageError as error:
        raise Refused("limit", str(error)) from None


def portions(items: Iterable[T], *, most: int, size: int) -> Iterator[list[T]]:
    """Yields lists of items, each of at most ``most`` items and about ``size`` packed bytes, but of one item
    at least.  A map counts as the bytes of so many elements as it counts as.

    >>> list(portions([1, 2, 3], most=2, size=1000)), list(portions(["long", "longer", 1], most=9, size=8))
    ([[1, 2], [3]], [['long'], ['longer', 1]])
    """
    part: list[T] = []
    used = 0
    for item in items:
        cost = most_elements(pack(item))
        if part and (len(part) >= most or used + cost > size):
            yield part
            part, used = [], 0
        part.append(item)
        used += cost
    if part:
        yield part
