"""A daemon that counts what each step of its event loop does: ``python -m tests.abuse.counted serve …``.

What a test and the daemon share is a small file, mapped by both.  While the test has set a mode, the daemon
keeps there the most that one step of a task has done, in lines of Python or in nanoseconds of CPU time, and
names the task.  Lines are the same in every run, whatever the machine and its load; C code does not count in
them.  While lines are counted, the clock by which the daemon ends its slices counts them as well, in the lane
and elsewhere: a line is a microsecond there.

Always: what is measured is one step of one task, from when the loop resumes it until it waits again.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time_ns
from types import CodeType, FrameType
from typing import Any, Final

import trio

from server.cli.main import main
from server.daemon import serve
from server.daemon.daemon import Daemon
from server.lane import Lane

PACKAGES: Final = frozenset(["index", "dataspace", "relay", "server"])
OFF, LINES, CPU = range(3)
SIZE: Final = 4096
FILE: Final = "DATASPACE_COUNTED"

_NUMBERS: Final = struct.Struct("=qqqqq")


class Gauge:
    """The shared numbers: mode, most in one step, accounted bytes, work that waits for the lane, a text."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)
        self._numbers = memoryview(self._map)[: _NUMBERS.size].cast("q")  # ``pack_into`` writes 0 first

    def read(self) -> tuple[int, int, int, int, str]:
        """Returns the numbers and the text."""
        mode, most, accounted, waiting, length = _NUMBERS.unpack_from(self._map)
        text = self._map[_NUMBERS.size : _NUMBERS.size + length].decode(errors="replace")
        return mode, most, accounted, waiting, text

    def begin(self, mode: int) -> None:
        """Sets the mode, and forgets the most."""
        self._numbers[0], self._numbers[1], self._numbers[4] = mode, 0, 0

    @property
    def mode(self) -> int:
        return self._numbers[0]

    @property
    def most(self) -> int:
        return self._numbers[1]

    def reach(self, most: int, text: str) -> None:
        """Notes what a step has done, if that is the most so far."""
        if most > self._numbers[1]:
            data = text.encode()[: SIZE - _NUMBERS.size]
            self._numbers[1], self._numbers[4] = most, len(data)
            self._map[_NUMBERS.size : _NUMBERS.size + len(data)] = data

    def account(self, accounted: int, waiting: int) -> None:
        """Notes what the daemon accounts for, and how many pieces of work wait."""
        self._numbers[2], self._numbers[3] = accounted, waiting


class Steps(trio.abc.Instrument):
    """Measures the steps of all tasks of a daemon."""

    def __init__(self, daemon: Daemon, gauge: Gauge) -> None:
        self._daemon = daemon
        self._gauge = gauge
        self._began = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        _clock.turn(self._gauge.mode)
        if _clock.mode == LINES:
            sys.settrace(_trace)
        self._began = thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = thread_time_ns() - self._began
        sys.settrace(None)
        self._gauge.account(self._daemon.memory.used, self._daemon.lane.statistics().waiting)
        if _clock.mode == LINES:
            if len(_lines) > self._gauge.most:
                self._gauge.reach(len(_lines), f"{task.name}: {_most()}")
            _clock.lines += len(_lines)
            _lines.clear()
        elif _clock.mode == CPU:
            self._gauge.reach(took, task.name)


_lines: Final = list[CodeType]()
"""The function of each line of the step that is counted."""


def _trace(
    frame: FrameType, _event: str, _argument: Any, note: Callable[[CodeType], None] = _lines.append
) -> Any:
    note(frame.f_code)  # nothing else: it is called for each line
    return _trace


def _most() -> str:
    """Returns the functions of which most lines were carried out."""
    most = Counter(_lines).most_common(4)
    return ", ".join([f"{Path(code.co_filename).name} {code.co_name} {count}" for code, count in most])


class Clock:
    """Seconds of the daemon: those that pass, or while lines are counted a microsecond for each line."""

    def __init__(self) -> None:
        self.mode = OFF
        self.lines = 0
        """Of the steps before this one."""
        self._stopped = 0.0

    def turn(self, mode: int) -> None:
        """Counts as this mode says."""
        if mode != self.mode:
            self.mode = mode
            self._stopped = perf_counter()

    def __call__(self) -> float:
        return (self._stopped if self.mode == LINES else perf_counter()) + (self.lines + len(_lines)) / 1e6


_clock: Final = Clock()


def use_clock() -> None:
    """Replaces ``perf_counter`` in the modules of the daemon, those to be imported later included."""
    assert Lane.__init__.__kwdefaults__ is not None  # the clock
    Lane.__init__.__kwdefaults__["clock"] = _clock
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and vars(module).get("perf_counter") is perf_counter:
            vars(module)["perf_counter"] = _clock
    vars(time)["perf_counter"] = _clock


class CountedDaemon(Daemon):
    """A daemon whose steps are counted; made in the loop."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        trio.lowlevel.add_instrument(Steps(self, Gauge(Path(os.environ[FILE]))))


if __name__ == "__main__":
    use_clock()
    vars(serve)["Daemon"] = CountedDaemon  # the daemon that is served
    sys.exit(main())
