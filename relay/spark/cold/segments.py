"""Segments: archived epochs replayed in a task, for patterns that columns alone do not answer.

The daemon's own replay reads the archive here, so the rows are the rows that the daemon would send.
"""

from __future__ import annotations

from collections.abc import Iterator

from dataspace.client.bulk.blocks import Block, block
from dataspace.codec import unpack_own
from relay.archive.reading import ReadArchive
from relay.log.columns import ColumnReplay
from relay.spark.cold.plans import ColdPlan
from relay.spark.common.schema import Columns


def segment_blocks(log: ReadArchive, plan: ColdPlan, wanted: Columns) -> Iterator[Block]:
    """Yields the blocks of a plan; ``Refused("epoch-gone")`` where the archive begins later.

    About 2 µs a change, and where something is counted the same from the nearest state to ``plan.after``.
    """
    captures = wanted.captures
    replay = ColumnReplay(
        log if wanted.asserted else log.beginning_at(plan.after),
        wanted.pattern,
        plan.after,
        captures=captures,
        places=wanted.placed,
        asserted=wanted.asserted,
    )
    made = replay.state(log.archive.time_of(plan.after)) if plan.state else replay.blocks(plan.upto)
    for each in made:
        yield block(unpack_own(each.packed), captures)
