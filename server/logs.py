"""The lines of the daemon's log: as text for people, or as JSON for programs.

A line of JSON has ``time``, ``level``, ``logger``, ``event`` (a name, the same for all lines of a kind),
``message``, and the fields that were given with ``extra={"fields": …}``.

Always: one event is one line; no foreign text writes lines or control characters of its own.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

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
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
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
