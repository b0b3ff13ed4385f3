"""Many spaces are read as one: each has its place in the checkpoint, by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import dataspace
from dataspace import Record
from dataspace.errors import UsageError
from relay.spark.common.options import read_options, stream_options
from relay.spark.common.schema import inferred
from relay.spark.source import source
from relay.spark.source.offsets import Json, Offset, OffsetOrigin, offsets_by_name, offsets_of, place
from relay.spark.source.source import ChangesStream, rows_of
from relay.spark.source.spaces import names_of, resolved
from relay.spark.tuning import internals
from tests.relay.spark.queries import Seen, read, run_now, stream
from tests.server.processes import DaemonProcess, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATTERN = "temp($sensor:str, $value:int)"
ONE, TWO = "tcp://a:1", "tcp://b:2"


def given(**more: str) -> dict[str, str]:
    return {"url": ONE, "pattern": PATTERN, **more}


# -- options and texts -------------------------------------------------------------------------------


def test_each_space_of_each_store_is_read() -> None:
    options = stream_options(given(url=f"{ONE},{TWO}", spaces="x, y"))
    assert [(each.url, each.space) for each in options.peers] == [
        (ONE, "x"),
        (ONE, "y"),
        (TWO, "x"),
        (TWO, "y"),
    ]
    assert options.starts == ("snapshot",) * 4
    assert names_of(options) == [f"{ONE} x", f"{ONE} y", f"{TWO} x", f"{TWO} y"]
    assert names_of(stream_options(given(spaces="x,y"))) == ["x", "y"]
    assert names_of(stream_options(given(space="x"))) == []


def test_epochs_may_be_given_by_the_names_of_spaces() -> None:
    options = read_options(given(spaces="x,y", startingEpoch='{"y": 3, "x": 5}', endingEpoch="9"))
    assert (options.firsts, options.lasts) == ((5, 3), (9, 9))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"spaces": "x,,y"}, "names with commas"),
        ({"spaces": "x,x"}, "each one once"),
        ({"spaces": "x", "space": "y"}, "give one of them"),
        ({"spaces": "x", "topic": "t"}, "give one of them"),
        ({"spaces": "x,y", "startingEpoch": '{"x": 5}'}, "one for each of x, y"),
        ({"spaces": "x,y", "url": f"{ONE},{TWO}", "startingEpoch": '{"x": 5}'}, "one for all"),
    ],
)
def test_what_makes_no_sense_is_refused(more: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        stream_options(given(**more))


def test_a_checkpoint_names_the_spaces_in_an_order_of_its_own() -> None:
    some = [Offset(7, "s"), Offset(3, "t", OffsetOrigin("snapshot", 2))]
    text = place(some, PATTERN, ["y", "x"])
    assert list(text["spaces"]) == ["x", "y"]  # type: ignore[call-overload]  # a dictionary, as follows
    assert text == place(some[::-1], PATTERN, ["x", "y"])
    assert offsets_by_name(text, ["y", "x"], PATTERN) == some
    assert offsets_by_name(text, ["y", "x", "z"], PATTERN) == [*some, None], "one that came since"


def test_a_checkpoint_of_other_spaces_is_refused() -> None:
    text = place([Offset(7, "s"), Offset(3, "t")], PATTERN, ["x", "y"])
    with pytest.raises(UsageError, match="of space y too, and option spaces finds x"):
        offsets_by_name(text, ["x"], PATTERN)
    with pytest.raises(UsageError, match="of option spaces"):
        offsets_of(text, [ONE], PATTERN, list)
    with pytest.raises(UsageError, match="without option spaces"):
        offsets_by_name(place([Offset(7, "s")], PATTERN), ["x"], PATTERN)
    with pytest.raises(UsageError, match="of the pattern"):
        offsets_by_name(text, ["x", "y"], "other($x)")


# -- with a daemon -----------------------------------------------------------------------------------


@pytest.fixture
def plants(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with the spaces ``plant-a``, ``plant-b`` and ``other``."""
    daemon = DaemonProcess(tmp_path / "data", *_spaces("plant-a", "plant-b", "other"))
    with running(daemon):
        yield daemon


def _spaces(*names: str) -> list[str]:
    return [word for name in names for word in ("--host-space", name)]


