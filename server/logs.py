"""The lines of the daemon's log: as text for people, or as JSON for programs.

A line of JSON has ``time``, ``level``, ``logger``, ``event`` (a name, the same for all lines of a kind),
``message``, and the fields that were given with ``extra={"fields": …}``.

Always: one event is one line; no foreign text writes lines or control characters of its own; no peer can fill
the log (``Throttle``).
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from math import inf
from pathlib import Path
from typing import Final

import trio

from dataspace.foreign import tame

LOGGER: Final = "dataspace"
AUDIT: Final = "dataspace.audit"
"""The logger of refused logins, refused rights and administrative acts."""

LONGEST_FORM: Final = 200
LONGEST_NAME: Final = 60
"""Characters of a message that give an event its name, and of that name."""

_FILLED_IN: Final = re.compile(r"%(\([^)]*\))?[-#0 +]*[\d*]*(\.[\d*]+)?[a-z%]", re.IGNORECASE)
_WORD: Final = re.compile("[a-z0-9]+")

FORMS: Final = ("text", "json")
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

MOST: Final = 5
"""Warnings of one kind, about one object, that are written in one window."""

LINES: Final = 64
"""Warnings of one kind that are written in one window; half of them may be repetitions."""

NAMED: Final = 64
"""Objects of one kind and window that are counted by their names."""

WINDOW: Final = 10.0
"""Seconds of a window."""

KINDS: Final = 1024
"""Kinds that are remembered; of further ones the oldest are forgotten."""


class JsonLines(logging.Formatter):
    """Writes each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event_of(record),
            "message": record.getMessage(),
        }
        for name, value in (getattr(record, "fields", None) or {}).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Writes each record as one line; the lines of a traceback follow."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # its name in logging
        """Returns the line without a traceback; control characters and line ends in it are escaped."""
        return tame(super().formatMessage(record))


def event_of(record: logging.LogRecord) -> str:
    """Returns the name of what a line is about: the one given with ``extra={"event": …}``, else the words of
    the message without what is filled in."""
    given: str = getattr(record, "event", "")
    if given:
        return given
    words = _WORD.findall(_FILLED_IN.sub(" ", str(record.msg)[:LONGEST_FORM]).lower())
    return "-".join(words)[:LONGEST_NAME].rstrip("-") or "other"


