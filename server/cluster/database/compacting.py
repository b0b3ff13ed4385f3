"""Compacting a log in a store: its segments joined, as few and as full as may be, numbered on from the last.

Always: the new log answers every question as the old one did; it takes the place of the old one whole, or not
at all.
"""

from __future__ import annotations

from contextlib import closing

from dataspace.codec import pack
from dataspace.errors import UsageError
from relay.log.chain import Chain, rows_of_segments
from relay.log.compaction import Compacted, SegmentJoiner, trim
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.retention import Retention
from relay.log.segments import FORMAT
from relay.log.snapshots import newest_head
from relay.space_registers import space_registers
from relay.store.address import StoreAddress
from relay.store.header import Header, unsealed
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import Fence, FencedWriter
from relay.store.postgres.rewriting import Rewriting
from relay.store.postgres.tables import PostgresLog
from server.cluster.database.copying import leading, logs_of


def compact_store(address: StoreAddress, space: str, retention: Retention) -> Compacted:
    """Deletes what is past retention, then joins the segments of a log that no daemon leads; O(log).

    Raises ``UsageError`` if one does, or if there is no such log, and ``LogDamaged`` if that is not whole.
    """
    with closing(Database(address)) as database:
        database.check()
        if space not in (there := logs_of(database)):
            raise UsageError(f"there is no log of space {space!r} in {address}, but of {', '.join(there)}")
        with leading(database, [space], "compact") as (numbers, fences):
            number, fence = numbers[space], fences[space]
            if not retention.endless:
                tables = PostgresLog(database, number, FencedWriter(database, fence))
                trim(Log(tables, registers=space_registers), retention)
            before = LogReader(PostgresLog(database, number), registers=space_registers).verify()
            _rewrite(database, number, fence)
            after = LogReader(PostgresLog(database, number), registers=space_registers).verify()
            with database.connect(writes=True) as connection:
                connection.execute(database.statement("VACUUM {s}.segments"))
        return Compacted(before.segments, after.segments, before.bytes, after.bytes)


def _rewrite(database: Database, space: int, fence: Fence) -> None:
    tables = PostgresLog(database, space)
    names, starts, _ = tables.moment()
    meta = unsealed(names, starts, tables.place)
    chain = Chain(tables, meta["anchor"])
    head = newest_head(tables)
    joining = SegmentJoiner(chain, head[1] if head else 0, meta.get("archived_segment", 0))
    first = min(chain.first_needed(meta["oldest"], joining.snapshot), chain.last)
    if first < 1:
        return
    old = chain.last
    chain.last += 1  # a number is left out, so that a follower at the last one does not go on with the next
    with database.translated("compact"), database.connect(writes=True) as connection:
        with connection.transaction():
            rewriting = Rewriting(database, connection, space, fence)
            for segment in joining.segments(first):
                rewriting.add(rows_of_segments([segment]))
            changed: dict[str, object] = {"anchor": chain.checksum, "format": FORMAT} | joining.names()
            if head is not None:
                changed["snapshot"] = pack((head[0], joining.snapshot, *head[2:]))
            with Header(meta, starts).changing(changed) as written:
                rewriting.end(old, None if head is None else (head[0], joining.snapshot), written)
