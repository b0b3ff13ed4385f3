"""History: the same questions answered from the archive alone, once the daemon is stopped.

The daemon archives while it runs, and its log deletes what is archived.  In the end it is stopped.  Spark
scans the archive itself (``frame`` with ``archive``), and DuckDB, if it is installed, reads the files that
``dataspace log files`` lists.

Always: no answer here needs a daemon, or its directory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from dataspace import Map, RemoteSpace, connect
from dataspace.spark import frame
from examples.flights.check import Line, compared, spelled
from examples.flights.expected import Figures
from examples.flights.processes import PATIENCE
from examples.flights.queries import CANCELLED, DIVERTED, FLIGHT, by_origin, of_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE_EVERY: Final = 5
"""Seconds that an epoch waits for the archive at most: a demo is short."""

KEEP_FOR: Final = 1
"""Seconds that the log keeps an epoch which is archived."""

_LAST_TRIM: Final = 11.0
"""Seconds that the daemon gets to delete what it archived last; it looks every five."""

_LOOK_EVERY: Final = 0.5

_CHANGES: Final = "flight($carrier:str, $number:int, $tail:str, $origin:str, $dest:str, $scheduled:time)"
"""With all fields captured each change of a fact is a row, so Spark has nothing to count."""

_AIRBORNE: Final = "airborne($origin:str, $n:int)"


@dataclass(frozen=True, slots=True)
class Kept:
    """The newest epoch, and the oldest epoch that the log still has."""

    upto: int
    held_from: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The figures of one program from the archive, and how long it took."""

    program: str
    lines: Sequence[Line]
    seconds: float

    def __str__(self) -> str:
        wrong = [line for line in self.lines if not line.equal]
        verdict = f"equal in all {len(self.lines)}" if not wrong else f"DIFFERENT in {len(wrong)}"
        listed = "".join([f"\n  {each.name}: {each.expected} expected, {each.found} found" for each in wrong])
        asked = f"{self.program} from the archive, the daemon stopped"
        return f"{asked}: {verdict} figures, {self.seconds:.1f} s{listed}"


@dataclass(frozen=True, slots=True)
class History:
    """What was kept, and the answers; ``log_bytes`` is 0 for a log in a store, and ``left_out`` says why a
    program gave none."""

    kept: Kept
    log_bytes: int
    changes: int
    ranges: int
    archive_bytes: int
    answers: Sequence[Answer]
    left_out: str = ""

    @property
    def equal(self) -> bool:
        """True if no figure differs."""
        return all(line.equal for answer in self.answers for line in answer.lines)

    def __str__(self) -> str:
        size = self.archive_bytes / max(1, self.changes)
        held = spelled(max(0, self.kept.upto - self.kept.held_from + 1))
        return "\n".join(
            [
                f"the archive: {spelled(self.changes)} changes in {self.ranges} ranges,"
                f" {self.archive_bytes / 1e6:.1f} MB, {size:.1f} bytes a change",
                f"the log: {held} of {spelled(self.kept.upto)} epochs are left"
                + (f", {self.log_bytes / 1e6:.1f} MB with the newest state" if self.log_bytes else ""),
                *map(str, self.answers),
                *filter(None, [self.left_out]),
            ]
        )


async def settled(url: str) -> Kept:
    """Waits until everything is archived, and for a while until the log has deleted what it may delete."""
    async with connect(url, name="demo") as space:
        newest = int(str((await space.status())["durable_epoch"]))
        with trio.fail_after(PATIENCE):
            while (now := await _kept(space)).upto < newest:  # noqa: ASYNC110  only the daemon knows
                await trio.sleep(_LOOK_EVERY)
        with trio.move_on_after(_LAST_TRIM):
            while now.held_from <= now.upto:
                await trio.sleep(_LOOK_EVERY)
                now = await _kept(space)
    return now


async def _kept(space: RemoteSpace) -> Kept:
    state = (await space.status())["archive"]
    assert isinstance(state, Map)  # by SERVE.md
    return Kept(int(str(state["upto"])), int(str(state["held_from"])))


def asked(spark: SparkSession, folder: Path, kept: Kept, expected: Figures) -> History:
    """Asks Spark and DuckDB for the figures of a demo in ``folder``; needs no daemon."""
    archive = folder / "archive"
    checked = json.loads(_dataspace("log", "verify", "--archive", str(archive), "--json"))
    answers = [_timed("Spark", expected, lambda: by_spark(spark, archive))]
    left_out = ""
    if find_spec("duckdb") is None:
        left_out = "DuckDB is not installed (pip install duckdb): it was not asked"
    else:
        answers.append(_timed("DuckDB", expected, lambda: by_duckdb(archive)))
    log_bytes = sum([each.stat().st_size for each in (folder / "data").rglob("*") if each.is_file()])
    return History(
        kept, log_bytes, checked["changes"], checked["ranges"], checked["bytes"], answers, left_out
    )


def _timed(program: str, expected: Figures, ask: Callable[[], Figures]) -> Answer:
    began = time.monotonic()
    found = ask()
    return Answer(program, compared(expected, found), time.monotonic() - began)


def by_spark(spark: SparkSession, archive: Path) -> Figures:
    """Returns Spark's figures: changes and messages scanned by Spark, the last state replayed."""
    changes = frame(spark, _CHANGES, archive=str(archive))
    standing = frame(spark, _AIRBORNE, archive=str(archive), asOfEpoch="latest")
    return Figures(
        **of_changes(changes),
        cancelled=by_origin(frame(spark, CANCELLED, archive=str(archive))),
        diverted=by_origin(frame(spark, DIVERTED, archive=str(archive))),
        airborne={row[0]: row[1] for row in standing.select("origin", "n").collect()},
    )


def by_duckdb(archive: Path) -> Figures:
    """Returns DuckDB's figures from the files in columns; carrier is ``f0``, origin ``f3``."""
    import duckdb

    def rows(pattern: str, query: str) -> list[tuple[Any, ...]]:
        files = _dataspace("log", "files", str(archive), pattern).splitlines()
        return duckdb.execute(query, [files]).fetchall() if files else []

    def messages(pattern: str) -> dict[str, int]:
        return dict(rows(pattern, f"SELECT f3, count(*) FROM {_FILES} GROUP BY f3"))

    departures = f"SELECT f0, f3, count(*) FROM {_FILES} WHERE _change_type = 'insert' GROUP BY f0, f3"
    return Figures(
        flights={(carrier, origin): count for carrier, origin, count in rows(FLIGHT, departures)},
        aloft=dict(rows(FLIGHT, _ALOFT)),
        cancelled=messages(CANCELLED),
        diverted=messages(DIVERTED),
        airborne=dict(rows(_AIRBORNE, _STANDING)),
    )


_FILES: Final = "read_parquet($1, union_by_name = true)"

_STEP: Final = "CASE _change_type WHEN 'insert' THEN 1 WHEN 'delete' THEN -1 ELSE 0 END"

_ALOFT: Final = f"""
    SELECT f3, max(n) FROM (
        SELECT f3, sum({_STEP}) OVER (PARTITION BY f3 ORDER BY _epoch, _seq) AS n FROM {_FILES}
    ) GROUP BY f3
"""

_STANDING: Final = f"SELECT f0, f1 FROM {_FILES} GROUP BY f0, f1 HAVING sum({_STEP}) > 0"


def _dataspace(*words: str) -> str:
    """Returns what the program ``dataspace`` prints."""
    command = [sys.executable, "-m", "dataspace", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