def measured(daemon: DaemonProcess, space: str, **temperatures: int) -> None:
    """Asserts temperatures by the names of their sensors, in one turn."""
    with dataspace.connect_blocking(daemon.url, space=space, owner="test") as there:
        with there.turn() as draft:
            for sensor, value in temperatures.items():
                draft.assert_(Record("temp", sensor, value))


def test_a_pattern_means_the_spaces_that_there_are(plants: DaemonProcess) -> None:
    options = resolved(stream_options(given(url=plants.url, spaces="plant-*", startingEpoch="earliest")))
    assert [each.space for each in options.peers] == ["plant-a", "plant-b"]
    assert options.starts == ("earliest",) * 2
    read = resolved(read_options(given(url=plants.url, spaces="other,plant-?", endingEpoch="9")))
    assert [each.space for each in read.peers] == ["other", "plant-a", "plant-b"]
    assert (read.firsts, read.lasts) == (("earliest",) * 3, (9,) * 3)
    with pytest.raises(UsageError, match=r"no space 'none-\*' at .*, there is main, other, plant-a"):
        resolved(stream_options(given(url=plants.url, spaces="plant-*,none-*")))


@pytest.mark.spark
def test_a_query_goes_on_in_each_space_and_takes_in_one_that_comes_later(
    spark: SparkSession, plants: DaemonProcess, checkpoint: Callable[[], str]
) -> None:
    seen = Seen()

    def rows() -> list[tuple[object, ...]]:
        seen.batches.clear()
        frame = stream(spark, plants.url, PATTERN, spaces="plant-*").select(
            "sensor", "value", "_change_type", "_space"
        )
        run_now(frame, seen, checkpoint())
        return sorted(seen.rows, key=str)

    measured(plants, "plant-a", one=1, two=2)
    measured(plants, "plant-b", one=3)
    measured(plants, "other", one=4)
    assert rows() == [
        ("one", 1, "insert", "plant-a"),
        ("one", 3, "insert", "plant-b"),
        ("two", 2, "insert", "plant-a"),
    ]
    measured(plants, "plant-b", two=5)
    plants.stop()
    plants.more = (*plants.more, *_spaces("plant-c"))
    plants.start()
    measured(plants, "plant-c", one=6)
    assert rows() == [("one", 6, "insert", "plant-c"), ("two", 5, "insert", "plant-b")]
    measured(plants, "plant-c", two=7)
    measured(plants, "plant-a", three=8)
    assert rows() == [("three", 8, "insert", "plant-a"), ("two", 7, "insert", "plant-c")]
    state = read(spark, plants.url, PATTERN, spaces="plant-a,other", asOfEpoch="latest")
    assert sorted([(row[0], row[1], row[-1]) for row in state], key=str) == [
        ("one", 1, "plant-a"),
        ("one", 4, "other"),
        ("three", 8, "plant-a"),
        ("two", 2, "plant-a"),
    ]


def test_a_space_that_comes_while_a_query_runs_is_taken_in(
    plants: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the planning process of a query calls it: that looks again every ten seconds."""
    monkeypatch.setattr(source, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(internals, "supported", lambda: False)  # else rows ride along
    measured(plants, "plant-a", one=1)
    options = stream_options(given(url=plants.url, spaces="plant-*"))
    reader = ChangesStream(resolved(options), inferred(PATTERN, spaces=True), partial(resolved, options))

    def batch(start: Json) -> tuple[Json, list[object]]:
        end = reader.latestOffset(start, ReadAllAvailable())
        found: list[object] = [
            (row["sensor"], row["value"], row["_space"])
            for part in reader.partitions(start, end)
            for made in rows_of(part, reader._options, reader._columns)
            for row in made.to_pylist()
        ]
        return end, found

    start, rows = batch(reader.initialOffset())
    assert rows == [("one", 1, "plant-a")]
    plants.stop()
    plants.more = (*plants.more, *_spaces("plant-0"))  # before the others by its name
    plants.start()
    measured(plants, "plant-0", one=6)
    measured(plants, "plant-b", one=7)
    start, rows = batch(start)
    assert sorted(rows, key=str) == [("one", 6, "plant-0"), ("one", 7, "plant-b")]
    measured(plants, "plant-0", two=8)
    assert batch(start)[1] == [("two", 8, "plant-0")]
