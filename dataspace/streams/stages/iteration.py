"""Iteration: a stream in ``async for``, where its end ends the loop and any other mark is raised."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Generic, Protocol, Self, TypeVar

from dataspace.streams.stages.marks import EndOfStream

T_co = TypeVar("T_co", covariant=True)


class _Readable(Protocol[T_co]):
    def read(self) -> Awaitable[T_co]: ...


class Iteration(Generic[T_co]):
    """Adds iteration to a class with ``read``, for streams that applications read directly."""

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self: _Readable[T_co]) -> T_co:
        try:
            return await self.read()
        except EndOfStream:
            raise StopAsyncIteration from None
