"""Exceptions at any line: what is struck must be whole afterwards, done or not done.

A test runs the same operation again and again, struck one line later each time, until it comes to its end
before it is struck.  Machine code has no lines, so such tests need the pure build.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dataspace
import index
import relay
import server

GROUPS = tuple(
    str(Path(package.__file__ or "").parent / rest)
    for package, rest in ((relay, "groups"), (server, "spaces/groups"), (server, "groups"))
)
"""Where the work for groups is."""

BLOCKS = ("try:", "with ", "async with ")
"""How lines begin that only enter or leave a block."""

OTHERS = ("<attrs", "<string", "<frozen", "<stdin")
"""Functions that are written at run time, but not by this product."""

SOURCES = tuple(str(Path(package.__file__ or "").parent) for package in (dataspace, index, server))


@contextmanager
def strike(
    at: int,
    error: type[BaseException],
    sources: tuple[str, ...] = (*SOURCES, "<"),
    but: Collection[str] = (),
) -> Iterator[Callable[[], int]]:
    """Raises an exception at the so-manieth line of the product that runs, or of some files of it.

    ``but`` are functions, by their qualified names, in which none is raised.

    A line that only enters or leaves a block is none: it raises nothing of its own, and is outside of it.
    Yields what returns the lines that are left until then.
    """
    left = at

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        name = frame.f_code.co_filename
        if not name.startswith(sources) or name.startswith(OTHERS) or frame.f_code.co_qualname in but:
            return None
        if _in_finalizer(frame):
            return None
        if event == "line" and sys.exc_info()[1] is None:  # one exception at a time
            left -= 1
            if left <= 0 and not linecache.getline(name, frame.f_lineno).strip().startswith(BLOCKS):
                raise error(f"struck at line {at}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: left
    finally:
        sys.settrace(before)


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether this makes or ends a weak reference: what is raised when a value has gone is swallowed."""
    while frame is not None and frame.f_code.co_filename.startswith(SOURCES):
        if frame.f_code.co_qualname in ("Terms._forget", "Terms._make"):
            return True
        frame = frame.f_back
    return False
