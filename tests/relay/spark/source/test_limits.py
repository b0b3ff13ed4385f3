"""Spark is a stage for values at limits: what a daemon accepted comes back equal, as JSON and in the column
of its class, and is refused by name where that column is narrower than the wire.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from dataspace.errors import ProtocolError, Refused, UsageError
from index.values.jsons import from_json
from index.values.values import Record, Value, key
from tests.generated.limits import limits
from tests.relay.spark.daemons import Daemon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CLASSES: Final[dict[str, type]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "time": datetime,
}
MOST: Final = (1 << 63) - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def accepted(daemon: Daemon) -> dict[str, Value]:
    """The values at limits that the daemon has taken as facts, by their names."""
    taken: dict[str, Value] = {}
    for name, value in limits().items():
        try:
            daemon.turn_of([("assert", Record("limit", name, value))])
        except (ProtocolError, UsageError, Refused):
            continue
        taken[name] = value
    return taken


def rows_of(spark: SparkSession, daemon: Daemon, pattern: str, **options: str) -> DataFrame:
    reader = spark.read.format("dataspace").option("url", daemon.url).option("pattern", pattern)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def test_each_value_that_a_daemon_took_is_json_in_spark(
    spark: SparkSession, daemon: Daemon, accepted: dict[str, Value]
) -> None:
    for options in ({}, {"asOfEpoch": "latest"}):
        found = rows_of(spark, daemon, "limit($name:str, $value)", **options).select("name", "value")
        back = {row.name: from_json(json.loads(row.value)) for row in found.collect()}
        assert back.keys() == accepted.keys()
        assert not [name for name, value in accepted.items() if key(back[name]) != key(value)]


@pytest.mark.parametrize("kind", CLASSES)
def test_each_value_of_a_class_is_in_its_column_or_is_named(
    kind: str, spark: SparkSession, daemon: Daemon, accepted: dict[str, Value]
) -> None:
    wanted = {name: value for name, value in accepted.items() if type(value) is CLASSES[kind]}
    beyond = {name for name, value in wanted.items() if kind == "int" and not _fits(value)}
    pattern = f"limit($name:str, $value:{kind})"
    shown = "unix_micros(value)" if kind == "time" else "value"
    dropped = rows_of(spark, daemon, pattern, malformed="drop").selectExpr("name", f"{shown} AS value")
    back = {row.name: row.value for row in dropped.collect()}
    assert back.keys() == wanted.keys() - beyond
    assert not [name for name in back if key(_read(kind, back[name])) != key(wanted[name])]
    if beyond:
        with pytest.raises(Exception, match=r"int -?[0-9]+ for column value"):
            rows_of(spark, daemon, pattern).collect()
        reader = spark.read.format("dataspace").option("url", daemon.url).option("pattern", pattern)
        texts = reader.schema("name string, value string").load().collect()
        assert {row.name: int(row.value) for row in texts} == wanted


def _fits(value: Value) -> bool:
    return isinstance(value, int) and -MOST - 1 <= value <= MOST


def _read(kind: str, cell: Any) -> Value:
    """Returns the value of a cell."""
    if kind == "time":
        return EPOCH + timedelta(microseconds=cell)
    return bytes(cell) if kind == "bytes" else cell
