"""The examples do what they say, each on daemons of its own."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from examples.spark import alerts, backfill, crowds, joined, once, presence, stays, upserts, visits
from examples.spark.common import daemons

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_presence(spark: SparkSession) -> None:
    with daemons(1) as (folder, (url,)):
        stays = presence.run(spark, folder, url)
    assert [stay[:2] for stay in stays] == [
        ("Alice", "hall"),
        ("Alice", "kitchen"),
        ("Alice", "kitchen"),
        ("Bob", "kitchen"),
    ]
    assert all(until is None or since < until for _, _, since, until in stays)  # type: ignore[operator]  # epochs
    assert sum(until is None for *_, until in stays) == 1


def test_alerts(spark: SparkSession) -> None:
    with daemons(1) as (folder, (url,)):
        assert alerts.run(spark, folder, url) == [("+", "boiler", 90.5), ("-", "boiler", 90.5)]


def test_joined(spark: SparkSession) -> None:
    with daemons(2) as (folder, (shop, depot)):
        assert joined.run(spark, folder, shop, depot) == [
            (1, "Alice", "Bruges"),
            (3, "Carol", "Ghent"),
            ("tea", 45),
        ]


def test_backfill(spark: SparkSession) -> None:
    with daemons(1, prepared=backfill.write_year) as (folder, (url,)):
        placed = backfill.run(spark, folder, url)
    assert len(placed) == 13  # the twelve of the year, and the month of now
    assert sum(count for _, count in placed) == backfill.ORDERS + 5  # type: ignore[misc]  # counts
    wanted = Counter(
        at.strftime("%Y-%m") for at, _, state in backfill.year(Random(2025)) if state == "placed"
    )
    assert dict(placed[:-1]) == wanted  # type: ignore[arg-type]  # months and counts


def test_upserts(spark: SparkSession) -> None:
    with daemons(1) as (folder, (url,)):
        first, then = upserts.run(spark, folder, url)
    assert first == [("fan", "idle"), ("pump", "idle")]
    assert then == [("pump", "running")]


def test_crowds(spark: SparkSession) -> None:
    with daemons(1) as (folder, (url,)):
        told = crowds.run(spark, folder, url)
    one, two = ("kitchen", 1), ("kitchen", 2)
    assert told == [("+", *one), ("+", *two), ("-", *one), ("+", *one), ("-", *two)]


def test_once(spark: SparkSession) -> None:
    with daemons(1) as (folder, (url,)):
        assert once.run(spark, folder, url) == [(1, "gate"), (2, "roof"), (3, "gate")]


def test_visits(spark: SparkSession) -> None:
    with daemons(1) as (folder, (url,)):
        found = visits.run(spark, folder, url)
    assert found == [
        ("Alice", "home", "paid", 3),
        ("Alice", "home", "tea", 2),
        ("Bob", "home", "home", 1),
    ]


def test_stays(spark: SparkSession) -> None:
    pytest.importorskip("pandas", reason="the extra `connect` is not installed")
    with daemons(1) as (folder, (url,)):
        found = stays.run(spark, folder, url)
    assert found == [("Alice", "hall", 2), ("Alice", "kitchen", 2), ("Bob", "kitchen", 2)]
