"""The processes that benchmarks over TCP are made of: a daemon, and sides that each run one coroutine.

Always: what was started has ended when its block is left.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import trio


@contextmanager
def daemon() -> Iterator[str]:
    """A running daemon; its URL."""
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "server", "serve", "--listen", "tcp:127.0.0.1:0", "--data", data]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None  # a pipe, as asked for
            line = process.stdout.readline()
            yield line.split("listening on ")[1].split(",")[0]
        finally:
            process.terminate()
            process.wait()


@dataclass
class Side:
    """A process that runs one coroutine, and the pipe to it, which is the coroutine's last argument."""

    process: multiprocessing.Process
    pipe: Connection

    @classmethod
    def start(cls, function: Callable[..., Any], *args: object) -> Side:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=_run, args=(function, *args, theirs), daemon=True)
        process.start()
        return cls(process, ours)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def _run(function: Callable[..., Any], *args: object) -> None:
    trio.run(function, *args)


@contextmanager
def running(function: Callable[..., Any], *args: object) -> Iterator[Side]:
    """A side for as long as the block runs."""
    side = Side.start(function, *args)
    try:
        yield side
    finally:
        side.stop()
