"""The primitives under trio: its own."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import trio

from dataspace.loops.primitives import Loop


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
    run_in_thread=trio.to_thread.run_sync,
)
