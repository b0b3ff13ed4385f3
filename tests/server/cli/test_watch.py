"""Tables that follow their patterns: what is in them, and what a terminal gets of them."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

import dataspace
from dataspace import Record
from dataspace.client.epochs.tables import KeyedTable, KeyForm
from dataspace.client.live import LiveMapping
from dataspace.errors import UsageError
from dataspace.kernel.changes import EpochChanges
from index.values.values import Value
from server.cli.lasting.watch import BoardByKey, LiveTable, drawn
from server.cli.main import main
from tests import warm
from tests.server.processes import DaemonProcess

Row = tuple[Value, ...]


def epoch(
    number: int, added: list[Row], removed: list[Row], messages: list[Row] | None = None
) -> EpochChanges:
    return EpochChanges(number, 0, number, (), added, messages or [], removed)


def text(*boards: LiveTable, height: int = 40) -> str:
    out = io.StringIO()
    Console(file=out, width=60, color_system=None).print(drawn(boards, height, "below"))
    return out.getvalue()


def test_a_table_has_what_matches_now() -> None:
    board = LiveTable("task($id, $state)")
    board.take(epoch(3, [(1, "open"), (2, "open"), (True, "odd")], []))
    board.take(epoch(4, [(1, "done")], [(1, "open")], [(9, "told")]))
    assert len(board) == 3
    shown = text(board)
    assert [re.findall(r"\w+", line) for line in shown.splitlines() if re.search(r"open|done|odd", line)] == [
        ["2", "open"],
        ["true", "odd"],
        ["1", "done"],
    ]
    assert "task($id, $state)" in shown
    assert "3 rows, 1 message, epoch 4" in shown
    assert "below" in shown


def test_a_row_that_several_facts_give_stays_until_the_last_of_them_goes() -> None:
    board = LiveTable("task($id, _)")
    board.take(epoch(1, [(1,), (1,)], []))
    board.take(epoch(2, [], [(1,)]))
    assert len(board) == 1
    board.take(epoch(3, [], [(1,)]))
    assert len(board) == 0


def test_what_does_not_fit_is_counted_and_what_facts_hold_is_no_markup() -> None:
    many, few = LiveTable("n($n)"), LiveTable("few(_)")
    many.take(epoch(1, [(number,) for number in range(1000)], []))
    few.take(epoch(1, [(Record("few", "[red]\x1b[2J"),)], []))
    shown = text(many, few, height=30)
    assert len(shown.splitlines()) <= 30
    assert "1000 rows, the newest 8 shown, epoch 1" in shown
    assert " 999 " in shown and " 991 " not in shown
    assert "[red]" in shown and "\x1b" not in shown


def test_a_key_whose_row_changes_keeps_its_line() -> None:
    table = KeyedTable[Any](KeyForm([0], single=False, many=True))
    board = BoardByKey("task($id, $state)", ["id"])
    rows: Any = LiveMapping(table)
    rows.epoch = 4
    board.follow(rows)
    table.apply([(1, "open"), (2, "open"), (3, "open")], [])
    table.apply([(1, "done"), (2, "more")], [(1, "open")])
    shown = text(board)
    lines = [line for line in shown.splitlines() if re.search(r"open|done|more", line)]
    assert [re.findall(r"\w+", line) for line in lines] == [
        ["1", "done"],
        ["2", "open"],
        ["2", "more"],
        ["3", "open"],
    ]
    assert "4 rows, epoch 4" in shown
    with pytest.raises(UsageError, match="by names captures"):
        BoardByKey("task($id, $state)", ["what"])


def test_without_a_terminal_it_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "n($n)"]) == 2
    assert capsys.readouterr().err == (
        "dataspace: watch draws on a terminal: for a file or a program, use --by, get or observe\n"
    )


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    yield process
    assert process.stop() == 0


@pytest.mark.slow
def test_a_terminal_shows_what_comes_and_is_given_back(daemon: DaemonProcess) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "dataspace", "watch", "task($id)", "--url", daemon.url]
    environment = {**os.environ, "TERM": "xterm"}
    with (
        dataspace.connect_blocking(daemon.url) as space,
        warm.Popen(command, stdout=slave, stderr=slave, env=environment) as process,
    ):
        os.close(slave)
        read_until(master, "0 rows")
        space.assert_(Record("task", "first"))
        read_until(master, "first")
        process.send_signal(signal.SIGINT)
        assert "\x1b[?1049l" in read_until(master, "\x1b[?1049l"), "the alternate screen ends"
        assert process.wait(30) == 0
    os.close(master)


@pytest.mark.slow
def test_without_a_terminal_it_prints_what_each_key_had_and_has(daemon: DaemonProcess) -> None:
    command = [
        sys.executable,
        "-m",
        "dataspace",
        "watch",
        "temp($device, $celsius)",
        "--by",
        "device",
        "--url",
        daemon.url,
    ]
    with dataspace.connect_blocking(daemon.url) as space:
        space.put("temp", "d1", 20, owner="me")
        with warm.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            space.put("temp", "d1", 21, owner="me")
            lines.append(process.stdout.readline())
            space.put("temp", "d2", 1, owner="me")
            lines.append(process.stdout.readline())
            space.assert_(Record("temp", "d1", 22))
            lines.append(process.stdout.readline())
            space.withdraw('temp("d2", _)', owner="me")
            lines.append(process.stdout.readline())
            process.stdout.close()
            process.wait(30)  # it ends with its reader, with nothing to print
    assert lines == [
        '"d1" 20\n',
        '"d1" 20 -> 21\n',
        '"d2" nothing -> 1\n',
        '"d1" 21 -> 21 & 22\n',
        '"d2" 1 -> nothing\n',
    ]


@pytest.mark.slow
def test_a_terminal_shows_a_row_in_its_place(daemon: DaemonProcess) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [
        sys.executable,
        "-m",
        "dataspace",
        "watch",
        "job($id, $state)",
        "--by",
        "id",
        "--url",
        daemon.url,
    ]
    with (
        dataspace.connect_blocking(daemon.url) as space,
        warm.Popen(command, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}) as process,
    ):
        os.close(slave)
        read_until(master, "0 rows")
        space.put("job", "one", "begun", owner="me")
        space.put("job", "two", "begun", owner="me")
        read_until(master, "2 rows")
        space.put("job", "one", "ended", owner="me")
        shown = read_until(master, "ended")
        assert "one" in shown.split("ended")[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    os.close(master)


def read_until(terminal: int, wanted: str) -> str:
    seen = b""
    while wanted.encode() not in seen:
        seen += os.read(terminal, 65_536)
    return seen.decode(errors="replace")


def test_a_pattern_that_is_none_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(UsageError):
        LiveTable("task($")
