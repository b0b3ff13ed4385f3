"""Waiting for the first match of a pattern, once; and doing something until then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from dataspace.client.coordination.ports import Coordinated
from dataspace.errors import Closed
from dataspace.kernel.epoch_changes import EpochChanges
from dataspace.loops.here import loop
from index.values.values import Value


async def first(space: Coordinated, pattern: Value | str, timeout: float | None) -> tuple[Value, ...]:
    """Returns the captures of a fact that matches, or of the first that comes, a message included.

    Raises ``TimeoutError`` after so many seconds.
    """
    if timeout is None:
        return await _first(space, pattern)
    with loop().move_on_after(timeout):
        return await _first(space, pattern)
    raise TimeoutError(f"nothing has matched within {timeout:g} s")


async def react_until(
    space: Coordinated, pattern: Value | str, work: Callable[..., Awaitable[object]], *args: object
) -> tuple[Value, ...]:
    """Runs ``work(*args)`` until something matches, and returns its captures.

    The work is not begun if there is a match already, and has ended, by a cancellation, when this returns.
    """
    observation = space.watch(pattern)
    try:
        epochs = observation.epochs()
        state = await anext(epochs, None)
        if state is not None and state.added:
            return state.added[0]
        async with loop().open_nursery() as nursery:
            nursery.start_soon(work, *args)
            row = await _next_row(epochs)
            nursery.cancel_scope.cancel()
        return row
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None  # of the work, which is the only task
        raise
    finally:
        observation.close()


async def _first(space: Coordinated, pattern: Value | str) -> tuple[Value, ...]:
    observation = space.watch(pattern)
    try:
        return await _next_row(observation.epochs())
    finally:
        observation.close()


async def _next_row(epochs: AsyncIterator[EpochChanges]) -> tuple[Value, ...]:
    """Returns the captures of the next fact or message."""
    async for epoch in epochs:
        for row in [*epoch.added, *epoch.messages]:
            return row
    raise Closed("the observation has ended")
