"""Handlers are called when they should be, in no pass for too long, and never before their deadline."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise, product
from math import inf

import pytest
import trio
import trio.lowlevel

from dataspace.transport.reactor import MOST, PASS_SECONDS, READ, TICK, WRITE, Deadline, Reactor


class Noted:
    """A handler that notes its calls, and may do something at each."""

    def __init__(self, act: Callable[[int], None] = lambda _events: None) -> None:
        self.events: list[int] = []
        self._act = act

    def ready(self, events: int) -> None:
        self.events.append(events)
        self._act(events)


@asynccontextmanager
async def running(reactor: Reactor) -> AsyncIterator[Reactor]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reactor.run)
        yield reactor
        nursery.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not holds():  # noqa: ASYNC110  # the events are the reactor's own
            await trio.sleep(0.001)


@pytest.mark.parametrize(("readable", "events"), [*product((False, True), (READ, WRITE, READ | WRITE))])
async def test_a_handler_gets_the_events_that_it_waits_for(readable: bool, events: int) -> None:
    ours, theirs = socket.socketpair()
    reactor = Reactor()
    handler = Noted(lambda _events: reactor.unregister(ours.fileno()))
    expected = events & (READ * readable | WRITE)
    with ours, theirs:
        if readable:
            theirs.send(b"x")
        reactor.register(ours.fileno(), handler, events)
        async with running(reactor):
            if expected:
                await until(lambda: bool(handler.events))
            else:
                await trio.sleep(0.02)
                reactor.unregister(ours.fileno())
    assert handler.events == [expected] * bool(expected)


async def test_an_end_is_an_event_and_other_events_can_be_waited_for_later() -> None:
    ours, theirs = socket.socketpair()
    reactor, handler = Reactor(), Noted(lambda _events: reactor.unregister(ours.fileno()))
    with ours, theirs:
        reactor.register(ours.fileno(), handler, READ)
        async with running(reactor):
            await trio.sleep(0.01)
            assert not handler.events
            reactor.modify(ours.fileno(), WRITE)
            await until(lambda: handler.events == [WRITE])
            reactor.register(ours.fileno(), handler, READ)
            theirs.close()
            await until(lambda: len(handler.events) == 2)
    assert handler.events[1] & READ, "as the end can be read"


async def test_every_ready_socket_has_its_turn_though_a_pass_is_short() -> None:
    pairs = [socket.socketpair() for _ in range(MOST + 10)]
    reactor, passes = Reactor(), []
    calls = [0] * len(pairs)

    def work(at: int) -> Callable[[int], None]:
        def act(_events: int) -> None:
            calls[at] += 1
            time.sleep(PASS_SECONDS / 3)  # blocks the loop, as a large turn would

        return act

    for at, (ours, theirs) in enumerate(pairs):
        theirs.send(b"x")
        reactor.register(ours.fileno(), Noted(work(at)), READ)  # never read, so always ready
    async with running(reactor):
        with trio.fail_after(60):
            while not all(calls):
                await trio.lowlevel.checkpoint()
                passes.append(sum(calls))
    each_pass = [after - before for before, after in pairwise(passes)]
    assert max(each_pass) < 10, "another task runs in between"
    assert max(calls) - min(calls) <= 2, calls
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


async def test_a_deadline_is_never_early_and_sooner_ones_come_first() -> None:
    reactor = Reactor()
    begun = trio.current_time()
    order: list[int] = []

    def passed(number: int, deadline: float, now: float) -> None:
        assert now >= deadline
        order.append(number)

    async with running(reactor):
        for number in (40, 3, 20, 1, 33, 2):
            deadline = begun + 0.002 * number
            Deadline(reactor, partial(passed, number, deadline)).set(deadline)
            await trio.lowlevel.checkpoint()
        await until(lambda: len(order) == 6)
    ticks = [int(number * 0.002 / TICK) for number in order]
    assert ticks == sorted(ticks), order


async def test_no_deadline_is_lost_wherever_it_lies_between_two_ticks() -> None:
    reactor, passed = Reactor(), list[float]()
    begun = trio.current_time()
    for part in range(1000):
        Deadline(reactor, passed.append).set(begun + part / 1000 * 3 * TICK)
        Deadline(reactor, passed.append).set(round(begun / TICK + part % 30) * TICK)
    async with running(reactor):
        with trio.fail_after(30):
            await until(lambda: len(passed) == 2000)


async def test_a_timer_is_called_once_for_the_nearest_of_its_deadlines_and_never_once_closed() -> None:
    reactor, times = Reactor(), list[float]()
    begun = trio.current_time()
    async with running(reactor):
        timer, closed = Deadline(reactor, times.append), Deadline(reactor, times.append)
        for after in (0.05, 0.02, 0.04):
            timer.set(begun + after)
            closed.set(begun + after)
        closed.close()
        await until(lambda: bool(times))
        assert timer.due == inf
        await trio.sleep(0.06)
    assert len(times) == 1 and times[0] - begun >= 0.02


async def test_a_deadline_that_is_set_anew_when_it_has_passed_does_not_hold_up_others() -> None:
    reactor, times = Reactor(), list[float]()

    def again(now: float) -> None:
        times.append(now)
        timer.set(0.0)

    timer = Deadline(reactor, again)
    timer.set(0.0)
    async with running(reactor):
        await until(lambda: len(times) > 3)


async def test_a_function_is_called_again_whoever_asks() -> None:
    reactor, said = Reactor(), list[str]()
    deadline = Deadline(reactor, lambda _now: reactor.again(lambda: said.append("of a deadline")))
    async with running(reactor):
        await trio.sleep(0.01)
        deadline.set(0.0)
        await until(lambda: said == ["of a deadline"])
        reactor.again(lambda: said.append("of a task"))
        await until(lambda: len(said) == 2)


async def test_slow_functions_leave_each_socket_its_turn() -> None:
    """Three that take 3 ms in each pass, beside 40 sockets that are ready."""
    reactor, pairs, served = Reactor(), [socket.socketpair() for _ in range(40)], set[int]()
    passes = 0

    def slow() -> None:
        time.sleep(0.003)  # blocks the loop, as bundles do
        reactor.again(slow)

    def count() -> None:
        nonlocal passes
        passes += 1
        reactor.again(count)

    for ours, theirs in pairs:
        theirs.send(b"x")
        number = ours.fileno()
        reactor.register(number, Noted(lambda _events, number=number: served.add(number)), READ)  # type: ignore[misc]
    async with running(reactor):
        for function in (count, slow, slow, slow):
            reactor.again(function)
        await until(lambda: len(served) == len(pairs))
    assert passes <= 4
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


async def test_ends_follow_the_pass_and_threads_can_ask_for_calls() -> None:
    said: list[str] = []
    reactor = Reactor(lambda: said.append("ended"))

    def called() -> None:
        assert reactor.in_pass
        reactor.at_end(lambda: said.append("first"))
        reactor.at_end(second)
        said.append("called")

    def second() -> None:
        said.append("second")
        reactor.at_end(lambda: said.append("of an end"))

    async with running(reactor):
        await trio.to_thread.run_sync(reactor.soon, called)
        await until(lambda: "of an end" in said)
        assert not reactor.in_pass
        assert said == ["called", "ended", "first", "second", "of an end"]
        reactor.again(called)
        reactor.soon(lambda: said.append("soon"))
        await until(lambda: "soon" in said)


async def test_a_thread_that_asks_at_the_end_or_later_is_heard() -> None:
    reactor, said = Reactor(), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reactor.run)
        await trio.sleep(0.01)
        reactor.soon(lambda: said.append("before the end"))
        nursery.cancel_scope.cancel()
    assert said == ["before the end"]
    await trio.to_thread.run_sync(reactor.soon, lambda: said.append("after the end"))
    await until(lambda: said == ["before the end", "after the end"])


async def test_what_a_handler_raises_ends_the_reactor_after_the_ends_of_the_pass() -> None:
    reactor, said = Reactor(), []

    def fail() -> None:
        reactor.at_end(lambda: said.append("end"))
        raise ZeroDivisionError

    reactor.again(fail)
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        await reactor.run()
    assert said == ["end"] and not reactor.in_pass
