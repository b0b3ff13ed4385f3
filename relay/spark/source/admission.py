"""Admission: when the next micro-batch is made, and how far it goes.

With ``minChangesPerTrigger`` a query makes few batches of many changes instead of many of few.  What a batch
has follows from its offsets as ever: this only says when the next one is made.

Always: a first batch, rows of a state, epochs of an archive and what was lost are not waited for; each change
is counted once however often Spark asks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataspace.wire.observing import NUMBERS
from relay.spark.common.connections import DaemonPeer, asked
from relay.spark.source.offsets import Offset, lost

if TYPE_CHECKING:
    from relay.spark.common.frontiers import SourceFrontier
    from relay.spark.common.options import BatchThreshold, StreamOptions


class BatchAdmission:
    """When the next batch of one query is made; ``least`` is None where it is made at once."""

    def __init__(self, least: BatchThreshold | None, connect_timeout: float) -> None:
        self._least = least
        self._bound = connect_timeout
        self._last = -math.inf
        """When the last batch was made, by the monotonic clock."""
        self._counted: dict[int, tuple[int, int, int]] = {}
        """By daemon: the epoch that was counted from, the epoch up to which, and how many changes."""

    @property
    def left(self) -> float:
        """Returns the seconds after which a batch is made however small it is; infinity where none waits."""
        if self._least is None or not self._counted:
            return math.inf
        return max(0.0, self._last + self._least.delay - time.monotonic())

    def seen(self, at: int, here: Offset) -> int:
        """Returns the epoch up to which a daemon has no batch yet, 0 where that is not known."""
        begun, upto, _ = self._counted.get(at, (-1, 0, 0))
        return upto if begun == here.reached else 0

    def begun(self) -> None:
        """Notes that a batch is made."""
        self._last = time.monotonic()
        self._counted.clear()

    def admits(
        self, peers: Sequence[DaemonPeer], here: Sequence[Offset], now: Sequence[SourceFrontier]
    ) -> bool:
        """True if a batch may be made; counts the changes that have come since it was asked before."""
        least = self._least
        if least is None or time.monotonic() >= self._last + least.delay:
            return True
        if any(not waits(at) or lost(at, there) is not None for at, there in zip(here, now, strict=True)):
            return True
        enough = False
        for number, (peer, at, there) in enumerate(zip(peers, here, now, strict=True)):
            enough = enough or self._has(number, peer, at, there, least.changes)
        return enough

    def _has(self, number: int, peer: DaemonPeer, here: Offset, now: SourceFrontier, least: int) -> bool:
        """True if a daemon has so many changes after an offset."""
        begun, upto, count = self._counted.get(number, (-1, 0, 0))
        if begun != here.reached:
            begun, upto, count = here.reached, here.reached, 0
        if upto < min(now.archived, now.epoch) or not peer.url:
            return now.epoch > here.reached
        if now.epoch > upto and count < least:
            after, most = upto, least - count - 1
            count += asked(peer, self._bound, lambda link: link.counted(after, now.epoch, most))
        self._counted[number] = begun, max(upto, now.epoch), count
        return count >= least


def waits(here: Offset) -> bool:
    """Whether the next batch needs news: a snapshot is one even when nothing follows it."""
    return here.pending is None or here.pending.kind == "after"


def within(peer: DaemonPeer, options: StreamOptions, here: Offset, upto: int) -> int:
    """The last epoch up to ``upto`` that the most changes and bytes lead to, but at least one epoch."""
    bound, changes, size = options.connect_timeout, options.max_changes or NUMBERS, options.max_bytes
    if peer.archive:
        from relay.spark.cold import archives  # loaded where there is one

        cold = archives.archive_of(peer, bound, here.space)
        if cold is not None and here.reached < cold.archive.upto:
            return cold.log.within(here.reached, min(upto, cold.archive.upto), changes, size)[0]
    return asked(peer, bound, lambda link: link.within(here.reached, upto, changes, size))
