"""A machine that asks, peeks, aborts, times out and cuts short in any order, over pipes of any stages.

Every interface has its checker (order of the answers, no value after an end, one end, none twice).  Beside
that: the values come in order with none lost or doubled, whichever requests were withdrawn; the first cause
of an end wins; every request is answered; in the end every stage has closed, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, example, given, settings, strategies as st

from dataspace import streams as s
from dataspace.streams.stages.base import Base
from tests.dataspace.streams.runs import Failure


async def _later(value: int) -> int:
    for _ in range(value % 3):
        await trio.lowlevel.checkpoint()
    return value


def _deferred(stream: Any) -> Any:
    made = s.defer()
    made.resolve(stream)
    return made


THROUGHS: Final[dict[str, Callable[[], list[Any]]]] = {
    "map": lambda: [s.map(lambda n: n)],
    "through": lambda: [s.through()],
    "filter": lambda: [s.filter(lambda n: True)],
    "unique": lambda: [s.unique()],
    "take": lambda: [s.take(1000)],
    "flatten": lambda: [s.map(lambda n: [n]), s.flatten()],
    "flatten streams": lambda: [s.map(lambda n: s.pipe(s.once(n))), s.flatten()],
    "window": lambda: [s.window(1), s.flatten()],
    "batch": lambda: [s.batch(2), s.flatten()],
    "limit": lambda: [s.limit(2)],
    "sequentialize": lambda: [s.sequentialize()],
    "buffer": lambda: [s.buffer(2)],
    "async_map": lambda: [s.async_map(_later)],
    "async_map ahead": lambda: [s.async_map(_later, width=2)],
    "parallelize": lambda: [s.parallelize(2)],
}
SOURCES: Final[dict[str, Callable[[Any], Any]]] = {
    "cat": lambda stream: s.cat(stream, s.pipe(s.empty())),
    "converge": lambda stream: s.converge(s.pipe(s.empty()), stream),
    "merge": lambda stream: s.merge(stream, s.pipe(s.empty())),
    "many": lambda stream: s.many(stream),
    "fork": lambda stream: s.fork_mirror(stream, 1)[0],
    "deal": lambda stream: s.fork_round_robin(stream, 1)[0],
    "defer": _deferred,
}
GOING: Final = ["push"] * 16 + ["read"] * 12 + ["some"] * 5 + ["peek"] * 5 + ["settle"] * 6
CANCELS: Final = [("cancel", at) for at in range(6)]
ENDS: Final = ["end", "fail", "abort", "abort with", "indicate", "indicate with"]
VERBS: Final = st.sampled_from([*GOING, *CANCELS, *ENDS])
"""Ends are rare, or most runs would be short."""


@dataclass
class Request:
    """One request: what it was, what came of it, and how it is cancelled."""

    verb: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    values: list[int] = field(default_factory=list)
    error: Exception | None = None
    answered: bool = False
    promised: bool = False
    after_end: bool = False
    """Whether it was made after this side had ended the stream."""


class Machine:
    """One pipe, its source, and the requests that were made of it."""

    def __init__(self, names: list[str], join: str | None) -> None:
        self.told: list[Any] = []
        self.source = s.pushable(on_end=self.told.append)
        self.closed: list[Any] = []
        self.stages: list[Any] = [s.through(None, self.closed.append)]
        for name in names:
            self.stages += THROUGHS[name]()
        first: Any = self.source
        if join is not None:
            first = SOURCES[join](s.pipe(self.source, s.map(lambda n: n), checked=True))
        self.pipe = s.pipe(first, *self.stages, checked=True)
        self.pushed = 0
        self.causes: list[Any] = []
        """What ended the stream here, in order: None, True or an error."""
        self.aborted = False
        self.requests: list[Request] = []

    async def play(self, verbs: list[Any]) -> None:
        with trio.fail_after(10):
            async with self.pipe, trio.open_nursery() as nursery:
                for verb in verbs:
                    await self.do(verb, nursery)
                await trio.testing.wait_all_tasks_blocked()
                await self.finish()
        self.check()

    async def do(self, verb: Any, nursery: trio.Nursery) -> None:
        match verb:
            case "push":
                if not self.causes:
                    self.source.push(self.pushed)
                    self.pushed += 1
            case "end" | "fail":
                if not self.causes:
                    self.causes.append(None if verb == "end" else Failure("source"))
                    self.source.end(self.causes[0])
            case "settle":
                await trio.testing.wait_all_tasks_blocked()
            case ("cancel", at):
                hanging = [request for request in self.requests if not request.answered]
                if hanging:
                    hanging[at % len(hanging)].scope.cancel()
            case _:
                request = Request(verb, after_end=self.aborted)
                self.requests.append(request)
                started = trio.Event()
                nursery.start_soon(self.ask, request, started)
                await started.wait()

    async def ask(self, request: Request, started: trio.Event) -> None:
        started.set()
        with request.scope:
            try:
                await self.answer(request)
            except s.Violation:
                raise
            except Exception as error:  # noqa: BLE001  # the machine looks at it
                request.error = error
        request.answered = True

    async def answer(self, request: Request) -> None:
        reason: Any = Failure("sink") if request.verb.endswith("with") else True
        match request.verb:
            case "read":
                request.values.append(await self.pipe.read())
            case "some":
                request.values.extend(await self.pipe.read_some(3))
            case "peek":
                request.promised = await self.pipe.peek()
            case "abort" | "abort with":
                self.end_by(reason)
                await self.pipe.abort(reason)
            case _:
                self.end_by(reason)
                self.pipe.abort_nowait(reason)

    def end_by(self, reason: Any) -> None:
        self.aborted = True
        self.causes.append(reason)

    async def finish(self) -> None:
        """Ends the source if nothing has, and reads what is left: everything is answered by then."""
        if not self.causes:
            self.causes.append(None)
            self.source.end()
        for _ in range(self.pushed + 3):
            request = Request("read", after_end=self.aborted)
            self.requests.append(request)
            await self.ask(request, trio.Event())
        await trio.testing.wait_all_tasks_blocked()

    def check(self) -> None:
        assert all(request.answered for request in self.requests), "a request hangs"
        values = [value for request in self.requests for value in request.values]
        assert values == list(range(len(values))), "lost, doubled or out of order"
        if not self.aborted:
            assert len(values) == self.pushed, "lost at the end"
        assert not any(request.values for request in self.requests if request.after_end)
        assert not any(request.promised for request in self.requests if request.after_end)
        self.check_end()
        assert len(self.told) == len(self.closed) == 1
        for stage in [self.source, *self.stages]:
            assert not isinstance(stage, Base) or stage._closed, f"{stage} is open"

    def check_end(self) -> None:
        ends = [request.error for request in self.requests if request.error is not None]
        bare = [error for error in ends if not isinstance(error, s.EndOfStream | s.Aborted)]
        assert len(bare) <= 1, "the error itself comes once"
        reasons = {
            None if isinstance(error, s.EndOfStream) else getattr(error, "reason", error) for error in ends
        }
        if not self.aborted:
            assert {repr(reason) for reason in reasons} == {repr(self.causes[0])}
        else:
            assert len(reasons) <= 1, "the end has changed"
            met = self.causes[0] is None or not isinstance(self.causes[0], bool)
            allowed = {repr(self.causes[0])} | (
                {repr(self.causes[1])} if met and len(self.causes) > 1 else set()
            )
            assert {repr(reason) for reason in reasons} <= allowed, "not the first cause"


def _run(names: list[str], join: str | None, verbs: list[Any]) -> None:
    async def main() -> None:
        await Machine(names, join).play(verbs)

    trio.run(main)


PIPES: Final = st.lists(st.sampled_from(sorted(THROUGHS)), max_size=4)
JOINS: Final = st.none() | st.sampled_from(sorted(SOURCES))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PIPES, JOINS, st.lists(VERBS, max_size=40))
@example(
    ["async_map", "async_map", "async_map ahead"], None, ["read", "abort", "read", ("cancel", 1), "read"]
)
def test_whatever_is_asked_in_whatever_order_the_laws_hold(
    names: list[str], join: str | None, verbs: list[Any]
) -> None:
    _run(names, join, verbs)


@pytest.mark.slow
@pytest.mark.torture(long=True)
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PIPES, JOINS, st.lists(VERBS, max_size=80))
def test_the_laws_hold_for_long(names: list[str], join: str | None, verbs: list[Any]) -> None:
    _run(names, join, verbs)
