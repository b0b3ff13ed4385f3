"""One run of the protocol: a scripted sink at the end of stages of which every interface is watched.

A schedule is a text: ``a`` asks, ``s`` asks for some, ``p`` peeks, ``x`` aborts, ``e`` fails, ``i``
indicates an abort, ``f`` indicates a failure; each request is made in a task of its own as soon as the
one before has been made (overtaking it) or after it has been answered.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise
from typing import Any, ClassVar

import trio

from dataspace import streams as s
from dataspace.streams.pipes.pipes import NOTHING, BoundStage
from dataspace.streams.stages.protocol import AnyStage, EndOfStream


class Scripted(s.Source[int]):
    """0 … n-1 and an end of a certain kind, at once or each after a wait."""

    def __init__(self, number: int, end: Exception | None, waits: bool) -> None:
        super().__init__("scripted")
        self.number = number
        self.failing = end is not None
        self._values = deque(range(number))
        self._last = end
        self._waits = waits
        self.closed: list[object] = []

    async def _fetch(self) -> None:
        if self._waits:
            await trio.lowlevel.checkpoint()
        if self._values:
            self._held.append(self._values.popleft())
        elif self._last is not None:
            raise self._last
        else:
            raise EndOfStream

    def _close(self, reason: object) -> None:
        self.closed.append(reason)


class Naive:
    """A stage by its shape alone, as the Promistream draft has it: passes all on."""

    promistream_version: ClassVar[int] = 0
    description: ClassVar[str] = "naive"

    async def read(self, source: Any) -> Any:
        return await source.read()

    async def peek(self, source: Any) -> bool:
        return bool(await source.peek())

    async def abort(self, reason: Any, source: Any) -> None:
        await source.abort(reason)

    def abort_nowait(self, reason: Any, source: Any) -> None:
        source.abort_nowait(reason)


class Failure(Exception):
    """What goes wrong in these runs."""


class Run:
    """What one run saw: the answers in the order in which they came, and the checkers."""

    def __init__(self, stages: list[AnyStage]) -> None:
        calm = [s.check(stage, calm=not isinstance(after, Naive)) for stage, after in pairwise(stages)]
        self.checkers = [*calm, s.check(stages[-1])]
        self.answers: list[tuple[int, str, Any]] = []
        source: Any = NOTHING
        for checker in self.checkers:
            source = BoundStage(checker, source)
        self.sink: BoundStage[Any] = source

    async def play(self, schedule: str, *, overtakes: bool) -> None:
        async with trio.open_nursery() as nursery:
            for checker in self.checkers:
                if getattr(checker, "needs_tasks", False):
                    checker.stage.enter(nursery)  # type: ignore[attr-defined]  # those have it
            await self._requests(schedule, overtakes)
            nursery.cancel_scope.cancel()
        for checker in self.checkers:
            checker.check_over()

    async def _requests(self, schedule: str, overtakes: bool) -> None:
        async with trio.open_nursery() as nursery:
            for number, verb in enumerate(schedule):
                if overtakes:
                    started = trio.Event()
                    nursery.start_soon(self._request, number, verb, started)
                    await started.wait()
                else:
                    await self._request(number, verb, trio.Event())

    async def _request(self, number: int, verb: str, started: trio.Event) -> None:
        started.set()
        try:
            self.answers.append((number, "value", await self._ask(verb)))
        except Exception as error:
            if isinstance(error, AssertionError):
                raise
            self.answers.append((number, type(error).__name__, error))

    async def _ask(self, verb: str) -> Any:
        match verb:
            case "a":
                return await self.sink.read()
            case "s":
                return await self.sink.read_some(3)
            case "p":
                return await self.sink.peek()
            case "x":
                return await self.sink.abort(True)
            case "e":
                return await self.sink.abort(Failure("sink"))
            case "i":
                return self.sink.abort_nowait(True)
            case "f":
                return self.sink.abort_nowait(Failure("sink"))
        raise AssertionError(verb)

    @property
    def kinds(self) -> Counter[str]:
        return Counter(kind for _, kind, _ in self.answers)
