"""Segments: archived epochs replayed in a task, for patterns that columns alone do not answer.

The daemon's own replay reads the archive here, so the rows are the rows that the daemon would send.
"""

from __future__ import annotations

from collections.abc import Iterator

from dataspace.client.bulk.blocks import Block, block
from dataspace.codec import unpack_own
from relay.archive.reading import ReadArchive
from relay.log.columns import ColumnReplay
from relay.log.shares import StateShares
from relay.spark.cold.archives import archive_of
from relay.spark.cold.plans import ColdPlan
from relay.spark.common.connections import DaemonPeer
from relay.spark.common.schema import Columns


def segment_blocks(
    log: ReadArchive, plan: ColdPlan, wanted: Columns, shares: StateShares | None = None
) -> Iterator[Block]:
    """Yields the blocks of a plan; ``Refused("epoch-gone")`` where the archive begins later.

    ``shares`` has the state, if the caller has it.  About 2 µs a change, and where something is counted the
    same from the nearest state to ``plan.after``.
    """
    captures = wanted.captures
    replay = ColumnReplay(
        log if wanted.traced else log.beginning_at(plan.after),
        wanted.pattern,
        plan.after,
        captures=captures,
        places=wanted.placed,
        asserted=wanted.asserted,
        owners=wanted.owned,
        share=plan.share,
        shares=shares,
    )
    made = replay.state(log.archive.time_of(plan.after)) if plan.state else replay.blocks(plan.upto)
    for each in made:
        yield block(unpack_own(each.packed), captures)


def archived_upto(peer: DaemonPeer, bound: float, identity: str, after: int, upto: int) -> int:
    """Returns the last epoch of (after, upto] up to which an archive has all epochs; -1 if it begins later.

    Reads the newest manifest; waits up to ``bound`` seconds for a store that is away.
    """
    cold = archive_of(peer, bound, identity)
    if cold is None or cold.fresh().archive.oldest > after + 1:
        return -1
    return min(cold.archive.upto, upto)


def archived_blocks(peer: DaemonPeer, bound: float, plan: ColdPlan, wanted: Columns) -> Iterator[Block]:
    """Yields the blocks of a plan for epochs that an archive has, as ``archived_upto`` says."""
    cold = archive_of(peer, bound, plan.identity)
    assert cold is not None  # as the caller has asked
    return segment_blocks(cold.log, plan, wanted)
