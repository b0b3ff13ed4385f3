"""Checks of the functions and numbers that stages are given.

A stage calls its functions and does not await them.  An asynchronous function would be called, its coroutine
taken for a result (which is true, so that a test passes everything) and never run.  It is refused twice:
where the stage is made, if that can be seen, and where a coroutine is returned.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CoroutineType
from typing import Any, Final, TypeVar

from dataspace.errors import UsageError
from dataspace.loops.here import loop, parking_lot


def name_of(fn: object) -> str:
    """Returns the name of a function, or the text of an object without a name."""
    return getattr(fn, "__name__", None) or repr(fn)


def check_sync(fn: Callable[..., Any], stage: str, *, instead: str = "use async_map before it") -> str:
    """Returns the name of a function; ``UsageError`` for an object that cannot be called or must be
    awaited."""
    if not callable(fn):
        raise UsageError(f"{stage} needs a function, got {fn!r:.80}")
    called = getattr(fn, "__call__", None)  # noqa: B004  # of an object that is called like a function
    for function in (fn, called):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                f"{stage} calls its function and does not await it, and {name_of(fn)} is asynchronous; "
                f"{instead}"
            )
    return name_of(fn)


def is_count(number: object) -> bool:
    """True if this is a whole number of at least 1, as a bound must be."""
    return type(number) is int and number >= 1


def truth(answer: object, where: str) -> bool:
    """True if a test has passed; raises ``UsageError`` for a coroutine, which would always be true."""
    check_plain(answer, where)
    return bool(answer)


def check_plain(answer: object, where: str, *, instead: str = "use async_map before it") -> None:
    """Raises ``UsageError`` for a coroutine: a function that is called, not awaited, has returned it."""
    if isinstance(answer, CoroutineType):
        coroutine: CoroutineType[Any, Any, Any] = answer
        coroutine.close()
        raise UsageError(
            f"{where} was given a function that returns a coroutine, which it does not await; {instead}"
        )


def close_iterator(values: Iterator[Any]) -> None:
    """Closes a generator, or any other iterator that can be closed."""
    close = getattr(values, "close", None)
    if close is not None:
        close()


T = TypeVar("T")


class Threads:
    """Makes calls in threads, and closes the resource that they use.

    A call in a thread cannot be interrupted. A stream that is aborted meanwhile would close the file that the
    call is using, or miss the file that it is just opening.

    Always: one call at a time; ``close`` happens once, at once if no call is under way, else right after it.
    """

    __slots__ = ("_close", "_idle", "_over", "busy")

    def __init__(self, close: Callable[[], object]) -> None:
        self._close: Final = close
        self._idle: Final = parking_lot()
        self._over = False
        self.busy = False

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Calls a function in a thread and waits for its end, cancelled or not.

        Under asyncio a cancellation is raised after the call, and its result is lost: the function itself
        stores results that must not get lost.
        """
        self.busy = True
        try:
            result: T = await loop().run_in_thread(fn, *args)
            return result
        finally:
            self.busy = False
            self._idle.unpark_all()
            if self._over:
                self._close()

    def close(self) -> None:
        """Closes the resource, now or after the call that is under way."""
        if not self._over:
            self._over = True
            if not self.busy:
                self._close()

    async def wait_idle(self) -> None:
        """Returns when no call is under way."""
        while self.busy:
            await self._idle.park()
