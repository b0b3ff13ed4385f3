"""Puts other segments in the place of all segments of a log, in one transaction of many statements.

A transaction as long as a log holds no row of the term: the fence is its last statement, so a daemon that
takes the space over waits for no more than the commit.

Always: the log is the old one or the new one, whole; under another term it stays the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from psycopg import Connection

from relay.store.errors import LogFenced
from relay.store.ports import KEY_BITS, Names, Row
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import Fence
from relay.store.postgres.tables import INSERT_SEGMENTS, PUT_NAMES, put, segment_columns

_LED: Final = "WITH led AS (SELECT %(term)s::int8 AS term), {changes} SELECT 1 FROM led"
_DELETE: Final = "DELETE FROM {s}.segments WHERE space = %(space)s AND segment > 0 AND segment <= %(last)s"
_SNAPSHOT: Final = """
UPDATE {s}.snapshots SET segment = %(segment)s WHERE space = %(space)s AND snapshot = %(snapshot)s
"""
_FENCE: Final = """
SELECT 1 FROM {s}.terms WHERE space = %(led)s AND term = %(term)s AND nonce = %(nonce)s FOR SHARE
"""


class Rewriting:
    """A transaction; nothing of it is there before ``end``."""

    def __init__(self, database: Database, connection: Connection[Any], space: int, fence: Fence) -> None:
        self._database: Final = database
        self._connection: Final = connection
        self._fence: Final = fence
        self._values: Final = {
            "space": space,
            "led": fence.space,
            "term": fence.term,
            "nonce": fence.nonce,
        }

    def _run(self, statement: str, **values: object) -> int:
        found = self._connection.execute(self._database.statement(statement), {**self._values, **values})
        return found.rowcount

    def add(self, segments: Sequence[Row]) -> None:
        """Adds segments, whose numbers are beyond those there."""
        self._run(_LED.replace("{changes}", INSERT_SEGMENTS), **segment_columns(segments))

    def end(self, last: int, snapshot: tuple[int, int] | None, names: Names) -> None:
        """Deletes the segments of a log up to the ``last`` old one; raises ``LogFenced`` under another term.

        ``snapshot`` is the number of its snapshot, and the segment after which that is now.
        """
        assert 0 <= last < 1 << KEY_BITS
        self._run(_DELETE, last=last)
        if snapshot is not None:
            self._run(_SNAPSHOT, snapshot=snapshot[0], segment=snapshot[1])
        self._run(_LED.replace("{changes}", PUT_NAMES), **put(names))
        if self._run(_FENCE) != 1:
            raise LogFenced(f"{self._database.place}: term {self._fence.term} has ended")
