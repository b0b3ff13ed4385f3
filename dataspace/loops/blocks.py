"""Blocks: what a verb returns to be entered by ``async with``, or by ``with`` in the blocking client.

A program that forgets the block has an object without the attributes it expects, or would wait for something
that nothing requests.  So each of these objects says what to write where it is used otherwise.  They are
apart from the verbs because all verbs share them.

Always: nothing has happened when a block is refused; the right use costs no more than without the refusals.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar

from dataspace.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class NotEnteredError(UsageError, AttributeError):
    """A block was used without being entered; an ``AttributeError`` as well, so that ``hasattr`` works."""


class AsyncOnly:
    """Refuses ``with``, ``for`` and ``await``; ``_usage`` is what to write instead."""

    __slots__ = ()
    _usage = ""

    if not TYPE_CHECKING:  # a type checker must go on to refuse them

        def __enter__(self) -> NoReturn:
            raise UsageError(f"a plain `with` does not work here: write `{self._usage}`")

        def __exit__(self, *_exc: object) -> NoReturn:
            raise UsageError(f"a plain `with` does not work here: write `{self._usage}`")

        def __iter__(self) -> NoReturn:
            raise UsageError(f"a plain `for` does not work here: write `{self._usage}`")

        def __await__(self) -> NoReturn:
            raise UsageError(f"`await` does not work here: write `{self._usage}`")


class Unentered:
    """Refuses to be used as what its block gives; ``_usage`` is what to write instead."""

    __slots__ = ()
    _usage = ""

    if not TYPE_CHECKING:  # as above

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # a protocol, which looks whether there is one
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise NotEnteredError(f"no `{name}` before the block is entered: write `{self._usage}`")

        def __aiter__(self) -> NoReturn:
            raise UsageError(f"`async for` does not work before the block is entered: write `{self._usage}`")


class AsyncBlock(AsyncOnly, Unentered, AbstractAsyncContextManager[T_co]):
    """What a verb does for as long as an ``async with`` block runs."""

    def __init__(self, block: AbstractAsyncContextManager[T_co], usage: str) -> None:
        self._block: Final = block
        self._usage = usage

    def __aenter__(self) -> Coroutine[Any, Any, T_co]:
        return self._block.__aenter__()

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        return self._block.__aexit__(kind, error, trace)


def block(usage: str) -> Callable[[Callable[P, AsyncIterator[T]]], Callable[P, AsyncBlock[T]]]:
    """Makes a verb that returns an ``AsyncBlock`` of a function; ``usage`` is how to write it."""

    def made(enter: Callable[P, AsyncIterator[T]]) -> Callable[P, AsyncBlock[T]]:
        entering = asynccontextmanager(enter)

        @wraps(enter)
        def verb(*args: P.args, **kwargs: P.kwargs) -> AsyncBlock[T]:
            return AsyncBlock(entering(*args, **kwargs), usage)

        return verb

    return made


# -- without async ---------------------------------------------------------------------------------


class BlockingOnly:
    """Refuses ``async with``, ``async for`` and ``await``; ``_usage`` is what to write instead."""

    __slots__ = ()
    _usage = ""

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise UsageError(f"the blocking client has no `async`: write `{self._usage}`")

        def __aexit__(self, *_exc: object) -> NoReturn:
            raise UsageError(f"the blocking client has no `async`: write `{self._usage}`")

        def __aiter__(self) -> NoReturn:
            raise UsageError(f"the blocking client has no `async`: write `{self._usage}`")

        def __await__(self) -> NoReturn:
            raise UsageError(f"the blocking client has no `await`: write `{self._usage}`")


class BlockingBlock(BlockingOnly, Unentered, AbstractContextManager[T_co]):
    """What a verb does for as long as a ``with`` block runs."""

    def __init__(self, block: AbstractContextManager[T_co], usage: str) -> None:
        self._block: Final = block
        self._usage = usage

    def __enter__(self) -> T_co:
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise UsageError(f"`for` does not work here: write `{self._usage}`")


def blocking_block(enter: Callable[P, Iterator[T]], usage: str) -> Callable[P, BlockingBlock[T]]:
    """Returns a verb whose result is a ``BlockingBlock`` of a function that yields once."""
    entering = contextmanager(enter)

    @wraps(enter)
    def verb(*args: P.args, **kwargs: P.kwargs) -> BlockingBlock[T]:
        return BlockingBlock(entering(*args, **kwargs), usage)

    return verb
