"""Through Spark Connect the format reads and writes as in a classic session, and its errors arrive."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.relay.spark.cluster import ConnectServer
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE

pytest.importorskip("grpc", reason="the extra `connect` is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a client said of each thing that it did."""
    folder = tmp_path_factory.mktemp("connect")
    (folder / "server").mkdir()
    with Daemon(folder / "daemon") as daemon, ConnectServer(folder / "server") as server:
        client = subprocess.run(
            [sys.executable, "-m", "tests.relay.spark.through_connect", server.url, daemon.url, str(folder)],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
    assert client.returncode == 0, client.stderr
    return dict(json.loads(line) for line in client.stdout.splitlines() if line.startswith("["))


def test_a_session_is_registered_and_taken_as_it_is(told: dict[str, object]) -> None:
    assert told["session"] == "pyspark.sql.connect.session"


def test_batches_are_written_and_read(told: dict[str, object]) -> None:
    assert told["write"] == [[0], [1], [2]]
    assert told["read"] == [[n, "insert", 1, n] for n in range(3)]


def test_a_stream_reads_writes_and_goes_on_from_its_checkpoint(told: dict[str, object]) -> None:
    assert told["stream"] == [[0], [2], [4]]
    assert told["stream_again"] == [[2], [4]]


def test_update_mode_goes_through_foreach_batch_with_a_name(told: dict[str, object]) -> None:
    assert told["updates"] == [[0, 1], [1, 1]]
    assert told["updates_again"] == [[0, 0], [1, 1]]
    assert "give updates(name=…)" in str(told["updates_without_name"])


def test_facts_of_a_query_go_with_it(told: dict[str, object]) -> None:
    assert told["owned_by_the_query"] == [[[1]], []]


def test_errors_arrive_at_the_client(told: dict[str, object]) -> None:
    assert "column n is None, which is not the int that the template asks for" in str(told["bad_fact"])
    assert "did you mean startingEpoch?" in str(told["bad_option"])
    assert "no daemon at tcp://127.0.0.1:1" in str(told["unreachable"])
    assert len(str(told["unreachable"]).splitlines()) < 10
