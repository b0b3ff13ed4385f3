"""What is drawn is what the daemon says, and nothing that a client says controls the terminal."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

import dataspace
from dataspace import Record
from dataspace.errors import UsageError
from index.values.values import Value
from server.cli.lasting.top import Glance, drawn, summary, top
from server.cli.parser import parse
from tests.server.monitoring.conftest import SENSOR, Served

SESSION: dict[str, Value] = {
    "session": 3,
    "name": "[red]loader\x1b[2J",
    "principal": "token:loader",
    "state": "connected",
    "address": "10.0.0.7:4711",
    "tls": "TLSv1.3",
    "seconds": 7200.0,
    "turns_per_second": 12.5,
    "streams": 2,
    "waiting_bytes": 3 << 20,
    "lag_epochs": 40,
    "lag_seconds": 130.0,
}


def text_of(glance: Glance, sort: str = "waiting", room: int = 10, width: int = 160) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(drawn(glance, sort, room))
    return out.getvalue()


def status(now: int, epoch: int, rules: int) -> dict[str, Value]:
    return {"now": now, "started": 0, "epoch": epoch, "rules_milliseconds": rules, "version": "1.2"}


def test_rates_are_those_between_two_looks() -> None:
    glance = Glance()
    glance.update(status(10_000_000, 100, 1000))
    assert glance.epochs_per_second == 0
    glance.update(status(12_000_000, 150, 1500))
    assert (glance.epochs_per_second, glance.rules_share) == (25.0, 0.25)
    assert "25.0 epochs/s" in dict(summary(glance))["turns"]


def test_a_session_is_a_line_whatever_it_calls_itself() -> None:
    glance = Glance()
    glance.update(status(1, 1, 0))
    glance.sessions = [SESSION]
    said = text_of(glance)
    assert "[red]loader\\u001b[2J" in said and "\x1b" not in said
    line = next(each for each in said.splitlines() if "loader" in each)
    assert "TLSv1.3" in line and "2h" in line and "3.0 MiB" in line and "40 epochs, 2m" in line


def test_those_for_which_most_waits_are_shown_where_there_is_no_room_for_all() -> None:
    glance = Glance()
    glance.update(status(1, 1, 0))
    glance.sessions = [SESSION | {"session": 100 + n, "waiting_bytes": n << 20} for n in range(9)]
    said = text_of(glance, room=2)
    assert "108" in said and "107" in said and "106" not in said and "7 more sessions" in said


def test_a_narrow_terminal_shows_every_figure() -> None:
    glance = Glance()
    glance.update(status(1, 1, 0))
    glance.sessions = [SESSION]
    line = next(each for each in text_of(glance, width=80).splitlines() if "TLSv1.3" in each)
    assert "12.5" in line and "3.0 MiB" in line and line.rstrip().endswith("40 epochs, 2m")


async def test_it_is_printed_as_often_as_asked_for(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    async with dataspace.connect(served.url, name="kitchen") as space:
        await space.assert_(Record("reading", 1))
        args = parse(["top", "--count", "2", "--every", "10ms", "--url", served.url])
        assert await top(args) == 0
    out = capsys.readouterr().out
    assert out.count("kitchen") == 2 and "2 sessions, 0 suspended" in out


async def test_without_the_right_it_shows_the_rest_and_why(
    guarded: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    args = parse(["top", "--count", "1", "--url", guarded.url, "--token", SENSOR])
    assert await top(args) == 0
    assert "does not allow to ask for the sessions" in capsys.readouterr().out


async def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="top draws on a terminal"):
        await top(parse(["top"]))
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(UsageError, match=r"pip install 'dataspace-server\[terminal\]'"):
        await top(parse(["top", "--count", "1"]))
