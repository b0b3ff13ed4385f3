"""Contexts: code of an actor runs under the context variables under which it was handed over.

It is looked at when it is handed over, since it may be called much later, or never in a test: what could only
be awaited, what cannot take what a pattern captures, and names that are no text are refused then.

Who sets a ``contextvars.ContextVar`` around ``spawn`` or ``on_message`` sets it for that actor, or for that
handler, whenever it runs, and for what it makes in its turn; nobody else sees it.

Always: what a handler sets is forgotten when it returns; where nothing was set, nothing is kept and nothing
is paid for; what can be called is never refused; a name is text that can be written anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import wraps
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, Parameter, signature
from types import FunctionType, MethodType
from typing import Final, TypeVar

from index.errors import UsageError
from index.patterns.patterns import Pattern
from index.patterns.text import unparse_pattern
from index.values.freezing import freeze

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
    """Raises ``UsageError`` for what cannot be called, or is an async function or a generator.

    A turn waits for nothing, so that calling those would do nothing.
    """
    if not callable(function):
        raise UsageError(f"a function is needed, to be called later, not {type(function).__name__}")
    code = getattr(function, "__code__", None)  # what is callable without being a function has none
    if code is not None and code.co_flags & DEFERRED:
        name = getattr(function, "__qualname__", repr(function))
        raise UsageError(f"{name} is async or yields, but a turn waits for nothing: use turn.task")


def checked_name(name: object, what: str) -> str:
    """The name itself; ``UsageError`` for what is no text, or none that can be written."""
    if type(name) is str and name.isascii():
        return name  # as mostly
    if type(name) is not str:
        raise UsageError(f"the name of {what} is text, got {type(name).__name__}")
    text: str = freeze(name)  # type: ignore[assignment]  # text, as just checked
    return text


def name_of(function: object, default: str = "") -> str:
    """What a function is called, or the default if it has no name."""
    name = getattr(function, "__name__", default)
    return name if name.__class__ is str else default


POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_takes(handler: Callable[..., object], captures: int, pattern: Pattern) -> None:
    """Raises ``UsageError`` unless it can be called with a turn and so many captures."""
    least, most = takes(handler)
    if not least <= captures + 1 <= most:
        name = getattr(handler, "__qualname__", repr(handler))
        allowed = (
            f"{least}" if least == most else f"{least} to {most}" if most < math.inf else f"{least} or more"
        )
        raise UsageError(
            f"{name} takes {allowed} arguments, but gets {captures + 1}: a turn and one for each of the"
            f" {captures} captures of {unparse_pattern(pattern):.200}"
        )


def takes(function: Callable[..., object]) -> tuple[int, float]:
    """With how many positional arguments it can be called, at least and at most.

    >>> takes(lambda turn, who, what=None: None), takes(lambda *row: None)
    ((2, 3), (0, inf))
    """
    bound = 0
    plain: object = function
    if plain.__class__ is MethodType:
        plain, bound = function.__func__, 1  # type: ignore[attr-defined]  # as methods have
    if plain.__class__ is FunctionType:  # as mostly; ``signature`` costs thirty times as much
        code = plain.__code__
        if code.co_kwonlyargcount == 0:
            count = code.co_argcount
            optional = len(plain.__defaults__ or ())
            most = math.inf if code.co_flags & CO_VARARGS else max(0, count - bound)
            return max(0, count - bound - optional), most
    return _signature_takes(function)


def _signature_takes(function: Callable[..., object]) -> tuple[int, float]:
    try:
        parameters = signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # as for some that are built in
        return 0, math.inf
    plain = [each for each in parameters if each.kind in POSITIONAL]
    least = len([each for each in plain if each.default is Parameter.empty])
    most = math.inf if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters) else len(plain)
    return least, most
