"""What SPARK.md says of SQL: views read, a table of the catalog needs its options in each query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.relay.spark.daemons import Daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_views_and_queries_with_options_read_and_a_table_says_what_works(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    first = daemon.turn(f'+{label}("Alice", "hall")')
    daemon.turn(f'+{label}("Bob", "attic")', f'-{label}("Alice", "hall")')
    options = f"url '{daemon.url}', pattern '{label}($who:str, $room:str)'"

    def rows(query: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in spark.sql(query).collect())

    spark.sql(f"CREATE TEMPORARY VIEW now_{label} USING dataspace OPTIONS ({options}, asOfEpoch 'latest')")
    assert rows(f"SELECT who, room FROM now_{label}") == [("Bob", "attic")]
    spark.sql(f"CREATE TEMPORARY VIEW moves_{label} USING dataspace OPTIONS ({options})")
    moves = f"WITH gone AS (SELECT who FROM moves_{label} WHERE _change_type = 'delete') SELECT * FROM gone"
    assert rows(moves) == [("Alice",)]

    with pytest.raises(PySparkException, match=r"CREATE TEMPORARY VIEW .* USING dataspace OPTIONS"):
        spark.sql(f"CREATE TABLE t1_{label} USING dataspace OPTIONS ({options})")
    spark.sql(f"CREATE TABLE t2_{label} (who STRING, room STRING) USING dataspace OPTIONS ({options})")
    try:
        with pytest.raises(PySparkException, match=r"option pattern is missing.*WITH \(pattern"):
            rows(f"SELECT * FROM t2_{label}")
        with pytest.raises(PySparkException, match=r"a sink needs .* INSERT INTO t WITH \(url .*, template"):
            spark.sql(f"INSERT INTO t2_{label} VALUES ('Carol', 'hall')")
        spark.sql(
            f"CREATE TEMPORARY VIEW two_{label} (who STRING, room STRING) USING dataspace OPTIONS ({options})"
        )
        with pytest.raises(
            PySparkException, match=r"option pattern is one of .* a view only reads: write with"
        ):
            spark.sql(f"INSERT INTO two_{label} VALUES ('Carol', 'hall')")
        writes = f"INSERT INTO t2_{label} WITH (url '{daemon.url}', template '{label}w($who, $room)')"
        spark.sql(f"{writes} VALUES ('Carol', 'hall')")
        assert daemon.facts(f"{label}w($who, $room)") == [("Carol", "hall")]
        then = f"SELECT * FROM t2_{label} WITH ({options}, asOfEpoch '{first}')"
        assert rows(then) == [("Alice", "hall")]
    finally:
        spark.sql(f"DROP TABLE t2_{label}")
