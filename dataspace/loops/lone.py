"""Tasks whose one error is raised by itself, and not in an exception group.

A nursery puts the error of a task into a group, which ``except DataspaceError`` does not catch.  A call that
uses tasks should raise one error, as any other call does.

Always: a group is raised only if different tasks have raised different errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dataspace.loops.here import loop
from dataspace.loops.primitives import Nursery


@asynccontextmanager
async def lone_nursery() -> AsyncIterator[Nursery]:
    """A nursery of the running loop that raises one error as it is, however many tasks have raised it."""
    try:
        async with loop().open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        error = alone(group)
        raise error from error.__cause__  # the cause is kept, without the group as the context


def alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the one error in a group, however deeply nested and however often; else the group itself.

    The end of a connection raises the same error in every task that waits for an answer; the caller gets it
    once.
    """
    seen: set[object] = set()
    error: BaseException = group
    kept = group.subgroup(lambda leaf: not isinstance(leaf, BaseExceptionGroup) and _is_new(seen, leaf))
    if kept is not None:
        error = kept
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _is_new(seen: set[object], error: BaseException) -> bool:
    what = (type(error), str(error))
    new = what not in seen
    seen.add(what)
    return new
