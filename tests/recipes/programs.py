"""A stage for recipes: a daemon, programs that may be killed, stopped and continued, and what they print."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import dataspace
from dataspace import BlockingSpace
from tests.ports import free_port
from tests.server.processes import DaemonProcess

RECIPES: Final = Path(__file__).parents[2] / "docs" / "recipes"
HERE: Final = Path(__file__).parent
STATIC: Final = Path(__file__).parents[2] / "server" / "web" / "static"

PATIENCE: Final = 30.0
"""Seconds after which what a test waits for is taken to never come; far beyond what it takes."""


class Program:
    """A recipe that runs, and the lines that it has printed, as far as they were read."""

    def __init__(self, pid: int, out: int, typed: int = -1) -> None:
        """``typed`` is where its input is written; -1: it has none."""
        self.lines: list[str] = []
        self._pid = pid
        self._out = out
        self._typed = typed
        self._rest = b""
        self._has_ended = False

    def signal(self, number: int) -> None:
        if not self._has_ended:
            os.killpg(self._pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills it, and reads what it had printed."""
        self.signal(signal.SIGKILL)
        while self._read(PATIENCE):
            pass

    def until(self, wanted: str | Callable[[str], bool]) -> str:
        """Returns the next line that begins with what is wanted, or that a function takes."""
        fits = wanted if callable(wanted) else lambda line: line == wanted or line.startswith(f"{wanted} ")
        seen, deadline = len(self.lines), time.monotonic() + PATIENCE
        while True:
            for line in self.lines[seen:]:
                seen += 1
                if fits(line):
                    return line
            assert self._read(deadline - time.monotonic()), f"waited for {wanted!r}, read {self.lines[-20:]}"

    def read_all(self) -> list[str]:
        """Returns all lines until now."""
        while self._read(0):
            pass
        return self.lines

    def _read(self, seconds: float) -> bool:
        """Reads what has come; False if nothing has, or nothing will."""
        if self._has_ended or not select.select([self._out], [], [], max(0.0, seconds))[0]:
            return False
        data = os.read(self._out, 1 << 16)
        self._has_ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(data)

    def type(self, line: str) -> None:
        os.write(self._typed, f"{line}\n".encode())

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        os.close(self._out)
        if self._typed >= 0:
            os.close(self._typed)


class Stage:
    """A daemon, what starts programs, and the programs of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.web = f"127.0.0.1:{free_port()}"
        self.daemon = DaemonProcess(folder / "data", "--listen", f"http:{self.web}")
        self.daemon.start()
        self._starter = subprocess.Popen(
            [sys.executable, str(HERE / "starter.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._programs: list[Program] = []
        self._count = 0

    def start(self, recipe: str, *words: object, is_typed: bool = False) -> Program:
        """Starts a recipe, or what runs one in this folder; with ``is_typed`` it has an input."""
        self._count += 1
        out, typed = self._pipe("out"), Path(os.devnull)
        reader, writer = os.open(out, os.O_RDONLY | os.O_NONBLOCK), -1
        if is_typed:
            typed = self._pipe("typed")
            writer = os.open(typed, os.O_RDWR)  # so that no end waits for the other
        asked = {
            "path": str(self._path(recipe)),
            "words": [str(word) for word in words],
            "out": str(out),
            "typed": str(typed),
            "environment": {"DATASPACE_URL": self.daemon.url},
        }
        assert self._starter.stdin is not None and self._starter.stdout is not None  # pipes, as asked for
        self._starter.stdin.write(json.dumps(asked) + "\n")
        self._starter.stdin.flush()
        pid = int(self._starter.stdout.readline())
        program = Program(pid, reader, writer)
        self._programs.append(program)
        return program

    def _pipe(self, what: str) -> Path:
        path = self.folder / f"{what}-{self._count}"
        os.mkfifo(path)
        return path

    def _path(self, recipe: str) -> Path:
        """Returns the program of a recipe; one in JavaScript lies beside a copy of the client."""
        if recipe.endswith(".mjs"):
            beside = self.folder / "client"
            if not beside.exists():
                shutil.copytree(STATIC, beside)
            return Path(shutil.copy(RECIPES / recipe, beside))
        name = recipe if "." in recipe else f"{recipe}.py"
        return RECIPES / name if (RECIPES / name).exists() else HERE / name

    def run(self, recipe: str, *words: object) -> None:
        """Runs a recipe to its end."""
        program = self.start(recipe, *words)
        while program._read(PATIENCE):
            pass

    def connect(self, **settings: str) -> BlockingSpace:
        """Connects as the test does, to look at what there is."""
        return dataspace.connect_blocking(self.daemon.url, **settings)  # type: ignore[arg-type]  # texts all

    def clear(self) -> None:
        """Ends the programs of a test."""
        for each in self._programs:
            each.close()
        self._programs.clear()

    def end(self) -> None:
        self.clear()
        assert self._starter.stdin is not None and self._starter.stdout is not None
        self._starter.stdin.close()
        self._starter.wait()
        self._starter.stdout.close()
        self.daemon.stop()
