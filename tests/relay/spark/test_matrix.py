"""What SPARK.md says of the versions of PySpark is what the one that runs this does: each test gives its cell
of the column, and `make torture` runs them with all versions.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import dataspace.spark
from relay.spark.tuning import internals
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE, Seen, read, run_now, stream, until
from tests.relay.spark.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.spark]

ROOT: Final = Path(__file__).parents[3]
PATTERN: Final = "on($k:str, $n:int)"
VERSION: Final = ".".join(pyspark.__version__.split(".")[:2])


def table() -> dict[str, dict[str, str]]:
    """The matrix of SPARK.md: the cell of each version, by what stands before it."""
    text = (ROOT / "relay" / "spark" / "SPARK.md").read_text()
    (part,) = re.findall(r"^## Versions of Spark\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*", part, re.M)
    ]
    head, _, *rest = rows
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rest}


def test_the_versions_are_those_that_are_installed_tested_and_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = next(each for each in project["project"]["optional-dependencies"]["spark"] if "pyspark" in each)
    pins = [path.read_text() for path in (ROOT / "tests/relay/spark").glob("pyspark-*.txt")]
    locked = [*pins, (ROOT / "requirements.lock").read_text()]
    tested = sorted(".".join(re.findall(r"^pyspark==(\d+)\.(\d+)", each, re.M)[0]) for each in locked)
    described = next(iter(table().values()))
    assert tested == list(described)
    major, newest = map(int, tested[-1].split("."))
    assert wanted == f"pyspark>={tested[0]},<{major}.{newest + 1}"
    assert {each[:-1] for each in internals.KNOWN} <= set(tested)


def changes(spark: SparkSession, daemon: Daemon, _folder: Path) -> str:
    """Every change, in one task and in two, and the state: all against a plain computation."""
    world = World(daemon, seed=1)
    world.turns(40)
    rows = read(spark, daemon.url, PATTERN)
    held = set[tuple[object, ...]]()
    for *fact, kind, _, _ in rows:
        (held.add if kind == "insert" else held.discard)(tuple(fact))
    state = {row[:2] for row in read(spark, daemon.url, PATTERN, asOfEpoch="latest")}
    parted = sorted(read(spark, daemon.url, PATTERN, minPartitions=2), key=lambda row: row[-2:])
    return "yes" if held == state == world.now[0] and parted == rows else "wrong"


def written(spark: SparkSession, daemon: Daemon, _folder: Path) -> str:
    """A batch becomes facts, and another one in their place."""
    rows = spark.createDataFrame([("x", 1), ("y", 2)], "k string, n bigint")
    found = []
    for frame in (rows, rows.limit(1)):
        writer = frame.write.format("dataspace").mode("overwrite").option("url", daemon.url)
        writer.option("template", "written($k, $n)").option("writer", "w").save()
        found.append(daemon.facts("written($k, $n)"))
    return "yes" if found == [[("x", 1), ("y", 2)], [("x", 1)]] else "wrong"


def streams(spark: SparkSession, daemon: Daemon, folder: Path) -> str:
    """Copies and counts of all facts, by queries that end and begin again, and by some that go on."""
    world = World(daemon, seed=2)
    world.turns(10)
    for _ in range(3):
        for query in _queries(spark, daemon, folder, availableNow=True):
            assert query.awaitTermination(int(PATIENCE)) and query.exception() is None
        world.check()
        world.turns(4)
    queries = _queries(spark, daemon, folder, processingTime="0 seconds")
    try:
        world.turns(4)
        until(lambda: _is_right(world), queries[0])
    finally:
        for query in queries:
            query.stop()
    lag = all(query.lastProgress["sources"][0]["latestOffset"] for query in queries if query.lastProgress)
    return "yes" if lag else "wrong"


def _is_right(world: World) -> bool:
    try:
        world.check()
    except AssertionError:
        return False
    return True


def _queries(spark: SparkSession, daemon: Daemon, folder: Path, **trigger: object) -> list[StreamingQuery]:
    """As ``flow`` has them."""
    on = stream(spark, daemon.url, PATTERN, startingEpoch="earliest")
    kind = on["_change_type"]
    copied = F.when(kind == "insert", F.array(kind, F.lit("message"))).otherwise(F.array(kind))
    copies = on.select("k", "n", F.explode(copied).alias("_change_type"))
    counted = stream(spark, daemon.url, PATTERN)
    step = F.when(F.col("_change_type") == "insert", 1).otherwise(-1)
    totals = counted.groupBy("k").agg(F.sum(step).alias("n")).where("n > 0")
    started = []
    for name, frame, mode in (("copy", copies, "append"), ("total", totals, "complete")):
        writer = frame.writeStream.format("dataspace").outputMode(mode).option("url", daemon.url)
        writer = writer.option("template", f"{name}($k, $n)").option("writer", name)
        writer = writer.option("checkpointLocation", str(folder / name))
        started.append(writer.trigger(**trigger).start())  # type: ignore[call-overload]
    return started


def upserts(spark: SparkSession, daemon: Daemon, folder: Path) -> str:
    """Counts by key, in the mode that Spark refuses for Python sinks."""
    daemon.turn('+on("a", 1)', '+on("a", 2)', '+on("b", 3)')
    write = dataspace.spark.updates(template="crowd($k, $n)", keyColumns="k", writer="crowd", url=daemon.url)
    counted = stream(spark, daemon.url, PATTERN).groupBy("k").count().selectExpr("k", "count AS n")
    for _ in range(2):
        writer = counted.writeStream.outputMode("update").option("checkpointLocation", str(folder))
        query = writer.foreachBatch(write).trigger(availableNow=True).start()
        assert query.awaitTermination(int(PATIENCE)) and query.exception() is None
        daemon.turn('+on("b", 4)')
    return "yes" if daemon.facts("crowd($k, $n)") == [("a", 2), ("b", 2)] else "wrong"


def limits(spark: SparkSession, daemon: Daemon, folder: Path) -> str:
    for at in range(5):
        daemon.turn(f'+on("a", {at})')
    seen = Seen()
    frame = stream(spark, daemon.url, PATTERN, startingEpoch="earliest", maxEpochsPerTrigger=2)
    try:
        run_now(frame, seen, str(folder))
    except PySparkException as error:
        return "refused" if "option maxEpochsPerTrigger needs PySpark 4.2" in str(error) else "wrong"
    return "yes" if [len(batch) for batch in seen.batches.values()] == [2, 2, 1] else "wrong"


def goes_on(spark: SparkSession, daemon: Daemon, folder: Path) -> str:
    """Whether a query that tries a batch again reads on to the end; else the next start does, at once."""
    daemon.turn('+on("a", 1)')
    frame = stream(spark, daemon.url, PATTERN)
    with pytest.raises(PySparkException, match="the test fails this batch"):
        run_now(frame, Seen(fail_on=0), str(folder))
    daemon.turn('+on("a", 2)')
    seen = Seen()
    run_now(frame, seen, str(folder))
    first = len(seen.rows)
    run_now(frame, seen, str(folder))
    assert [row[1] for row in seen.rows] == [1, 2]
    return "yes" if first == 2 else "next start"


def rides(spark: SparkSession, daemon: Daemon, _folder: Path) -> str:
    return "yes" if internals.supported() else "no"


def sockets(spark: SparkSession, _daemon: Daemon, _folder: Path) -> str:
    """What Spark tells its workers."""
    name = "PYTHON_UNIX_DOMAIN_ENABLED"
    told = spark.sparkContext.parallelize([name], 1).map(lambda name: os.environ.get(name)).collect()
    return "yes" if str(told[0]).lower() == "true" else "no"


ROWS: Final[dict[str, Callable[[SparkSession, Daemon, Path], str]]] = {
    "changes and states in batches": changes,
    "batches written as facts": written,
    "streams into facts, `availableNow` and `processingTime`, restarts, lag in the progress": streams,
    "`updates` in `foreachBatch`": upserts,
    "limits of a micro-batch": limits,
    "`availableNow` reads to the end after a batch that is tried again": goes_on,
    "small batches without a Python task": rides,
    "Unix sockets between Spark and Python": sockets,
}


@pytest.mark.parametrize("row", ROWS)
def test_the_table_says_what_this_version_does(
    row: str, spark: SparkSession, own_daemon: Daemon, tmp_path: Path
) -> None:
    assert ROWS[row](spark, own_daemon, tmp_path / "checkpoints") == table()[row][VERSION]


def test_each_row_of_the_table_has_its_test() -> None:
    assert list(table()) == list(ROWS)