def formatter(form: str) -> logging.Formatter:
    """Returns what writes lines in one of ``FORMS``."""
    if form == "json":
        return JsonLines()
    text = TextLines("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    text.converter = time.gmtime
    return text


def log_to_stderr(*, verbose: bool, form: str = "text", level: str = "warning") -> None:
    """Writes the log of this process to its standard error; ``verbose`` is the level info at least."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form))
    logging.getLogger(LOGGER).addHandler(handler)
    set_level(verbose=verbose, level=level)


def set_form(form: str) -> None:
    """Makes the log of this process have one of ``FORMS`` from its next line on."""
    for handler in logging.getLogger(LOGGER).handlers:
        handler.setFormatter(formatter(form))


def set_level(*, verbose: bool, level: str = "warning") -> None:
    """Makes the log of this process begin at a level; ``verbose`` is info at least."""
    least = LEVELS[level]
    logging.getLogger(LOGGER).setLevel(min(least, logging.INFO) if verbose else least)


@contextmanager
def audit_to(file: Path | None) -> Iterator[None]:
    """Appends the audit log to a file, which only this user may read; else it goes with the log, as info.

    A file that was renamed, as by logrotate, is made anew.
    """
    logger = logging.getLogger(AUDIT)
    if file is None:
        yield
        return
    handler = _Private(file, encoding="utf-8")
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    before = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.level, logger.propagate = before
        logger.removeHandler(handler)
        handler.close()


class _Private(WatchedFileHandler):
    """A file that only this user may read, also when it is made anew."""

    def _open(self) -> TextIOWrapper:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, "a", encoding="utf-8", opener=private)


class Throttle(logging.Filter):
    """Passes the first warnings of a kind in each ``WINDOW``, and every line that is less than a warning.

    A record with ``extra={"about": …}`` is counted by that object as well.

    One filter on the daemon's logger serves all places that log: warnings of one kind, which is their text
    before anything is filled in, are written a few times in a while; the others are counted, and the count is
    written. The *object* of a refusal is counted apart, so that unimportant refusals cannot hide an important
    one.

    Always: the first warnings of a kind are written at once; no warning is left out without being counted,
    and the count is written at the end of the window, and when the daemon ends.
    """

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
        at, now, forgotten = _kind_of(record), self._clock(), None
        with self._lock:
            kind = self._kinds.get(at)
            if kind is None or (now >= kind.until and not kind.left_out):
                kind = self._kinds[at] = _Kind(now + WINDOW, record)
                if len(self._kinds) > KINDS:
                    forgotten = self._kinds.popitem(last=False)[1]
            passes = kind.passes(getattr(record, "about", ""))
        if forgotten is not None:
            forgotten.report()
        return passes

    def report(self) -> None:
        """Logs how many warnings were left out in the windows that have ended."""
        self._report(self._clock())

    def finish(self) -> None:
        """Logs how many warnings were left out in all windows."""
        self._report(inf)

    def _report(self, now: float) -> None:
        with self._lock:
            ended = [(at, kind) for at, kind in self._kinds.items() if now >= kind.until]
            for at, _ in ended:
                del self._kinds[at]
        for _, kind in ended:
            kind.report()

    async def run(self) -> None:
        """Reports every second, until cancelled."""
        while True:
            await trio.sleep(1.0)
            self.report()


class _Kind:
    """Warnings of one kind in one window."""

    __slots__ = ("_abouts", "_first", "_hidden", "_record", "_written", "left_out", "until")

    def __init__(self, until: float, record: logging.LogRecord) -> None:
        self.until = until
        self._record = record
        self._first = record.getMessage()[:300]
        self._abouts: dict[str, int] = {}
        self._hidden: dict[str, int] = {}
        self._written = self.left_out = 0

    def passes(self, about: str) -> bool:
        """Counts a warning; returns True if it is to be written."""
        seen = self._abouts.get(about, 0) + 1
        if seen > 1 or len(self._abouts) < LINES:
            self._abouts[about] = seen
        if seen <= MOST and self._written < (LINES if seen == 1 else LINES // 2):
            self._written += 1
            return True
        self.left_out += 1
        if about in self._hidden or len(self._hidden) < NAMED:
            self._hidden[about] = self._hidden.get(about, 0) + 1
        return False

    def report(self) -> None:
        """Logs the number of warnings that were left out, if any, and their objects."""
        if not self.left_out:
            return
        abouts = {about: count for about, count in self._hidden.items() if about}
        named, others = "", self.left_out - sum(self._hidden.values())
        if abouts:
            named = "; of these " + ", ".join([f"{about} {count}" for about, count in abouts.items()])
            named += f" and {others} of others" if others else ""
        first: dict[str, object] = getattr(self._record, "fields", None) or {}
        fields: dict[str, object] = {name: first[name] for name in ("act", "principal") if name in first}
        fields |= {"left_out": self.left_out, "about": abouts, "others": others}
        logging.getLogger(self._record.name).log(
            self._record.levelno,
            "%d more like this in %g s: %s%s",
            self.left_out,
            WINDOW,
            self._first,
            named,
            extra={
                "counted": True,
                "event": event_of(self._record),
                "fields": fields,
            },
        )


def _kind_of(record: logging.LogRecord) -> object:
    """Returns the common part of warnings of one kind: their form, the place of their exception, and their
    principal, if it is stated."""
    error = record.exc_info[1] if record.exc_info else None
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return record.name, record.levelno, str(record.msg)[:300], type(error), where, getattr(record, "of", None)
