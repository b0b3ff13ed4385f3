"""A watched query counts each row that Spark took in, once, whatever Spark reports in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from examples.flights.queries import Watched

pytestmark = pytest.mark.spark


class Query:
    """A query as far as it is watched."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []

    def exception(self) -> None:
        return None

    def report(self, batch: int, rows: int, epoch: int) -> None:
        source = {"endOffset": json.dumps({"epoch": epoch})}
        self.recentProgress.append({"batchId": batch, "numInputRows": rows, "sources": [source]})


def counted(*reports: tuple[int, int, int], looks: int = 1) -> tuple[int, int]:
    """Returns the rows and the epoch of a query that is looked at after each report."""
    query = Query()
    watched = Watched(query)  # type: ignore[arg-type]  # as far as it is watched
    for report in reports:
        query.report(*report)
        for _ in range(looks):
            watched.look()
    return watched.rows, watched.epoch


def test_a_look_at_the_same_reports_counts_nothing_twice() -> None:
    assert counted((0, 0, 1), (1, 2, 2), (2, 5, 9), looks=3) == (7, 9)


def test_an_idle_query_reports_the_number_of_its_next_batch() -> None:
    # Spark 4.3 with spark.sql.streaming.noDataProgressEventInterval = 300, three files of two rows
    assert counted((0, 0, 1), (0, 0, 1), (0, 2, 2), (1, 2, 3), (2, 0, 3), (2, 0, 3), (2, 2, 4)) == (6, 4)
