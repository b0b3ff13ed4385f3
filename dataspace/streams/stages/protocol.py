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
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

import trio

from dataspace.errors import UsageError

# -- Marks -----------------------------------------------------------------------------------------
# A mark is raised by a read, never returned, so that every value (``None`` included) can travel.
# There are two: ``EndOfStream``, the source has come to its end; and ``Aborted``, the stream was
# ended early, on purpose (``reason`` is True) or because of an error (``reason`` is that error).
# They are trio's exceptions for the same two things, so that a stream can stand wherever a receive
# channel can.
#
# An ``End`` is the state of a stage that has ended.
#
# Always: the first cause of an end wins; a mark is new each time it is raised. (Promistream, "Types
# of stream ending"; pull-stream, the states of a stream.)


Reason: TypeAlias = Exception | Literal[True]
"""The reason of an abort: True where nothing is wrong, or the error."""


class Mark(Exception):
    """The end of a stream, of either kind; a stage that passes values on passes marks on as well."""


class EndOfStream(Mark, trio.EndOfChannel):
    """The source has come to its end, and all values buffered on the way have been read."""


class Aborted(Mark, trio.ClosedResourceError):
    """The stream was ended early: ``reason`` is True where that was intended, or the error."""

    def __init__(self, reason: Reason = True) -> None:
        super().__init__(reason)
        self.reason: Final = reason
        self.__suppress_context__ = True  # a stage raises its own while it handles that of the stage before
        if isinstance(reason, Exception):
            self.__cause__ = reason

    def __str__(self) -> str:
        return "the stream was aborted" if self.reason is True else f"the stream failed: {self.reason!r}"


def check_reason(reason: Reason) -> None:
    """Raises ``UsageError`` for a reason that is neither True nor an exception."""
    if reason is not True and not isinstance(reason, Exception):
        raise UsageError(f"the reason of an abort is True or an exception, got {reason!r:.80}")


SIGNALS: Final = (Mark, StopIteration, StopAsyncIteration)
"""Exceptions that mean an end to a reader, here or in Python, and so must not come out of a stage's own
code."""


def own_error(error: Exception, where: str) -> Exception:
    """Returns the exception to raise for an error of a stage's own code: itself, unless it would be taken for
    an end.

    Python does the same for a generator that raises ``StopIteration`` (PEP 479).

    >>> own_error(EndOfStream(), "map(f)")
    UsageError('map(f) raised EndOfStream() in its own code, where it would pass for the end of the stream')
    """
    if not isinstance(error, SIGNALS):
        return error
    failure = UsageError(
        f"{where} raised {error!r} in its own code, where it would pass for the end of the stream"
    )
    failure.__cause__ = error
    return failure


class End:
    """The end of a stage: the cause, and an error that no read has raised yet.

    The first read after an error gets the error itself and only the later ones a mark; a mark that is raised
    twice keeps its first traceback.

    >>> end = End(ValueError("no"), owed=True)
    >>> end.next(), end.next()
    (ValueError('no'), Aborted(ValueError('no')))
    """

    __slots__ = ("_owed", "reason", "dropped")

    def __init__(self, reason: Reason | None, *, owed: bool = False, dropped: bool = False) -> None:
        self.reason: Final = reason
        """None if the source came to its end."""
        self.dropped: Final = dropped
        """True if the end came from downstream: buffered values are dropped then, not drained."""
        self._owed = owed and not isinstance(
            reason, SIGNALS
        )  # raised bare, one of those would be taken for an end

    @classmethod
    def met(cls, error: Exception) -> End:
        """Returns the end for what a read of upstream has raised."""
        if isinstance(error, EndOfStream):
            return cls(None)
        if isinstance(error, Aborted):
            return cls(error.reason)
        return cls(error, owed=True)

    def next(self) -> Exception:
        """Returns what the next read must raise: the error itself once, if no read has raised it, else a
        mark."""
        if self._owed and isinstance(self.reason, Exception):
            self._owed = False
            return self.reason
        return EndOfStream() if self.reason is None else Aborted(self.reason)

    def __repr__(self) -> str:
        return f"<End {'of stream' if self.reason is None else repr(self.reason)}>"


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
