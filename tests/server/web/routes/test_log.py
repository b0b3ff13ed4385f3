"""The past over HTTP: every epoch of a range, whole and in order, as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataspace import Record
from server.cli.main import main
from tests.server.web.routes.callers import SECONDS, EventSource, HttpDaemon, raw

LOG = "/v1/spaces/main/log"


@pytest.fixture(scope="module", autouse=True)
def past(daemon: HttpDaemon) -> None:
    """What these tests read."""
    daemon.put(*[Record("long", at, "x" * 100) for at in range(5_000)])
    for at in range(5):
        daemon.put(Record("past-step", at))


def test_a_range_has_each_epoch_once(daemon: HttpDaemon) -> None:
    every = daemon.get(LOG, pattern="past-step($n)").lines()
    assert [each["added"] for each in every] == [[{"n": at}] for at in range(5)]
    epochs = [each["epoch"] for each in every]
    some = daemon.get(LOG, pattern="past-step($n)", from_=epochs[1], until=epochs[3]).lines()
    assert some == every[1:4]
    assert daemon.get(LOG, pattern="past-step($n)", from_=epochs[4] + 1).lines() == []
    assert daemon.get(LOG, pattern="past-step($n)", until=1 << 40).lines() == every


def test_a_large_epoch_is_one_line(daemon: HttpDaemon) -> None:
    (line,) = daemon.get(LOG, pattern="long($n, $text)").lines()
    assert [row["n"] for row in line["added"]] == list(range(5_000))


def test_a_range_that_makes_no_sense_is_refused(daemon: HttpDaemon) -> None:
    assert daemon.get(LOG, pattern="_", from_=3, until=2).problem() == (
        400,
        "bad-request",
        "until=2 is before from=3",
    )
    assert daemon.get(LOG, pattern="_", from_=1 << 40).problem()[:2] == (404, "epoch-ahead")


@pytest.mark.slow
def test_a_reader_that_does_not_read_holds_nothing_but_itself(daemon: HttpDaemon) -> None:
    request = f"GET {LOG}?pattern=long($n,$x) HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    slow = [raw(daemon, request, window=4096) for _ in range(2)]
    epoch = daemon.put(Record("beside", 1))
    assert daemon.get(LOG, pattern="beside($n)").lines()[-1]["epoch"] == epoch
    for each in slow:
        each.settimeout(SECONDS)
        said = b""
        while not said.endswith(b"0\r\n\r\n"):
            said += each.recv(1 << 16)
        each.close()
        body = b"".join(piece for piece in _chunks(said.partition(b"\r\n\r\n")[2]))
        assert len(json.loads(body)["added"]) == 5_000


def _chunks(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, rest = body.partition(b"\r\n")
        yield rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]


@pytest.mark.slow
def test_epochs_that_are_gone_are_named(tmp_path: Path) -> None:
    daemon = HttpDaemon(tmp_path / "data")
    daemon.start()
    daemon.put(*[Record("bulky", at, "x" * 2_000) for at in range(1_000)])
    for at in range(4):
        daemon.put(Record("step", at))
    path = "/v1/spaces/main/observe?pattern=bulky($n,$x)"
    stuck = raw(daemon, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), window=4096)
    assert stuck.recv(12) == b"HTTP/1.1 200"
    assert daemon.stop() == 0  # though a reader does not read
    stuck.close()
    assert main(["log", "compact", "--data", str(daemon.data), "--keep-for", "0s"]) == 0
    daemon.start()
    try:
        gone = daemon.get(LOG, pattern="step($n)", from_=1).problem()
        assert gone[:2] == (410, "epoch-gone") and "the oldest held is" in gone[2]
        state = daemon.get("/v1/spaces/main/facts", pattern="step($n)", as_of=1).problem()
        assert state[:2] == (410, "epoch-gone")
        queries: tuple[dict[str, Any], ...] = ({"after": 1}, {"as_of": 1})
        for query in queries:
            after = EventSource(daemon, "step($n)", **query)
            assert (after.status, json.loads(after.response.read())["code"]) == (410, "epoch-gone")
            after.close()
        wanted = EventSource(daemon, "step($n)", last="1", policy="wait")
        assert (wanted.status, json.loads(wanted.response.read())["code"]) == (410, "epoch-gone")
        wanted.close()
        with EventSource(daemon, "step($n)", last="1") as anew:
            event = anew.next()
            assert event.data["state"] and len(event.data["added"]) == 4
    finally:
        daemon.stop()


def test_who_made_each_change(daemon: HttpDaemon) -> None:
    lines = daemon.get(LOG, pattern="past-step($n)", who="true").lines()
    assert [(each["change"], each["captures"]) for each in lines] == [("+", {"n": at}) for at in range(5)]
    assert {each["principal"] for each in lines} == {"address:127.0.0.1"}
    assert all(len(each["owners"]) == 1 and each["client"] and each["address"] for each in lines)
