"""A log of a store that another daemon writes, whose newest place is remembered."""

from __future__ import annotations

from relay.following.following import FollowedLog
from relay.log.chain import READ_BYTES
from relay.log.segments import Segment
from relay.store.ports import AcknowledgedMark


class StoreFollowedLog(FollowedLog):
    """A ``FollowedLog`` in tables that keep a mark."""

    def check(self, *, accept_damage: bool) -> None:
        """Raises ``LogDamaged`` if less is there than this daemon has seen, unless that is accepted."""
        self._accept_damage = accept_damage
        if shortfall := self.shortfall():
            self._face(f"{self._tables.place}: {shortfall}")

    def tail(self, ordinal: int, size: int = READ_BYTES) -> list[Segment]:
        found = super().tail(ordinal, size)
        if found:
            last = found[-1]
            self._tables.note(AcknowledgedMark(last.last, last.ordinal, last.last, last.checksum))
        return found
