"""Tables of segments and of a header in PostgreSQL, and the log of a space.

Always: a write is one fenced statement; a segment is written only if its predecessor is there with the
checksum that it had.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection

from dataspace.codec import pack, unpack_own
from dataspace.errors import ProtocolError
from relay.store.errors import LogFailed
from relay.store.ports import (
    KEY_BITS,
    AcknowledgedMark,
    ChainEnds,
    ChainHead,
    LogMoment,
    Names,
    Row,
    SnapshotMoment,
    Start,
)
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import FencedWriter
from relay.store.postgres.places import SeenPlace

_COLUMNS: Final = "segment, first, last, entries, changes, since, until, checksum, body"
OF_SPACE: Final = "FROM {s}.segments WHERE space = %(space)s"
_SPAN: Final = f"{OF_SPACE} AND segment > %(low)s AND segment < %(high)s"

INSERT_SEGMENTS: Final = """put_segments AS (
    INSERT INTO {s}.segments
    SELECT %(space)s, r.*, led.term FROM led, unnest(
        %(segment)b::int8[], %(first)b::int8[], %(last)b::int8[], %(entries)b::int8[], %(changes)b::int8[],
        %(since)b::int8[], %(until)b::int8[], %(checksum)b::bytea[], %(body)b::bytea[]
    ) AS r
)"""

PUT_NAMES: Final = """put_names AS (
    INSERT INTO {s}.meta SELECT %(space)s, n.* FROM led, unnest(%(names)s::text[], %(values)b::bytea[]) AS n
    ON CONFLICT (space, name) DO UPDATE SET value = excluded.value
)"""

_PUT_START: Final = """put_start AS (
    INSERT INTO {s}.starts SELECT %(space)s, %(first)s, %(before)s FROM led
    ON CONFLICT (space, first) DO UPDATE SET before = excluded.before
)"""

_DROP: Final = """dropped AS (
    DELETE FROM {s}.segments USING led WHERE space = %(space)s AND segment > %(low)s AND segment < %(high)s
), dropped_starts AS (
    DELETE FROM {s}.starts USING led WHERE space = %(space)s AND first < %(oldest)s
)"""

_BEGIN_SNAPSHOT: Final = """begun AS (
    INSERT INTO {s}.snapshots SELECT %(space)s, %(snapshot)s, %(segment)s, %(epoch)s, %(time)s, NULL FROM led
    ON CONFLICT (space, snapshot) DO UPDATE
    SET segment = excluded.segment, epoch = excluded.epoch, time = excluded.time
)"""

_PUT_CHUNK: Final = """put_chunk AS (
    INSERT INTO {s}.chunks SELECT %(space)s, %(snapshot)s, %(chunk)s, %(checksum)b, %(body)b FROM led
    ON CONFLICT (space, snapshot, chunk) DO UPDATE SET checksum = excluded.checksum, body = excluded.body
)"""

_COMPLETE: Final = """completed AS (
    UPDATE {s}.snapshots SET chunks = %(chunks)s FROM led WHERE space = %(space)s AND snapshot = %(snapshot)s
), old_chunks AS (
    DELETE FROM {s}.chunks USING led WHERE space = %(space)s AND snapshot < %(snapshot)s
), old_snapshots AS (
    DELETE FROM {s}.snapshots USING led WHERE space = %(space)s AND snapshot < %(snapshot)s
)"""

_DROP_INCOMPLETE: Final = """of_none AS (
    DELETE FROM {s}.chunks USING led WHERE space = %(space)s AND snapshot IN (
        SELECT snapshot FROM {s}.snapshots WHERE space = %(space)s AND chunks IS NULL
    )
), incomplete AS (
    DELETE FROM {s}.snapshots USING led WHERE space = %(space)s AND chunks IS NULL
)"""

_PUT_READER: Final = """put_reader AS (
    INSERT INTO {s}.readers SELECT %(space)s, %(name)s, %(epoch)s, %(seen)s FROM led
    ON CONFLICT (space, name) DO UPDATE SET epoch = excluded.epoch, seen = excluded.seen
)"""

_DELETE_READER: Final = """deleted AS (
    DELETE FROM {s}.readers USING led WHERE space = %(space)s AND name = %(name)s
)"""

_BISECT: Final = """
WITH RECURSIVE halves (low, high) AS (
    SELECT %(low)s::int8, %(high)s::int8
    UNION ALL
    SELECT CASE WHEN coalesce(found.{column} >= %(least)s, true) THEN low ELSE middle + 1 END,
           CASE WHEN coalesce(found.{column} >= %(least)s, true) THEN middle ELSE high END
    FROM halves
    CROSS JOIN LATERAL (SELECT (low + high) / 2 AS middle) AS between
    LEFT JOIN LATERAL (
        SELECT {column} FROM {s}.segments WHERE space = %(space)s AND segment >= middle
        ORDER BY segment LIMIT 1
    ) AS found ON true
    WHERE low < high
)
SELECT low FROM halves WHERE low >= high LIMIT 1
"""

ENDS: Final = f"""
SELECT (SELECT min(segment) {_SPAN}), segment, last, checksum {_SPAN} ORDER BY segment DESC LIMIT 1
"""
_FETCH: Final = f"""
SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS}, sum(octet_length(body)) OVER (ORDER BY segment) - octet_length(body) AS before,
           lag(first) OVER (ORDER BY segment) AS first_before
    FROM (SELECT {_COLUMNS} {_SPAN} ORDER BY segment LIMIT %(most)s) AS next
) AS summed
WHERE before < %(size)s AND (%(upto)s::int8 IS NULL OR first_before IS NULL OR first_before <= %(upto)s)
ORDER BY segment
"""
_PORTION: Final = f"SELECT segment, octet_length(body) {_SPAN} ORDER BY segment"
_NEWEST_SNAPSHOT: Final = """
SELECT snapshot, segment, epoch, time, chunks FROM {s}.snapshots
WHERE space = %(space)s AND chunks IS NOT NULL ORDER BY snapshot DESC LIMIT 1
"""
_CHUNKS: Final = """
SELECT checksum, body FROM {s}.chunks WHERE space = %(space)s AND snapshot = %(snapshot)s
AND chunk >= %(chunk)s ORDER BY chunk LIMIT %(most)s
"""
_CHUNKS_AT_ONCE: Final = 4

NAMES: Final = "SELECT name, value FROM {s}.meta WHERE space = %(space)s"
_STARTS: Final = "SELECT first, before FROM {s}.starts WHERE space = %(space)s ORDER BY first"
_SIZE: Final = """
SELECT (SELECT coalesce(sum(octet_length(body)), 0) FROM {s}.segments WHERE space = %(space)s)
     + (SELECT coalesce(sum(octet_length(body)), 0) FROM {s}.chunks WHERE space = %(space)s)
