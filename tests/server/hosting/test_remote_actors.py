"""Actors in a program of their own are what they are within one process: the classics say the same lines."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import AnotherSpace, ConnectionChange, ConnectionEvent, Record, Refused
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.errors import ActorCrashed
from dataspace.kernel.limits import SpaceLimits
from dataspace.running.remote import act, run
from tests.server.proxies import Proxy

pytestmark = pytest.mark.slow

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "examples"
# The queue is left out: who of its workers takes which task depends on the clock.
CLASSICS = (
    "ancestors",
    "bank_account",
    "box_and_client",
    "firewall",
    "memo_service",
    "two_buyers",
)


@pytest.mark.parametrize("name", CLASSICS)
async def test_a_classic_says_its_lines_over_a_connection(name: str, url: str) -> None:
    told = (TRANSCRIPTS / f"{name}.txt").read_text(encoding="utf-8").split("\n", 1)[1].splitlines()
    main: Callable[[Turn], None] = importlib.import_module(f"examples.actors.{name}").main
    heard: list[object] = []
    with trio.fail_after(60):
        async with dataspace.connect(url) as audience, trio.open_nursery() as nursery:
            async with audience.observe("line($text)", policy="wait") as lines:
                nursery.start_soon(lambda: run(main, url=url))
                async for change in lines:
                    heard.append(change.captures[0])
                    if len(heard) == len(told):
                        break
            nursery.cancel_scope.cancel()
    assert sorted(map(str, heard)) == sorted(told)


async def test_a_program_ends_when_nobody_is_left_and_all_it_said_is_on_disk(url: str) -> None:
    def brief(turn: Turn) -> None:
        turn.send(record("said", "what")("goodbye"))

    with trio.fail_after(30):
        async with dataspace.connect(url) as listener, listener.observe("said($what)") as said:
            await run(brief, url=url)
            assert (await anext(said)).captures == ("goodbye",)


async def test_a_first_actor_that_crashes_is_the_end_with_its_error(url: str) -> None:
    def crashing(turn: Turn) -> None:
        turn.assert_(record("here")())
        turn.sync(lambda turn: turn.assert_(1 / 0))

    with trio.fail_after(30):
        async with dataspace.connect(url) as other:
            with pytest.raises(ActorCrashed, match="ZeroDivisionError"):
                await run(crashing, url=url)
            assert await other.matches("here()") == []


@pytest.mark.parametrize("space_limits", [SpaceLimits(facts_per_owner=3)])
async def test_an_actor_whose_turn_is_refused_has_crashed(url: str) -> None:
    def greedy(turn: Turn) -> None:
        for n in range(10):
            turn.assert_(record("n", "n")(n))

    with trio.fail_after(30):
        with pytest.raises(ActorCrashed, match="its turn was refused, limit: 10 facts") as raised:
            await run(greedy, url=url)
    assert isinstance(raised.value.__cause__, Refused)


async def test_an_actor_whose_turn_was_lost_to_another_space_has_crashed(
    proxy: Proxy, other: str, nursery: trio.Nursery
) -> None:
    """It cannot go on as if the turn had happened; the program hears of the other space."""
    events: list[ConnectionEvent] = []

    def cut_off(turn: Turn) -> None:
        turn.assert_(record("n", "n")(1))
        turn.sync(silence)

    def silence(turn: Turn) -> None:
        proxy.silent = True
        nursery.start_soon(proxy.move_to, other)
        turn.assert_(record("n", "n")(2))

    with trio.fail_after(30):
        with pytest.raises(ActorCrashed, match=r"its turn was refused, .*another space") as raised:
            await run(cut_off, url=proxy.url, on_connection=events.append)
        async with dataspace.connect(other) as there:
            assert await there.matches("n(2)") == []
    assert isinstance(raised.value.__cause__, AnotherSpace)
    assert events[-1].change is ConnectionChange.ANOTHER_SPACE and events[-1].turns == 1


async def test_what_it_sees_is_what_is_there_when_it_begins_and_every_epoch_after_that(url: str) -> None:
    seen: list[tuple[str, int]] = []

    def watcher(turn: Turn) -> None:
        turn.on_asserted("n($n)")(lambda turn, n: seen.append(("+", n)))
        turn.on_retracted("n($n)")(lambda turn, n: seen.append(("-", n)))
        turn.stop_when_message("enough()")

    with trio.fail_after(30):
        async with dataspace.connect(url) as other:
            claims = [await other.assert_(Record("n", n)) for n in range(3)]
            async with dataspace.connect(url) as remote, trio.open_nursery() as nursery:
                nursery.start_soon(act, remote, watcher)
                while not await other.matches("Observe(enough())"):  # noqa: ASYNC110  a state is waited for
                    await trio.sleep(0.02)
                for claim in claims:
                    await other.replace(claim, Record("n", claim.handle + 100))
                await other.send(Record("enough"))
    first, rest = seen[:3], seen[3:]
    assert sorted(first) == [("+", 0), ("+", 1), ("+", 2)]
    assert [kind for kind, _ in rest] == ["+", "-"] * 3
