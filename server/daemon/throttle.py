"""Throttling of the log: no peer can fill it, whatever it does.

One filter on the daemon's logger serves all places that log: warnings of one kind, which is their text before
anything is filled in, are written a few times in a while; the others are counted, and the count is written.

Always: the first warnings of a kind are written at once; no warning is left out without being counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import trio

MOST: Final = 5
"""Warnings of one kind that are written in one window."""

WINDOW: Final = 10.0
"""Seconds of a window."""

KINDS: Final = 1024
"""Kinds that are remembered; of further ones the oldest are forgotten."""


class Throttle(logging.Filter):
    """Passes ``MOST`` warnings of a kind in each ``WINDOW``, and all that is less than a warning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, least: int = logging.WARNING) -> None:
        """``least`` is the level from which on records are throttled."""
        super().__init__()
        self._least = least
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: OrderedDict[object, _Kind] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns True for a record that is to be written."""
        if record.levelno < self._least or getattr(record, "counted", False):
            return True
        at, now = _kind_of(record), self._clock()
        with self._lock:
            kind = self._kinds.get(at)
            if kind is None or (now >= kind.until and not kind.left_out):
                kind = self._kinds[at] = _Kind(now + WINDOW, record)
                if len(self._kinds) > KINDS:
                    self._kinds.popitem(last=False)
            kind.seen += 1
            if kind.seen <= MOST:
                return True
            kind.left_out += 1
            return False

    def report(self) -> None:
        """Logs how many warnings were left out in the windows that have ended."""
        now = self._clock()
        with self._lock:
            ended = [(at, kind) for at, kind in self._kinds.items() if now >= kind.until]
            for at, _ in ended:
                del self._kinds[at]
        for _, kind in ended:
            if kind.left_out:
                logging.getLogger(kind.name).log(
                    kind.level,
                    "%d more like this in %g s: %s",
                    kind.left_out,
                    WINDOW,
                    kind.first,
                    extra={"counted": True},
                )

    async def run(self) -> None:
        """Reports every second, until cancelled."""
        while True:
            await trio.sleep(1.0)
            self.report()


class _Kind:
    """Warnings of one kind in one window."""

    __slots__ = ("first", "left_out", "level", "name", "seen", "until")

    def __init__(self, until: float, record: logging.LogRecord) -> None:
        self.until = until
        self.first = record.getMessage()[:300]
        self.name, self.level = record.name, record.levelno
        self.seen = self.left_out = 0


def _kind_of(record: logging.LogRecord) -> object:
    """Returns what is alike for warnings of one kind: their form, where an exception came from, and of whom
    they are, if that is said."""
    error = record.exc_info[1] if record.exc_info else None
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return record.name, record.levelno, str(record.msg)[:300], type(error), where, getattr(record, "of", None)
