"""Waiting for the first match of a pattern, once."""

from __future__ import annotations

from dataspace.client.coordination.ports import Coordinated
from dataspace.errors import Closed
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


async def _first(space: Coordinated, pattern: Value | str) -> tuple[Value, ...]:
    observation = space.watch(pattern)
    try:
        async for epoch in observation.epochs():
            for row in [*epoch.added, *epoch.messages]:
                return row
    finally:
        observation.close()
    raise Closed("the observation has ended")
