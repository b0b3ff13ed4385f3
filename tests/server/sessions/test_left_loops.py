"""A loop over an observation that is left ends the observation: no stream and no interest stays behind."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
import trio

import dataspace
from dataspace import Record, RemoteSpace
from tests.dataspace.client.test_typed import Reading

PATTERN: Final = "reading($device, $value)"

LOOPS: Final[dict[str, Callable[[RemoteSpace], AsyncIterator[Any]]]] = {
    "changes": lambda space: space.observe(PATTERN),
    "epochs": lambda space: space.observe(PATTERN).epochs(),
    "rows": lambda space: space.observe(PATTERN, row=Reading),
    "epochs of rows": lambda space: space.observe(PATTERN, row=Reading).epochs(),
    "quiet": lambda space: space.watch(PATTERN),
    "the past": lambda space: space.observe(PATTERN, after=0, policy="wait"),
    "no credit": lambda space: space.observe(PATTERN, window=0),
}


async def _is_free(space: RemoteSpace) -> None:
    """Waits until the daemon has no stream of any client, and no interest."""
    with trio.fail_after(10):
        while (await space.status())["streams"] or await space.matches("Observe(reading($d, $v))"):  # noqa: ASYNC110
            await trio.sleep(0.01)  # no event tells it


async def _left(make: Callable[[], AsyncIterator[Any]]) -> None:
    async for _ in make():
        break


async def _raised(make: Callable[[], AsyncIterator[Any]]) -> None:
    with pytest.raises(ZeroDivisionError):
        async for _ in make():
            raise ZeroDivisionError


async def _cancelled(make: Callable[[], AsyncIterator[Any]]) -> None:
    with trio.move_on_after(0.05):
        async for _ in make():
            await trio.sleep_forever()


async def _read_once(make: Callable[[], AsyncIterator[Any]]) -> None:
    await anext(make())


WAYS: Final[list[Callable[[Callable[[], AsyncIterator[Any]]], Awaitable[None]]]] = [
    _left,
    _raised,
    _cancelled,
    _read_once,
]


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_that_is_left_leaves_nothing(url: str, name: str) -> None:
    async with dataspace.connect(url) as space:
        await space.assert_(Record("reading", "d1", 1.0))
        for leave in WAYS:
            await leave(lambda: LOOPS[name](space))
        gc.collect()  # the errors above have frames, which keep the loops
        await _is_free(space)
        async for _ in LOOPS[name](space):
            break
        assert space.session.is_open


async def test_a_loop_may_go_on_where_it_was_left(url: str) -> None:
    async with dataspace.connect(url) as space:
        for number in range(4):
            await space.assert_(Record("reading", f"d{number}", 1.0))
        seen: list[Any] = []
        changes = space.observe("reading($device, $)")
        for _ in range(2):
            async for change in changes:
                seen.append(change.device)
                break
        epochs = changes.epochs()
        del changes, change
        gc.collect()
        await space.assert_(Record("reading", "d9", 1.0))
        seen += [row[0] for epoch in [await anext(epochs)] for row in epoch.added]
        assert len(seen) == 3 and seen[2] == "d9"
        epochs.abort_nowait()
        await _is_free(space)


async def test_loops_that_are_left_while_the_connection_is_lost(url: str, proxy: Any) -> None:
    async with dataspace.connect(url) as witness, dataspace.connect(proxy.url, grace=20) as space:
        await space.assert_(Record("reading", "d1", 1.0))
        async for _ in space.observe(PATTERN):
            proxy.refusing = True
            proxy.cut()
            break
        gc.collect()
        proxy.refusing = False
        await space.sync()
        await _is_free(witness)


async def test_a_blocking_loop_that_is_left_leaves_nothing(url: str) -> None:
    def loops() -> None:
        with dataspace.connect_blocking(url) as space:
            space.assert_(Record("reading", "d1", 1.0))
            for _ in range(3):
                for _ in space.observe(PATTERN):
                    break
                for _ in space.observe(PATTERN, row=Reading).epochs():
                    break
            gc.collect()
            space.call(_is_free)

    await trio.to_thread.run_sync(loops)
