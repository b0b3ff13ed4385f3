"""What does a change cost in the log, and out of it again?

In one process and through the log's own interface: epochs are encoded, sealed by their checksums, written in
groups with ``synchronous=FULL``, and counted when they are accepted; then they are replayed for an observer
of a pattern with captures, from the first epoch.  The *floor* is SQLite alone in the same run: the same
number of transactions of the same bytes, with the same pragmas, and no format, seal or acceptance.  Replays
wait for nothing, so they are measured in CPU time; what is appended waits for the disk.

    append_changes_per_s    turns of TURN changes, acceptance awaited at the end
    append_epochs_per_s     the same, counted in turns
    append_ratio_floor      its time for the bytes ÷ what SQLite alone takes for them, as a ratio of rates
    single_epochs_per_s     turns of one change, the acceptance of each awaited before the next
    replay_changes_per_s    an observer's changes, decoded, matched and told apart
    columns_changes_per_s   the same by the column, as Spark reads them
    bytes_per_change        bytes of the file ÷ changes
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from bench._figures import report
from dataspace.kernel.changes import Claims, Epoch
from index.patterns.patterns import capture
from index.values.values import Record, Value
from relay.log.columns import ColumnReplay
from relay.log.log import Log
from relay.log.replay import Replay
from relay.log.writer import GroupCommit

TURN: Final = 100
PATTERN: Final = Record("reading", *[capture(name) for name in ("device", "kind", "value", "at")])


def epochs(count: int, size: int) -> list[Epoch]:
    """Turns that each assert ``size`` readings of devices, as a space makes epochs of them."""
    made = []
    for number in range(1, count + 1):
        facts: list[Value] = [
            Record("reading", f"device-{at}", "temperature", 20.0 + number / 7, number * size + at)
            for at in range(size)
        ]
        claims = Claims("session:1", [(number * size + at, fact) for at, fact in enumerate(facts)])
        made.append(Epoch(number, number, facts, (), (), [claims], "bench", number))
    return made


async def _append(log: Log, turns: list[Epoch], *, one_by_one: bool) -> float:
    """Seconds until all are accepted."""
    accepted: list[int] = []
    commits = GroupCommit(log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits.run)
        begun = time.perf_counter()
        for epoch in turns:
            commits.submit(epoch, lambda done: accepted.append(done.number))
            if one_by_one:
                await commits.wait_durable(epoch.number)
            elif epoch.number % 16 == 0:
                await trio.lowlevel.checkpoint()  # as between the packets of a connection
                await commits.wait_room()
        await commits.wait_durable(turns[-1].number)
        seconds = time.perf_counter() - begun
        await commits.close()
    assert accepted == [epoch.number for epoch in turns], "each once and in order"
    return seconds


def _floor(directory: Path, groups: int, size: int) -> float:
    """Seconds that SQLite alone takes for so many transactions of so many bytes."""
    database = sqlite3.connect(directory / "floor.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("PRAGMA wal_autocheckpoint=4096")
    database.execute("CREATE TABLE bodies (number INTEGER PRIMARY KEY, body BLOB)")
    body = bytes(size)
    begun = time.perf_counter()
    for _ in range(groups):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO bodies (body) VALUES (?)", (body,))
        database.execute("COMMIT")
    seconds = time.perf_counter() - begun
    database.close()
    return seconds


def _replayed(log: Log) -> int:
    told = Replay(log, PATTERN, 0).epochs(log.last)
    return sum([len(added) + len(said) + len(gone) for _, _, added, said, gone in told])


def _in_columns(log: Log) -> int:
    return sum([len(block) for block in ColumnReplay(log, PATTERN, 0).blocks(log.last)])


def _rate(read: Callable[[Log], int], log: Log, expected: int) -> float:
    log.cursors.clear()
    begun = time.process_time()
    count = read(log)
    seconds = time.process_time() - begun
    assert count == expected, f"{count} changes were told, {expected} were made"
    return count / seconds


def measure(turns: int, singles: int) -> dict[str, float]:
    """One round."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        made = epochs(turns, TURN)
        log = Log.open(Path(place) / "many")
        seconds = trio.run(lambda: _append(log, made, one_by_one=False))
        changes = turns * TURN
        statistics = log.statistics()
        size = statistics.bytes / changes
        figures["append_changes_per_s"] = changes / seconds
        figures["append_epochs_per_s"] = turns / seconds
        figures["bytes_per_change"] = size
        floor = _floor(Path(place), statistics.segments, int(size * changes / statistics.segments))
        figures["append_ratio_floor"] = floor / seconds
        figures["replay_changes_per_s"] = _rate(_replayed, log, changes)
        figures["columns_changes_per_s"] = _rate(_in_columns, log, changes)
        log.close()
        log = Log.open(Path(place) / "single")
        few = epochs(singles, 1)
        figures["single_epochs_per_s"] = singles / trio.run(lambda: _append(log, few, one_by_one=True))
        log.close()
    return figures


def main() -> None:
    """Runs the rounds and prints the best of each figure."""
    report(
        __doc__,
        lambda _, quick: measure(*((200, 20) if quick else (5000, 500))),
        least=["bytes_per_change"],
    )


if __name__ == "__main__":
    main()
