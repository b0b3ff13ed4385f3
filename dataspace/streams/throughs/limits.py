"""Throughs that hold reads back: limit, sequentialize, rate_limit.

Values pass as they are.  Only the *request* is held back: nothing has been taken from upstream while it
waits, so a reader that is cancelled loses nothing.

Always: requests go upstream in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeVar

from dataspace.errors import UsageError
from dataspace.loops.here import loop
from dataspace.loops.primitives import Scope, Waker
from dataspace.streams.stages.functions import is_count
from dataspace.streams.stages.protocol import Upstream
from dataspace.streams.throughs.base import Abreast, Transform

T = TypeVar("T")


class Limit(Abreast[T]):
    """Allows at most so many reads at once; the others wait here."""

    def __init__(self, number: int, description: str) -> None:
        super().__init__(description)
        self._number = number
        self._inside = 0
        self._gate: Final[deque[Waker]] = deque()

    async def read(self, source: Upstream[T]) -> T:
        ticket = self._line.join()
        try:
            if self._end is not None:
                await self._line.wait_turn(ticket)
                raise self._end.next()
            left = await self._left(ticket, 1) if self._left_behind else None
            return (left or await self._read_inside(ticket, source))[0]
        finally:
            self._line.leave(ticket)

    async def read_some(self, limit: int, source: Upstream[T]) -> list[T]:
        return [await self.read(source)]

    async def _read_inside(self, ticket: int, source: Upstream[T]) -> list[T]:
        await self._pass_gate()
        values: tuple[T, ...] = ()
        error: Exception | None = None
        try:
            if self._end is None:
                values = (await source.read(),)
        except Exception as raised:  # noqa: BLE001  # passed on, in its turn
            error = raised
        finally:
            self._leave_gate()
        return await self._in_turn(ticket, 1, values, error)

    async def _pass_gate(self) -> None:
        if self._inside < self._number:
            self._inside += 1
            return
        waker = loop().waker()
        self._gate.append(waker)
        await waker.wait(lambda: self._gate.remove(waker), self._leave_gate)

    def _leave_gate(self) -> None:
        """Gives the place of a request to the request that has waited longest."""
        if self._gate:
            self._gate.popleft().wake()
        else:
            self._inside -= 1

    def _drop(self) -> None:
        super()._drop()
        self._inside += len(self._gate)
        while self._gate:
            self._gate.popleft().wake()


def limit(number: int) -> Limit[Any]:
    """Returns a through that makes at most ``number`` reads of upstream at once; others wait in order."""
    if not is_count(number):
        raise UsageError(f"at least one read must pass, limit {number}")
    return Limit(number, f"limit({number})")


def sequentialize() -> Limit[Any]:
    """Returns a through that makes one read of upstream at a time, for stages that cannot work on several."""
    return Limit(1, "sequentialize")


class RateLimit(Transform[T, T]):
    """Allows so many values in a time, in bursts of so many at the most."""

    def __init__(self, number: int, seconds: float) -> None:
        super().__init__(f"rate_limit({number} in {seconds} s)")
        self._number = number
        self._seconds = seconds
        self._began = -1.0
        self._passed = 0
        self._sleeping: Scope | None = None

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
            with loop().scope() as self._sleeping:
                await loop().sleep(max(0.0, self._began + self._seconds - loop().current_time()))
            self._sleeping = None
        now = loop().current_time()
        if self._began < 0 or now >= self._began + self._seconds:
            self._began, self._passed = now, 0

    def _drop(self) -> None:
        super()._drop()
        if self._sleeping is not None:
            self._sleeping.cancel()


def rate_limit(number: int, seconds: float = 1.0) -> RateLimit[Any]:
    """Returns a through that passes on at most ``number`` values in ``seconds`` and reads none earlier."""
    if not is_count(number) or not seconds > 0:
        raise UsageError(f"rate_limit needs a number and a time above 0, got {number} in {seconds} s")
    return RateLimit(number, seconds)