"""


class PostgresChains:
    """The chains of one space; without a writer, to read only.

    The ``state`` remembers the newest place that this daemon has seen: a database that went back holds less.
    """

    may_wait = True

    def __init__(
        self,
        database: Database,
        space: int,
        writer: FencedWriter | None = None,
        state: SeenPlace | None = None,
    ) -> None:
        self._database: Final = database
        self._space: Final = space
        self._writer: Final = writer
        self._state = state
        self.place: str = database.place
        self.mark: AcknowledgedMark = AcknowledgedMark() if state is None else state.mark
        self._heads: dict[int, tuple[int, bytes]] = {}
        """The newest segment of each chain and its checksum, as this daemon knows it."""
        self._used: int | None = None

    # -- asking ---------------------------------------------------------------------------------------

    def _rows(self, question: str, **values: object) -> list[Any]:
        return self._database.rows(question, {"space": self._space, **values})

    def _ask(self, connection: Connection[Any], question: str, **values: object) -> list[Any]:
        """Returns an answer as of the caller's moment."""
        given = {"space": self._space, **values}
        return connection.execute(self._database.statement(question), given, binary=True).fetchall()

    def write_mark(self, mark: AcknowledgedMark, *, sync: bool = False) -> None:
        self.mark = mark
        if self._state is not None:
            self._state.write(mark, sync=sync)

    def ends(self, key: int) -> ChainEnds | None:
        return self._noted(key, self._rows(ENDS, **span(key)))

    def _noted(self, key: int, rows: Sequence[Row]) -> ChainEnds | None:
        """Returns the ends of a chain; a writer's first look decides what its next segment follows."""
        if not rows:
            return None
        ends = ChainEnds(*rows[0])
        self._heads.setdefault(key, (ends.newest, ends.checksum))
        return ends

    def fetch(self, ordinal: int, upto: int | None, most: int, size: int) -> Sequence[Row]:
        high = ((ordinal >> KEY_BITS) + 1) << KEY_BITS
        return self._rows(_FETCH, low=ordinal - 1, high=high, upto=upto, most=most, size=size)

    def first_by_last(self, low: int, high: int, least: int) -> int:
        return self._first("last", low, high, least)

    def first_by_until(self, low: int, high: int, least: int) -> int:
        return self._first("until", low, high, least)

    def _first(self, column: str, low: int, high: int, least: int) -> int:
        if low >= high:
            return low
        question = _BISECT.replace("{column}", column)
        return int(self._rows(question, low=low, high=high, least=least)[0][0])

    def checksum_of(self, ordinal: int) -> bytes | None:
        rows = self._rows(f"SELECT checksum {OF_SPACE} AND segment = %(segment)s", segment=ordinal)
        return rows[0][0] if rows else None

    def head_of(self, ordinal: int) -> ChainHead:
        question = f"SELECT last, until, checksum {OF_SPACE} AND segment = %(segment)s"
        return ChainHead(*self._rows(question, segment=ordinal)[0])

    def bytes_between(self, first: int, beyond: int) -> int:
        question = f"SELECT coalesce(sum(octet_length(body)), 0)::int8 {_SPAN}"
        return int(self._rows(question, low=first - 1, high=beyond)[0][0])

    def changes_between(self, first: int, beyond: int) -> int:
        question = f"SELECT count(*), coalesce(sum(changes), 0)::int8 {_SPAN}"
        return int(self._rows(question, low=first - 1, high=beyond)[0][1])

    def portion(self, first: int, beyond: int, limit: int) -> tuple[int, int]:
        size = 0
        for ordinal, each in self._rows(_PORTION, low=first - 1, high=beyond):
            if size and size + each > limit:
                return ordinal, size
            size += each
        return max(first, beyond), size

    def counts(self, key: int) -> tuple[int, int]:
        question = f"SELECT count(*), coalesce(sum(changes), 0)::int8 {_SPAN}"
        segments, changes = self._rows(question, **span(key))[0]
        return segments, changes

    def size(self) -> int:
        return int(self._rows(_SIZE)[0][0])

    def used(self) -> int:
        if self._writer is None:
            return self.size()
        if self._used is None:  # from here on each write is counted
            self._used = self.size()
        return self._used

    # -- writing --------------------------------------------------------------------------------------

    def _write(self, changes: str, **values: object) -> None:
        self._led().write(changes, {"space": self._space, **values})

    def _led(self) -> FencedWriter:
        if self._writer is None:
            raise LogFailed(f"{self.place} is open to read only")
        return self._writer

    def _write_after(self, segments: Sequence[Row], changes: str, **values: object) -> None:
        """Writes segments, each chain after its newest segment, with what else belongs to the write."""
        previous, newest = self._predecessors(segments)

        def is_there(connection: Connection[Any]) -> bool:
            question = f"SELECT segment, checksum {OF_SPACE} AND segment = ANY(%(segment)s)"
            written = {row[0]: row[7] for row in segments}
            return dict(self._ask(connection, question, segment=[*written])) == written

        if len(segments) == len(previous) == 1 and not changes:
            self._led().write_segment(self._space, segments[0], previous[0], is_there)
        else:
            self._led().write(
                ", ".join(filter(None, (INSERT_SEGMENTS if segments else "", changes))),
                {
                    "space": self._space,
                    "previous": [ordinal for ordinal, _ in previous],
                    "sums": [checksum for _, checksum in previous],
                    **segment_columns(segments),
                    **values,
                },
                follows=bool(previous),
                is_there=is_there if segments else None,
            )
        self._heads.update(newest)
        if self._used is not None:
            self._used += sum([len(row[8]) for row in segments])

    def _predecessors(
        self, segments: Iterable[Row]
    ) -> tuple[list[tuple[int, bytes]], dict[int, tuple[int, bytes]]]:
        """Returns the segments that must be there, and the newest one of each chain afterwards."""
        previous: list[tuple[int, bytes]] = []
        newest: dict[int, tuple[int, bytes]] = {}
        for row in segments:
            key = row[0] >> KEY_BITS
            if key not in newest and (head := self._heads.get(key)) is not None:
                previous.append(head)
            newest[key] = row[0], row[7]
        return previous, newest

    def _counted_out(self, size: int) -> None:
        """Takes deleted bytes off what is in use."""
        if self._used is not None:
            self._used -= size

    # -- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._end_state()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
        self._end_state()

    def _end_state(self) -> None:
        if self._state is not None:
            self._state.close()
            self._state = None


