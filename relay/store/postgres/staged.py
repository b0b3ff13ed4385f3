"""The table of staged batches in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from psycopg import Connection

from relay.store.errors import LogFailed
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import Fence, FencedWriter

_OF_SPACE: Final = "FROM {s}.staged WHERE space = %(space)s"

_APPEND: Final = """appended AS (
    INSERT INTO {s}.staged SELECT %(space)s, %(key)b, %(part)s, %(since)s, %(body)b FROM led
)"""
_DELETE: Final = """deleted AS (
    DELETE FROM {s}.staged USING led WHERE space = %(space)s AND key = ANY(%(keys)b::bytea[])
)"""
_PURGE: Final = """purged AS (
    DELETE FROM {s}.staged USING led WHERE space = %(space)s AND since < %(before)s
)"""
_TOTAL: Final = f"SELECT count(*), coalesce(sum(octet_length(key) + octet_length(body)), 0)::int8 {_OF_SPACE}"


class StagingLine:
    """The one connection by which the staged batches of several spaces are written, one after the other."""

    def __init__(self) -> None:
        self.lock: Final = threading.RLock()
        self.holder: StagedWriter | None = None
        """The writer that is connected."""


class StagedWriter(FencedWriter):
    """A writer that shares its line: the writer before it parts with its connection."""

    def __init__(self, database: Database, fence: Fence, line: StagingLine) -> None:
        super().__init__(database, fence)
        self._line: Final = line

    def write(self, *args: Any, **more: Any) -> None:
        with self._line.lock:
            if (before := self._line.holder) is not None and before is not self:
                before._disconnect()
            self._line.holder = self
            super().write(*args, **more)


class PostgresStaged:
    """The staged batches of a space; without a writer, to read only."""

    def __init__(self, database: Database, space: int, writer: FencedWriter | None = None) -> None:
        self._database: Final = database
        self._space: Final = space
        self._writer: Final = writer
        self._lock: Final = threading.Lock()

    def append(self, key: bytes, since: float, body: bytes) -> None:
        with self._lock:  # what is sent twice has one number
            found = self._rows(f"SELECT coalesce(max(part), 0) + 1 {_OF_SPACE} AND key = %(key)b", key=key)
            part = found[0][0]

            def is_there(connection: Connection[Any]) -> bool:
                question = f"SELECT body {_OF_SPACE} AND key = %(key)b AND part = %(part)s"
                values = {"space": self._space, "key": key, "part": part}
                statement = self._database.statement(question)
                return connection.execute(statement, values, binary=True).fetchall() == [(body,)]

            values = {"space": self._space, "key": key, "part": part, "since": since, "body": body}
            self._write(_APPEND, values, is_there)

    def parts(self, key: bytes, low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        where = "AND (key = %(key)b OR (key >= %(low)b AND key < %(high)b)) ORDER BY key, part"
        return self._rows(f"SELECT key, body {_OF_SPACE} {where}", key=key, low=low, high=high)

    def keys(self, low: bytes, high: bytes) -> list[bytes]:
        question = f"SELECT DISTINCT key {_OF_SPACE} AND key >= %(low)b AND key < %(high)b"
        return [key for (key,) in self._rows(question, low=low, high=high)]

    def rows(self) -> Iterator[tuple[bytes, float, bytes]]:
        for key, part in self._rows(f"SELECT key, part {_OF_SPACE} ORDER BY key, part"):
            question = f"SELECT key, since, body {_OF_SPACE} AND key = %(key)b AND part = %(part)s"
            yield from self._rows(question, key=key, part=part)

    def delete(self, keys: Sequence[bytes]) -> tuple[int, int]:
        with self._lock:
            count, size = self._rows(f"{_TOTAL} AND key = ANY(%(keys)b::bytea[])", keys=list(keys))[0]
            self._write(_DELETE, {"space": self._space, "keys": list(keys)})
        return count, size

    def purge(self, before: float) -> tuple[int, int]:
        with self._lock:
            self._write(_PURGE, {"space": self._space, "before": before})
            count, size = self._rows(_TOTAL)[0]
        return count, size

    def counts(self) -> tuple[int, int]:
        keys, parts = self._rows(f"SELECT count(DISTINCT key), count(*) {_OF_SPACE}")[0]
        return keys, parts

    def _write(
        self,
        changes: str,
        values: Mapping[str, object],
        is_there: Callable[[Connection[Any]], bool] | None = None,
    ) -> None:
        if self._writer is None:
            raise LogFailed(f"{self._database.place} is open to read only")
        self._writer.write(changes, values, is_there=is_there)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _rows(self, question: str, **values: object) -> list[Any]:
        return self._database.rows(question, {"space": self._space, **values})
