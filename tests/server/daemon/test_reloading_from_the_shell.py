"""SIGHUP takes addresses, actors and settings of the log, and the sessions of the daemon go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataspace import Record, connect_blocking
from dataspace.actors import Turn
from dataspace.errors import Unreachable
from tests import warm

pytestmark = pytest.mark.slow

HERE = "tests.server.daemon.test_reloading_from_the_shell"


def greet(turn: Turn, word: str) -> None:
    """States a word while it runs."""
    turn.assert_(Record("greeting", word))


class Served:
    """A daemon with a file, and what it writes on its standard error."""

    def __init__(self, directory: Path) -> None:
        self.first, self.second = directory / "first.sock", directory / "second.sock"
        self.file, self.errors = directory / "daemon.toml", directory / "errors"
        self.write([self.first])
        command = [sys.executable, "-m", "dataspace", "serve", "--data", str(directory / "data")]
        with self.errors.open("w") as errors:
            self.process = warm.Popen(
                [*command, "--config", str(self.file)], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None  # a pipe, as asked for
        assert "listening on" in self.process.stdout.readline()

    def write(self, listen: list[Path], more: str = "", word: str = "") -> None:
        """Writes the file: where to listen, further settings, and an actor if it is to have a word."""
        text = f"listen = {json.dumps([f'unix:{path}' for path in listen])}\n{more}\n"
        if word:
            text += f'[[actors]]\nrun = "{HERE}:greet"\nname = "greeter"\narguments = ["{word}"]\n'
        self.file.write_text(text)

    def reload(self) -> str:
        """Returns what it says of a SIGHUP."""
        before = len(self.errors.read_text())
        self.process.send_signal(signal.SIGHUP)
        while True:
            said = self.errors.read_text()[before:]
            lines = [line for line in said.splitlines(keepends=True) if "dataspace: SIGHUP, " in line]
            if lines and lines[0].endswith("\n"):
                return lines[0].rstrip("\n")
            assert self.process.poll() is None, said

    def end(self) -> int:
        """Ends it in good order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode


def test_what_the_file_says_is_taken_while_sessions_go_on(tmp_path: Path) -> None:
    served = Served(tmp_path)
    first, second = f"unix://{served.first}", f"unix://{served.second}"
    try:
        with connect_blocking(first) as stays:
            stays.assert_(Record("present", "before"))

            served.write([served.first, served.second])
            assert served.reload().endswith(f"; listening on unix:{served.second}")
            with connect_blocking(second) as other:
                assert other.matches("present($who)") == [("before",)]
            served.write([served.second])
            assert served.reload().endswith(f"; no longer listening on unix:{served.first}")
            assert not served.first.exists()
            with pytest.raises(Unreachable):
                connect_blocking(first, reconnect=False).__enter__()
            stays.assert_(Record("present", "after"))

            served.write([served.second], 'log_format = "json"\nlog_level = "info"\nslow = { turn = 1e-6 }')
            assert served.reload().endswith("; changed: log_level, log_format, slow.turn")
            with connect_blocking(second) as other:
                other.assert_(Record("present", "other"))
            served.write([served.second], word="hello")
            assert "; actors ended or started: greeter in main" in served.reload()
            lines = [line for line in served.errors.read_text().splitlines() if line.startswith("{")]
            told = [json.loads(line) for line in lines]
            assert any(each.get("kind") == "turn" for each in told), "beyond the threshold that was taken"
            assert any(each["event"].startswith("session") for each in told), "as of the level info"

            with stays.observe("greeting($word)") as greetings:
                changes = iter(greetings)
                assert next(changes).captures == ("hello",)
                served.write([served.second], word="good day")
                assert served.reload().endswith("; actors ended or started: greeter in main")
                assert {(each.kind, each.captures) for each in (next(changes), next(changes))} == {
                    ("-", ("hello",)),
                    ("+", ("good day",)),
                }
                served.write([served.second], 'socket_mode = "0666"\naudit = "audit.jsonl"')
                assert served.reload().endswith("need a restart: socket_mode, audit")
                assert next(changes).captures == ("good day",)

            served.write([tmp_path / "no" / "d"])
            assert "the configuration is not taken: cannot listen on unix:" in served.reload()
            with connect_blocking(second) as other:
                assert other.matches("present($who)") == [("before",), ("after",)]
    finally:
        assert served.end() == 0
