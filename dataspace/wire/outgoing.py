"""What a daemon takes in one frame: a client refuses more before it is sent.

A frame beyond these bounds ends the session, and with it everything that has nothing to do with that frame.
So the client measures what holds values of its caller, and the call that brought them fails alone.

Always: a frame that passes ``check_frame`` is within the bounds that the daemon measures by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from dataspace.codec import MAX_DEPTH, MAX_ELEMENTS, may_exceed, scan
from dataspace.errors import ProtocolError, Refused
from dataspace.wire.frames import HEAD, MAX_FRAME
from index.values.values import Map

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
