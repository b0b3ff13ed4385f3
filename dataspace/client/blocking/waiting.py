"""Waiting: blocking verbs, made of asynchronous verbs that run in the thread of a connection.

Always: a verb has the arguments, the documentation and the errors of the asynchronous one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


class Waiter(Protocol):
    """Runs an asynchronous function in the thread of a connection, and waits for its result."""

    def __call__(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Returns what the function returns, or raises what it raises."""


class Blocking(Generic[R]):
    """The blocking form of ``remote``, which lives in the thread of a connection."""

    _remote: R
    _wait: Waiter


def waiting(
    verb: Callable[Concatenate[R, P], Awaitable[T]],
) -> Callable[Concatenate[Blocking[R], P], T]:
    """Returns the verb that waits for what the asynchronous one returns."""

    @wraps(verb)
    def wait(self: Blocking[R], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(partial(verb, self._remote, *args, **kwargs))

    return wait


def documented_by(verb: Callable[..., object]) -> Callable[[F], F]:
    """Gives a verb the documentation and the signature of another one; the types stay its own."""

    def documented(function: F) -> F:
        wraps(verb)(function)
        return function

    return documented