class PostgresLog(PostgresChains):
    """The tables of a log."""

    def moment(self) -> LogMoment:
        with self._database.moment() as connection:
            ends = self._noted(0, self._ask(connection, ENDS, **span(0)))
            return LogMoment(named(self._ask(connection, NAMES)), self._ask(connection, _STARTS), ends)

    def starts(self) -> list[Start]:
        return self._rows(_STARTS)

    def append(self, segments: Sequence[Row], names: Names) -> None:
        self._write_after(segments, PUT_NAMES if names else "", **put(names))

    def begin_start(self, first: int, before: int, names: Names) -> None:
        self._write(f"{_PUT_START}, {PUT_NAMES}", first=first, before=before, **put(names))

    def put_header(self, names: Names) -> None:
        self._write(PUT_NAMES, **put(names))

    def _write_above(self, changes: str, **values: object) -> None:
        """Writes only if the newest segment is there, since what is written comes from a memory that has its
        epochs, which a database that went back may lack."""
        head = self._heads.get(0)
        heads = [] if head is None else [head]
        self._led().write(
            changes,
            {
                "space": self._space,
                "previous": [ordinal for ordinal, _ in heads],
                "sums": [checksum for _, checksum in heads],
                **values,
            },
            follows=bool(heads),
        )

    def drop_before(self, ordinal: int, oldest: int, names: Names) -> None:
        low = (ordinal - 1) >> KEY_BITS << KEY_BITS
        size = 0 if self._used is None else self.bytes_between(low + 1, ordinal)
        self._write_above(f"{_DROP}, {PUT_NAMES}", low=low, high=ordinal, oldest=oldest, **put(names))
        self._counted_out(size)

    # -- snapshots ------------------------------------------------------------------------------------

    @contextmanager
    def newest_snapshot(self) -> Iterator[SnapshotMoment]:
        with self._database.moment() as connection:
            head = named(self._ask(connection, f"{NAMES} AND name = 'snapshot'")).get("snapshot")
            rows = self._ask(connection, _NEWEST_SNAPSHOT)
            row = rows[0] if rows else None
            yield SnapshotMoment(head, row, self._chunks(connection, row[0] if row else 0))

    def _chunks(self, connection: Connection[Any], snapshot: int) -> Generator[tuple[Any, Any]]:
        chunk = 0
        while rows := self._ask(connection, _CHUNKS, snapshot=snapshot, chunk=chunk, most=_CHUNKS_AT_ONCE):
            yield from rows
            chunk += len(rows)

    def begin_snapshot(self, segment: int, epoch: int, time: int) -> int:
        question = "SELECT coalesce(max(snapshot), 0) + 1 FROM {s}.snapshots WHERE space = %(space)s"
        number = int(self._rows(question)[0][0])
        self._write(_BEGIN_SNAPSHOT, snapshot=number, segment=segment, epoch=epoch, time=time)
        return number

    def put_chunk(self, snapshot: int, chunk: int, checksum: bytes, body: bytes) -> None:
        self._write(_PUT_CHUNK, snapshot=snapshot, chunk=chunk, checksum=checksum, body=body)

    def complete_snapshot(self, snapshot: int, chunks: int, names: Names) -> None:
        self._write_above(f"{_COMPLETE}, {PUT_NAMES}", snapshot=snapshot, chunks=chunks, **put(names))
        self._used = None

    def drop_incomplete_snapshots(self) -> None:
        self._write(_DROP_INCOMPLETE)

    # -- named readers --------------------------------------------------------------------------------

    def readers(self) -> list[Row]:
        return self._rows("SELECT name, epoch, seen FROM {s}.readers WHERE space = %(space)s")

    def put_reader(self, name: str, epoch: int, seen: int) -> None:
        self._write(_PUT_READER, name=name, epoch=epoch, seen=seen)

    def delete_reader(self, name: str) -> None:
        self._write(_DELETE_READER, name=name)


def segment_columns(segments: Sequence[Row]) -> dict[str, list[Any]]:
    """Returns rows of segments as ``INSERT_SEGMENTS`` takes them; nothing for none."""
    columns = [list(column) for column in zip(*segments, strict=True)]
    return dict(zip(_COLUMNS.split(", "), columns, strict=True)) if segments else {}


def put(names: Names) -> dict[str, list[Any]]:
    """Returns names of the header as ``PUT_NAMES`` takes them."""
    return {"names": list(names), "values": [pack(value) for value in names.values()]}


def named(rows: Iterable[Row]) -> dict[str, Any]:
    """Returns the header by name; a value that cannot be read, since it was altered, as its bytes."""
    return {name: _value(packed) for name, packed in rows}


def _value(packed: bytes) -> Any:
    try:
        return unpack_own(packed)
    except ProtocolError:
        return packed


def span(key: int) -> dict[str, int]:
    return {"low": key << KEY_BITS, "high": (key + 1) << KEY_BITS}
