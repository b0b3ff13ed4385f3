"""Contexts: code of an actor runs under the context variables under which it was handed over.

Who sets a ``contextvars.ContextVar`` around ``spawn`` or ``on_message`` sets it for that actor, or for that
handler, whenever it runs, and for what it makes in its turn; nobody else sees it.

Always: what a handler sets is forgotten when it returns; where nothing was set, nothing is kept and nothing
is paid for; what could not be called, but only awaited or iterated, is refused when it is handed over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from functools import wraps
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from typing import Final, TypeVar

from index.errors import UsageError

F = TypeVar("F", bound=Callable[..., object])

DEFERRED: Final = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR
"""Functions with these flags do nothing when they are called."""


def bound(usual: Context, function: F) -> F:
    """A function for those who call it later: it runs under the variables of now, if those are not the usual.

    O(variables) if they are not.  ``UsageError`` if calling it would do nothing.

    >>> bound(copy_context(), len) is len
    True
    """
    check_plain(function)
    here = copy_context()
    if here == usual:
        return function

    @wraps(function)
    def within(*args: object) -> object:
        return here.copy().run(function, *args)

    return within  # type: ignore[return-value]  # called as that is


def check_plain(function: Callable[..., object]) -> None:
    """Raises ``UsageError`` for an async function or a generator, which a turn cannot wait for."""
    code = getattr(function, "__code__", None)  # what is callable without being a function has none
    if code is not None and code.co_flags & DEFERRED:
        name = getattr(function, "__qualname__", repr(function))
        raise UsageError(f"{name} is async or yields, but a turn waits for nothing: use turn.task")
