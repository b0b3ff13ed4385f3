"""Which event loop runs here: trio's or asyncio's?

It is asked where something is made that waits, and costs 0.1 µs under trio.  What lives long, such as a
connection, asks once and keeps the answer.

Always: asyncio and anyio are loaded only where asyncio runs.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio
from trio.lowlevel import in_trio_task

from dataspace.errors import UsageError
from dataspace.loops.primitives import Loop, ParkingLot

if TYPE_CHECKING:
    import types


def loop() -> Loop:
    """Returns the primitives of the loop that runs here; trio's where none runs.

    Raises ``UsageError`` where asyncio runs and anyio is not installed.
    """
    if in_trio_task() or not is_asyncio():
        return TRIO
    return _asyncio()


def running_loop() -> Loop:
    """Returns the same; raises ``UsageError`` where neither trio nor asyncio runs."""
    if in_trio_task():
        return TRIO
    if is_asyncio():
        return _asyncio()
    raise UsageError(
        "neither trio nor asyncio runs here, one of which this needs; without them, use connect_blocking"
    )


def parking_lot() -> ParkingLot:
    """Returns a parking lot of the running loop, or of the loop that runs when it is first used."""
    return loop().parking_lot() if in_trio_task() or is_asyncio() else LateLot()


def cancellations() -> tuple[type[BaseException], ...]:
    """Returns the exceptions by which tasks are cancelled, for an ``except`` clause."""
    asyncio = _loaded_asyncio()
    return (trio.Cancelled,) if asyncio is None else (trio.Cancelled, asyncio.CancelledError)


class LateLot:
    """A parking lot that was made where no loop runs, as streams may be."""

    __slots__ = ("_lot",)

    def __init__(self) -> None:
        self._lot: ParkingLot | None = None

    def __bool__(self) -> bool:
        return bool(self._lot)

    async def park(self) -> None:
        """Waits until it is woken."""
        if not self._lot:  # with nobody in it, it may also be of a loop that has ended
            self._lot = loop().parking_lot()
        await self._lot.park()

    def unpark(self) -> None:
        """Wakes the task that has waited longest."""
        if self._lot:
            self._lot.unpark()

    def unpark_all(self) -> None:
        """Wakes every task that waits."""
        if self._lot:
            self._lot.unpark_all()


def _loaded_asyncio() -> types.ModuleType | None:
    return sys.modules.get("asyncio")


def is_asyncio() -> bool:
    """Returns True if asyncio runs here."""
    asyncio = _loaded_asyncio()
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _asyncio() -> Loop:
    try:
        from dataspace.loops.on_asyncio import ASYNCIO
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] != "anyio":
            raise
        raise UsageError("asyncio needs anyio here: pip install 'dataspace-server[asyncio]'") from missing
    return ASYNCIO


class TaskWaker:
    """Wakes one trio task, which is not cancelled after it was woken."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()

    def wake(self) -> None:
        """Wakes the task, once."""
        trio.lowlevel.reschedule(self._task)

    async def wait(self, withdraw: Callable[[], None], passed: Callable[[], None]) -> None:
        """Waits to be woken; calls ``withdraw`` if it is cancelled, before any other task runs."""

        def aborted(_raise_cancel: object) -> trio.lowlevel.Abort:
            withdraw()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(aborted)


async def _open_tcp(host: str, port: int) -> socket.socket:
    stream = await trio.open_tcp_stream(host, port)
    return socket.socket(fileno=stream.socket.detach())


async def _open_unix(path: str) -> socket.socket:
    stream = await trio.open_unix_socket(path)
    return socket.socket(fileno=stream.socket.detach())


TRIO: Final = Loop(
    event=trio.Event,
    scope=trio.CancelScope,
    move_on_after=trio.move_on_after,
    move_on_at=trio.move_on_at,
    open_nursery=trio.open_nursery,
    parking_lot=trio.lowlevel.ParkingLot,
    waker=TaskWaker,
    current_time=trio.current_time,
    sleep=trio.sleep,
    checkpoint=trio.lowlevel.checkpoint,
    checkpoint_if_cancelled=trio.lowlevel.checkpoint_if_cancelled,
    cancel_shielded_checkpoint=trio.lowlevel.cancel_shielded_checkpoint,
    wait_readable=trio.lowlevel.wait_readable,
    wait_writable=trio.lowlevel.wait_writable,
    notify_closing=trio.lowlevel.notify_closing,
    open_tcp=_open_tcp,
    open_unix=_open_unix,
    soon=lambda: trio.lowlevel.current_trio_token().run_sync_soon,
    run_in_thread=trio.to_thread.run_sync,
)
