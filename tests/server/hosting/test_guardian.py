"""An actor in a process of its own can do all that an actor can, and nothing to the others."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.actors.supervision import Restart
from index.values.values import Map, Value
from server.config.hosted import HostedActor
from server.config.model import Config, SpaceConfig
from server.daemon.serve import serve
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

ROGUES = "tests.server.rogues"


def _isolated(
    name: str,
    *arguments: Value,
    restart: Restart | None = None,
    space: str = "main",
    run: str = "",
    hang: float | None = None,
) -> HostedActor:
    return HostedActor(
        f"{ROGUES}:{run or name}",
        name=name,
        arguments=arguments,
        isolate=True,
        hang=hang,
        space=space,
        restart=restart or Restart(),
    )


ACTORS = {
    "echo": HostedActor(f"{ROGUES}:echo", name="echo"),
    "never": _isolated("never"),
    "family": _isolated("family"),
    "hanging": _isolated("hanging", run="never", hang=1.5),
    "numb": _isolated("numb", run="stone", hang=1.5),
    "sleeper": _isolated("sleeper", hang=1.5),
    "several": _isolated("several", "one", "two", restart=Restart(intensity=2, period=60.0, pause=60.0)),
    "conversation": _isolated("conversation", space="parlour"),
    "service": HostedActor(
        f"{ROGUES}:several", name="service", arguments=("served",), isolate=True, required=True
    ),
}


@pytest.fixture
async def url(tmp_path: Path, nursery: trio.Nursery, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A daemon that hosts the actors that a test names, with a second dataspace."""
    config = Config(
        listen=("tcp:127.0.0.1:0",),
        data=tmp_path,
        actors=tuple([ACTORS[name] for name in request.param]),
        spaces=(SpaceConfig("parlour", tmp_path / "spaces" / "parlour"),),
    )
    addresses = await nursery.start(serve, config)
    yield addresses[0]


def hosting(*names: str) -> pytest.MarkDecorator:
    """Has the daemon of a test host these."""
    return pytest.mark.parametrize("url", [names], indirect=True, ids=["-".join(names)])


async def told(space: dataspace.RemoteSpace, name: str) -> Map:
    """What the daemon says of one of its actors."""
    for each in await space.request("actors", Map()):  # type: ignore[union-attr]  # an array, by WIRE.md
        assert isinstance(each, Map)
        if each["name"] == name:
            return each
    raise AssertionError(name)


async def until(space: dataspace.RemoteSpace, pattern: str) -> tuple[Value, ...]:
    """Returns when something matches: its captures."""
    async with space.observe(pattern, quiet=True) as changes:
        async for change in changes:
            return change.captures
    raise AssertionError(pattern)


async def until_told(space: dataspace.RemoteSpace, name: str, holds: Callable[[Map], bool]) -> Map:
    while not holds(known := await told(space, name)):  # noqa: ASYNC110  it is what is tested
        await trio.sleep(0.02)
    return known


async def echoed(space: dataspace.RemoteSpace, what: str) -> None:
    """Says something, and waits for its echo by the actor that lives in the daemon."""
    async with space.observe("echo($what)", quiet=True) as echoes:
        await space.send(Record("say", what))
        async for change in echoes:
            if change.captures == (what,):
                return


