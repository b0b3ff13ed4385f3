"""How long a connection waits for its peer: for the hello, for the rest of a frame, for any sign of life.

Always: a deadline is absolute, so a peer that sends a byte now and then does not extend it.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

from dataspace.errors import ProtocolError
from dataspace.wire.heartbeat import Heartbeat
from dataspace.wire.session import Session, State
from server.config.model import Limits


class ReadableLink(Protocol):
    """A socket that bytes come from."""

    async def receive(self) -> bytes:
        """Waits for bytes, and returns them; none at the end."""

    def receive_nowait(self) -> bytes | None:
        """Returns the bytes that are there; None if there are none yet."""


class Beating(Protocol):
    """What holds the heartbeat that was agreed upon."""

    @property
    def beat(self) -> Heartbeat:
        """When the peer was heard last, and how long it may be silent."""


class Patience:
    """The deadlines of one peer; a ``trusted`` one may take as long as it likes for its hello."""

    __slots__ = ("_deadline", "_limits", "_link", "_sending", "_session")

    def __init__(
        self, link: ReadableLink, session: Session, sending: Beating, limits: Limits, *, trusted: bool
    ) -> None:
        self._link: Final = link
        self._session: Final = session
        self._sending: Final = sending
        self._limits: Final = limits
        self._deadline = math.inf if trusted else trio.current_time() + limits.hello_seconds

    async def receive(self) -> bytes:
        """Returns bytes, or none at the end; raises ``ProtocolError`` if the peer was silent for too long."""
        chunk = None
        with trio.move_on_at(min(self._deadline, self._sending.beat.lost)):
            chunk = await self._link.receive()
        if chunk is None:
            chunk = self._link.receive_nowait()  # the daemon itself may have been late
        if chunk is None:
            raise self._late()
        return chunk

    def extend(self, some: bool) -> None:
        """Notes what came: the frame that has begun must be complete in time.

        ``some`` is true if other frames were finished just now, so that this one cannot be older.
        """
        if self._session.state is State.FRESH:
            return
        if not self._session.held:
            self._deadline = math.inf
        elif some or self._deadline == math.inf:
            self._deadline = trio.current_time() + self._limits.frame_seconds

    def _late(self) -> ProtocolError:
        if self._session.state is State.FRESH:
            return ProtocolError("timeout", f"no hello within {self._limits.hello_seconds} s")
        beat = self._sending.beat
        if beat.lost <= trio.current_time():
            return ProtocolError("timeout", f"no data for {2 * beat.interval:g} s")
        return ProtocolError("timeout", f"a frame took longer than {self._limits.frame_seconds} s")
