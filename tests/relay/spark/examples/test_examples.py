"""The examples do what they say, each on daemons of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay.spark.examples import alerts, backfill, joined, presence
from relay.spark.examples.common import daemons

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
    with daemons(1) as (folder, (url,)):
        assert isinstance(folder, Path)
        assert backfill.run(spark, folder, url) == [("S0", 40), ("S1", 40), ("S2", 40)]
