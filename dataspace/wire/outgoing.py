"""What a daemon takes in one frame, turn or request: a client refuses more before it is sent.

A frame beyond these bounds ends the session, and with it everything that has nothing to do with that frame.
So the client measures what holds values of its caller, and the call that brought them fails alone.  A turn
that may be sent in several pieces is split into portions.  No event loop is loaded: Spark executors use this
too.

Always: a frame that passes ``check_frame`` is within the bounds that the daemon measures by; no portion
exceeds the limits, unless it is a single item that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from dataspace.codec import MAX_DEPTH, MAX_ELEMENTS, may_exceed, most_elements, pack, scan
from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.kernel.actions import Action, are_by_handle
from dataspace.wire.frames import HEAD, MAX_FRAME
from index.values.freezing import bounded, is_flat
from index.values.values import Map, Value

CLIENT_DEPTH: Final = MAX_DEPTH - 8
"""Levels that a client may use: its values are passed on within frames that add some of their own."""


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """The daemon's limits for one frame."""

    frame_bytes: int = MAX_FRAME
    frame_elements: int = MAX_ELEMENTS

    @classmethod
    def read(cls, limits: Map) -> Self:
        """Returns the limits in a welcome; missing limits have their defaults."""
        names = cls.__dataclass_fields__
        known = {name: limits[name] for name in names if limits.get(name).__class__ is int}
        return cls(**known)  # type: ignore[arg-type]  # integers, as just checked

    def check_frame(self, framed: bytes) -> None:
        """Raises ``Refused("limit")`` for a frame that the daemon would end the session for; O(elements)."""
        self._check_bytes(framed, "packet")
        if len(framed) - HEAD > CLIENT_DEPTH:  # each level is one byte at least
            self._scan(framed, "packet")

    def check_size(self, framed: bytes, what: str = "packet") -> None:
        """Like ``check_frame``, for values whose depth is known to be allowed; O(1) unless it is large."""
        self._check_bytes(framed, what)
        if may_exceed(framed, self.frame_elements):
            self._scan(framed, what)

    def _check_bytes(self, framed: bytes, what: str) -> None:
        size = len(framed) - HEAD
        if size > self.frame_bytes:
            raise Refused(
                "limit",
                f"{what} of {size} bytes exceeds the daemon's limits.frame_bytes={self.frame_bytes}; "
                f"send smaller {what}s",
            )

    def _scan(self, framed: bytes, what: str) -> None:
        try:
            scan(framed[HEAD:], self.frame_elements, depth=CLIENT_DEPTH)
        except ProtocolError as error:
            raise Refused(error.code, f"{what} with {error.text}") from None


# -- portions --------------------------------------------------------------------------------------


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
