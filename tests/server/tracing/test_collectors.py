"""A collector that is down or slow costs the daemon spans, a line of the log, and nothing else."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.errors import UsageError
from server.config.model import Traces
from server.monitoring import pages
from server.tracing import exporting
from server.tracing.tracing import open_tracing
from tests.server.monitoring.scraping import scrape
from tests.server.peers import fact
from tests.server.processes import DaemonProcess
from tests.server.tracing.collectors import Collector, collecting
from tests.server.tracing.conftest import Serving

ADMIN = "tcp:127.0.0.1:0"
SENT, DROPPED = "dataspace_spans_sent_total", "dataspace_spans_dropped_total"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and attempts are short, and what is scraped is read anew."""
    monkeypatch.setattr(exporting, "EXPORT_SECONDS", 0.05)
    monkeypatch.setattr(exporting, "BATCH_SECONDS", 0.02)
    monkeypatch.setattr(exporting, "FLUSH_SECONDS", 0.5)
    monkeypatch.setattr(pages, "FRESH_SECONDS", 0.0)


async def turns_until(
    space: dataspace.RemoteSpace, admin: str, holds: Callable[[dict[str, float]], bool]
) -> None:
    """Makes turns until the metrics of spans are as is wanted."""
    with trio.fail_after(30):
        while not holds(await scrape(admin)):
            await space.send(fact(1))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log has of traces, and of those who make them; readers of Spark may be left of other tests."""
    names = ("opentelemetry", "urllib3", "dataspace")
    return [
        each.getMessage()
        for each in caplog.records
        if each.name.startswith(names) and each.name != "dataspace.spark" and each.levelno >= logging.WARNING
    ]


async def test_a_collector_that_is_down_is_one_line(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as nothing:
        nothing.bind(("127.0.0.1", 0))  # and does not listen
        to = f"http://127.0.0.1:{nothing.getsockname()[1]}"
        async with serving(to=to, admin=ADMIN) as (url, admin), dataspace.connect(url) as space:
            for most in (0, 30, 60):  # each in a batch of its own at least
                await turns_until(space, admin, lambda found, most=most: found[DROPPED] > most)  # type: ignore[misc]  # a default
            assert (await scrape(admin))[SENT] == 0
    (line,) = lines(caplog)
    assert line.startswith(f"traces: {to}/v1/traces takes no spans, which are dropped: ")
    assert "Failed to export" in line  # the reason that OpenTelemetry gives


async def test_one_that_refuses_and_takes_again_is_two_lines(
    serving: Serving,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporting, "EXPORT_SECONDS", 60.0)  # else a busy machine is another line
    collector.status = 400
    async with serving(admin=ADMIN) as (url, admin), dataspace.connect(url) as space:
        await turns_until(space, admin, lambda found: found[DROPPED] > 10)
        collector.status = 200
        await turns_until(space, admin, lambda found: found[SENT] > 0)
    first, last = lines(caplog)
    assert "takes no spans" in first
    assert "takes spans again; " in last
    assert collector.spans


async def test_one_that_is_slow_bounds_what_waits_and_no_turn(
    serving: Serving,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporting, "EXPORT_SECONDS", 60.0)
    monkeypatch.setattr(exporting, "BATCH", 8)
    monkeypatch.setattr(exporting, "WAITING", 32)
    collector.going.clear()
    async with serving(admin=ADMIN) as (url, admin), dataspace.connect(url) as space:
        await turns_until(space, admin, lambda found: found[DROPPED] > 100)
        assert (await scrape(admin))[SENT] == 0
        collector.going.set()
        await turns_until(space, admin, lambda found: found[SENT] > 40)
    assert lines(caplog) == []


async def test_one_that_never_answers_does_not_keep_the_daemon(
    serving: Serving, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "EXPORT_SECONDS", 60.0)
    monkeypatch.setattr(exporting, "FLUSH_SECONDS", 0.05)
    collector.going.clear()
    with trio.fail_after(30):
        async with serving() as (url,), dataspace.connect(url) as space:
            await space.send(fact(1))
            await trio.to_thread.run_sync(collector.came.acquire)
    assert collector.spans == []


def test_without_the_extra_the_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, exporting.__name__)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UsageError, match=r"pip install 'dataspace-server\[otel\]', or start without traces"):
        open_tracing(Traces("http://127.0.0.1:4318/v1/traces"))
    assert open_tracing(Traces()) is None


@pytest.mark.slow
def test_a_daemon_of_its_own_sends_all_at_its_end_and_loads_nothing_unless_asked(tmp_path: Path) -> None:
    timed = ("-X", "importtime", "-m", "dataspace")
    with collecting() as collector:
        for more in ((), ("--traces", collector.url, "--traces-ratio", "1")):
            process = DaemonProcess(tmp_path / "data", *more, program=timed)
            process.start()
            with dataspace.connect_blocking(process.url) as space:
                space.send(fact(1))
            assert process.stop() == 0
            assert ("opentelemetry" in process.errors) == bool(more)
            assert ("server.tracing.exporting" in process.errors) == bool(more)
    assert sorted([each.name for each in collector.spans]) == ["commit", "disk", "turn"]
