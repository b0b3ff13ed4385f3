"""What Spark shows of an error of ours is its sentence; of anything else, all there is."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from dataspace.errors import DataspaceError, InternalError, Unreachable, UsageError
from relay.spark.common.errors import plain_rows, plainly
from relay.spark.source.source import ChangesStream
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE, read, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def deep(error: Exception, depth: int = 5) -> int:
    if depth:
        return deep(error, depth - 1)
    try:
        raise OSError("what it came from")
    except OSError as cause:
        raise error from cause


def rows(error: Exception) -> Iterator[int]:
    yield 1
    yield deep(error)


def shown(call: Callable[[], object]) -> str:
    """What the driver is sent of what was raised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  # whatever comes is looked at
        return "".join(traceback.format_exception(error))
    return ""


@pytest.mark.parametrize("error", [UsageError("why"), Unreachable("why")])
def test_an_error_of_ours_is_its_class_and_its_sentence(error: DataspaceError) -> None:
    for said in (shown(lambda: plainly(deep)(error)), shown(lambda: list(plain_rows(rows)(error)))):
        assert said.endswith(f"{type(error).__name__}: why\n")
        assert "in deep" not in said and "what it came from" not in said


@pytest.mark.parametrize("error", [InternalError("report this"), ZeroDivisionError("a defect")])
def test_what_is_to_be_reported_keeps_its_frames(error: Exception) -> None:
    for said in (shown(lambda: plainly(deep)(error)), shown(lambda: list(plain_rows(rows)(error)))):
        assert "in deep" in said and "what it came from" in said


def test_what_goes_well_goes_through() -> None:
    assert plainly(max)(1, 2) == 2
    assert list(plain_rows(lambda: iter("ab"))()) == ["a", "b"]


def test_spark_still_sees_the_parameters_by_which_it_knows_a_reader_with_limits() -> None:
    assert list(inspect.signature(ChangesStream.latestOffset).parameters) == ["self", "start", "limit"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_sentence_stands_among_the_first_lines_on_the_driver(
    spark: SparkSession, daemon: Daemon, label: str, tmp_path: object
) -> None:
    daemon.turn(f"+{label}(9223372036854775808)")

    def run() -> object:
        changes = stream(spark, daemon.url, f"{label}($n:int)", startingEpoch=10**21)
        writer = changes.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint")
        return writer.trigger(availableNow=True).start().awaitTermination(int(PATIENCE))

    sink = spark.range(1).write.format("dataspace").mode("append").option("url", daemon.url)
    mistakes: list[tuple[Callable[[], object], str]] = [
        (lambda: read(spark, daemon.url, "p($n"), "option pattern: expected"),
        (lambda: read(spark, daemon.url, f"{label}($n:int)"), "Misfit: epoch"),
        (run, "startingEpoch is '1000000000000000000000'"),
        (sink.option("template", "p($n)").save, "no column $n"),
    ]
    for mistake, said in mistakes:
        with pytest.raises(PySparkException) as caught:
            mistake()
        first = str(caught.value).splitlines()[:12]
        assert any(said in line for line in first), first
        assert "During handling" not in str(caught.value) and "UnboundLocal" not in str(caught.value)
