"""Exceptions at any line: what is struck must be whole afterwards, done or not done.

A test runs the same operation again and again, struck one line later each time, until it comes to its end
before it is struck.  Machine code has no lines, so such tests need the pure build.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dataspace
import index
import relay
import server

GROUPS = tuple(
    str(Path(package.__file__ or "").parent / rest)
    for package, rest in ((relay, "groups"), (server, "groups"))
)
"""Where the work for groups is."""

BLOCKS = ("try:", "with ", "async with ")
"""How lines begin that only enter or leave a block."""

ENTERING = "StepFence."
"""The class of a block: its own lines are run by such a line."""

OTHERS = ("<attrs", "<string", "<frozen", "<stdin")
"""Functions that are written at run time, but not by this product."""

SOURCES = tuple(str(Path(package.__file__ or "").parent) for package in (dataspace, index, server))


Place = tuple[str, int]
"""A file and a line of it."""


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

    def visit(name: str, line: int) -> None:
        nonlocal left
        left -= 1
        if left <= 0 and not _is_of_block(name, line):
            raise error(f"struck at line {at}")

    with _visiting(visit, sources, but):
        yield lambda: left


class Striking:
    """Strikes one line of some files, the first time that it runs after ``begin``; or notes which lines run.

    Unlike ``strike`` it is for work of several tasks, whose order differs from run to run.
    """

    def __init__(
        self, place: Place | None, sources: tuple[str, ...], but: Collection[str] = (), *, times: int = 1
    ) -> None:
        """Without a ``place`` it only notes; ``times`` is how often the line raises."""
        self.place = place
        self.places: dict[Place, None] = {}
        """The lines that have run, in the order of their first runs."""
        self.left = times
        self._sources, self._but = sources, but
        self._visiting = ExitStack()
        self.is_on = False

    @property
    def has_struck(self) -> bool:
        return self.left <= 0

    def begin(self) -> None:
        """Does nothing if it has begun."""
        if not self.is_on:
            self.is_on = True
            self._visiting.enter_context(_visiting(self._visit, self._sources, self._but))

    def end(self) -> None:
        """Strikes no more."""
        if self.is_on:
            self.is_on = False
            self._visiting.close()

    def _visit(self, name: str, line: int) -> None:
        if self.place is None:
            if (name, line) not in self.places and not _is_of_block(name, line):
                self.places[name, line] = None
        elif self.left > 0 and (name, line) == self.place:
            self.left -= 1
            raise ZeroDivisionError(f"struck at {name}, line {line}")


def _is_of_block(name: str, line: int) -> bool:
    return linecache.getline(name, line).strip().startswith(BLOCKS)


@contextmanager
def _visiting(
    visit: Callable[[str, int], None], sources: tuple[str, ...], but: Collection[str]
) -> Iterator[None]:
    """Calls ``visit`` before each line of some files that this thread runs."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(sources) or name.startswith(OTHERS) or frame.f_code.co_qualname in but:
            return None
        if frame.f_code.co_qualname.startswith(ENTERING) or _in_finalizer(frame):
            return None
        if event == "line" and sys.exc_info()[1] is None:  # one exception at a time
            visit(name, frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether this makes or ends a weak reference: what is raised when a value has gone is swallowed."""
    while frame is not None and frame.f_code.co_filename.startswith(SOURCES):
        if frame.f_code.co_qualname in ("Terms._forget", "Terms._make"):
            return True
        frame = frame.f_back
    return False
