"""The primitives by which everything here waits, as one record for each kind of event loop.

Code that waits takes them from ``loop()`` instead of from trio, so that the same code runs under trio and
under asyncio.  Under trio each is trio's own function or class, so a call costs what it cost without this
record.  Under asyncio they are anyio's, or a few lines above asyncio where anyio has none.

Always: the methods behave as trio's of the same name.  What differs under asyncio is stated at ``Waker``: a
task can be cancelled there after it was woken.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    import asyncio

    import trio


Event: TypeAlias = "trio.Event | asyncio.Event"
"""Is set once, and wakes every task that waits for it."""


class Scope(Protocol):
    """A block that can be cancelled, or ends at a deadline."""

    shield: bool
    deadline: float
    """On the loop's clock; may be set while the block runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool: ...

    def cancel(self) -> None:
        """Cancels what runs in the block."""

    @property
    def cancelled_caught(self) -> bool:
        """True if the block ended because the scope was cancelled."""


class TaskStatus(Protocol):
    """Passed to a task that ``Nursery.start`` starts."""

    def started(self) -> None:
        """Makes ``start`` return."""


class Nursery(Protocol):
    """Tasks that end with a block."""

    @property
    def cancel_scope(self) -> Scope:
        """The scope of all its tasks."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *args: Any, name: object = None) -> None:
        """Starts a task."""

    async def start(self, function: Callable[..., Awaitable[Any]], /, *args: Any, name: object = None) -> Any:
        """Starts a task and waits until it calls ``task_status.started()``."""


class ParkingLot(Protocol):
    """Tasks that wait for a change, and then look for themselves what has changed."""

    def __bool__(self) -> bool: ...

    async def park(self) -> None:
        """Waits until it is woken."""

    def unpark(self) -> object:
        """Wakes the task that has waited longest; tasks of applications use a ``Waker`` for that."""

    def unpark_all(self) -> object:
        """Wakes every task that waits."""


class Waker(Protocol):
    """Wakes one task, which waits for something that is handed to it."""

    def wake(self) -> None:
        """Wakes the task, once."""

    async def wait(self, withdraw: Callable[[], None], passed: Callable[[], None]) -> None:
        """Waits to be woken.

        Cancelled before that, it calls ``withdraw``.  Cancelled after that, which only asyncio does, it calls
        ``passed``, which passes on what the task was woken for.
        """


@dataclass(frozen=True)
class Loop:
    """The primitives of one kind of event loop.  Times are in seconds, on the loop's own clock."""

    event: Callable[[], Event]
    scope: Callable[[], Scope]
    move_on_after: Callable[..., Scope]
    """Takes seconds, and ``shield``."""
    move_on_at: Callable[[float], Scope]
    open_nursery: Callable[[], AbstractAsyncContextManager[Nursery]]
    parking_lot: Callable[[], ParkingLot]
    waker: Callable[[], Waker]
    """Makes one for the running task."""
    current_time: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    checkpoint: Callable[[], Awaitable[None]]
    checkpoint_if_cancelled: Callable[[], Awaitable[None]]
    cancel_shielded_checkpoint: Callable[[], Awaitable[None]]
    wait_readable: Callable[[socket.socket], Awaitable[None]]
    """This and the next raise ``trio.ClosedResourceError`` if the socket is closed meanwhile."""
    wait_writable: Callable[[socket.socket], Awaitable[None]]
    notify_closing: Callable[[socket.socket], None]
    open_tcp: Callable[[str, int], Awaitable[socket.socket]]
    open_unix: Callable[[str], Awaitable[socket.socket]]
    soon: Callable[[], Callable[[Callable[[], object]], object]]
    """Returns what has the running loop call a function soon, from any thread.

    That raises ``RuntimeError`` once the loop has ended.
    """
    run_in_thread: Callable[..., Awaitable[Any]]
    """Calls a function in a thread and waits for its end, cancelled or not."""
