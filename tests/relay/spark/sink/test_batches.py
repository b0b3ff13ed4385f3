"""What tasks hand in is published once, whether it rides along, is staged, or is too much for one request."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.packed import PackedColumns
from dataspace.errors import Refused
from relay.spark.common.options import SinkOptions, sink_options
from relay.spark.sink import sink
from relay.spark.sink.sink import Handed, StagedBatch, facts, hand_in, publish
from tests.relay.spark.daemons import Daemon

pytestmark = pytest.mark.slow

SCHEMA = StructType().add("n", LongType())
NOBODY = "tcp://127.0.0.1:1"


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


def handed(options: SinkOptions, *chunks: pa.RecordBatch) -> Handed:
    return hand_in(options, facts(options, SCHEMA), StagedBatch(str(options.label), 0, "run"), iter(chunks))


def test_little_is_handed_to_the_driver_and_no_daemon_is_asked() -> None:
    told = handed(sink_options({"label": "p", "url": NOBODY}), rows(1, 2), rows(3))
    assert [type(piece) for piece in told.adding] == [bytes, bytes]
    assert told.retracting == ()


def test_what_is_more_is_staged_and_so_is_what_came_before_it(daemon: Daemon, label: str) -> None:
    options = sink_options({"label": label, "url": daemon.url, "carryBytes": "40"})
    told = handed(options, rows(1), rows(*range(2, 100)), rows(100))
    assert all(isinstance(piece, tuple) for piece in told.adding)
    assert len(told.adding) == 3
    publish(options, told.batch, [told], owner="w", replace=False)
    assert set(daemon.facts(f"{label}($)")) == {(n,) for n in range(1, 101)}


def test_of_very_many_tasks_only_some_hand_anything_to_the_driver(
    daemon: Daemon, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = sink_options({"label": label, "url": daemon.url})
    monkeypatch.setattr(sink, "_partition", lambda: sink._CARRIERS - 1)
    assert isinstance(handed(options, rows(1)).adding[0], bytes)
    monkeypatch.setattr(sink, "_partition", lambda: sink._CARRIERS)
    assert isinstance(handed(options, rows(1)).adding[0], tuple)


def test_what_is_too_much_for_one_request_is_published_all_the_same(own_daemon: Daemon) -> None:
    batch, large = StagedBatch("a", 0, "run"), "x" * 200_000
    pieces = tuple(PackedColumns("send", "p", [[n], [large]], 1).packed() for n in range(20))
    huge = PackedColumns("send", "p", [[20, 21], [large, large]], 2).packed()
    options = sink_options({"label": "p", "url": own_daemon.url})
    for _ in range(2):
        publish(options, batch, [Handed(batch, (*pieces, huge))], owner="w", replace=False)
    changes = own_daemon.changes("p($, _)")
    assert {epoch for _, epoch, _ in changes} == {1}
    assert [row for _, _, row in changes] == [(n,) for n in range(22)]
    with sqlite3.connect(own_daemon.data / "staged.sqlite") as file:
        assert file.execute("SELECT count(*) FROM staged").fetchone() == (0,)


def test_what_comes_by_either_way_is_added_before_anything_is_retracted(daemon: Daemon, label: str) -> None:
    batch = StagedBatch(label, 0, "run")
    staged = sink_options({"label": label, "url": daemon.url, "carryBytes": "0"})
    fact = PackedColumns("assert", label, [[1]], 1)
    sink._stage_piece(staged, (*batch.attempt, "+"), fact)
    going = PackedColumns("retract", label, [[1]], 1).packed()
    told = [Handed(batch, (), (going,)), Handed(batch, ((*batch.attempt, "+"),))]
    publish(staged, batch, told, owner=label, replace=False)
    assert daemon.facts(f"{label}($)") == []


def test_what_is_more_than_a_little_is_shown_to_a_daemon_that_is_there(
    daemon: Daemon, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[bytes] = []
    prepare = BulkClient.prepare

    def preparing(link: BulkClient, body: bytes) -> None:
        shown.append(body)
        prepare(link, body)

    monkeypatch.setattr(BulkClient, "prepare", preparing)
    options = sink_options({"label": label, "url": daemon.url})
    assert handed(options, rows(1)).adding
    assert shown == []
    told = handed(options, rows(*range(1000, 9000)))
    assert shown == list(told.adding)
    assert publish(options, told.batch, [told], owner="w", replace=False)
    assert len(daemon.facts(f"{label}($)")) == 8_000
    away = handed(sink_options({"label": label, "url": NOBODY}), rows(*range(1000, 9000)))
    assert away.adding == told.adding, "a daemon that is away is the driver's concern"


def test_a_number_that_was_passed_over_is_answered_in_the_words_of_options(
    daemon: Daemon, label: str
) -> None:
    def write(number: int) -> None:
        given = {"label": label, "url": daemon.url, "txnAppId": label, "txnVersion": str(number)}
        options = sink_options(given)
        batch = StagedBatch(label, number, "run")
        told = hand_in(options, facts(options, SCHEMA), batch, iter([rows(number)]))
        publish(options, batch, [told], owner="w", replace=False)

    for number in (1, 5, 5):
        write(number)
    with pytest.raises(Refused, match=f"txnVersion is 3, but txnAppId '{label}' has written a higher one"):
        write(3)
    assert daemon.facts(f"{label}($)") == [(1,), (5,)]
    options = sink_options({"label": label, "url": daemon.url})
    batch = StagedBatch(label, 3, "run")
    told = hand_in(options, facts(options, SCHEMA), batch, iter([rows(3)]))
    with pytest.raises(Refused, match=f"batch 3 of query {label} is behind.*new one"):
        publish(options, batch, [told], owner="w", replace=False)
