"""Seams: where product code meets the system, and what it meets there in a life.

Sockets become those of ``network``; what would run in a thread runs in the task that waits for it, after and
before a random time.  The states of durable topics are written as often as befits a life.  Nothing else of
the product is replaced.

Always: after the block everything is as it was; within it no thread can be started.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar
from unittest.mock import patch

import trio

from dataspace.loops.here import TRIO
from dataspace.transport.addresses import Address
from relay.journal import writer as journal
from relay.log.writer import GroupCommit
from relay.store.group_writer import WriteThread
from server.connections import listeners
from server.connections.listeners import Listener
from server.daemon import daemon
from server.lane import Work
from server.sessions import guests, memory, state
from tests.simulation.hosts import here
from tests.simulation.machine import FOLLOWERS_PORT
from tests.simulation.network import Listening, Network
from tests.simulation.store.threads import current

T = TypeVar("T")

RESIDENT: Final = 100 << 20
"""Bytes of memory that a daemon finds that it has."""

KEPT_STEPS: Final = 3
"""Steps of a topic after which its state is written: a life has some hundred, and a start goes on from it."""

SLOWEST: Final = 0.02
"""Seconds that a thread waits before its work, and its task after it, at most."""


async def _in_thread(
    function: Callable[..., T], *args: Any, abandon_on_cancel: bool = False, **_options: object
) -> T:
    """In place of ``trio.to_thread.run_sync``."""
    await trio.lowlevel.checkpoint_if_cancelled()
    await _pause()
    if (threads := current()) is not None:
        return await threads.run(function, *args, abandon=abandon_on_cancel)
    try:
        return function(*args)
    finally:
        await _pause()


async def _write(_self: WriteThread, function: Callable[..., object], *args: Any) -> None:
    """In place of ``WriteThread.run``."""
    await _in_thread(function, *args)


async def _pause() -> None:
    host = here()
    assert host is not None  # all work is of a host
    some = host.random.random()
    with trio.CancelScope(shield=True):
        await trio.sleep(0 if some < 0.3 or host.is_dead else SLOWEST * some**4)


class _Numbers:
    """Counts connections of each host from one on, as each process does."""

    def __next__(self) -> int:
        host = here()
        assert host is not None  # daemons are on hosts
        host.connections += 1
        return host.connections


def _no_thread(self: threading.Thread) -> None:
    raise AssertionError(f"a thread in a life: {self.name}")


@contextmanager
def seams(network: Callable[[], Network]) -> Iterator[None]:
    """Has the product meet the network and the time of a life."""

    def listen(address: Address, _context: object) -> Listener:
        host = here()
        assert host is not None  # daemons are on hosts
        found: Any = Listening(network(), address.port, host)
        return Listener(address, found)

    def listen_to_followers(address: Address, _mode: int) -> Listener:
        host = here()
        assert host is not None
        found: Any = Listening(network(), FOLLOWERS_PORT, host)
        return Listener(address, found, inode=-1)  # of no file

    async def open_tcp(host: str, port: int) -> Any:
        return await network().connect(host, port)

    async def open_unix(_path: str) -> Any:
        return await network().connect("", FOLLOWERS_PORT)

    async def wait_readable(end: Any) -> None:
        await end.wait_readable()

    async def wait_writable(end: Any) -> None:
        await end.wait_writable()

    def notify_closing(end: Any) -> None:
        end.notify_closing()

    sockets = {
        "wait_readable": wait_readable,
        "wait_writable": wait_writable,
        "notify_closing": notify_closing,
    }
    others = {**sockets, "open_tcp": open_tcp, "open_unix": open_unix, "run_in_thread": _in_thread}
    real = {name: getattr(TRIO, name) for name in others}
    with ExitStack() as held:
        held.callback(_fill_loop, real)
        _fill_loop(others)
        for name, other in sockets.items():
            held.enter_context(patch.object(trio.lowlevel, name, other))
        held.enter_context(patch.object(trio.to_thread, "run_sync", _in_thread))
        held.enter_context(patch.object(WriteThread, "run", _write))
        held.enter_context(patch.object(GroupCommit, "_may_write_here", lambda _self, _group: False))
        held.enter_context(patch.object(journal, "KEPT_STEPS", KEPT_STEPS))
        held.enter_context(patch.object(Work, "pass_on_from_thread", lambda _self: None))
        held.enter_context(patch.object(listeners, "_open_tcp", listen))
        held.enter_context(patch.object(listeners, "_open_unix", listen_to_followers))
        held.enter_context(patch.object(guests, "_numbers", _Numbers()))
        for module in (daemon, memory, state):  # what this process has is that of many lives
            held.enter_context(patch.object(module, "resident_bytes", lambda: RESIDENT))
        held.enter_context(patch.object(threading.Thread, "start", _no_thread))
        for name in ("collect", "freeze", "set_threshold"):  # of this process, which has many lives
            held.enter_context(patch.object(gc, name, lambda *_: 0))
        held.enter_context(patch.object(sys, "setswitchinterval", lambda _: None))
        yield


def _fill_loop(functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        object.__setattr__(TRIO, name, function)  # the one record of it, which all have imported
