"""A link: one stage bound to what is before it, with nothing in between.

``read`` of a link is the stage's own coroutine: binding costs no frame for each value.  A stage without
``read_some`` gets a method that reads a single value, so that readers need not check for it.

Always: a link has the shape of ``Upstream`` and holds no state.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, TypeVar

from dataspace.errors import UsageError
from dataspace.streams.stages.marks import Reason
from dataspace.streams.stages.protocol import AnyStage, Upstream

T = TypeVar("T")
Answer = Coroutine[Any, Any, T]


class Nothing:
    """The upstream of a source: it has no values, and ending it does nothing."""

    async def read(self) -> Any:
        raise UsageError(
            "there is no stage before this one to read from: a pipe that is read begins with a source"
        )

    async def read_some(self, limit: int) -> Any:
        return await self.read()

    async def peek(self) -> bool:
        return False

    async def abort(self, reason: Reason = True) -> None:
        pass

    def abort_nowait(self, reason: Reason = True) -> None:
        pass


NOTHING: Final[Any] = Nothing()


class BoundStage(Generic[T]):
    """A stage and its upstream as one ``Upstream``."""

    __slots__ = ("abort", "abort_nowait", "peek", "read", "read_some", "stage")

    def __init__(self, stage: AnyStage, source: Upstream[Any]) -> None:
        self.stage = stage
        self.read: Callable[[], Answer[T]] = partial(stage.read, source)
        some = getattr(stage, "read_some", None)
        self.read_some: Callable[[int], Answer[list[T]]] = (
            self._read_one if some is None else partial(some, source=source)
        )
        self.peek: Callable[[], Answer[bool]] = partial(stage.peek, source)
        self.abort: Callable[..., Answer[None]] = _ending(stage.abort, source)
        self.abort_nowait: Callable[..., None] = _ending(stage.abort_nowait, source)

    async def _read_one(self, _limit: int) -> list[T]:
        return [await self.read()]


def _ending(call: Callable[[Reason, Upstream[Any]], T], source: Upstream[Any]) -> Callable[..., T]:
    """Returns ``abort`` or ``abort_nowait`` of a stage, with its default; a closure takes one frame and not
    two."""

    def end(reason: Reason = True) -> T:
        return call(reason, source)

    return end
