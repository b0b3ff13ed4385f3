"""A daemon hosts actors beside its sessions, and what one of them does wrong harms nobody else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import UsageError
from index.values.values import Map, Value
from server.config.hosted import HostedActor
from server.config.model import Config
from server.daemon.serve import serve
from server.hosting.loading import boot_function

pytestmark = pytest.mark.slow

ROGUES = "tests.server.rogues"


@pytest.fixture
async def space(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[dataspace.RemoteSpace]:
    """A client of a daemon that hosts them all."""
    names = tuple(
        [HostedActor(f"{ROGUES}:{name}") for name in ("echo", "raiser", "leaker", "hog", "family", "worst")]
    )
    config = Config(
        listen=("tcp:127.0.0.1:0",), data=tmp_path / "data", actors=names, trace=tmp_path / "trace.txt"
    )
    (tmp_path / "data").mkdir()
    addresses = await nursery.start(serve, config)
    async with dataspace.connect(addresses[0]) as space:
        yield space


async def _say(space: dataspace.RemoteSpace, what: str) -> None:
    """Says something, and waits for its echo."""
    async with space.observe("echo($what)", quiet=True) as echoes:
        await space.send(Record("say", what))
        async for change in echoes:
            if change.captures == (what,):
                return


async def _told(space: dataspace.RemoteSpace, name: str) -> dict[str, Value]:
    for each in await space.request("actors", Map()):  # type: ignore[union-attr]  # an array, by WIRE.md
        assert isinstance(each, Map)
        if each["name"] == f"{ROGUES}:{name}":
            return {str(at): value for at, value in each.pairs()}
    raise AssertionError(name)


async def _until(space: dataspace.RemoteSpace, pattern: str) -> None:
    async with space.observe(pattern, quiet=True) as changes:
        async for _ in changes:
            return


async def test_a_hosted_actor_and_a_client_hear_each_other(
    space: dataspace.RemoteSpace, tmp_path: Path
) -> None:
    with trio.fail_after(10):
        await _until(space, "Observe(say(_))")  # the interest of an actor is seen by a client
        await _say(space, "hello")
        await _until(space, "count(1)")
    assert '! echo("hello")' in (tmp_path / "trace.txt").read_text()


async def test_one_that_raises_on_every_event_is_named_and_the_others_go_on(
    space: dataspace.RemoteSpace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="dataspace.actors")
    with trio.fail_after(20):
        await _until(space, "raiser(_)")
        for number in range(8):
            await _say(space, f"word {number}")
        told = await _told(space, "raiser")
    assert isinstance(told["crashes"], int) and told["crashes"] >= 5
    assert "RuntimeError: cannot bear word" in str(told["last"])
    assert (await _told(space, "echo"))["crashes"] == 0


async def test_one_that_leaks_facets_ends_at_the_limit(
    space: dataspace.RemoteSpace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="dataspace.actors")
    with trio.fail_after(30):
        await _until(space, "Observe(leak(_))")
        await space.send(Record("leak", 1000))
        await _say(space, "between")
        facets = (await _told(space, "leaker"))["facets"]
        assert isinstance(facets, int) and facets > 1000
        await space.send(Record("leak", 200_000))
        await _say(space, "after")
        assert "limit 100000" in str((await _told(space, "leaker"))["last"])


async def test_one_that_does_not_yield_is_named_within_a_second(
    space: dataspace.RemoteSpace, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(20):
        await _until(space, "Observe(hog(_))")
        await space.send(Record("hog", 1.3))
        await _say(space, "after")
        assert (await _told(space, "hog"))["stalls"] == 1
    assert any("hog does not yield" in record.message for record in caplog.records)


async def test_what_its_children_do_is_told_of_the_one_that_was_named(
    space: dataspace.RemoteSpace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="dataspace.actors")
    with trio.fail_after(20):
        await _until(space, "fragile(_)")
        told = await _told(space, "family")
        assert (told["state"], told["actors"], told["crashes"]) == ("running", 2, 0)
        turns = told["turns"]
        await space.send(Record("touch"))
        await _say(space, "after")
        told = await _told(space, "family")
        assert (told["actors"], told["crashes"]) == (1, 1) and told["turns"] > turns  # type: ignore[operator]
        assert "actor fragile, facet fragile" in str(told["last"]) and "in pieces" in str(told["last"])
        await space.send(Record("hog", 1.5))
        await _say(space, "after that")
        assert (await _told(space, "family"))["stalls"] == 1


async def test_one_that_leaves_or_raises_what_cannot_be_told_takes_nobody_along(
    space: dataspace.RemoteSpace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="dataspace.actors")
    with trio.fail_after(20):
        for how, said in (
            ("leaving", "SystemExit: 3"),
            ("leaving task", "SystemExit: 4"),
            ("wordless", "Unspeakable, whose text raises RuntimeError"),
            ("wordless task", "Unspeakable, whose text raises RuntimeError"),
        ):
            await _until(space, "worst(_)")
            await space.send(Record("worst", how))
            while said not in str((await _told(space, "worst"))["last"]):
                await space.sync()
        await _say(space, "after all that")
        assert (await _told(space, "worst"))["crashes"] == 4


async def test_one_that_raises_what_ends_programs_ends_itself_and_nothing_of_its_turn_is_seen(
    space: dataspace.RemoteSpace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="dataspace.actors")
    with trio.fail_after(20):
        async with space.observe("half($done)", quiet=True) as seen:
            for how, said in (
                ("interrupting", "KeyboardInterrupt: own"),
                ("closing", "GeneratorExit: own"),
                ("interrupting task", "BaseExceptionGroup: own"),
            ):
                await _until(space, "worst(_)")
                await space.send(Record("worst", how))
                while said not in str((await _told(space, "worst"))["last"]):
                    await space.sync()
            await _say(space, "after all that")
            await space.send(Record("half", "by a client"))
            heard: list[tuple[Value, ...]] = []
            async for change in seen:
                heard.append(change.captures)
                if len(heard) == 2:
                    break
        assert heard == [("interrupting task",), ("by a client",)]  # what crashed later had its turn before
        assert (await _told(space, "worst"))["crashes"] == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "named module:function"),
        ("no.such.module:boot", "No module named"),
        (f"{ROGUES}:nobody", "has no function 'nobody'"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        boot_function(name)


async def test_the_tree_and_the_last_turns_are_shown_while_they_are_asked_for(
    space: dataspace.RemoteSpace, tmp_path: Path
) -> None:
    with trio.fail_after(20):
        await _until(space, "fragile(_)")
        looked = Map({"most": 100, "turns": 100})
        await space.request("actors", looked)  # recording begins
        await _say(space, "hello")
        await space.send(Record("touch"))
        await _say(space, "after")
        found: Any = await space.request("actors", looked)
    hosted = {str(each["name"]).rpartition(":")[2]: each for each in found}
    turns = hosted["echo"]["recent"]
    assert any('! echo("hello")' in turn["actions"] for turn in turns)
    failed = [turn["failure"] for turn in hosted["family"]["recent"] if turn["failure"]]
    assert len(failed) == 1 and "in pieces" in failed[0]
    for each in hosted.values():
        for actor in each["tree"]:
            assert actor["tree"][0][:2] == (0, "root")
            assert [depth for depth, *_ in actor["tree"]].count(0) == 1
    assert len(hosted["family"]["tree"]) == 1 < len(hosted)
    assert '! echo("after")' in (tmp_path / "trace.txt").read_text()  # the tracer of the daemon goes on
    plain: Any = await space.request("actors", Map())
    assert not any("tree" in each or "recent" in each for each in plain)
