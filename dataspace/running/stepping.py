"""Stepping: runs a linked task step by step, so that the watchdog can name a task that does not yield.

It is apart from the shell because it drives a coroutine by hand.

Always: awaits, exceptions and results are the same as without it.
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
    """Awaits a function and returns its result; during each step ``engine.stepping`` is its actor."""

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
        except BaseException as thrown:  # noqa: BLE001  # it is for the function, whatever it is
            resume, value = coroutine.throw, thrown
