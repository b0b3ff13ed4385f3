"""Terminals in which the commands of a page are run, one after the other.

A terminal is a shell on a pseudo-terminal, because commands say more there than in a pipe.  A command that is
followed by another one has to end first; the last one of a block may go on, and what it prints later is in a
later block.

Always: everything that a terminal has started is ended with it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DONE: Final = "<<done>>"
PATIENCE: Final = 180.0
"""Seconds after which what was not printed is missing."""

QUIET: Final = 3.0
"""Seconds of silence after which a command that goes on has printed all for now, when pages are rewritten."""

ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")

KILLED: Final = re.compile(r"bash: line \d+: +\d+ Killed")
"""What the shell says of a program that was killed; when it says so differs from shell to shell."""


class Terminal:
    """One shell and what it has printed."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._read, inner = os.openpty()
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env={**variables, "TERM": "dumb", "COLUMNS": "100"},
            start_new_session=True,
        )
        os.close(inner)
        self._changed = threading.Condition()
        self._text = ""
        self._latest = time.monotonic()
        self._ended = True
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def _listen(self) -> None:
        while True:
            try:
                got = os.read(self._read, 65_536)
            except OSError:  # the other side is closed
                return
            with self._changed:
                self._text += got.decode().replace("\r\n", "\n")
                self._latest = time.monotonic()
                self._changed.notify_all()

    def start(self, command: str) -> None:
        """Runs a command, once the one before it has ended; or interrupts that one."""
        assert self._shell.stdin is not None
        if command == "^C":
            self._interrupt()
            return
        self._ended = False
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null; echo '{DONE}'\n".encode())
        self._shell.stdin.flush()

    def _interrupt(self) -> None:
        children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text()
        for child in children.split():
            os.kill(int(child), signal.SIGINT)

    def printed(self, expected: int, *, ends: bool) -> list[str]:
        """Returns so many lines, and more if there are; with ``ends`` waits until the command has ended."""

        def enough() -> bool:
            lines = self._lines()
            return len([line for line in lines if line != DONE and not KILLED.match(line)]) >= expected and (
                not ends or DONE in lines
            )

        with self._changed:
            self._changed.wait_for(enough, PATIENCE)
            return self._take()

    def settled(self, *, ends: bool) -> list[str]:
        """Returns what is printed until the command ends, or prints nothing more for a while."""
        if ends:
            return self.printed(0, ends=True)
        with self._changed:
            self._changed.wait_for(self._lines, PATIENCE)
            while DONE not in self._lines() and (left := self._latest + QUIET - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._take()

    def _lines(self) -> list[str]:
        return ESCAPES.sub("", self._text).split("\n")[:-1]

    def _take(self) -> list[str]:
        """Takes the whole lines that are there."""
        lines = self._lines()
        self._text = self._text.rpartition("\n")[2]
        self._ended |= DONE in lines
        return [line.rstrip() for line in lines if line != DONE and not KILLED.match(line)]

    def left(self) -> list[str]:
        """Returns what was printed and not taken yet."""
        with self._changed:
            return self._take()

    def close(self) -> None:
        """Ends everything that runs here."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._shell.pid, kind)
            except ProcessLookupError:
                break
            try:
                self._shell.wait(10)
            except subprocess.TimeoutExpired:
                continue
            if kind is signal.SIGTERM and not self._lives():
                break
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()
        self._reader.join()
        os.close(self._read)

    def _lives(self) -> bool:
        """Waits a while for the processes of this terminal to end; returns True if some have not."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                os.killpg(self._shell.pid, 0)
            except ProcessLookupError:
                return False
            self._reader.join(0.05)
        return True
