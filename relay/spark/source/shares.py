"""Shares: how a state is divided among micro-batches and among tasks.

Each row of a state has a number, a hash of its captures (``relay/log/cursors.py``).  A micro-batch has the
rows from one number to another, as many as ``maxChangesPerTrigger`` allows, and its tasks have even parts of
that.

Always: numbers follow from values alone, so a batch that is read again has the same rows, whether the daemon
or the archive has the epoch now.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

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


def share_end(
    peer: DaemonPeer,
    options: StreamOptions | ReadOptions,
    columns: Columns,
    now: SourceFrontier,
    at: int,
    low: int,
    rows: int,
) -> int:
    """Returns the number up to which at most so many rows of a state are, from ``low`` on; at least one.

    ``NUMBERS`` if there are no more.
    """
    bound = options.connect_timeout
    if not is_archived(peer, at, now):
        ask = partial(_asked_daemon, columns=columns, at=at, low=low, rows=rows)
        try:
            return asked(peer, bound, ask)
        except Refused as refusal:
            if refusal.code != "epoch-gone" or not peer.archive:
                raise
    from relay.spark.cold.archives import planned_archive  # loaded where there is an archive
    from relay.spark.cold.shares import archived_shares

    cold = planned_archive(peer, bound, now.space).upto(at)
    return archived_shares(cold, at, columns).upto(low, rows)


def _asked_daemon(link: BulkClient, *, columns: Columns, at: int, low: int, rows: int) -> int:
    return link.within_state(columns.pattern, at, low, rows, asserted=columns.asserted)


def divided_state(
    peer: DaemonPeer,
    options: StreamOptions | ReadOptions,
    columns: Columns,
    now: SourceFrontier,
    span: Span,
    count: int,
) -> list[Span]:
    """Returns the state of a span in up to ``count`` parts, and then its epochs if there are some.

    The span itself where the state is small.
    """
    if span.as_of is None or count < 2 or options.topic is not None:
        return [span]
    low, high = span.share or (0, NUMBERS)
    if share_end(peer, options, columns, now, span.as_of, low, LEAST_ROWS) >= high:
        return [span]
    ends = [low + (high - low) * at // count for at in range(count + 1)]
    alone = Span(span.as_of, span.as_of, span.as_of)
    parts = [replace(alone, share=ends_of) for ends_of in pairwise(ends)]
    rest = Span(span.after, span.upto)
    return parts if rest.empty else [*parts, rest]
