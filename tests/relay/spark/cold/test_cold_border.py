"""A task goes on from the archive where its daemon has let epochs go since they were planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dataspace.client.bulk.blocks import Block
from dataspace.errors import Refused
from relay.archive.archiver import Archiver, RangeSizes, archive_all
from relay.log.reader import LogReader
from relay.objects.objects import StoreFailed
from relay.objects.opening import open_objects
from relay.spark.cold import archives
from relay.spark.common.options import read_options
from relay.spark.common.schema import inferred
from relay.spark.source.offsets import DataLoss
from relay.spark.source.readings import SpaceReading
from relay.spark.source.source import ChangesReader
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.test_mistakes import trim

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PATTERNS = ["flight($n:int, $from:str)", "flight(_, $from:str)", "$fact"]
EPOCHS = 24


class World:
    """A daemon without an archive of its own, whose log is archived by hand and trimmed."""

    def __init__(self, daemon: Daemon, place: Path) -> None:
        self.daemon = daemon
        self.place = place

    def write(self, first: int, last: int) -> None:
        for at in range(first, last + 1):
            gone = [f'-flight({at - 3}, "{"AB"[at % 2]}")'] if at > 3 else []
            self.daemon.turn(f'+flight({at}, "{"AB"[(at + 1) % 2]}")', f'+flight({at + 100}, "C")', *gone)

    def archive(self) -> None:
        with closing(LogReader.open(self.daemon.data)) as log:
            archiver = Archiver(log, open_objects(self.place), "main", sizes=RangeSizes(changes=6))
            archiver.begin()
            archive_all(archiver, lambda _: None)

    def reader(self, pattern: str, **options: object) -> ChangesReader:
        given = {"url": self.daemon.url, "archive": str(self.place), "pattern": pattern}
        given |= {name: str(value) for name, value in options.items()}
        read = read_options({name: value for name, value in given.items() if value})
        return ChangesReader(read, inferred(read.pattern))


def rows(reader: ChangesReader, parts: Any) -> list[object]:
    return [tuple(row.items()) for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.fixture
def world(own_daemon: Daemon, tmp_path: Path) -> World:
    made = World(own_daemon, tmp_path / "archive")
    made.write(1, 8)
    made.archive()
    made.write(9, EPOCHS)
    return made


def test_epochs_that_are_archived_and_gone_since_the_plan_are_read_once(world: World) -> None:
    """Of changes, of counted changes, and of states, whether losses are accepted or not."""
    asked: list[tuple[ChangesReader, Any, list[object]]] = []
    for pattern in PATTERNS:
        for options in ({"failOnDataLoss": "false"}, {"startingEpoch": 11}, {"asOfEpoch": 17}):
            reader = world.reader(pattern, **options)
            parts = reader.partitions()
            asked.append((reader, parts, rows(reader, parts)))
    assert sum([len(expected) for *_, expected in asked]) > 200
    world.archive()
    trim(world.daemon)
    world.daemon.turn("+later(1)")
    for reader, parts, expected in asked:
        assert rows(reader, parts) == expected


def test_a_daemon_that_lets_go_in_the_middle_of_a_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = world.reader(PATTERNS[0])
    expected = rows(reader, reader.partitions())
    world.archive()
    blocks: Any = SpaceReading.blocks

    def some(self: SpaceReading, *args: Any) -> Iterator[Block]:
        """Some epochs, and then what a daemon says that has trimmed its log."""
        *before, span, space = args
        yield from blocks(self, *before, replace(span, upto=min(span.upto, span.after + 5)), space)
        raise Refused("epoch-gone", "the log was trimmed")

    monkeypatch.setattr(SpaceReading, "blocks", some)
    parts = reader.partitions()
    assert rows(reader, parts) == expected


def test_what_the_archive_lacks_as_well_is_lost(world: World) -> None:
    reader = world.reader(PATTERNS[0])
    parts = reader.partitions()
    trim(world.daemon)
    with pytest.raises(DataLoss, match="epochs after 8 are wanted, the oldest held is 24"):
        rows(reader, parts)


def test_an_archive_that_is_away_is_waited_for_and_then_named(world: World) -> None:
    """A directory that is not mounted has no archive of any space."""
    for url in (world.daemon.url, ""):
        reader = world.reader(PATTERNS[0], url=url, connectTimeout="400ms")
        parts = reader.partitions()
        expected = rows(reader, parts)
        archives._open.clear()  # as in a process that is new
        away = world.place.rename(world.place.with_name("away"))
        with pytest.raises(StoreFailed, match=r"no archive of the space main any more; waited 0.4 s"):
            rows(reader, parts)
        away.rename(world.place)
        assert rows(reader, parts) == expected
