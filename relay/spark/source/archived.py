"""Archived epochs of a batch: which tasks read them, and how such a task makes its rows.

Apart from the source because processes of a query without an archive do not load this.

Always: what the archive and the daemon both have is read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from relay.spark.cold.archives import ColdArchive, archive_of, planned_archive
from relay.spark.cold.columns import ColumnTask, column_batches
from relay.spark.cold.counted import counted_batches
from relay.spark.cold.forms import column_form
from relay.spark.cold.plans import ColdPlan, planned, summed_files
from relay.spark.cold.segments import segment_blocks
from relay.spark.cold.shares import archived_shares
from relay.spark.cold.states import column_state
from relay.spark.source.offsets import Span
from relay.spark.source.shares import is_archived
from relay.spark.source.tasks import SortedState, batches

if TYPE_CHECKING:
    from relay.spark.common.connections import DaemonPeer
    from relay.spark.common.frontiers import SourceFrontier
    from relay.spark.common.options import ReadOptions, StreamOptions
    from relay.spark.common.schema import Columns


def divided(
    at: int, span: Span, now: SourceFrontier, options: StreamOptions | ReadOptions, columns: Columns
) -> tuple[list[ColdPlan], Span]:
    """Returns the plans of tasks that read the archived part of a span, and the rest of the span."""
    peer = options.peers[at]
    plans: list[ColdPlan] = []
    if span.as_of is not None:
        if not is_archived(peer, span.as_of, now):
            return plans, span
        plans.append(ColdPlan(now.space, span.as_of, span.as_of, state=True, share=span.share))
        span = Span(span.after, span.upto)
    upto = min(now.archived, span.upto)
    if span.after < upto:
        cold = archive_of(peer, options.connect_timeout, now.space)
        assert cold is not None  # since something is archived
        count = -(-options.partitions // len(options.peers))
        if columns.traced:  # which columns do not have
            plans.append(ColdPlan(now.space, span.after, upto))
        else:
            plans += planned(cold.archive, columns.pattern, span.after, upto, count)
        span = Span(upto, span.upto)
    return plans, span


def cold_rows(
    plan: ColdPlan, columns: Columns, peer: DaemonPeer, options: StreamOptions | ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of a task that reads an archive; raises ``Misfit`` for a value that does not fit."""
    cold = planned_archive(peer, options.connect_timeout, plan.identity)
    if plan.files is not None:
        form = column_form(columns.pattern)
        assert form is not None  # as the plan says
        task = ColumnTask(cold.objects, form, columns, plan.after, plan.upto, peer.shown, peer.space)
        yield from column_batches(task, plan.files)
        return
    if plan.share is not None:
        shares = archived_shares(cold.upto(plan.upto), plan.after, columns)
        yield from batches(
            segment_blocks(cold.log, plan, columns, shares), columns, options.batch_rows, peer=peer
        )
        return
    read = _by_columns(cold.upto(plan.upto), plan, columns, peer, options)
    if read is None:
        blocks = segment_blocks(cold.log, plan, columns)
        read = batches(blocks, columns, options.batch_rows, peer=peer)
    if not plan.state:
        yield from read
        return
    state = SortedState(columns)
    for batch in read:
        state.add(batch)
    yield from state.batches(options.batch_rows)


def _by_columns(
    cold: ColdArchive,
    plan: ColdPlan,
    columns: Columns,
    peer: DaemonPeer,
    options: StreamOptions | ReadOptions,
) -> Iterator[pa.RecordBatch] | None:
    """The state of a plan, or changes that are counted, from columns; None where they must be replayed."""
    form, archive = column_form(columns.pattern), cold.archive
    files = None if form is None else summed_files(archive, form, plan.after, plan.upto)
    if form is None or files is None or columns.traced:
        return None
    task = ColumnTask(cold.objects, form, columns, plan.after, plan.upto, peer.shown, peer.space)
    if plan.state:
        return column_state(task, files, archive.time_of(plan.upto), options.batch_rows)
    return counted_batches(task, files, plan.identity)
