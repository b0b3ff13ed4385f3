"""Sinks: drain, reduce, collect, concat, find, on_end, log.

Always: a sink that wants no more aborts upstream before it answers.  (pull-stream's sinks.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import reduce as fold
from typing import Any, ClassVar, Final, Generic, TypeVar

from dataspace.streams.sinks.base import Sink
from dataspace.streams.stages.functions import check_plain, check_sync, truth
from dataspace.streams.stages.marks import Reason

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger(__name__)

NONE: Final[Any] = object()


class Drain(Sink[T, int], Generic[T]):
    """Takes values, calls a function with each and counts them; the function ends it by returning False."""

    def __init__(self, show: Callable[[T], object] | None, description: str = "drain") -> None:
        super().__init__(description)
        if show is not None:
            check_sync(show, description)
        self._show = show
        self._count = 0
        if show is not None:
            self.portion = 1  # type: ignore[misc]  # it may not want all of them

    def _take(self, values: Sequence[T]) -> None:
        self._count += len(values)
        if self._show is not None:
            for value in values:
                answer = self._show(value)
                if answer is not None:
                    check_plain(answer, self.description)
                    self._enough = answer is False

    def _result(self) -> int:
        return self._count


def drain(show: Callable[[T], object] | None = None) -> Drain[T]:
    """Returns a sink whose result is the number of values.

    It calls ``show(value)`` for each, and ends the stream when that returns False.
    """
    return Drain(show)


class ReduceSink(Sink[T, R], Generic[T, R]):
    """Folds the values into one."""

    def __init__(self, fn: Callable[[R, T], R], start: R) -> None:
        super().__init__("reduce")
        check_sync(fn, "reduce")
        self._fn = fn
        self._sum = start

    def _take(self, values: Sequence[T]) -> None:
        if self._sum is NONE:
            self._sum, values = values[0], values[1:]  # type: ignore[assignment]  # R is T then
        self._sum = fold(self._fn, values, self._sum)
        check_plain(self._sum, self.description)

    def _result(self) -> R:
        if self._sum is NONE:
            raise ValueError("reduce of an empty stream without a value to start from")
        return self._sum


def reduce(fn: Callable[[R, T], R], start: R = NONE) -> ReduceSink[T, R]:
    """Returns a sink whose result is ``fn(…fn(fn(start, v1), v2)…)``; by default v1 is the start."""
    return ReduceSink(fn, start)


class Collect(Sink[T, list[T]], Generic[T]):
    """Collects all values in a list."""

    def __init__(self) -> None:
        super().__init__("collect")
        self._all: list[T] = []

    def _take(self, values: Sequence[T]) -> None:
        self._all.extend(values)

    def _result(self) -> list[T]:
        return self._all


def collect() -> Collect[Any]:
    """Returns a sink whose result is a list of all values."""
    return Collect()


class Concat(Sink[Any, Any]):
    """Joins all texts, or all bytes."""

    def __init__(self, empty: str | bytes) -> None:
        super().__init__("concat")
        self._empty = empty
        self._all: list[Any] = []

    def _take(self, values: Sequence[Any]) -> None:
        self._all.extend(values)

    def _result(self) -> Any:
        return type(self._all[0] if self._all else self._empty)().join(self._all)


def concat(empty: str | bytes = "") -> Concat:
    """Returns a sink that joins texts or bytes; its result is ``empty`` if there are none."""
    return Concat(empty)


class Find(Sink[T, T | None], Generic[T]):
    """Finds the first value that passes a test."""

    portion: ClassVar[int] = 1

    def __init__(self, test: Callable[[T], object]) -> None:
        super().__init__("find")
        check_sync(test, "find")
        self._test = test
        self._found: T | None = None

    def _take(self, values: Sequence[T]) -> None:
        for value in values:
            if truth(self._test(value), self.description):
                self._found = value
                self._enough = True

    def _result(self) -> T | None:
        return self._found


def find(test: Callable[[T], object]) -> Find[T]:
    """Returns a sink whose result is the first value with ``test(value)``, or None; it reads no further."""
    return Find(test)


class OnEnd(Drain[Any]):
    """Takes all values and calls a function at the end."""

    def __init__(self, tell: Callable[[Reason | None], object]) -> None:
        super().__init__(None, "on_end")
        check_sync(tell, "on_end")
        self._tell = tell

    def _close(self, reason: Reason | None) -> None:
        check_plain(self._tell(reason), self.description)


def on_end(tell: Callable[[Reason | None], object]) -> OnEnd:
    """Returns a sink that calls ``tell`` once, with None at the end, else with the reason.

    Its result is the number of values.
    """
    return OnEnd(tell)


def log(prefix: str = "", *, level: int = logging.INFO) -> Drain[Any]:
    """Returns a sink that logs each value with this module's logger; its result is the number of values."""

    def show(value: object) -> None:
        logger.log(level, "%s%r", prefix, value)

    return Drain(show, "log")
