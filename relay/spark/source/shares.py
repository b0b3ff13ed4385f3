"""Shares: how a state is divided among micro-batches and among tasks.

Each row of a state has a number, a hash of its captures (``relay/log/cursors.py``).  A micro-batch has the
rows from one number to another, as many as ``maxChangesPerTrigger`` allows, and its tasks have even parts of
that.

Always: numbers follow from values alone, so a batch that is read again has the same rows, whether the daemon
or the archive has the epoch now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from dataspace.client.bulk.states import share_end
from dataspace.errors import Refused
from dataspace.wire.observing import NUMBERS
from relay.spark.common.connections import DaemonPeer, asked
from relay.spark.source.offsets import Span

if TYPE_CHECKING:
    from dataspace.client.bulk.client import BulkClient
    from relay.spark.common.frontiers import SourceFrontier
    from relay.spark.common.options import ReadOptions, StreamOptions
    from relay.spark.common.schema import Columns

LEAST_ROWS: Final = 1_000
"""Rows of a state for which a task of their own is worth it."""


def is_archived(peer: DaemonPeer, at: int, now: SourceFrontier) -> bool:
    """True if a state is read from the archive; the newest is left to the daemon, which has it at hand."""
    return at <= now.archived and not (peer.url and at == now.epoch)


@dataclass(frozen=True, slots=True)
class StateDivider:
    """What divides states of one daemon's space, which is as far as ``now`` says."""

    peer: DaemonPeer
    options: StreamOptions | ReadOptions
    columns: Columns
    now: SourceFrontier

    def end(self, at: int, low: int, rows: int, size: int | None = None) -> int:
        """Returns the number up to which at most so many rows of a state are, from ``low`` on; at least one.

        With ``size``, rows of at most so many bytes.  ``NUMBERS`` if there are no more.
        """
        peer, bound = self.peer, self.options.connect_timeout
        if not is_archived(peer, at, self.now):
            try:
                return asked(peer, bound, partial(self._asked, at=at, low=low, rows=rows, size=size))
            except Refused as refusal:
                if refusal.code != "epoch-gone" or not peer.archive:
                    raise
        from relay.spark.cold.archives import planned_archive  # loaded where there is an archive
        from relay.spark.cold.shares import archived_shares

        cold = planned_archive(peer, bound, self.now.space).upto(at)
        return archived_shares(cold, at, self.columns).upto(low, rows, size)

    def _asked(self, link: BulkClient, *, at: int, low: int, rows: int, size: int | None) -> int:
        columns = self.columns
        traced = columns.asserted, columns.owned
        return share_end(link, columns.pattern, at, (low, rows), traced=traced, size=size)

    def divided(self, span: Span, count: int) -> list[Span]:
        """Returns the state of a span in up to ``count`` parts, and then its epochs if there are some.

        The span itself where the state is small.
        """
        if span.as_of is None or count < 2:
            return [span]
        low, high = span.share or (0, NUMBERS)
        if self.end(span.as_of, low, LEAST_ROWS) >= high:
            return [span]
        ends = [low + (high - low) * at // count for at in range(count + 1)]
        alone = Span(span.as_of, span.as_of, span.as_of)
        parts = [replace(alone, share=of) for of in pairwise(ends)]
        rest = Span(span.after, span.upto)
        return parts if rest.empty else [*parts, rest]
