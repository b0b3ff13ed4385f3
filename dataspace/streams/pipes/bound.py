"""A link: one stage bound to what is before it, with nothing in between.

``read`` of a link is the stage's own coroutine: binding costs no frame for each value.  A stage without
``read_some`` gets one that reads a single value, so that whoever reads need not ask.

Always: a link has the shape of ``Upstream`` and holds no state.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from dataspace.streams.stages.marks import Reason
from dataspace.streams.stages.protocol import AnyStage, Upstream

T = TypeVar("T")
Answer = Coroutine[Any, Any, T]


class Nothing:
    """What a source is given to read from: reading it is the pipe's mistake, so it has no members."""


NOTHING: Any = Nothing()


class Link(Generic[T]):
    """A stage and its upstream as one ``Upstream``."""

    __slots__ = ("abort_nowait", "read", "read_some", "stage", "_abort", "_peek")

    def __init__(self, stage: AnyStage, source: Upstream[Any]) -> None:
        self.stage = stage
        self.read: Callable[[], Answer[T]] = partial(stage.read, source)
        some = getattr(stage, "read_some", None)
        self.read_some: Callable[[int], Answer[list[T]]] = (
            self._read_one if some is None else partial(some, source=source)
        )
        self._peek = partial(stage.peek, source)
        self._abort = partial(stage.abort, source=source)
        self.abort_nowait: Callable[..., None] = _Indication(stage, source)

    async def _read_one(self, _limit: int) -> list[T]:
        return [await self.read()]

    async def peek(self) -> bool:
        return await self._peek()

    async def abort(self, reason: Reason = True) -> None:
        await self._abort(reason)


class _Indication:
    """``abort_nowait`` of a stage, with its default."""

    __slots__ = ("_source", "_stage")

    def __init__(self, stage: AnyStage, source: Upstream[Any]) -> None:
        self._stage = stage
        self._source = source

    def __call__(self, reason: Reason = True) -> None:
        self._stage.abort_nowait(reason, self._source)
