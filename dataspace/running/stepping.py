"""Stepping: a linked task is run step by step, so that it can be said which one does not let others run.

It is apart from the shell because it looks into a coroutine, as nothing else here does.

Always: what is awaited, raised and returned is what it would be without this.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor
    from dataspace.actors.engine.engine import Engine
    from dataspace.actors.engine.ports import AsyncFunction


async def stepped(engine: Engine, actor: Actor, function: AsyncFunction, *args: object) -> object:
    """Awaits a function; ``engine.stepping`` is its actor while it runs, and does not wait."""

    async def whole() -> object:
        return await function(*args)

    return await _drive(engine, actor, whole())


@types.coroutine
def _drive(
    engine: Engine, actor: Actor, coroutine: Coroutine[Any, Any, object]
) -> Generator[Any, Any, object]:
    resume, value = coroutine.send, None
    while True:
        engine.steps += 1
        engine.stepping = actor
        try:
            wanted = resume(value)
        except StopIteration as end:
            return end.value
        finally:
            engine.stepping = None
        try:
            resume, value = coroutine.send, (yield wanted)
        except BaseException as thrown:  # noqa: BLE001  # whatever it is, it is for the function
            resume, value = coroutine.throw, thrown
