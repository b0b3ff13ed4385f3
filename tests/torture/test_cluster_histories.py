"""Whichever of three daemons over one PostgreSQL dies, stops or hands over: histories break no promise."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from index.values.values import Record
from tests.guarantees.validators import VALIDATORS, broken, judged
from tests.relay.spark.queries import Seen, stream
from tests.torture.cluster_successions import ClusterSuccession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.torture]

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
PROMOTIONS = 10
TRIES = 3
"""Starts of a query that is never without a daemon for long: tasks of Spark fail for reasons of their own."""


@pytest.mark.skipif(not ROUNDS, reason="tests/server/cluster has some leaders killed; make torture has more")
@pytest.mark.parametrize("seed", range(1, 1 + max(1, ROUNDS // 5)))
async def test_no_promise_is_broken_by_ten_successions(postgres_url: str, tmp_path: Path, seed: int) -> None:
    with closing(ClusterSuccession(postgres_url, tmp_path, seed)) as succession:
        history = await succession.run(PROMOTIONS)
    print(seed, dict(succession.struck))
    assert broken(history) == []
    assert judged(history) == VALIDATORS.keys() - {"rights"}, "tenants are for tests/abuse"
    assert succession.struck.keys() == ClusterSuccession.strikes().keys()
    assert len({term for term, _ in history.chain}) > PROMOTIONS // 2, "many daemons wrote"


class ReadBySpark(ClusterSuccession):
    """The same, while a query of Spark reads on at whichever daemon there is."""

    def __init__(self, spark: SparkSession, store: str, folder: Path, seed: int) -> None:
        super().__init__(store, folder, seed)
        self.seen = Seen()
        self._spark = spark
        self._checkpoint = str(folder / "checkpoint")
        self._query: StreamingQuery

    def _start(self) -> None:
        url = "|".join(each.url for each in self._daemons)
        frame = stream(self._spark, url, "said($who:str, $n:int)", startingEpoch="earliest")
        writer = frame.select("_epoch", "who", "n").writeStream.foreachBatch(self.seen.take)
        self._query = writer.option("checkpointLocation", self._checkpoint).start()

    async def begin(self) -> None:
        await super().begin()
        await trio.to_thread.run_sync(self._start)

    async def end(self) -> None:
        from pyspark.errors import StreamingQueryException

        for tries in range(TRIES, 0, -1):
            try:
                await trio.to_thread.run_sync(self._query.processAllAvailable)
                break
            except StreamingQueryException:
                if tries == 1:
                    raise
                await trio.to_thread.run_sync(self._start)
        await trio.to_thread.run_sync(self._query.stop)
        await super().end()


@pytest.mark.spark
@pytest.mark.skipif(not ROUNDS, reason="make torture has it")
async def test_a_query_of_spark_reads_each_message_of_the_log_once(postgres_url: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    from pyspark.sql import SparkSession

    import dataspace.spark

    spark = dataspace.spark.session(SparkSession.builder.master("local[2, 4]").appName("tests"))
    spark.sparkContext.setLogLevel("OFF")
    try:
        with closing(ReadBySpark(spark, postgres_url, tmp_path, seed=1)) as succession:
            history = await succession.run(PROMOTIONS // 2)
    finally:
        spark.stop()
    messages = [(epoch.number, each) for epoch in history.log for each in epoch.messages]
    said = [(at, *each.fields) for at, each in messages if isinstance(each, Record) and each.label == "said"]
    assert succession.seen.rows == said
    assert len({term for term, _ in history.chain}) > 2 and len(succession.seen.batches) > 2
