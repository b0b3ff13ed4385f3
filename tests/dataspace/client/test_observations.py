"""An observation shows whole epochs once, in order, over connections that are cut; it asks as it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from dataspace.client.observations import Observation
from dataspace.client.session.identity import ClientIdentity
from dataspace.client.session.session import ClientSession
from dataspace.client.space import RemoteSpace
from dataspace.errors import Broken, Refused
from dataspace.kernel.actions import MORE, SNAPSHOT
from dataspace.wire import packets as p
from dataspace.wire.features import Granted
from index.values.values import Map, Value
from tests.dataspace.client.pipes import ADDRESS, CREDENTIALS, Daemon

ME = ClientIdentity("me", "~me", "", "main", 15.0, 0.0, 0.0)
KEPT = Granted(grace=10.0, secret=b"s" * 16)


@asynccontextmanager
async def connected(daemon: Daemon, granted: Granted | None = None) -> AsyncIterator[RemoteSpace]:
    """A client of that daemon; at the end of the block it is gone."""
    session = ClientSession([ADDRESS], ME, CREDENTIALS, reconnect=True, dial=daemon.dial)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: daemon.greet(granted=granted))
        await nursery.start(session.uplink.run)
        yield RemoteSpace(session)
        nursery.cancel_scope.cancel()


def value(number: int, *added: Value, flags: int = 0, removed: tuple[Value, ...] = ()) -> Value:
    return (
        number,
        0,
        flags,
        tuple((each,) for each in added),
        (),
        tuple((each,) for each in removed),
        number,
    )


async def _next(observation: Observation) -> tuple[int, list[tuple[Value, ...]], list[tuple[Value, ...]]]:
    with trio.fail_after(1000):
        epoch = await observation.next_epoch()
    assert epoch is not None
    return epoch.number, [*epoch.added], [*epoch.removed]


async def test_a_large_epoch_is_shown_when_it_is_whole() -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)")
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(1, "a", flags=SNAPSHOT | MORE),), 1))
        await trio.testing.wait_all_tasks_blocked()
        assert seen.epochs().statistics().held == 0
        daemon.say(p.Values(opened.stream, 1, (value(1, "b", flags=SNAPSHOT), value(2, "c")), 0))
        assert await _next(seen) == (1, [("a",), ("b",)], [])
        assert await _next(seen) == (2, [("c",)], [])


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_part_that_came_before_a_cut_is_forgotten(resumed: bool) -> None:
    """It goes on after the last whole epoch, under the same number of the stream."""
    daemon = Daemon()
    async with connected(daemon, KEPT) as space:
        seen = space.observe("n($n)")
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(3, "a", flags=SNAPSHOT), value(4, "b", flags=MORE)), 0))
        assert await _next(seen) == (3, [("a",)], [])
        daemon.cut()
        await daemon.greet(epoch=5, granted=Granted(grace=10.0, secret=b"s" * 16, resumed=resumed))
        again = await daemon.hear(p.Open)
        assert again.stream == opened.stream and again.spec["after"] == 3
        assert again.spec.get("net", False) is not resumed
        daemon.say(p.Values(opened.stream, 0, (value(4, "b", flags=MORE),), 1))
        daemon.say(p.Values(opened.stream, 1, (value(4, "c"),), 0))
        assert await _next(seen) == (4, [("b",), ("c",)], [])


@pytest.mark.parametrize("policy", ["wait", "fail", "drop"])
async def test_those_that_want_each_change_do_not_ask_for_the_difference(policy: str) -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)", policy=policy)
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(3, "a", flags=SNAPSHOT),), 0))
        await _next(seen)
        daemon.cut()
        await daemon.greet(epoch=5)
        again = await daemon.hear(p.Open)
        assert (again.spec["after"], again.spec["policy"]) == (3, policy) and "net" not in again.spec


async def test_what_was_reached_need_not_be_read_again() -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)", snapshot=False)
        seen.open()
        opened = await daemon.hear(p.Open)
        assert opened.spec["snapshot"] is False
        daemon.say(p.Reached(17, (opened.stream,)))
        await trio.testing.wait_all_tasks_blocked()
        daemon.cut()
        await daemon.greet(epoch=20)
        again = await daemon.hear(p.Open)
        assert again.spec["after"] == 17 and "snapshot" not in again.spec


async def test_a_state_in_another_space_is_shown_as_the_difference() -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)")
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(30, "a", "b", flags=SNAPSHOT),), 0))
        await _next(seen)
        daemon.cut()
        await daemon.greet(space="another", epoch=2)
        again = await daemon.hear(p.Open)
        assert "after" not in again.spec
        daemon.say(p.Values(opened.stream, 0, (value(2, "b", "c", flags=SNAPSHOT),), 0))
        assert await _next(seen) == (2, [("c",)], [("a",)])


@pytest.mark.parametrize("code", ["epoch-gone", "epoch-lost", "epoch-ahead"])
@pytest.mark.parametrize("policy", ["conflate", "wait"])
async def test_where_the_log_does_not_reach_the_state_is_had_or_an_error(code: str, policy: str) -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)", policy=policy)
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(3, "a", flags=SNAPSHOT),), 0))
        await _next(seen)
        daemon.cut()
        await daemon.greet(epoch=90)
        await daemon.hear(p.Open)
        daemon.say(p.Error(opened.stream, code, "not there"))
        if policy == "wait":
            with pytest.raises(Refused, match=code):
                await seen.next_epoch()
            return
        anew = await daemon.hear(p.Open)
        assert "after" not in anew.spec and anew.stream > opened.stream
        daemon.say(p.Values(anew.stream, 0, (value(90, "b", flags=SNAPSHOT),), 0))
        assert await _next(seen) == (90, [("b",)], [("a",)])


async def test_credit_is_asked_for_as_it_is_read() -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)", window=4)
        seen.open()
        opened = await daemon.hear(p.Open)
        assert opened.items == 4
        daemon.say(p.Values(opened.stream, 0, tuple(value(n, n) for n in range(1, 5)), 0))
        await trio.testing.wait_all_tasks_blocked()
        assert daemon.heard_nothing(), "nothing was read"
        await _next(seen)
        await _next(seen)
        asked = await daemon.hear(p.Ask)
        assert (asked.stream, asked.items) == (opened.stream, 6)


async def test_what_was_held_at_a_cut_is_read_and_counts_against_the_new_credit() -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        seen = space.observe("n($n)", window=4)
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, tuple(value(n, n) for n in (1, 2, 3)), 0))
        await trio.testing.wait_all_tasks_blocked()
        daemon.cut()
        await daemon.greet(epoch=9)
        again = await daemon.hear(p.Open)
        assert (again.spec["after"], again.items) == (3, 1), "three of the four are held here"
        assert [(await _next(seen))[0] for _ in range(3)] == [1, 2, 3]


async def test_values_that_were_not_asked_for_break_the_protocol() -> None:
    daemon = Daemon()
    async with connected(daemon) as space:
        lost: list[str] = []
        space.on_connection = lambda event: lost.append(event.reason)
        seen = space.observe("n($n)", window=1)
        seen.open()
        opened = await daemon.hear(p.Open)
        daemon.say(p.Values(opened.stream, 0, (value(1), value(2)), 0))
        await trio.testing.wait_all_tasks_blocked()
        assert "2 values were not asked for" in lost[0]


async def test_an_abort_is_confirmed_or_said_again() -> None:
    daemon = Daemon()
    async with connected(daemon, KEPT) as space:
        kept, left = space.observe("n($n)"), space.observe("m($n)")
        kept.open()
        left.open()
        numbers = [(await daemon.hear(p.Open)).stream for _ in range(2)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(left.aclose)
            abort = await daemon.hear(p.Abort)
            assert (abort.stream, abort.answer) == (numbers[1], True)
            daemon.cut()
        await daemon.greet(granted=Granted(grace=10.0, secret=b"s" * 16, resumed=True))
        assert (await daemon.hear(p.Open)).stream == numbers[0]
        assert (await daemon.hear(p.Abort)).stream == numbers[1]


async def test_a_request_without_an_answer_fails_with_its_connection() -> None:
    daemon = Daemon()
    async with connected(daemon) as space, trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(Broken, match="before the answer"):
                await space.request("settle", Map())  # which is not safe to repeat

        nursery.start_soon(ask)
        await daemon.hear(p.Request)
        daemon.cut()
