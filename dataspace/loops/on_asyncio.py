"""The primitives under asyncio: anyio's, and the primitives that it lacks.

Loaded when something first waits under asyncio. anyio's scopes cancel a task again and again until it leaves
the block, as trio's do; ``task.cancel()`` cancels once, and also reaches a task in a shielded block, and a
task that was woken already and has not run yet.

Always: a task that is cancelled after it was woken passes on what it was woken for; nothing here swallows a
cancellation.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, TypeVar, cast

import anyio
import trio

from dataspace.loops.primitives import Loop, Nursery, Scope

T = TypeVar("T")

STAGGER: Final = 0.25
"""Seconds after which the next address of a host is tried beside the first (RFC 8305)."""


class Flag(asyncio.Event):
    """An event whose ``wait`` always lets other tasks run; anyio's takes seven times as long to make."""

    async def wait(self) -> Literal[True]:
        """Returns once it is set."""
        if self.is_set():
            await asyncio.sleep(0)
        return await super().wait()


class FutureLot:
    """Tasks that wait for a change, and then look for themselves what has changed."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order of their arrival

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def park(self) -> None:
        """Waits until it is woken."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        except BaseException:
            self._waiting.pop(future, None)
            raise

    def unpark(self) -> None:
        """Wakes the task that has waited longest."""
        while self._waiting and not self._wake():
            pass

    def unpark_all(self) -> None:
        """Wakes every task that waits."""
        while self._waiting:
            self._wake()

    def _wake(self) -> bool:
        """Wakes the first; False if it was cancelled, and its task has not run yet."""
        future = next(iter(self._waiting))
        del self._waiting[future]
        if future.done():
            return False
        future.set_result(None)
        return True


class FutureWaker:
    """Wakes one asyncio task."""

    __slots__ = ("_future", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._woken = False

    def wake(self) -> None:
        """Wakes the task, once."""
        self._woken = True
        if not self._future.done():  # as above
            self._future.set_result(None)

    async def wait(self, withdraw: Callable[[], None], passed: Callable[[], None]) -> None:
        """Waits to be woken; calls ``withdraw`` if it is cancelled before that, ``passed`` if after that."""
        try:
            await self._future
        except BaseException:
            if self._woken:
                passed()
            else:
                withdraw()
            raise


def _move_on_at(deadline: float) -> Scope:
    return anyio.CancelScope(deadline=deadline)


def _open_nursery() -> AbstractAsyncContextManager[Nursery]:
    return cast("AbstractAsyncContextManager[Nursery]", anyio.create_task_group())  # its types say more


async def _yield() -> None:
    await asyncio.sleep(0)


async def _pass() -> None:
    """Does nothing: ``checkpoint_if_cancelled``, which comes before, has let other tasks run.

    A native cancellation would go through a shield, and an item taken in between would be lost.
    """


async def _wait_readable(sock: socket.socket) -> None:
    try:
        await anyio.wait_readable(sock)
    except anyio.ClosedResourceError:
        raise trio.ClosedResourceError("the socket was closed") from None


async def _wait_writable(sock: socket.socket) -> None:
    try:
        await anyio.wait_writable(sock)
    except anyio.ClosedResourceError:
        raise trio.ClosedResourceError("the socket was closed") from None


async def _run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Calls a function in a thread and waits for its end, cancelled or not.

    A cancellation is raised after the end of the call, since what the thread uses must not be closed before.
    """
    call = asyncio.get_running_loop().run_in_executor(None, function, *args)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not call.done():
            try:
                await asyncio.wait([call])
            except asyncio.CancelledError as error:  # a native one goes through the shield
                cancelled = error
    if cancelled is not None:
        call.exception()  # is marked as seen
        raise cancelled
    return call.result()


async def _open_tcp(host: str, port: int) -> socket.socket:
    """Connects to the first address of a host that answers; a slow one delays the next by ``STAGGER``."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    errors: list[OSError] = []
    connected: list[socket.socket] = []

    async def attempt(family: int, kind: int, protocol: int, address: Any, over: asyncio.Event) -> None:
        try:
            sock = await _connected(socket.socket(family, kind, protocol), address)
        except OSError as error:
            errors.append(error)
        else:
            connected.append(sock)
            attempts.cancel_scope.cancel()
        finally:
            over.set()

    try:
        async with anyio.create_task_group() as attempts:
            for family, kind, protocol, _name, address in found:
                over = asyncio.Event()
                attempts.start_soon(attempt, family, kind, protocol, address, over)
                with anyio.move_on_after(STAGGER):
                    await over.wait()
    except BaseException:
        for sock in connected:
            sock.close()
        raise
    if not connected:
        raise errors[0] if len(errors) == 1 else OSError("; ".join(map(str, errors)))
    for sock in connected[1:]:  # several can succeed in one round of the loop
        sock.close()
    return connected[0]


async def _open_unix(path: str) -> socket.socket:
    return await _connected(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)


async def _connected(sock: socket.socket, address: Any) -> socket.socket:
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _current_time() -> float:
    return asyncio.get_running_loop().time()


def _sleep(seconds: float) -> Awaitable[None]:
    return asyncio.sleep(seconds)


ASYNCIO: Final = Loop(
    event=Flag,
    scope=anyio.CancelScope,
    move_on_after=anyio.move_on_after,
    move_on_at=_move_on_at,
    open_nursery=_open_nursery,
    parking_lot=FutureLot,
    waker=FutureWaker,
    current_time=_current_time,
    sleep=_sleep,
    checkpoint=_yield,
    checkpoint_if_cancelled=_yield,
    cancel_shielded_checkpoint=_pass,
    wait_readable=_wait_readable,
    wait_writable=_wait_writable,
    notify_closing=anyio.notify_closing,
    open_tcp=_open_tcp,
    open_unix=_open_unix,
    soon=lambda: asyncio.get_running_loop().call_soon_threadsafe,
    run_in_thread=_run_in_thread,
)
