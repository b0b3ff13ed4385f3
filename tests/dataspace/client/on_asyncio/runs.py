"""Runs the tests of other files under asyncio: the same functions, of which each is the same promise.

Daemons and proxies run under trio, in a thread of their own, as they do in a process of their own; the test
and the client that it uses run under asyncio.  What a test takes from ``trio`` (events, nurseries, timeouts)
is replaced by anyio's for as long as it runs.

Always: no trio loop runs in the thread of the test.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
from _pytest.fixtures import FixtureFunctionDefinition

T = TypeVar("T")


SOME: Final = pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="make torture: some minutes")


class Lot:
    """A parking lot of events, for the tests' own pipes."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def park(self) -> None:
        await self._event.wait()

    def unpark_all(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


class Channel:
    """Both ends of a channel in memory; ``open_memory_channel[T](size)`` makes them."""

    def __class_getitem__(cls, _kind: object) -> Callable[[float], tuple[Channel, Channel]]:
        return lambda _size: (channel := cls(), channel)

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def send_nowait(self, value: object) -> None:
        self._queue.put_nowait(value)

    async def receive(self) -> Any:
        return await self._queue.get()


class Socket:
    """A plain socket with asynchronous methods."""

    def __init__(self) -> None:
        self.plain = socket.socket()
        self.plain.setblocking(False)
        self.setsockopt = self.plain.setsockopt

    async def bind(self, address: tuple[str, int]) -> None:
        self.plain.bind(address)

    async def connect(self, address: tuple[str, int]) -> None:
        await asyncio.get_running_loop().sock_connect(self.plain, address)


class SocketStream:
    """The bytes of such a socket."""

    def __init__(self, connected: Socket) -> None:
        self._plain = connected.plain

    async def send_all(self, data: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._plain, data)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def receive_some(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._plain, 1 << 16)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._plain.close()


async def _wait_all_tasks_blocked(_cushion: float = 0.0) -> None:
    await anyio.wait_all_tasks_blocked()


ANYIO: Final = SimpleNamespace(
    BrokenResourceError=trio.BrokenResourceError,
    CancelScope=anyio.CancelScope,
    ClosedResourceError=trio.ClosedResourceError,
    EndOfChannel=trio.EndOfChannel,
    Event=asyncio.Event,
    SocketStream=SocketStream,
    TooSlowError=TimeoutError,
    WouldBlock=trio.WouldBlock,
    current_time=anyio.current_time,
    fail_after=anyio.fail_after,
    from_thread=SimpleNamespace(run_sync=anyio.from_thread.run_sync),
    lowlevel=SimpleNamespace(
        ParkingLot=Lot,
        checkpoint=anyio.lowlevel.checkpoint,
        checkpoint_if_cancelled=anyio.lowlevel.checkpoint_if_cancelled,
    ),
    move_on_after=anyio.move_on_after,
    open_memory_channel=Channel,
    open_nursery=anyio.create_task_group,
    sleep=anyio.sleep,
    sleep_forever=anyio.sleep_forever,
    socket=SimpleNamespace(socket=Socket),
    testing=SimpleNamespace(wait_all_tasks_blocked=_wait_all_tasks_blocked),
    to_thread=SimpleNamespace(run_sync=anyio.to_thread.run_sync),
    TASK_STATUS_IGNORED=trio.TASK_STATUS_IGNORED,
)
"""What tests use of trio."""


class Host:
    """A trio loop in a thread."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=trio.run, args=(self._main,), name="host of daemons", daemon=True
        )
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await trio.sleep_forever()

    def __enter__(self) -> Host:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.call(self._nursery.cancel_scope.cancel)
        self._thread.join()

    def start(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Starts a task and returns what it says when it has started."""
        return self.run(self._nursery.start, function, *args)

    def run(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Returns the result of an asynchronous function, which runs there."""
        return trio.from_thread.run(function, *args, trio_token=self._token)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """The same for a plain function."""
        return trio.from_thread.run_sync(function, *args, trio_token=self._token)


def under_asyncio(
    module: ModuleType, *, quick: Collection[str] = (), without: Collection[str] = ()
) -> dict[str, Callable[..., None]]:
    """Returns the asynchronous tests of a file, as tests that run under asyncio.

    Those that are not ``quick`` run with ``make torture``.  ``without`` leaves out tests that look at trio
    itself or at the inside of a daemon in the same loop.
    """
    made: dict[str, Callable[..., None]] = {}
    for name, test in vars(module).items():
        if (
            name.startswith("test")
            and inspect.iscoroutinefunction(test)
            and name not in without
            and not _is_of_trio(test)
        ):
            made[name] = _made(module, test, quick=name in quick)
    missing = {*quick, *without} - set(vars(module))
    assert not missing, f"{module.__name__} has no {missing}"
    return made


def _is_of_trio(test: Callable[..., Any]) -> bool:
    """True for tests with fixtures in trio's own loop: asyncio has no clock that jumps, for instance."""
    return not {"autojump_clock", "mock_clock", "nursery", "bystander"}.isdisjoint(
        inspect.signature(test).parameters
    )


def _made(module: ModuleType, test: Callable[..., Awaitable[None]], *, quick: bool) -> Callable[..., None]:
    wanted = inspect.signature(test).parameters
    own = {name: made for name in wanted if (made := _generator(vars(module).get(name))) is not None}

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        with _without_trio():
            asyncio.run(_run(test, own, args, fixtures))

    # pytest makes what is left, and what the generators want.
    names = {*wanted, *(name for made in own.values() for name in inspect.signature(made).parameters)}
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in sorted(names - {*own})]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # pytest looks at it
    if not quick:
        run = pytest.mark.torture(pytest.mark.slow(SOME(run)))
    return run


def _generator(fixture: object) -> Callable[..., AsyncIterator[Any]] | None:
    """Returns the asynchronous generator that a fixture of a file is, if it is one."""
    if not isinstance(fixture, FixtureFunctionDefinition):
        return None
    function = fixture._get_wrapped_function()
    return function if inspect.isasyncgenfunction(function) else None


async def _run(
    test: Callable[..., Awaitable[None]],
    own: dict[str, Callable[..., AsyncIterator[Any]]],
    args: tuple[Any, ...],
    fixtures: dict[str, Any],
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        assert not trio.lowlevel.in_trio_run()
        made = {
            name: await stack.enter_async_context(
                asynccontextmanager(function)(**_only(fixtures, inspect.signature(function).parameters))
            )
            for name, function in own.items()
        }
        await test(*args, **_only(fixtures | made, inspect.signature(test).parameters))


def _only(fixtures: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in fixtures.items() if name in names}


@contextmanager
def _without_trio() -> Iterator[None]:
    """Has the files of tests use anyio in the place of trio, but for those that run in the thread."""
    hosted = (__name__, "tests.server.proxies")
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("tests.") and name not in hosted and vars(module).get("trio") is trio:
                patch.setattr(module, "trio", ANYIO)
        yield