@hosting("echo", "never")
async def test_one_that_never_yields_stops_nobody(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            await until(space, "never($process)")
            await until(space, "Observe(say(_))")
            await space.send(Record("hang"))
            known = await until_told(space, "never", lambda known: known["stalls"] == 1)
            assert known["state"] == "stuck" and isinstance(known["process"], int)
            for number in range(20):
                await echoed(space, f"word {number}")
            assert (await told(space, "echo"))["stalls"] == 0


@hosting("hanging", "numb", "sleeper", "echo")
async def test_one_that_gives_no_sign_of_life_is_killed_and_started_again(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            before = {}
            for name, label in ("hanging", "never"), ("numb", "stone"), ("sleeper", "sleeper"):
                (before[name],) = await until(space, f"{label}($process)")
                await until_told(space, name, lambda known: known["turns"] != 0)
            await until(space, "Observe(say(_))")
            await space.send(Record("hang"))
            for name, process in before.items():
                known = await until_told(space, name, lambda known: known["crashes"] != 0)
                assert "gave no sign of life for 1.5 s and was killed" in str(known["last"])
                assert not _runs(process)  # type: ignore[arg-type]  # a number
            assert await until(space, "never($process)") != (before["hanging"],)
            assert (await told(space, "echo"))["crashes"] == 0
            await echoed(space, "after all that")


@hosting("family")
async def test_what_its_children_do_is_told_of_the_one_that_was_named(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            await until(space, "fragile($process)")
            known = await until_told(space, "family", lambda known: known["actors"] == 2)
            assert known["state"] == "running" and known["crashes"] == 0
            await space.send(Record("touch"))
            known = await until_told(space, "family", lambda known: known["actors"] == 1)
            assert known["crashes"] == 1 and "in pieces" in str(known["last"])


@hosting("conversation")
async def test_all_that_an_actor_can_do_it_can_do_there(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url, space="parlour") as space, dataspace.connect(url) as elsewhere:
            await until(space, "guests(0, 0)")
            async with space.observe("farewell($who)", quiet=True) as farewells:
                claim = await space.assert_(Record("guest", "Alice"))
                await until(space, 'welcome("Alice")')
                await until(space, "guests(1, 1)")
                await space.retract(claim)
                async for change in farewells:
                    assert change.captures == ("Alice",)
                    break
            await until(space, "guests(0, 1)")
            assert await space.matches("welcome($who)") == []
            async with space.observe("worked($n)", quiet=True) as work:
                await space.assert_(Record("job", 7))
                await until(space, "working(7)")
                async for change in work:
                    assert change.captures == (7,)
                    break
            async with (
                space.observe("saw($rows)", quiet=True) as saw,
                space.observe("synced()", quiet=True) as synced,
            ):
                await space.send(Record("look"))
                async for change in saw:
                    assert change.captures == (1,)  # what its own turn did is in the snapshot
                    break
                async for _ in synced:
                    break
            assert await space.matches("Observe(guest(_))") == [()]
            assert await elsewhere.matches("guests($n, $m)") == []


@hosting("several")
async def test_one_that_crashes_is_started_again_until_it_has_to_pause(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            for crashes in range(1, 4):
                (process,) = await until(space, "several($process)")
                await space.send(Record("crash", f"blow {crashes}"))
                known = await until_told(space, "several", lambda known, n=crashes: known["crashes"] == n)  # type: ignore[misc]
                assert f"RuntimeError: cannot bear blow {crashes}" in str(known["last"])
                await until_told(space, "several", lambda known, old=process: known["process"] != old)  # type: ignore[misc]
            assert known["state"] == "paused"
            assert await space.matches("word($text)") == []
            assert await space.matches("unsaid()") == []


@hosting("several")
async def test_one_that_is_killed_leaves_no_fact_and_comes_back(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            await until(space, "several($process)")
            async with space.observe("word($text)", quiet=True) as words:
                epochs = words.epochs()
                state = await anext(epochs)
                assert sorted(state.added) == [("one",), ("two",)]
                ((process,),) = await space.matches("several($process)")
                assert isinstance(process, int)
                os.kill(process, signal.SIGKILL)
                gone = await anext(epochs)
                assert sorted(gone.removed) == [("one",), ("two",)] and not gone.conflated
                back = await anext(epochs)
                assert sorted(back.added) == [("one",), ("two",)]
            known = await told(space, "several")
            assert known["crashes"] == 1 and "was ended by SIGKILL" in str(known["last"])


@hosting("several")
async def test_one_that_leaves_in_good_order_stays_away(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            await until(space, "several($process)")
            await space.send(Record("leave"))
            known = await until_told(space, "several", lambda known: known["state"] == "ended")
            assert known["crashes"] == 0 and known["process"] is None
            assert await space.matches("word($text)") == []


@hosting("several")
async def test_one_that_calls_exit_has_crashed_as_it_would_have_in_the_daemon(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            await until(space, "several($process)")
            await space.send(Record("exit"))
            known = await until_told(space, "several", lambda known: known["crashes"] == 1)
            assert "SystemExit: 0" in str(known["last"])


@hosting("service")
async def test_a_service_runs_while_it_is_required(url: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            assert (await told(space, "service"))["state"] == "waiting"
            claim = await space.assert_(Record("require", "service"))
            await until(space, 'word("served")')
            process = (await told(space, "service"))["process"]
            assert isinstance(process, int)
            await space.retract(claim)
            await until_told(space, "service", lambda known: known["process"] is None)
            assert await space.matches('word("served")') == []
            assert not _runs(process)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_none_outlives_its_daemon_however_that_ends(tmp_path: Path, ending: signal.Signals) -> None:
    config = tmp_path / "config.toml"
    names = ("several", "never", "stone")
    config.write_text("".join([f'[[actors]]\nrun = "{ROGUES}:{name}"\nisolate = true\n' for name in names]))
    daemon = DaemonProcess(tmp_path / "data", "--config", str(config))
    daemon.start()
    processes = trio.run(_settle, daemon.url)
    assert len(processes) == 3 and all(map(_runs, processes))
    daemon.process.send_signal(ending)
    daemon.wait()
    trio.run(_wait_gone, processes)


async def _settle(url: str) -> list[int]:
    """The processes of all three, once two of them have been told to hang."""
    with trio.fail_after(60):
        async with dataspace.connect(url) as space:
            processes = [await until(space, f"{name}($process)") for name in ("several", "never", "stone")]
            await space.send(Record("hang"))
            await trio.sleep(0.3)
            return [process for (process,) in processes if isinstance(process, int)]


async def _wait_gone(processes: list[int]) -> None:
    with trio.fail_after(10):
        while any(map(_runs, processes)):  # noqa: ASYNC110  no event tells of strangers
            await trio.sleep(0.02)
