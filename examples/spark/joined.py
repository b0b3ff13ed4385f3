"""Two daemons in one query: what one knows about orders, joined with what another knows about parcels.

The daemons know nothing of each other.  Each is a stream of its own here, because the facts are of two
kinds; facts of one kind from several daemons are one stream with ``url`` listing them all, as in ``stock``.

    python -m examples.spark.joined
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import dataspace.spark
from dataspace import Record, connect_blocking
from examples.spark.common import drain, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def live(shop: str, depot: str) -> None:
    """Orders and parcels come in; both places say what they have in stock."""
    with connect_blocking(shop, name="shop", owner="shop") as space:
        for number, who in ((1, "Alice"), (2, "Bob"), (3, "Carol")):
            space.assert_(Record("order", number, who))
        space.assert_(Record("stock", "tea", 5))
    with connect_blocking(depot, name="depot", owner="depot") as space:
        for number, place in ((3, "Ghent"), (1, "Bruges")):
            space.assert_(Record("parcel", number, place))
        space.assert_(Record("stock", "tea", 40))


def tracked(spark: SparkSession, shop: str, depot: str) -> DataFrame:
    """For each order that has a parcel, where that is."""
    orders = dataspace.spark.frame(spark, "order($number:int, $who:str)", url=shop, stream=True)
    parcels = dataspace.spark.frame(spark, "parcel($parcel:int, $place:str)", url=depot, stream=True)
    came = orders.where("_change_type = 'insert'").select("number", "who")
    found = parcels.where("_change_type = 'insert'").select("parcel", "place")
    return came.join(found, F.col("number") == F.col("parcel")).select("number", "who", "place")


def stock(spark: SparkSession, urls: str) -> DataFrame:
    """What there is in all places together: the ``+`` and the ``-`` of all of them."""
    changes = dataspace.spark.frame(spark, "stock($what:str, $count:int)", url=urls, stream=True)
    sign = F.when(F.col("_change_type") == "insert", 1).otherwise(-1)
    return changes.groupBy("what").agg(F.sum(sign * F.col("count")).alias("count"))


def run(spark: SparkSession, folder: Path, shop: str, depot: str) -> list[tuple[object, ...]]:
    """The orders with a parcel, then the stock."""
    live(shop, depot)
    orders = drain(tracked(spark, shop, depot), folder, "tracked")
    return orders + drain(stock(spark, f"{shop},{depot}"), folder, "stock", mode="complete")


if __name__ == "__main__":
    told("orders with a parcel, and the stock:", run, count=2)
