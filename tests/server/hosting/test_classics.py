"""The classics run in a daemon, each against remote clients over real sockets who play the other half."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, RemoteSpace
from index.patterns.text import unparse
from index.values.values import Map
from server.config.hosted import HostedActor
from server.config.model import Config
from server.daemon.serve import serve

pytestmark = pytest.mark.slow


class Stage:
    """A daemon that hosts one half of a classic, and the clients that come and go."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.heard: list[str] = []

    async def hear(self, space: RemoteSpace, pattern: str, until: str) -> list[str]:
        """What a client hears of a pattern, from the state on, until something certain comes."""
        heard = []
        async with space.observe(pattern) as changes:
            async for change in changes:
                heard.append(f"{change.kind} {' '.join(map(unparse, change.captures))}".strip())
                if heard[-1] == until:
                    return heard
        raise AssertionError(heard)

    async def until_ended(self, space: RemoteSpace) -> None:
        """Until the hosted actor has ended, for all that it still claims."""
        while "ended" not in repr(await space.request("actors", Map())):
            await space.sync()


@pytest.fixture
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[Stage]:
    """The daemon hosts what the test names."""
    data = tmp_path / "data"
    data.mkdir()
    actors = (HostedActor(f"tests.server.hosting.classics:{request.param}"),)
    config = Config(listen=("tcp:127.0.0.1:0",), data=data, actors=actors)
    addresses = await nursery.start(serve, config)
    with trio.fail_after(30):
        yield Stage(addresses[0])


