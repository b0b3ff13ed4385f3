"""Handlers: user code, checked when it is handed over, and its exceptions as crashes.

A handler may be called much later, or never in a test.  So a function that could only be awaited, a function
that cannot take the captures of a pattern, and a name that is no text are refused when they are given.  A
handler runs under the context variables under which it was handed over: a ``contextvars.ContextVar`` that is
set around ``spawn`` or ``on_message`` is set for that actor, or that handler, whenever it runs, and for the
actors and handlers that it makes in its turn, and for nothing else.

Always: variables set by a handler are forgotten when it returns; where nothing was set, nothing is kept and
nothing costs time; a callable object is never refused; making a crash raises nothing, whatever was raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import wraps
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, Parameter, signature
from types import FunctionType, MethodType
from typing import Final, TypeVar

from dataspace.errors import ActorCrashed
from index.errors import UsageError
from index.patterns.patterns import Pattern
from index.patterns.text import unparse_pattern
from index.values.freezing import freeze

F = TypeVar("F", bound=Callable[..., object])

DEFERRED: Final = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR
"""Functions with these flags do nothing when they are called."""


def bound(usual: Context, function: F) -> F:
    """Returns a function that runs under the present context variables, if they are not the ``usual`` ones.

    O(variables) if they are not, else the function itself.  ``UsageError`` if calling it would do nothing.

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
    """Raises ``UsageError`` unless it can be called and is neither an async function nor a generator.

    A turn waits for nothing, so calling one of those would do nothing.
    """
    if not callable(function):
        raise UsageError(f"a function is needed, to be called later, not {type(function).__name__}")
    code = getattr(function, "__code__", None)  # what is callable without being a function has none
    if code is not None and code.co_flags & DEFERRED:
        name = getattr(function, "__qualname__", repr(function))
        raise UsageError(f"{name} is async or yields, but a turn waits for nothing: use turn.task")


def checked_name(name: object, what: str) -> str:
    """Returns the name; ``UsageError`` if it is no text, or text that cannot be encoded."""
    if type(name) is str and name.isascii():
        return name  # as mostly
    if type(name) is not str:
        raise UsageError(f"the name of {what} is text, got {type(name).__name__}")
    text: str = freeze(name)  # type: ignore[assignment]  # text, as just checked
    return text


def name_of(function: object, default: str = "") -> str:
    """Returns the name of a function, or the default if it has none."""
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
    """Returns how many positional arguments it can be called with, at least and at most.

    >>> takes(lambda turn, name, what=None: None), takes(lambda *row: None)
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


# -- crashes ------------------------------------------------------------------------------------------


def crash_of(where: str, error: BaseException) -> ActorCrashed:
    """Returns the crash that an error is; the error is its cause."""
    crash = ActorCrashed(f"{where}: {described(error)}")
    crash.__cause__ = error
    return crash


def described(error: BaseException) -> str:
    """Returns the class and the text of an error, as text that can be encoded.

    >>> described(ValueError("no"))
    'ValueError: no'
    """
    name = _class_name(error)
    try:
        text = f"{name}: {error}"
    except BaseException as second:  # noqa: BLE001  # a fence around the text, which is the actor's code as well
        text = f"{name}, whose text raises {_class_name(second)}"
    return text.encode("utf-8", "backslashreplace").decode()


def _class_name(error: BaseException) -> str:
    """Returns the name of its class, whatever its metaclass defines."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def is_within(error: BaseException, fence: tuple[type[BaseException], ...]) -> bool:
    """True if an error, or each error in a group, ends its actor and nothing else."""
    return all(isinstance(leaf, fence) for leaf in leaves(error))


def leaves(error: BaseException) -> list[BaseException]:
    """Returns the errors in a group and in the groups in it; for another error, that error alone."""
    found, groups = [], [error]
    while groups:
        item = groups.pop()
        if isinstance(item, BaseExceptionGroup):
            groups += reversed(BaseExceptionGroup.exceptions.__get__(item))  # whatever its class makes of it
        else:
            found.append(item)
    return found
