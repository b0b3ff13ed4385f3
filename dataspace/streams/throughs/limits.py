"""Throughs that hold reads back: limit, sequentialize, rate_limit.

Values pass as they are.  What is held back is the *request*: nothing has been taken from upstream while it
waits, so a reader that goes away loses nothing.

Always: requests go upstream in the order in which they came.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import trio

from dataspace.errors import UsageError
from dataspace.streams.stages.protocol import Upstream
from dataspace.streams.throughs.base import Map, Transform

T = TypeVar("T")


class Limit(Map[T, T]):
    """At most so many reads at once; the others wait here."""

    def __init__(self, number: int, description: str) -> None:
        super().__init__(_same, description)
        self._number = number
        self._inside = 0
        self._gate: Final = trio.lowlevel.ParkingLot()

    async def read(self, source: Upstream[T]) -> T:
        ticket = self._line.join()
        try:
            await self._pass_gate()
            try:
                value = await self._read_inside(ticket, source)
            finally:
                self._leave_gate()
            await self._line.wait_exit(ticket)
            if self._end is not None:
                raise self._end.next()
            return value
        finally:
            self._line.leave(ticket)

    async def read_some(self, limit: int, source: Upstream[T]) -> list[T]:
        return [await self.read(source)]

    async def _read_inside(self, ticket: int, source: Upstream[T]) -> T:
        error: Exception
        if self._end is None:
            try:
                return await source.read()
            except Exception as raised:  # noqa: BLE001  # passed on, in its turn
                error = raised
            await self._line.wait_exit(ticket)
            raise self._met(error)
        await self._line.wait_exit(ticket)
        raise self._end.next()

    async def _pass_gate(self) -> None:
        if self._inside >= self._number:
            await self._gate.park()  # who leaves hands its place over
        else:
            self._inside += 1

    def _leave_gate(self) -> None:
        if not self._gate.unpark():
            self._inside -= 1

    def _drop(self) -> None:
        self._inside += len(self._gate)
        self._gate.unpark_all()


def limit(number: int) -> Limit[Any]:
    """At most ``number`` reads of upstream at once; more wait in order."""
    if number < 1:
        raise UsageError(f"at least one read must pass, limit {number}")
    return Limit(number, f"limit({number})")


def sequentialize() -> Limit[Any]:
    """One read of upstream at a time: in front of it stands what cannot work on several."""
    return Limit(1, "sequentialize")


class RateLimit(Transform[T, T]):
    """So many values in a time, in bursts of so many at the most."""

    def __init__(self, number: int, seconds: float) -> None:
        super().__init__(f"rate_limit({number} in {seconds} s)")
        self._number = number
        self._seconds = seconds
        self._began = -1.0
        self._passed = 0
        self._sleeping: trio.CancelScope | None = None

    def _feed(self, value: T) -> None:
        self._held.append(value)
        self._passed += 1

    def _appetite(self, limit: int) -> int:
        return min(limit, self._number - self._passed)

    async def read(self, source: Upstream[T]) -> T:
        return (await self.read_some(1, source))[0]

    async def _feed_some(self, limit: int, source: Upstream[T]) -> None:
        await self._wait_allowed()
        if self._end is None:
            await super()._feed_some(limit, source)

    async def _wait_allowed(self) -> None:
        """Sleeps to the end of a period that is used up; an abort wakes it."""
        if self._passed >= self._number:
            with trio.CancelScope() as self._sleeping:
                await trio.sleep_until(self._began + self._seconds)
            self._sleeping = None
        now = trio.current_time()
        if self._began < 0 or now >= self._began + self._seconds:
            self._began, self._passed = now, 0

    def _drop(self) -> None:
        super()._drop()
        if self._sleeping is not None:
            self._sleeping.cancel()


def rate_limit(number: int, seconds: float = 1.0) -> RateLimit[Any]:
    """At most ``number`` values in ``seconds``; upstream is not asked before it may be."""
    if number < 1 or seconds <= 0:
        raise UsageError(f"rate_limit needs a number and a time above 0, got {number} in {seconds} s")
    return RateLimit(number, seconds)


def _same(value: T) -> T:
    return value
