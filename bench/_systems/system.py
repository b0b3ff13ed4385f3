"""A system that ``bench/peers.py`` measures: how it is started, and the sides of each scenario.

A side is a coroutine for a process of its own (``bench._processes.Side``); its first argument is the URL of
the server and its last one the pipe on which it reports.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from bench._processes import Served

SHOWN: Final = 2_000
"""Bytes that are shown of what a server has written, when it has failed."""


class Missing(Exception):
    """The server is not on this machine; a sentence for the reader."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What a system promises of the scenarios that it is measured in."""

    durable: str
    """What an acknowledgement means."""
    state: str
    """Whether a watcher that comes later gets what is there."""
    patterns: str
    captures: str
    presence: str
    """What ends with its owner, and when that is seen."""


@dataclass(frozen=True, slots=True)
class System:
    """One row of the table; None stands for what it does not do."""

    name: str
    promises: Promises
    serve: Callable[[], AbstractContextManager[Served]]
    """Runs the server; raises ``Missing``."""
    write: Callable[..., Any]
    """``url, turns``: reports ``ready``, waits for a word, and reports again once all are acknowledged."""
    watch: Callable[..., Any]
    """``url, watchers, turns``: reports ``ready``, and again once each connection has seen all."""
    tick: Callable[..., Any]
    hear: Callable[..., Any]
    """As ``bench._latency.latency`` wants them."""
    crowd: Callable[..., Any] | None
    observe: Callable[..., Any] | None
    """As ``bench._leaving.leave`` wants them."""
    open_all: Callable[..., Any] | None
    """``url, count, shared, connections``: as ``bench._fanout``'s."""
    observations: int = 10_000
    """Watches of one key for which memory is measured."""


def program(name: str, package: str, *inside: Path) -> str:
    """Returns the path of a server: beside this Python, in a package, or on the PATH."""
    for path in (Path(sys.executable).with_name(name), *inside):
        if path.is_file():
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is neither on the PATH nor installed: `make peers` installs {package}")
    return found


def free_port() -> int:
    """Returns a port of the loopback that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def started(command: list[str], port: int, *, seconds: float = 30) -> Iterator[Served]:
    """Runs a server that listens on a port, once it does."""
    with all_started({port: command}, seconds=seconds) as [served]:
        yield served


@contextmanager
def all_started(commands: Mapping[int, list[str]], *, seconds: float = 30) -> Iterator[list[Served]]:
    """Runs servers that each listen on a port, once all of them do.

    What a server that fails has written is shown; that of the others is not.
    """
    logs = {port: tempfile.TemporaryFile() for port in commands}  # noqa: SIM115  # closed below
    processes = {
        port: subprocess.Popen(command, stdout=logs[port], stderr=subprocess.STDOUT)
        for port, command in commands.items()
    }
    try:
        until = time.monotonic() + seconds
        for port, process in processes.items():
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > until:
                    name = commands[port][0]
                    raise RuntimeError(f"{name} does not listen on port {port}: {_last_of(logs[port])}")
                time.sleep(0.05)
        yield [Served(str(port), process.pid) for port, process in processes.items()]
    finally:
        for port, process in processes.items():
            if process.poll() is not None:
                name = Path(commands[port][0]).name
                print(f"{name} ended with {process.returncode}: {_last_of(logs[port])}", flush=True)
            process.terminate()
        for port, process in processes.items():
            process.wait()
            logs[port].close()


def _last_of(log: IO[bytes]) -> str:
    """Returns the last lines that a server has written."""
    log.seek(0)
    return log.read()[-SHOWN:].decode(errors="replace").strip() or "it has written nothing"


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
