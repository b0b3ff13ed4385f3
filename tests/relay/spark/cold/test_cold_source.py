"""Spark reads archived epochs from the archive and later ones from the daemon, each epoch once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import dataspace.spark
from index.patterns.text import parse_pattern
from relay.archive.archive import only_archive
from relay.archive.archiver import Archiver, RangeSizes, archive_all
from relay.archive.erasure.erasing import erase
from relay.archive.merging import Merger, MergeRules
from relay.log.reader import LogReader
from relay.objects.opening import open_objects
from relay.spark.cold import archives
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import Row, Seen, run_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

FLIGHT = "flight($n:int, $from:str, $dist:float)"
PATTERNS = [
    FLIGHT,
    'flight($n:int, "ATL", $dist:float)',
    "flight($n:int, _, $dist)",
    "flight($n, $from, $dist)",
    "flight($n:int, _, _)",
    "flight(_, $from:str, _)",
    "flight(_, $from:str)",
    "odd($x:int)",
    "odd($x:float)",
    "absent($x:int)",
]
TURNS = 40
ARCHIVED = 30


@dataclass
class World:
    """A daemon whose first epochs are archived in ranges of ten."""

    daemon: Daemon
    archive: str

    def frame(
        self, spark: SparkSession, pattern: str, *, alone: bool = False, **options: object
    ) -> DataFrame:
        """What the format reads with the archive, and with the daemon unless ``alone``."""
        reader = spark.read.format("dataspace").option("pattern", pattern).option("archive", self.archive)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader if alone else reader.option("url", self.daemon.url)).load()


def turn(daemon: Daemon, at: int) -> None:
    """One epoch: a flight comes, an earlier one goes, and odd numbers of several classes."""
    operations = [f'+flight({at}, "{("ATL", "SFO", "DEN")[at % 3]}", {at / 4})', f'!flight({at}, "ATL", 1.5)']
    if at >= 5:
        gone = at - 5
        operations.append(f'-flight({gone}, "{("ATL", "SFO", "DEN")[gone % 3]}", {gone / 4})')
    operations.append(f"+odd({('1.5', '-0.0', 'nan', '7', 'null', '0.0')[at % 6]}, {at})")
    operations.append(f"+odd({('1.5', '-0.0', 'nan', '7', 'null', '0.0')[at % 6]})")
    daemon.turn(*operations[: None if at < 6 else -1])


def archive(daemon_data: Path, place: Path, changes: int = 40) -> None:
    with closing(LogReader.open(daemon_data)) as log:
        archiver = Archiver(log, open_objects(place), "main", sizes=RangeSizes(changes=changes))
        archiver.begin()
        archive_all(archiver, lambda _: None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with Daemon(folder / "daemon") as daemon:
        for at in range(ARCHIVED):
            turn(daemon, at)
        archive(daemon.data, folder / "archive")
        for at in range(ARCHIVED, TURNS):
            turn(daemon, at)
        yield World(daemon, str(folder / "archive"))


def rows(frame: DataFrame) -> list[str]:
    """Rows in order of their epochs, with floats as they are."""
    return sorted(map(repr, map(tuple, frame.collect())))


def hot(world: World, spark: SparkSession, pattern: str, **options: object) -> list[str]:
    return rows(dataspace.spark.frame(spark, pattern, url=world.daemon.url, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_archive_and_the_daemon_are_read_as_one(world: World, spark: SparkSession, pattern: str) -> None:
    expected = hot(world, spark, pattern)
    assert rows(world.frame(spark, pattern)) == expected
    assert rows(world.frame(spark, pattern, minPartitions=3)) == expected
    both = dataspace.spark.frame(spark, pattern, url=world.daemon.url, archive=world.archive)
    assert rows(both) == expected


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_archive_alone_has_all_up_to_its_newest_epoch(
    world: World, spark: SparkSession, pattern: str
) -> None:
    expected = hot(world, spark, pattern, endingEpoch=ARCHIVED)
    assert rows(world.frame(spark, pattern, alone=True)) == expected
    assert rows(dataspace.spark.frame(spark, pattern, archive=world.archive)) == expected
    expected = hot(world, spark, pattern, startingEpoch=7, endingEpoch=22)
    some = dataspace.spark.frame(spark, pattern, archive=world.archive, startingEpoch=7, endingEpoch=22)
    assert rows(some) == expected


@pytest.mark.parametrize(
    "where", ["x > 5", "not (x > 5)", "x >= 0 and x <= 1", "x = 0", "x <> 0", "not (x between 0 and 2)"]
)
def test_a_condition_on_floats_is_that_of_spark_wherever_it_is_judged(
    world: World, spark: SparkSession, where: str
) -> None:
    """NaN and -0.0 stand beside the floats of an archive; the daemon sends them among others."""
    pattern = "odd($x:float, _)"
    plainly = rows(dataspace.spark.frame(spark, pattern, url=world.daemon.url).where(where))
    assert plainly
    assert rows(world.frame(spark, pattern, where=where)) == plainly
    assert hot(world, spark, pattern, where=where) == plainly
    both = dataspace.spark.frame(spark, pattern, url=world.daemon.url, archive=world.archive, where=where)
    assert rows(both) == plainly


def test_a_condition_is_fixed_when_the_frame_is_made(world: World, spark: SparkSession) -> None:
    where = "n between 3 and 33 and from <> 'ATL' and _epoch > 7"
    plainly = dataspace.spark.frame(spark, FLIGHT, url=world.daemon.url).where(
        where.replace("from", "`from`")
    )
    expected = rows(plainly)
    assert expected
    assert hot(world, spark, FLIGHT, where=where) == expected
    assert rows(world.frame(spark, FLIGHT, where=where)) == expected
    both = dataspace.spark.frame(spark, FLIGHT, url=world.daemon.url, archive=world.archive, where=where)
    assert rows(both) == expected


def test_times_are_looked_up_in_the_archive(world: World, spark: SparkSession) -> None:
    at = hot_time(world, spark, 12)
    some: list[dict[str, object]] = [
        {"startingTimestamp": at},
        {"startingEpoch": 3, "endingTimestamp": at},
        {"asOfTimestamp": at},
    ]
    for options in some:
        last = {"endingEpoch": ARCHIVED} if [*options] == ["startingTimestamp"] else {}
        expected = hot(world, spark, FLIGHT, **options, **last)
        assert expected
        assert rows(world.frame(spark, FLIGHT, alone=True, **options)) == expected
        framed = dataspace.spark.frame(spark, FLIGHT, archive=world.archive, **options)  # type: ignore[arg-type]  # texts
        assert rows(framed) == expected


@pytest.mark.parametrize("pattern", [FLIGHT, "flight($n:int, _, $dist)"])
def test_the_archive_says_since_when_a_row_was_there(world: World, spark: SparkSession, pattern: str) -> None:
    for options in ({"startingEpoch": 9, "endingEpoch": ARCHIVED}, {"asOfEpoch": 12}):
        expected = hot(world, spark, pattern, includeAsserted=True, **options)
        assert rows(world.frame(spark, pattern, alone=True, includeAsserted=True, **options)) == expected


def test_rows_say_by_whose_claim_they_came(spark: SparkSession, own_daemon: Daemon, tmp_path: Path) -> None:
    """From the daemon and the archive, also where another owner claims the same."""
    for owner, said in [
        ("ann", ["+on(1)", "+on(2)", "!on(9)"]),
        ("bob", ["+on(1)", "+on(3)"]),
        ("ann", ["-on(1)"]),
        ("bob", ["-on(1)"]),
        ("bob", ["+on(1, 1)"]),
    ]:
        at = own_daemon.turn(*said, owner=owner)
    own_daemon.turn("-on(2)", "+on(4)", owner="ann")
    archive(own_daemon.data, tmp_path / "archive")
    expected = [
        (1, "insert", "durable:ann"),
        (1, "delete", "durable:ann"),
        (1, "insert", "durable:bob"),
        (2, "insert", "durable:ann"),
        (2, "delete", "durable:ann"),
        (3, "insert", "durable:bob"),
        (4, "insert", "durable:ann"),
        (9, "message", None),
    ]
    for place in ({"url": own_daemon.url}, {"archive": str(tmp_path / "archive")}):
        made = dataspace.spark.frame(spark, "on($n:int)", includeOwner=True, **place)  # type: ignore[arg-type]
        assert made.columns == ["n", "_change_type", "_epoch", "_epoch_timestamp", "_seq", "_owner"]
        found = made.orderBy("_epoch", "_seq").select("n", "_change_type", "_owner").collect()
        assert sorted(map(tuple, found), key=lambda row: row[0]) == expected
        some = dataspace.spark.frame(spark, "on($n:int)", columns=["_owner", "n"], asOfEpoch=at, **place)  # type: ignore[arg-type]
        assert sorted(map(tuple, some.collect())) == [
            ("durable:ann", 2),
            ("durable:bob", 1),
            ("durable:bob", 3),
        ]
        dated = dataspace.spark.frame(spark, "on($n:int)", includeAsserted=True, **place)  # type: ignore[arg-type]
        assert dated.where("_asserted_epoch IS NOT NULL").count() == 7


def test_a_stream_fails_where_rows_were_erased_since_it_began(
    spark: SparkSession, own_daemon: Daemon, tmp_path: Path
) -> None:
    for at in range(6):
        turn(own_daemon, at)
    archive(own_daemon.data, tmp_path / "archive")

    def stream(**options: object) -> DataFrame:
        reader = spark.readStream.format("dataspace").option("archive", str(tmp_path / "archive"))
        for name, value in {"pattern": FLIGHT, "startingEpoch": "earliest", **options}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    seen, place = Seen(fail_on=1), str(tmp_path / "query")
    with pytest.raises(PySparkException, match="the test fails this batch"):
        run_now(stream(maxEpochsPerTrigger=3), seen, place)
    kept = only_archive(open_objects(tmp_path / "archive"), "main")
    assert erase(kept, parse_pattern("flight(_, _, 1.5)"), time.time_ns() // 1000, "test").rows
    with pytest.raises(PySparkException, match=r"rows of epochs 4 to 6 were erased at .*failOnErasure=false"):
        run_now(stream(maxEpochsPerTrigger=3), Seen(), place)
    left = Seen()
    run_now(stream(maxEpochsPerTrigger=3, failOnErasure="false"), left, place)
    assert 0 < len(left.rows) < len(seen.batches[1])
    assert not [row for row in left.rows if row[2] == 1.5]


def hot_time(world: World, spark: SparkSession, epoch: int) -> str:
    """The time of an epoch."""
    frame = dataspace.spark.frame(
        spark, FLIGHT, url=world.daemon.url, startingEpoch=epoch, endingEpoch=epoch
    ).select("_epoch_timestamp")
    return str(frame.collect()[0][0].astimezone(UTC).isoformat())


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_spark_scans_columns_itself_where_the_pattern_allows_it(world: World, spark: SparkSession) -> None:
    """And skips row groups by constants and conditions."""
    native = dataspace.spark.frame(spark, 'flight($n:int, "ATL", $dist:float)', archive=world.archive)
    said = plan(native.where("n > 3"))
    assert "BatchScan" not in said
    assert "EqualTo(f1,ATL)" in said
    assert "GreaterThan(f0,3)" in said
    counted = dataspace.spark.frame(spark, "flight(_, $from:str, _)", archive=world.archive)
    assert "BatchScan" not in plan(counted)
    assert "BatchScan" in plan(dataspace.spark.frame(spark, "flight($n, _, _)", archive=world.archive))


def test_spark_scans_a_field_itself_once_a_merge_has_settled_its_class(
    spark: SparkSession, own_daemon: Daemon, tmp_path: Path
) -> None:
    """With the rows of before; the ranges with the nulls are merged no more, and are written anew."""
    own_daemon.turn(*[f"+reading({at}, null)" for at in range(20)])
    for at in range(20, 28):
        own_daemon.turn(f"+reading({at}, {at * 10})", f"-reading({at - 20}, null)")
    place = str(tmp_path / "archive")
    archive(own_daemon.data, tmp_path / "archive", 1)

    def frame(pattern: str) -> DataFrame:
        return dataspace.spark.frame(spark, pattern, archive=place)

    patterns = ["reading($n:int, $v:int)", "reading(_, $v:int)", "reading($n:int, $v)", "reading(_, $v)"]
    before = {pattern: rows(frame(pattern)) for pattern in patterns}
    assert "BatchScan" in plan(frame(patterns[0]))
    kept = only_archive(open_objects(tmp_path / "archive"), "main")
    assert Merger(kept, rules=MergeRules(changes=20)).merge_all(lambda _: None)
    assert kept.manifest.types["reading/2"] == "ii" and len(kept.manifest.ranges) == 2
    archives._open.clear()  # as if ten seconds had passed
    assert "BatchScan" not in plan(frame(patterns[0]).where("v > 200"))
    for pattern in patterns:
        assert (
            rows(frame(pattern))
            == before[pattern]
            == rows(dataspace.spark.frame(spark, pattern, url=own_daemon.url))
        )
    assert frame(patterns[0]).where("v > 200").count() == 7


def test_a_state_in_the_past_comes_from_the_archive(world: World, spark: SparkSession) -> None:
    for at in (1, 12, ARCHIVED):
        expected = hot(world, spark, FLIGHT, asOfEpoch=at)
        assert rows(world.frame(spark, FLIGHT, alone=True, asOfEpoch=at)) == expected
        assert rows(world.frame(spark, FLIGHT, asOfEpoch=at)) == expected


def test_a_stream_goes_over_the_border_and_reads_each_epoch_once(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    def stream(**options: object) -> DataFrame:
        reader = spark.readStream.format("dataspace").option("archive", world.archive)
        for name, value in {"pattern": FLIGHT, "startingEpoch": "earliest", **options}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    alone = Seen()
    run_now(stream(maxChangesPerTrigger=50), alone, str(tmp_path / "one"))
    assert len(alone.batches) > 2
    assert max(row[4] for row in alone.rows) == ARCHIVED  # type: ignore[type-var]
    # The same checkpoint goes on with the daemon: the identity of the space is the same.
    run_now(stream(url=world.daemon.url, maxEpochsPerTrigger=7), alone, str(tmp_path / "one"))
    expected = Seen()
    frame = spark.readStream.format("dataspace").option("url", world.daemon.url).option("pattern", FLIGHT)
    run_now(frame.option("startingEpoch", "earliest").load(), expected, str(tmp_path / "two"))
    assert without_place(alone.rows) == without_place(expected.rows)


def without_place(seen: list[Row]) -> list[Row]:
    return [row[:-1] for row in seen]


def test_an_archive_of_another_log_is_refused(world: World, spark: SparkSession, own_daemon: Daemon) -> None:
    own_daemon.turn("+flight(1)")
    reader = spark.read.format("dataspace").option("pattern", FLIGHT).option("archive", world.archive)
    with pytest.raises(PySparkException, match="has archives of other logs of the space main"):
        reader.option("url", own_daemon.url).load().collect()
    with pytest.raises(PySparkException, match="has no archive of the space attic; there are main"):
        world.frame(spark, FLIGHT, alone=True, space="attic").collect()
