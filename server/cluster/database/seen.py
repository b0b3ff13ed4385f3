"""Logs and topics of a store that another daemon writes, whose newest place is remembered."""

from __future__ import annotations

from relay.following.following import FollowedLog
from relay.journal.followed import FollowedJournal, TopicHead
from relay.log.chain import READ_BYTES
from relay.log.segments import Segment
from relay.store.ports import AcknowledgedMark


class StoreFollowedLog(FollowedLog):
    """A ``FollowedLog`` in tables that keep a mark."""

    def tail(self, ordinal: int, size: int = READ_BYTES) -> list[Segment]:
        found = super().tail(ordinal, size)
        if found:
            last = found[-1]
            self._tables.write_mark(AcknowledgedMark(last.last, last.ordinal, last.last, last.checksum))
        return found


class StoreFollowedJournal(FollowedJournal):
    """A ``FollowedJournal`` in tables that keep a mark: how many steps there were."""

    def heads(self) -> tuple[int, list[TopicHead]]:
        steps, heads = super().heads()
        self._tables.write_mark(AcknowledgedMark(steps))
        return steps, heads
