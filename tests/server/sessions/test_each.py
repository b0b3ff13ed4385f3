"""A function is called with each change of a real daemon, over cuts, and without async."""

from __future__ import annotations

import threading

import pytest
import trio

import dataspace
from dataspace import Change, Record
from dataspace.client.observations import Observation
from dataspace.errors import UsageError
from index.values.values import Value
from tests.server.proxies import Proxy

ROUNDS = 60


class Enough(Exception):
    """All was seen."""


async def test_it_sees_every_change_over_cuts_as_iteration_does(url: str) -> None:
    """Three observers of one connection that is cut again and again: nothing twice, no gap."""
    seen: dict[str, list[str]] = {"for": [], "each": [], "slow": []}
    async with trio.open_nursery() as nursery:
        proxy = Proxy(url)
        await nursery.start(proxy.run)

        async def by_each(name: str, observation: Observation) -> None:
            def function(change: Change) -> None:
                note(name, change)

            with pytest.raises(Enough):
                await observation.each(function)

        async def by_iteration(name: str, observation: Observation) -> None:
            with pytest.raises(Enough):
                async for change in observation:
                    note(name, change)

        def note(name: str, change: Change) -> None:
            seen[name].append(f"{change.kind}{change.n!r}")
            if name == "slow":
                threading.Event().wait(0.003)
            if change.n == ROUNDS:
                raise Enough

        async with dataspace.connect(url) as writer, dataspace.connect(proxy.url, grace=30) as space:
            async with trio.open_nursery() as readers:
                for name in seen:
                    observation = space.observe("n($n)", policy="wait", window=8 if name == "slow" else None)
                    assert await observation.next_epoch() is not None
                    readers.start_soon(by_iteration if name == "for" else by_each, name, observation)
                for number in range(1, ROUNDS + 1):
                    async with writer.turn() as turn:
                        if number > 1:
                            turn.withdraw("n(_)")
                        turn.assert_(Record("n", number))
                    if number % 10 == 0 and number < ROUNDS:
                        proxy.cut()
            assert space.reconnects
        nursery.cancel_scope.cancel()
    expected = ["+1", *[each for n in range(2, ROUNDS + 1) for each in (f"+{n}", f"-{n - 1}")]][:-1]
    assert seen == dict.fromkeys(seen, expected)


async def test_the_blocking_client_calls_in_its_own_thread(url: str) -> None:
    """No verb may be used there."""
    seen: list[Value] = []

    def script() -> None:
        with dataspace.connect_blocking(url) as space:
            for number in range(3):
                space.assert_(Record("n", number))
            with space.observe("n($n)") as changes:
                assert next(iter(changes)).n in range(3)
            thread = threading.current_thread()

            def function(change: Change) -> None:
                assert threading.current_thread() is not thread
                seen.append(change.n)
                with pytest.raises(RuntimeError, match="blocking"):
                    space.sync()
                if len(seen) == 3:
                    raise Enough

            with space.observe("n($n)") as changes, pytest.raises(Enough):
                changes.each(function)
            assert {*seen} == {0, 1, 2}
            with space.observe("n($n)") as changes, pytest.raises(UsageError, match="asynchronous"):
                changes.each(trio.sleep)  # type: ignore[arg-type]  # it must be awaited

    await trio.to_thread.run_sync(script)
