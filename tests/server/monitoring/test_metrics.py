"""What is scraped is what has happened, under the names that the documents list."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

import dataspace
import server
from dataspace import ProtocolError, Record, Refused
from server.daemon.features import FEATURES
from server.monitoring import pages
from server.monitoring.metrics import all_metrics
from tests.server.monitoring.conftest import SENSOR, Served
from tests.server.monitoring.scraping import get, scrape
from tests.server.peers import Peer, opening

TURNS = 'dataspace_turns_total{space="main"}'
SERVER = Path(server.__file__).parent
"""Where the documents of the server lie, in a checkout and in a wheel."""


async def scraped_until(admin: str, series: str, value: float) -> dict[str, float]:
    """What is scraped once a series has a value."""
    with trio.fail_after(20):
        while True:
            found = await scrape(admin)
            if found.get(series) == value:
                return found


async def test_turns_facts_and_observers_are_counted(served: Served) -> None:
    async with dataspace.connect(served.url) as space, space.observe("reading($n)"):
        for n in range(3):
            await space.assert_(Record("reading", n))
        await space.send(Record("note", 1))
        found = await scraped_until(served.admin, 'dataspace_turns_total{space="main"}', 4)
        assert found['dataspace_facts{space="main"}'] == 4  # the interest is one
        assert found['dataspace_observers{space="main"}'] == 1
        assert found['dataspace_sessions{space="main"}'] == 1
        assert found["dataspace_streams"] == 1
        assert found['dataspace_changes_total{space="main"}'] == 5
        groups = found['dataspace_commit_seconds_count{space="main"}']
        assert 0 < groups <= found['dataspace_epochs_written_total{space="main"}'] == 5
        assert found['dataspace_commit_seconds_bucket{le="+Inf",space="main"}'] == groups
        assert found["dataspace_received_bytes_total"] > 100 < found["dataspace_sent_bytes_total"]
        assert found['dataspace_disk_bytes{part="log",space="main"}'] > 4096
        assert found["dataspace_memory_accounted_bytes"] < found["dataspace_memory_limit_bytes"]
    found = await scraped_until(served.admin, "dataspace_connections", 0)
    assert found['dataspace_turns_total{space="main"}'] == 4  # those of connections that have ended
    assert found["dataspace_received_bytes_total"] > 100
    assert found["dataspace_connections_accepted_total"] == 1


async def test_the_slowest_observer_is_seen(served: Served) -> None:
    async with Peer(served.url) as slow, dataspace.connect(served.url) as space:
        await slow.greet()
        await slow.say(opening(1, items=0, size=0))
        await space.sync()
        for n in range(7):
            await space.assert_(Record("reading", n))
        found = await scraped_until(served.admin, 'dataspace_observer_lag_epochs_max{space="main"}', 8)
        assert found['dataspace_observer_backlog_max{space="main"}'] == 8  # the state before them is one
        assert found["dataspace_waiting_bytes"] > 0


async def test_refusals_and_goodbyes_are_counted_by_code(guarded: Served) -> None:
    async with dataspace.connect(guarded.url, token=SENSOR) as space:
        with pytest.raises(Refused):
            await space.assert_(Record("other", 1))
        with pytest.raises(Refused):
            await space.request("index", dataspace.Map({}))
    with pytest.raises(ProtocolError):
        async with dataspace.connect(guarded.url, token="not a secret of this daemon"):
            pass
    found = await scraped_until(guarded.admin, "dataspace_logins_refused_total", 1)
    assert found['dataspace_refusals_total{code="not-allowed"}'] == 2
    assert found['dataspace_goodbyes_total{code="unauthorized"}'] == 1


async def test_rules_topics_and_readers_are_seen(served: Served) -> None:
    async with dataspace.connect(served.url) as space:
        await space.assert_(Record("rule", "near", "near($x) <- at($x)."))
        await space.assert_(Record("at", 1))
        await space.request("acknowledge", dataspace.Map({"reader": "spark", "epoch": 1}))
        await space.request("join", dataspace.Map({"topic": "readings"}))
        found = await scraped_until(served.admin, "dataspace_topics", 1)
        assert found['dataspace_rules{space="main"}'] == 1
        assert found['dataspace_rule_ticks_total{space="main"}'] > 0
        await space.assert_(
            Record("rule", "old", "old($x) <- (at($x)) for 10 ms. past($x) <- (at($x)) for 1 h.")
        )
        found = await scraped_until(served.admin, 'dataspace_timed_turns_total{space="main"}', 1)
        assert found['dataspace_timed_rows{space="main"}'] == 2
        assert found['dataspace_timed_pending{space="main"}'] == 1
        assert found['dataspace_timed_late_seconds{space="main"}'] >= 0
        assert found["dataspace_topic_producers"] == 1
        assert found['dataspace_readers{space="main"}'] == 1
        newest = found['dataspace_durable_epoch{space="main"}']
        assert found['dataspace_reader_lag_epochs_max{space="main"}'] == newest - 1
        assert found['dataspace_reader_silence_max_seconds{space="main"}'] > 0


async def test_no_label_has_what_a_client_chose(served: Served) -> None:
    async with dataspace.connect(served.url, name="chosen") as space, space.observe("chosen($n)"):
        await space.assert_(Record("chosen", "chosen"))
        await space.request("join", dataspace.Map({"topic": "chosen"}))
        await space.request("acknowledge", dataspace.Map({"reader": "chosen", "epoch": 1}))
        with pytest.raises(Refused):
            await space.request("chosen", dataspace.Map({}))
        assert "chosen" not in (await get(served.admin, "/metrics")).text


async def test_the_form_is_negotiated(served: Served) -> None:
    plain = await get(served.admin, "/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    newer = await get(served.admin, "/metrics", "Accept: application/openmetrics-text; version=1.0.0")
    assert newer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert newer.text.endswith("# EOF\n")


async def test_what_was_read_is_answered_again_for_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FRESH_SECONDS", 3600.0)
    before = await scrape(served.admin)
    async with dataspace.connect(served.url) as space:
        await space.assert_(Record("reading", 1))
        assert (await scrape(served.admin))[TURNS] == before[TURNS] == 0
        monkeypatch.setattr(pages, "FRESH_SECONDS", 0.0)
        assert (await scrape(served.admin))[TURNS] == 1


async def test_every_metric_is_there(served: Served) -> None:
    families = {
        family.name: family
        for family in text_string_to_metric_families((await get(served.admin, "/metrics")).text)
    }
    assert {name: family.type for name, family in families.items() if not name.startswith("process_")} == {
        each.name + "_info" * (each.kind == "info"): "gauge" if each.kind == "info" else each.kind
        for each in all_metrics(FEATURES)
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on the PATH")
async def test_the_names_follow_the_conventions(served: Served) -> None:
    text = (await get(served.admin, "/metrics")).body
    ours = b"\n".join([line for line in text.splitlines() if b"process_" not in line]) + b"\n"
    command = ["promtool", "check", "metrics"]
    checked = await trio.run_process(
        command, stdin=ours, capture_stdout=True, capture_stderr=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, b"")
