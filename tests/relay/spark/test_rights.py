"""What a token does not allow is said on the driver, before a task is made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from dataspace.errors import Refused, Unreachable
from dataspace.transport.tokens import narrow
from index.values.values import Map
from relay.spark.common.connections import close_all
from relay.spark.common.options import sink_options
from relay.spark.common.schema import inferred
from relay.spark.format import Dataspace
from relay.spark.sink.sink import StagedBatch, check_rights, discard, facts, hand_in, publish
from tests.relay.spark.guarded import ADMIN, CERTIFICATES, READER, WRITER, guarded

pytestmark = pytest.mark.slow

CA = {"tlsCa": str(CERTIFICATES / "ca.pem")}
NUMBERS = count(1000, 10)
"""Facts that no other test has asserted, so that each batch has an effect."""

ROWS = StructType().add("n", LongType())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with guarded(tmp_path_factory.mktemp("guarded")) as url:
        yield url
        close_all()


def source(url: str, pattern: str, token: str = READER) -> tuple[Any, Any]:
    """What plans a batch and what plans a stream."""
    made = Dataspace({"url": url, "pattern": pattern, "token": token, **CA})
    return made.reader(inferred(pattern)), made.streamReader(inferred(pattern))


def test_a_batch_read_is_refused_while_it_is_planned(url: str) -> None:
    with pytest.raises(Refused, match=r"not-allowed.*observe q"):
        source(url, "q($n:int)")[0].partitions()
    assert source(url, "p($n:int)")[0].partitions() == []


def test_owners_need_the_right_to_inspect(url: str) -> None:
    for token, said in ((READER, r"not-allowed.*who changed facts"), (ADMIN, "")):
        options = {"url": url, "pattern": "p($n:int)", "token": token, "includeOwner": "true", **CA}
        made = Dataspace(options)
        for reader in (made.reader(made.schema()), made.streamReader(made.schema())):
            if said:
                with pytest.raises(Refused, match=said):
                    plans(reader)
            else:
                plans(reader)


def plans(reader: Any) -> None:
    """What Spark asks first of a batch or a stream."""
    (reader.initialOffset if hasattr(reader, "initialOffset") else reader.partitions)()


def test_a_stream_is_refused_by_whatever_spark_asks_first(url: str) -> None:
    stream = source(url, "p($n:int)")[1]
    start = stream.initialOffset()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    there = {**start, "pattern": "q($n:int)"}
    asks: tuple[Callable[[Any], object], ...] = (
        lambda stream: stream.initialOffset(),
        lambda stream: stream.latestOffset(there, stream.getDefaultReadLimit()),
        lambda stream: stream.partitions(there, there),
    )
    for ask in asks:
        with pytest.raises(Refused, match=r"not-allowed.*observe q"):
            ask(source(url, "q($n:int)")[1])


@pytest.mark.parametrize("more", [{}, {"writer": "w"}, {"writer": "w", "txnAppId": "a", "txnVersion": "1"}])
def test_a_write_is_refused_while_it_is_planned(url: str, more: dict[str, str]) -> None:
    def sink(token: str) -> None:
        Dataspace({"url": url, "label": "p", "token": token, **CA, **more}).writer(ROWS, overwrite=False)

    with pytest.raises(Refused, match=r"not-allowed.*durable owner"):
        sink(READER)
    sink(ADMIN)


@pytest.mark.parametrize("more", [{"writer": "w"}, {"owner": "query", "lease": "2s"}])
def test_a_query_that_writes_is_refused_while_a_batch_is_planned(url: str, more: dict[str, str]) -> None:
    def sink(token: str) -> None:
        options = {"url": url, "label": "p", "token": token, **CA, **more}
        Dataspace(options).streamWriter(ROWS, overwrite=False)

    with pytest.raises(Refused, match="not-allowed"):
        sink(READER)
    sink(ADMIN)


def test_a_certificate_that_nobody_vouches_for_fails_at_once(url: str) -> None:
    reader = Dataspace({"url": url, "pattern": "p($n:int)"}).reader(inferred("p($n:int)"))
    with pytest.raises(Unreachable, match=r"cannot verify.*tlsCa") as caught:
        reader.partitions()
    assert "waited" not in str(caught.value)


@pytest.mark.parametrize("carried", ["0", "65536"])
@pytest.mark.parametrize("owner", ["w", "lease:60000:spark-q"])
def test_a_token_with_no_more_than_it_needs_writes_batch_after_batch(
    url: str, owner: str, carried: str
) -> None:
    """Its tasks and its driver are bearers of one token; no right names the identity of the query."""
    read = {"url": url, "label": "p", "token": WRITER, "carryBytes": carried, **CA}
    options, query = sink_options(read), f"query-{owner}-{carried}"
    check_rights(options, owner)
    epochs: list[int | None] = []
    fresh = next(NUMBERS)
    for number in (0, 0, 1):
        batch = StagedBatch(query, number, f"run {len(epochs)}")
        tasks = [
            hand_in(
                options,
                facts(options, ROWS),
                batch,
                iter([pa.RecordBatch.from_pydict({"n": [task, fresh + number]})]),
            )
            for task in (7, 8)
        ]
        epochs.append(publish(options, batch, tasks, owner=owner, replace=False, exclusive=True))
        discard(options, tasks)
    first, again, second = epochs
    assert first == again
    assert first is not None and second is not None and first < second
    other = StagedBatch(query, 0, "run of another")
    stranger = sink_options({**read, "token": narrow(ADMIN, Map({"durable": ("v",), "assert": True}))})
    told = hand_in(
        stranger, facts(stranger, ROWS), other, iter([pa.RecordBatch.from_pydict({"n": [fresh + 2]})])
    )
    with pytest.raises(Refused, match="not-allowed"):
        publish(stranger, other, [told], owner="w", replace=False)
    mine = publish(stranger, other, [told], owner="v", replace=False)
    assert mine is not None and mine > second, "the same batch of another owner is another one"
