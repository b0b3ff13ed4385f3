"""What took long, what was refused and what administrators did are lines with who and what."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map, ProtocolError, Record, Refused
from server.config.model import Config, Logging, Slow
from server.daemon.serve import serve
from server.monitoring import measures
from server.sessions.counts import MOST_CODES, count
from tests.server.monitoring.conftest import KEYS, OPERATOR, SENSOR

ALL = Slow(turn=1e-9, request=1e-9, replay=1e-9, rules=1e-9)
NONE = Slow(turn=0, request=0, replay=0, rules=0)


async def started(tmp_path: Path, nursery: trio.Nursery, slow: Slow, **more: Any) -> str:
    logged = Logging(slow=slow, audit=tmp_path / "audit.jsonl")
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", logging=logged, **more)
    addresses: list[str] = await nursery.start(serve, config, lambda: config)
    return addresses[0]


def slow_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [each.__dict__["fields"] for each in caplog.records if each.msg.startswith("slow ")]


async def test_what_is_slow_is_logged_with_who_and_what(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    url = await started(tmp_path, nursery, ALL)
    async with dataspace.connect(url, name="kitchen") as space:
        await space.assert_(Record("at", 1))
        await space.request("sync", Map({}))
        await space.request("frontier", Map({"after": 0, "wait": 1}))
        async with space.observe("at($n)", after=0, upto=1) as seen:
            assert [change.captures async for change in seen] == [(1,)]
    by_kind = {each["kind"]: each for each in slow_lines(caplog)}
    assert by_kind["turn"]["what"] == "a turn of 1 actions"
    assert by_kind["request"]["what"] == "sync"  # one that was asked to wait may take its time
    assert by_kind["replay"]["what"] == "a replay of at($n) after epoch 0"
    for each in by_kind.values():
        assert (each["name"], each["principal"]) == ("'kitchen'", "address:127.0.0.1")
        assert each["seconds"] > 0 and each["address"].startswith("127.0.0.1:")


async def test_rules_that_use_much_of_a_second_are_named(
    tmp_path: Path,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measures, "RULES_PAUSE", 0.01)
    url = await started(tmp_path, nursery, Slow(turn=0, request=0, replay=0, rules=1e-9))
    async with dataspace.connect(url) as space:
        await space.assert_(Record("rule", "near", "near($x) <- at($x)."))
        with trio.fail_after(20):
            for n in range(1 << 20):
                await space.assert_(Record("at", n))
                if found := slow_lines(caplog):
                    break
    assert (found[0]["kind"], found[0]["what"]) == ("rules", "rule 'near' of space main")


async def test_without_thresholds_nothing_is_slow(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    url = await started(tmp_path, nursery, NONE)
    async with dataspace.connect(url) as space:
        await space.assert_(Record("at", 1))
        await space.sync()
    assert not slow_lines(caplog)


async def test_refusals_and_acts_are_in_the_audit_log(tmp_path: Path, nursery: trio.Nursery) -> None:
    url = await started(tmp_path, nursery, NONE, keys=KEYS)
    with pytest.raises(ProtocolError):
        async with dataspace.connect(url, name="thief", token="a wrong token that is long"):
            pass
    async with dataspace.connect(url, name="kitchen", token=SENSOR) as sensor:
        with pytest.raises(Refused):
            await sensor.assert_(Record("other", 1))
        async with dataspace.connect(url, name="me", token=OPERATOR) as operator:
            await operator.request("acknowledge", Map({"reader": "spark", "forget": True}))
    os.kill(os.getpid(), signal.SIGHUP)
    with trio.fail_after(20):
        while not (found := audited(tmp_path)) or found[-1]["act"] != "reloaded":
            await trio.lowlevel.checkpoint()
    start, login, right, act, reload = found
    assert start["act"] == "started"
    assert (login["act"], login["principal"]) == ("login-refused", "address:127.0.0.1")
    assert "unauthorized" in login["text"]
    assert (right["act"], right["name"], right["principal"]) == ("right-refused", "'kitchen'", "token:sensor")
    assert "does not allow to assert other(1)" in right["text"]
    assert (act["act"], act["principal"], act["text"]) == (
        "reader-forgotten",
        "token:operator",
        "reader 'spark'",
    )
    assert "the configuration was reloaded" in reload["text"]
    assert SENSOR not in (tmp_path / "audit.jsonl").read_text()


async def test_many_refusals_of_one_are_counted_and_those_of_others_written(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    url = await started(tmp_path, nursery, NONE, keys=KEYS)
    async with dataspace.connect(url, token=SENSOR) as sensor:
        for n in range(20):
            with pytest.raises(Refused):
                await sensor.assert_(Record("other", n))
    with pytest.raises(ProtocolError):
        async with dataspace.connect(url, token="a wrong token that is long"):
            pass
    acts = [each["act"] for each in audited(tmp_path)]
    assert acts == ["started", *["right-refused"] * 5, "login-refused"]


async def test_decoys_do_not_hide_a_refusal_and_the_end_of_the_daemon_writes_the_sum(tmp_path: Path) -> None:
    logged = Logging(audit=tmp_path / "audit.jsonl")
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", logging=logged, keys=KEYS)
    async with trio.open_nursery() as serving:
        url = (await serving.start(serve, config))[0]
        async with dataspace.connect(url, token=SENSOR) as sensor:
            for n in range(20):
                with pytest.raises(Refused):
                    await sensor.assert_(Record("decoy", n))
            with pytest.raises(Refused):
                await sensor.assert_(Record("vault", "open"))
        serving.cancel_scope.cancel()
    found = [each for each in audited(tmp_path) if each["event"] == "right-refused"]
    assert len(found) == 7
    assert "assert vault(" in found[5]["text"]
    assert (found[6]["left_out"], found[6]["principal"]) == (15, "token:sensor")
    assert found[6]["about"] == {"the token 'sensor' does not allow to assert decoy": 15}


def audited(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]


def test_codes_beyond_those_of_the_daemon_are_counted_together() -> None:
    counts: dict[str, int] = {}
    for n in range(MOST_CODES + 5):
        count(counts, f"code-{n}")
    assert len(counts) == MOST_CODES + 1 and counts["other"] == 5
