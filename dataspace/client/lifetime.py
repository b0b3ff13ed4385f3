"""The life of a connection: a block, or a task that holds the block open.

``async with connect(…) as space`` is the usual form.  In a notebook each cell is another task, and some web
frameworks start and stop in two of them; a block that is entered in one task cannot be left in another.
There ``open`` runs the block in a task of its own, and ``aclose`` ends it.

Always: a block is entered once and left in the task that entered it.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from dataspace.client.space import RemoteSpace
from dataspace.errors import UsageError
from dataspace.loops.here import is_asyncio

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")

_HELD: Final[set[asyncio.Task[None]]] = set()
"""Tasks that hold a block open: asyncio itself keeps only weak references."""


def connecting(enter: Callable[P, AsyncIterator[RemoteSpace]]) -> Callable[P, Connection]:
    """Makes a function that returns a ``Connection`` of a function that yields a space."""
    block = asynccontextmanager(enter)

    @functools.wraps(enter)
    def made(*args: P.args, **kwargs: P.kwargs) -> Connection:
        return Connection(block(*args, **kwargs))

    return made


class Connection(AbstractAsyncContextManager[RemoteSpace]):
    """A connection to a daemon, made by ``connect``: use it in ``async with``, or ``open`` and ``aclose``."""

    def __init__(self, block: AbstractAsyncContextManager[RemoteSpace]) -> None:
        self._block = block
        self._holder: _Holder | None = None

    async def __aenter__(self) -> RemoteSpace:
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)

    async def open(self) -> RemoteSpace:
        """Connects and returns the space, which any task may use until ``aclose``; for asyncio.

        Raises what ``async with`` raises.  Cancelled, it leaves no connection.
        """
        if not is_asyncio():
            raise UsageError(
                "open() is for asyncio, where tasks need no parent; here use `async with connect(…)`"
            )
        if self._holder is not None:
            raise UsageError("this connection was opened before; make another with connect(…)")
        self._holder = _Holder(self)
        return await self._holder.begin()

    async def aclose(self) -> None:
        """Ends the connection as the end of the block does: returns when every turn has its answer.

        Raises the error that has ended the connection meanwhile, once.  Does nothing if it is not open.
        """
        if self._holder is not None:
            await self._holder.end()


class _Holder:
    """The task that holds a block open."""

    def __init__(self, block: AbstractAsyncContextManager[RemoteSpace]) -> None:
        import asyncio  # runs here

        self._block = block
        self._opened: asyncio.Future[RemoteSpace] = asyncio.get_running_loop().create_future()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._hold(), name="dataspace connection")
        _HELD.add(self._task)
        self._task.add_done_callback(_HELD.discard)

    async def _hold(self) -> None:
        async with self._block as space:
            if not self._opened.done():
                self._opened.set_result(space)
            await self._wanted.wait()

    async def begin(self) -> RemoteSpace:
        """Returns the space once there is one; raises the error where there is none."""
        import asyncio

        assert self._task is not None  # nothing has ended it yet
        either: list[asyncio.Future[Any]] = [self._task, self._opened]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._opened.cancel()
            self._task.cancel()
            await self._settled()
            raise
        if not self._opened.done():
            self._opened.cancel()
            await self.end()
            raise UsageError("the connection ended before it was open")
        return self._opened.result()

    async def end(self) -> None:
        """Ends the block and waits until it has; raises its error."""
        self._wanted.set()
        await self._settled()
        task, self._task = self._task, None
        if task is not None:
            task.result()

    async def _settled(self) -> None:
        """Returns when the task is over; a caller that is cancelled leaves it to end by itself."""
        import asyncio

        if self._task is not None:
            await asyncio.wait([self._task])
