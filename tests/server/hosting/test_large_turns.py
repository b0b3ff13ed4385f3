"""What came in many turns comes and goes in one: a limit on the turns of clients holds for no actor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.kernel.limits import SpaceLimits
from dataspace.running.remote import act
from index.values.values import Map
from server.config.hosted import HostedActor
from server.config.model import Config
from server.daemon.serve import serve
from tests.server.rogues import mirror

pytestmark = pytest.mark.slow

MOST = 8
FACTS = 100


def _config(tmp_path: Path, isolate: bool, name: str = "mirror") -> Config:
    (tmp_path / "data").mkdir(exist_ok=True)
    return Config(
        listen=("tcp:127.0.0.1:0",),
        data=tmp_path / "data",
        actors=(HostedActor(f"tests.server.rogues:{name}", isolate=isolate),),
        space_limits=SpaceLimits(actions_per_turn=MOST),
    )


async def _life(config: Config, life: Callable[[dataspace.RemoteSpace], Awaitable[None]]) -> None:
    """Runs a daemon for as long as a client does something."""
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(serve, config)
        async with dataspace.connect(addresses[0], owner="plan") as space:
            await life(space)
        nursery.cancel_scope.cancel()


async def _until(space: dataspace.RemoteSpace, pattern: str, count: int) -> list[int]:
    """Waits for so many matches; returns the epochs in which they came."""
    epochs: dict[object, int] = {}
    async with space.observe(pattern, quiet=True) as changes:
        async for change in changes:
            epochs[change.captures] = change.epoch
            if len(epochs) == count:
                return sorted(set(epochs.values()))
    raise AssertionError("the stream ended")


async def _told(space: dataspace.RemoteSpace) -> Map:
    """Returns what the daemon says of its actor."""
    answer = await space.request("actors", Map())
    assert isinstance(answer, tuple) and isinstance(answer[0], Map)  # by WIRE.md
    return answer[0]


@pytest.mark.parametrize("isolate", [False, True])
async def test_a_state_built_in_steps_is_there_again_after_a_restart_in_one_epoch(
    tmp_path: Path, isolate: bool
) -> None:
    config = _config(tmp_path, isolate)

    async def builds(space: dataspace.RemoteSpace) -> None:
        for start in range(0, FACTS, MOST):
            async with space.turn() as turn:
                for n in range(start, min(FACTS, start + MOST)):
                    turn.assert_(Record("in", n))
        await _until(space, "out($n)", FACTS)
        assert (await _told(space))["crashes"] == 0

    async def comes_back(space: dataspace.RemoteSpace) -> None:
        await _until(space, "out($n)", FACTS)
        before = await space.matches("out($n)")
        assert {n for (n,) in before} == set(range(FACTS)) and (await _told(space))["crashes"] == 0
        newest, came = await space.sync(), Counter[int]()
        async with space.observe("out($n)", after=0, upto=newest, durable=True, quiet=True) as changes:
            async for epoch in changes.epochs():
                came[epoch.number] += len(epoch.added)
        assert came[max(came)] == FACTS and sum(came.values()) == 2 * FACTS  # of the first life, and at once

    with trio.fail_after(120):
        await _life(config, builds)
        await _life(config, comes_back)


@pytest.mark.parametrize("isolate", [False, True])
async def test_a_facet_with_many_facts_stops_and_its_stop_action_is_done(
    tmp_path: Path, isolate: bool
) -> None:
    async def stops(space: dataspace.RemoteSpace) -> None:
        assert len(await _until(space, "held($n)", FACTS)) == 1
        async with space.observe("on-stop()", quiet=True) as done:
            await space.send(Record("stop"))
            async for _ in done:
                break
        assert await space.matches("held($n)") == []
        assert (await _told(space))["crashes"] == 0

    with trio.fail_after(60):
        await _life(_config(tmp_path, isolate), stops)


async def test_actors_of_a_client_program_come_with_more_facts_than_a_turn_may_have(tmp_path: Path) -> None:
    """They are clients, so that such a turn is several; an actor that was started again crashed for ever."""

    config = replace(_config(tmp_path, False), actors=())
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            url = (await nursery.start(serve, config))[0]
            async with dataspace.connect(url) as space, dataspace.connect(url) as theirs:
                for start in range(0, FACTS, MOST):
                    async with space.turn() as turn:
                        for n in range(start, min(FACTS, start + MOST)):
                            turn.assert_(Record("in", n))
                nursery.start_soon(act, theirs, mirror)
                await _until(space, "out($n)", FACTS)
                assert len(await space.matches("held($n)")) == FACTS
                nursery.cancel_scope.cancel()


async def test_a_daemon_listens_though_an_actor_crashes_at_each_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def looks(space: dataspace.RemoteSpace) -> None:
        while (await _told(space))["state"] != "paused":
            await space.sync()
        assert (await _told(space))["crashes"] == 6

    with trio.fail_after(60):
        await _life(_config(tmp_path, False, "crash_loop"), looks)
    assert sum("RuntimeError: again" in record.getMessage() for record in caplog.records) == 6
