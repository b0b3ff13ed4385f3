"""Whatever a source is given or loses, it says so or does what is stated, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from dataspace.client.bulk.client import BulkClient
from dataspace.transport.credentials import Tls
from index.patterns.text import parse
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.guarded import CERTIFICATES, guarded
from tests.relay.spark.queries import Seen, read, run_now, running, stream, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Checkpoint = Callable[[], str]


def test_a_daemon_that_stays_away_fails_the_query_which_then_goes_on_where_it_was(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    own_daemon.turn("+p(1)")
    seen = Seen()
    with running(
        stream(spark, own_daemon.url, "p($n:int)", connectTimeout="300ms"), seen, checkpoint()
    ) as query:
        until(lambda: len(seen.rows) == 1, query)
        own_daemon.kill()
        until(lambda: not query.isActive)
        assert "no daemon at" in str(query.exception()) and "waited 0.3 s" in str(query.exception())
    own_daemon.start()
    own_daemon.turn("+p(2)")
    later = Seen()
    run_now(stream(spark, own_daemon.url, "p($n:int)"), later, checkpoint())
    assert [row[0] for row in later.rows] == [2]


def test_epochs_past_retention_fail_a_query_unless_loss_is_accepted(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    own_daemon.turn("+p(1)")
    run_now(stream(spark, own_daemon.url, "p($n:int)"), Seen(), checkpoint())
    own_daemon.turn("+p(2)")
    own_daemon.turn("-p(1)")
    trim(own_daemon)
    own_daemon.turn("+p(3)")
    with pytest.raises(PySparkException, match="epochs 2 to 2 are gone, the oldest retained is 3"):
        run_now(stream(spark, own_daemon.url, "p($n:int)"), Seen(), checkpoint())
    seen = Seen()
    run_now(stream(spark, own_daemon.url, "p($n:int)", failOnDataLoss="false"), seen, checkpoint())
    assert [row[:2] for row in seen.rows] == [(1, "delete"), (3, "insert")]
    with pytest.raises(PySparkException, match="startingEpoch 1 is gone"):
        run_now(stream(spark, own_daemon.url, "p($n:int)", startingEpoch=1), Seen(), f"{checkpoint()} 2")
    begun = Seen()
    tolerant = stream(spark, own_daemon.url, "p($n:int)", startingEpoch=1, failOnDataLoss="false")
    run_now(tolerant, begun, f"{checkpoint()} 2")
    assert [row[:2] for row in begun.rows] == [(1, "delete"), (3, "insert")]
    with pytest.raises(PySparkException, match="are gone"):
        read(spark, own_daemon.url, "p($n:int)", startingEpoch=1)
    for fail in ("true", "false"):
        with pytest.raises(PySparkException, match=r"asOfEpoch 1 is gone, .* is that at epoch 2"):
            read(spark, own_daemon.url, "p($n:int)", asOfEpoch=1, failOnDataLoss=fail)
    assert [row[0] for row in read(spark, own_daemon.url, "p($n:int)", asOfEpoch=2)] == [1, 2]
    assert [row[0] for row in read(spark, own_daemon.url, "p($n:int)", asOfEpoch="latest")] == [2, 3]


def trim(daemon: Daemon) -> None:
    """Lets go of all but the newest segment, which a start of the daemon has written."""
    daemon.stop()
    command = [
        sys.executable,
        "-m",
        "dataspace",
        "log",
        "compact",
        "--keep-for",
        "1ms",
        "--data",
        str(daemon.data),
    ]
    subprocess.run(command, check=True, capture_output=True)
    daemon.start()


def test_a_schema_that_does_not_go_with_the_pattern_is_refused(spark: SparkSession, daemon: Daemon) -> None:
    reader = spark.readStream.format("dataspace").option("url", daemon.url)
    reader = reader.option("pattern", "p($n:int, $who:str)")
    with pytest.raises(PySparkException, match="captures int and the schema says double, allowed are"):
        run_now(reader.schema("n double").load(), Seen(), "/nowhere")
    with pytest.raises(PySparkException, match="column whom is none of the pattern's, did you mean who"):
        run_now(reader.schema("whom string").load(), Seen(), "/nowhere")
    with pytest.raises(PySparkException, match="column _time is one of topics only"):
        run_now(reader.schema("_time array<bigint>").load(), Seen(), "/nowhere")


@pytest.mark.parametrize(("malformed", "expected"), [("drop", [1, 3]), ("null", [1, None, 3])])
def test_facts_that_do_not_fit_are_dropped_or_null(
    spark: SparkSession,
    daemon: Daemon,
    label: str,
    checkpoint: Checkpoint,
    malformed: str,
    expected: list[object],
) -> None:
    daemon.turn(f"+{label}(1)", f"+{label}(9223372036854775808)", f"+{label}(3)")
    frame = stream(spark, daemon.url, f"{label}($n:int)", startingEpoch="earliest", malformed=malformed)
    seen = Seen()
    run_now(frame, seen, checkpoint())
    assert [row[0] for row in seen.rows] == expected


def test_an_integer_of_any_size_may_be_a_string(spark: SparkSession, daemon: Daemon, label: str) -> None:
    daemon.turn(f"+{label}(9223372036854775808)", f"+{label}(-1)")
    reader = spark.read.format("dataspace").option("url", daemon.url).option("pattern", f"{label}($n:int)")
    rows = reader.schema("n string").load().collect()
    assert sorted(row[0] for row in rows) == ["-1", "9223372036854775808"]


def test_tokens_and_certificates_are_shown_by_driver_and_executors(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    ca = str(CERTIFICATES / "ca.pem")
    token = tmp_path / "token"
    token.write_text("the secret of a reader\n")
    with guarded(tmp_path / "data") as url:
        with BulkClient(url, token="the secret of the admin", tls=Tls(ca=ca)) as link:
            link.stage(("k",), [("assert", parse("p(1)"))])
            link.publish([("k",)], client="c", sequence=1, owner="o")
        shown = {"tlsCa": ca, "tokenFile": str(token)}
        seen = Seen()
        run_now(stream(spark, url, "p($n:int)", **shown), seen, checkpoint())
        assert [row[0] for row in seen.rows] == [1]
        assert len(read(spark, url, "p($n:int)", **shown)) == 1
        with pytest.raises(PySparkException, match="not-allowed"):
            read(spark, url, "q($n:int)", **shown)
        with pytest.raises(PySparkException, match=r"wants a token: give \.option\(.token"):
            read(spark, url, "p($n:int)", tlsCa=ca)
        with pytest.raises(PySparkException, match=r"no TLS with .* cannot verify"):
            read(spark, url, "p($n:int)", tokenFile=str(token))
        frame = stream(spark, url, "p($n:int)", tlsCa=ca, token="the secret of a reader")
        plan = frame._jdf.queryExecution().toString()
        assert "secret of a reader" not in plan
