"""The processes that benchmarks over TCP are made of: a daemon, and sides that each run one coroutine.

Always: what was started has ended when its block is left.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

import trio


@dataclass(frozen=True, slots=True)
class Served:
    """A running daemon."""

    url: str
    pid: int
    others: tuple[str, ...] = ()
    """Further addresses that it listens on."""


_environment: dict[str, str] | None = None


@contextmanager
def on_half(half: int) -> Iterator[None]:
    """Has the processes that start while the block runs stay on one half of the cores, 0 or 1; on one core
    all share it."""
    cores = sorted(os.sched_getaffinity(0))
    size = max(1, len(cores) // 2)
    os.sched_setaffinity(0, set(cores[:size] if half == 0 else cores[-size:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def daemons_of(environment: dict[str, str]) -> Iterator[None]:
    """Starts daemons with these environment variables, and so of another build, while the block runs."""
    global _environment
    before, _environment = _environment, environment
    try:
        yield
    finally:
        _environment = before


@contextmanager
def daemon() -> Iterator[str]:
    """A running daemon; its URL."""
    with serving() as served:
        yield served.url


@contextmanager
def serving(*others: str) -> Iterator[Served]:
    """A daemon for as long as the block runs, which listens on ``others`` too."""
    with tempfile.TemporaryDirectory() as data, serving_on(data, *others) as served:
        yield served


@contextmanager
def serving_on(data: str, *others: str, options: Sequence[str] = ("--data",)) -> Iterator[Served]:
    """A daemon with its data in a directory, or with ``--follow`` one that follows the daemon there.

    The directory is the value of the last option.
    """
    command = [sys.executable, "-m", "dataspace", "serve", "--listen", "tcp:127.0.0.1:0", *options, data]
    for each in others:
        command += ["--listen", each]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment)
    try:
        assert process.stdout is not None  # a pipe, as asked for
        lines = [process.stdout.readline() for _ in range(1 + len(others))]
        first, *more = [line.split("listening on ")[1].split(",")[0] for line in lines]
        yield Served(first, process.pid, tuple(more))
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

    @property
    def pid(self) -> int:
        """The process, for who wants to know what it costs."""
        assert self.process.pid is not None  # it has been started
        return self.process.pid

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


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured: a rate by the clock, and what one value cost each process in seconds of CPU time."""

    rate: float
    costs: tuple[float, ...]

    @property
    def cpu(self) -> float:
        """What one value cost all of them."""
        return sum(self.costs)


class Measuring:
    """The clock, and the CPU time of some processes, for as long as a block runs."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def __enter__(self) -> Self:
        self._before = [cpu_seconds(pid) for pid in self._pids]
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_error: object) -> None:
        self._seconds = time.perf_counter() - self._began
        self._costs = [
            cpu_seconds(pid) - before for pid, before in zip(self._pids, self._before, strict=True)
        ]

    def run(self, values: int) -> Run:
        """What so many values have cost."""
        return Run(values / self._seconds, tuple([cost / values for cost in self._costs]))


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPUs in all its threads; not a number where the system does not say.

    Linux numbers the clocks of other processes like this (``clock_getcpuclockid`` in C).
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return math.nan


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in use now, as Linux says it."""
    with open(f"/proc/{pid}/statm") as file:  # a line of the kernel's, not a file
        return int(file.read().split()[1]) * resource.getpagesize()
