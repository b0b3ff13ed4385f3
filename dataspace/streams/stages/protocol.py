"""The protocol of streams: the offers of a stage, and the upstream that it is given to read from.

Any object with the members of ``Stage`` is one; no base class is needed, and nothing is registered.  A stage
is given its upstream anew with each call, so that it holds nothing but its own state; ``pipe`` binds stages
one after the other and hands each the ``Upstream`` before it.

    read         one value, or raises a mark or an error; asked for again before it has answered, it
                 answers in the order of the asks
    peek         True reserves one value for a read to come; False at the end; never raises
    abort        ends the stream, aborts upstream and returns when that is confirmed
    abort_nowait the same as an indication: waits for nothing and has no answer
    read_some    (optional) at least one value and at most ``limit``: what is at hand

Always: no value without a read (streams are lazy); no value after the end; a reader that stops waiting, by a
timeout or otherwise, has withdrawn the request and lost nothing.  STREAMS.md has the rules one by one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from dataspace.streams.stages.marks import EndOfStream, Reason

VERSION: Final = 0
"""The version of the Promistream draft that this follows."""

T_co = TypeVar("T_co", covariant=True)
In_contra = TypeVar("In_contra", contravariant=True)


class Upstream(Protocol[T_co]):
    """A stream that is bound to all before it: what a stage, or its user, reads from."""

    async def read(self) -> T_co: ...

    async def read_some(self, limit: int) -> Sequence[T_co]: ...

    async def peek(self) -> bool: ...

    async def abort(self, reason: Reason = True) -> None: ...

    def abort_nowait(self, reason: Reason = True) -> None: ...


class Stage(Protocol[In_contra, T_co]):
    """One element of a pipe: a source, a through or a sink.  A source ignores what it is given to read."""

    @property
    def promistream_version(self) -> int: ...

    @property
    def description(self) -> str: ...

    async def read(self, source: Upstream[In_contra]) -> T_co: ...

    async def peek(self, source: Upstream[In_contra]) -> bool: ...

    async def abort(self, reason: Reason, source: Upstream[In_contra]) -> None: ...

    def abort_nowait(self, reason: Reason, source: Upstream[In_contra]) -> None: ...


AnyStage = Stage[Any, Any]


# -- iteration -------------------------------------------------------------------------------------


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
