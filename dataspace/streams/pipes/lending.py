"""Lending: borrowers process the values of a stream, and the results come in the order of the values.

``lend(stream)`` is a source of results.  A borrower reads values and answers each, in order; when one ends,
for any reason, the values that it has not answered are lent to the others.

Always: each value has one result; the stream is read only when a borrower requests a value; at most ``ahead``
values are lent or unanswered.  (pull-lend-stream.)
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from dataspace.errors import UsageError
from dataspace.loops.here import parking_lot
from dataspace.streams.sources.pulled import Source
from dataspace.streams.stages.base import check_stream, deeper
from dataspace.streams.stages.functions import is_count
from dataspace.streams.stages.protocol import End, EndOfStream, Iteration, Reason, Upstream

T = TypeVar("T")
R = TypeVar("R")


class Loan(Generic[T, R]):
    """A value that is lent, and its result."""

    __slots__ = ("done", "result", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self.done = False
        self.result: R


class Borrower(Source[T], Iteration[T], Generic[T, R]):
    """A stream of values to answer; as a block, it returns at its end what was not answered."""

    def __init__(self, lender: Lender[T, R]) -> None:
        super().__init__("borrower")
        self._lender = lender
        self._loans: Final[deque[Loan[T, R]]] = deque()

    def answer(self, result: R) -> None:
        """Sets the result of the oldest value that was read and not answered."""
        if not self._loans:
            raise UsageError("no value is lent to this borrower")
        self._lender.answer(self._loans.popleft(), result)

    async def _fetch(self) -> None:
        loan = await self._lender.next_loan()
        self._loans.append(loan)
        self._held.append(loan.value)

    def _close(self, reason: Reason | None) -> None:
        if reason is not None:
            self._lender.take_back(self._loans)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.abort_nowait(True)
        self._lender.take_back(self._loans)


class Lender(Source[R], Generic[T, R]):
    """The source of results; ``borrow()`` returns a borrower."""

    def __init__(self, stream: Upstream[T], ahead: int) -> None:
        super().__init__("lend")
        self.frames: Final = deeper([stream], "lend")
        self._stream = stream
        self._ahead = ahead
        self._out: Final[deque[Loan[T, R]]] = deque()
        """All loans whose result was not read yet, in the order of the values."""
        self._returned: Final[deque[Loan[T, R]]] = deque()
        self._upstream_end: End | None = None
        self._reading = False
        self._change: Final = parking_lot()

    def borrow(self) -> Borrower[T, R]:
        """Returns a stream of values for one worker; there may be any number of workers."""
        return Borrower(self)

    # -- for borrowers --------------------------------------------------------------------------------

    async def next_loan(self) -> Loan[T, R]:
        """Returns a value that was returned, or the next of the stream; waits while too many are lent."""
        while True:
            if self._returned:
                return self._returned.popleft()
            if self._is_over():
                raise EndOfStream
            if self._reading or self._upstream_end is not None or len(self._out) >= self._ahead:
                await self._change.park()  # until a value comes or is returned, or all have been answered
            else:
                await self._read()

    def _is_over(self) -> bool:
        """True if nothing can be lent any more."""
        return self._end is not None or (self._upstream_end is not None and not self._out)

    async def _read(self) -> None:
        self._reading = True
        try:
            loan: Loan[T, R] = Loan(await self._stream.read())
        except Exception as error:  # noqa: BLE001  # the reader of the results raises it, after the results
            self._upstream_end = End.met(error)
        else:
            self._out.append(loan)
            self._returned.append(loan)
        finally:
            self._reading = False
            self._change.unpark_all()

    def answer(self, loan: Loan[T, R], result: R) -> None:
        """Notes the answer of a borrower."""
        loan.result, loan.done = result, True
        self._change.unpark_all()

    def take_back(self, loans: deque[Loan[T, R]]) -> None:
        """Takes back the loans of a borrower that has ended: they are lent again, before new values."""
        self._returned.extendleft(reversed(loans))
        loans.clear()
        self._change.unpark_all()

    # -- as a source ----------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        while not (self._out and self._out[0].done):
            if self._upstream_end is not None and not self._out:
                reason = self._upstream_end.reason
                raise EndOfStream if reason is None else self._upstream_end.next()
            await self._change.park()
        self._held.append(self._out.popleft().result)
        self._change.unpark_all()

    def _drop(self) -> None:
        super()._drop()
        self._change.unpark_all()

    async def _teardown(self, reason: Reason) -> None:
        if self._upstream_end is None:
            await self._stream.abort(reason)

    def _indicate(self, reason: Reason) -> None:
        if self._upstream_end is None:
            self._stream.abort_nowait(reason)


def lend(stream: Upstream[Any], *, ahead: int = 64) -> Lender[Any, Any]:
    """Returns a source of the results of workers that borrow values, in the order of the values."""
    check_stream(stream, "lend")
    if not is_count(ahead):
        raise UsageError(f"at least one value must be out, ahead {ahead}")
    return Lender(stream, ahead)