def hosting(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("stage", [name], indirect=True)


@hosting("box")
async def test_a_client_asks_a_box_for_more_until_it_is_full(stage: Stage) -> None:
    heard = []
    async with dataspace.connect(stage.url) as client, client.observe("box-state($value)") as states:
        async for change in states:
            assert isinstance(change.value, int)
            heard.append(f"{change.kind} {change.value}")
            if change.kind == "+":
                await client.send(Record("set-box", change.value + 1))
            elif change.value == 2:
                break
    assert heard == ["+ 0", "+ 1", "- 0", "+ 2", "- 1", "- 2"]


@hosting("account")
async def test_deposits_of_two_clients_add_up(stage: Stage) -> None:
    async with dataspace.connect(stage.url) as one, dataspace.connect(stage.url) as other:
        await stage.hear(one, "Observe(deposit(_))", "+")  # whoever pays before that pays nobody
        await one.send(Record("deposit", 100))
        await other.send(Record("deposit", -30))
        async with other.observe("account($balance)") as balances:
            async for change in balances:
                if (change.kind, change.balance) == ("+", 70):
                    break


@hosting("alice")
async def test_who_is_killed_in_a_chat_is_missed(stage: Stage) -> None:
    async with dataspace.connect(stage.url) as witness, witness.observe("line($text)") as said:
        async with dataspace.connect(stage.url) as bob:
            await stage.hear(bob, "present($who)", '+ "Alice"')
            async with bob.observe("says($who, $what)", snapshot=False) as words:
                await bob.assert_(Record("present", "Bob"))
                greeting = await anext(words)
                assert greeting.captures == ("Alice", "hello Bob")
                await bob.send(Record("says", "Bob", "hello Alice"))
                assert (await anext(said)).text == "Alice sees Bob"
                assert (await anext(said)).text == "Alice is greeted by Bob"
        assert (await anext(said)).text == "Alice misses Bob"


@hosting("deduction")
async def test_ancestors_go_with_the_client_whose_word_they_rest_on(stage: Stage) -> None:
    async with dataspace.connect(stage.url) as one, one.observe('ancestor("child", $who)') as ancestors:
        await one.assert_(Record("parent", "child", "mother"))
        assert (await anext(ancestors)).captures == ("mother",)
        async with dataspace.connect(stage.url) as other:
            async with other.turn() as turn:
                turn.assert_(Record("parent", "mother", "grandmother"))
                turn.assert_(Record("parent", "grandmother", "great-grandmother"))
            heard = [await anext(ancestors), await anext(ancestors)]
            assert [(change.kind, change.who) for change in heard] == [
                ("+", "grandmother"),
                ("+", "great-grandmother"),
            ]
        gone = [await anext(ancestors), await anext(ancestors)]
        assert sorted((change.kind, change.who) for change in gone) == [
            ("-", "grandmother"),
            ("-", "great-grandmother"),
        ]
        assert await one.matches('ancestor("child", $who)') == [("mother",)]


@hosting("factorials")
async def test_the_interest_of_a_client_starts_who_computes_and_its_end_ends_them(stage: Stage) -> None:
    async with dataspace.connect(stage.url) as witness, witness.observe("line($text)") as said:
        async with dataspace.connect(stage.url) as client:
            assert await stage.hear(client, "factorial(3, $)", "+ 6") == ["+ 6"]
            computing = [(await anext(said)).text for _ in range(4)]
        assert computing == ["computing 3", "computing 2", "computing 1", "computing 0"]
        forgetting = {(await anext(said)).text for _ in range(4)}
        assert forgetting == {"forgetting 3", "forgetting 2", "forgetting 1", "forgetting 0"}
        assert await witness.matches("factorial(_, $)") == []


@hosting("bookshop")
async def test_a_client_shares_a_book_with_a_hosted_buyer(stage: Stage) -> None:
    async with dataspace.connect(stage.url) as buyer:
        assert await stage.hear(buyer, 'quote("Catch 22", $)', "+ 22") == ["+ 22"]
        assert await stage.hear(buyer, 'split("Catch 22", 22, 11, $)', "+ true") == ["+ true"]
        assert await stage.hear(buyer, 'split("Encyclopaedia", 900, 450, $)', "+ false") == ["+ false"]


@hosting("toggle")
async def test_a_client_toggles_a_machine_and_sees_no_state_between(stage: Stage) -> None:
    heard = []
    async with dataspace.connect(stage.url) as client, client.observe("flip-flop($state)") as states:
        async for epoch in states.epochs():
            heard.append(([*epoch.added], [*epoch.removed]))
            if len(heard) == 4:
                break
            await client.send(Record("toggle"))
    assert heard[0] == ([("off",)], [])
    assert heard[1:] == [
        ([("on",)], [("off",)]),
        ([("off",)], [("on",)]),
        ([("on",)], [("off",)]),
    ]


@hosting("guard")
async def test_a_client_relieves_a_hosted_guard_and_nobody_sees_a_gap(stage: Stage) -> None:
    async with dataspace.connect(stage.url) as witness, witness.observe("on-duty()") as duty:
        assert (await anext(duty)).kind == "+"
        async with dataspace.connect(stage.url) as relief:
            await relief.assert_(Record("on-duty"))
            await stage.until_ended(witness)
            assert await witness.matches("on-duty()") == [()]
        gone = await anext(duty)
        assert gone.kind == "-", "the first and only thing that is heard"


@hosting("tasks")
async def test_the_task_of_a_worker_that_was_cut_off_is_given_to_another(stage: Stage) -> None:
    attempts = []
    async with dataspace.connect(stage.url) as witness, witness.observe("line($text)") as said:
        async with dataspace.connect(stage.url) as clumsy:
            await clumsy.assert_(Record("ready", "clumsy", 1))
            assert await stage.hear(clumsy, 'assigned("clumsy", $task, $attempt)', "+ 1 1") == ["+ 1 1"]
        async with dataspace.connect(stage.url) as worker:
            await worker.assert_(Record("ready", "worker", 1))
            async with worker.observe('assigned("worker", $task, $attempt)') as work:
                async for change in work:
                    if change.kind == "+":
                        attempts.append(change.captures)
                        await worker.send(Record("done", change.task))
                    if len(attempts) == 3:
                        break
                told = [(await anext(said)).text for _ in range(4)]
    assert attempts == [(1, 2), (2, 1), (3, 1)]
    assert told == ["task 1 done", "task 2 done", "task 3 done", "all done"]


@hosting("wall")
async def test_a_client_sees_what_a_firewall_lets_out_and_reaches_what_it_lets_in(stage: Stage) -> None:
    async with (
        dataspace.connect(stage.url) as client,
        client.observe("public($what)") as public,
        client.observe("secret($what)") as secret,
    ):
        assert (await anext(public)).captures == ("weather",)
        gone = await anext(public)
        assert (gone.kind, gone.captures) == ("-", ("weather",)), "the layer has quit"
        await client.assert_(Record("secret", "outside"))
        assert (await anext(secret)).captures == ("outside",), "and nothing of the inside before it"
