"""Each space of a store is led by itself, by any of its daemons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.observations import Observation
from dataspace.client.space import RemoteSpace
from dataspace.errors import Broken
from index.values.values import Map
from tests.server.processes import DaemonProcess, command, running

pytestmark = pytest.mark.slow

SOON = 60
LEASE = "DATASPACE_SERVE_CLUSTER_LEASE"
SPACES = ("main", "a", "b", "c", "d")
ACTOR = '[[actors]]\nrun = "tests.server.rogues:echo"\nspace = "a"\n'


@pytest.fixture
def spread(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[DaemonProcess]]:
    """Three daemons with five spaces, which the first one led alone for a while."""
    monkeypatch.setenv(LEASE, "1s")
    path = tmp_path / "daemon.toml"
    path.write_text("".join(f"[spaces.{name}]\n" for name in SPACES[1:]))
    found = [DaemonProcess(postgres_url, "--config", str(path)) for _ in range(3)]
    with running(*found):
        yield found


async def test_others_lead_the_spaces_of_a_leader_that_ends_and_nothing_blinks(
    spread: list[DaemonProcess],
) -> None:
    first, *others = spread
    urls = [each.url for each in spread]
    with trio.fail_after(SOON):
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            writers = {
                name: await enter(dataspace.connect(urls, space=name, name=name, grace=60)) for name in SPACES
            }
            seen = dict[str, Observation]()
            for name, writer in writers.items():
                await writer.assert_(Record("here", name))
                watcher = await enter(dataspace.connect(others[0].url, space=name))
                seen[name] = await enter(watcher.observe("here($x)", quiet=True))
                assert await added(seen[name]) == [(name,)]
            await trio.to_thread.run_sync(first.kill)
            for name, writer in writers.items():
                await writer.assert_(Record("here", f"{name} again"))
                assert await added(seen[name]) == [(f"{name} again",)]
            leaders = {name: (await status_of(writer))["process"] for name, writer in writers.items()}
            assert set(leaders.values()) <= {each.process.pid for each in others}, (
                "not the one that was killed"
            )
            await trio.to_thread.run_sync(first.start)
            for name in SPACES:
                async with dataspace.connect(first.url, space=name, owner="map") as writer:
                    await writer.assert_(Record("there", 1))  # is sent on to the leader of that space
                    assert (await status_of(writer))["leads"]


async def status_of(space: dataspace.RemoteSpace) -> Map:
    """Returns the status of the daemon that serves a client; asked again if the space moves meanwhile."""
    while True:
        with suppress(Broken):
            return await space.status()


async def added(seen: Observation) -> list[tuple[object, ...]]:
    """Returns the captures of the next facts that come; none has gone before."""
    while True:
        epoch = await seen.next_epoch()
        assert epoch is not None and not epoch.removed
        if epoch.added:  # else a follower was a moment behind when the observation began
            return [*epoch.added]


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DaemonProcess]]:
    """Two daemons, named ``one`` and ``two``, with leases that last longer than a test."""
    monkeypatch.setenv(LEASE, "10m")
    found = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'cluster.name = "{name}"\n[spaces.a]\n[spaces.b]\n{ACTOR}')
        found.append(DaemonProcess(postgres_url, "--config", str(path)))
    with running(*found):
        yield found


async def move(daemons: list[DaemonProcess], space: str, successor: str) -> None:
    done = await command("cluster", "move", space, successor, "--data", daemons[0].place)
    assert done.returncode == 0, done.stderr
    assert f"space {space}  led by {successor} at " in done.stdout


async def test_a_space_moves_there_and_back_and_only_it(pair: list[DaemonProcess]) -> None:
    """Each turn is there once, no fact of a session with grace blinks, sessions about other spaces stay."""
    one, two = pair
    urls = [each.url for each in pair]
    lost: list[object] = []
    with trio.fail_after(SOON):
        async with (
            dataspace.connect(urls, space="a", name="keeper", grace=60) as keeper,
            dataspace.connect(urls, space="a", name="writer") as writer,
            dataspace.connect(
                urls, space="b", on_connection=lambda event: lost.append(event.change)
            ) as beside,
            dataspace.connect(two.url, space="a", name="watcher") as watcher,
            watcher.observe("here($x)", quiet=True) as seen,
            trio.open_nursery() as nursery,
        ):
            sent = 0

            async def write() -> None:
                nonlocal sent
                while True:
                    await writer.send(Record("tick", sent))
                    sent += 1
                    await trio.sleep(0.002)

            await keeper.assert_(Record("here", "keeper"))
            await beside.assert_(Record("here", "beside"))
            assert await added(seen) == [("keeper",)]
            nursery.start_soon(write)
            for successor in ("two", "one", "two"):
                await move(pair, "a", successor)
            for successor in ("one", "two"):
                await move(pair, "a", successor)
                await echoed(writer)
                before = sent
                while sent < before + 3:  # noqa: ASYNC110  # what another task counts
                    await trio.sleep(0.01)
                assert (await writer.status())["process"] == (one if successor == "one" else two).process.pid
            nursery.cancel_scope.cancel()
            await keeper.assert_(Record("here", "keeper again"))
            assert await added(seen) == [("keeper again",)]
            newest = await writer.sync()
            async with writer.observe("tick($n)", after=0, upto=newest, durable=True) as log:
                ticks = [change.captures[0] async for change in log if change.captures]
            assert ticks == list(range(len(ticks))) and sent <= len(ticks)
            assert lost == [] and (await beside.status())["process"] == one.process.pid
            principals = (await beside.status())["principals"]
            assert isinstance(principals, Map)
            [(_, used)] = principals.pairs()
            assert isinstance(used, Map) and used["facts"] == 1, "only what is led there counts"


async def echoed(space: RemoteSpace) -> None:
    """Returns once the hosted actor has answered, which runs where its space is led."""
    async with space.observe("echo($what)") as echoes:
        while True:
            with trio.move_on_after(0.2):
                await space.send(Record("say", "hello"))
                assert await echoes.next_epoch() is not None
                break
    assert len(await space.matches("count($n)")) == 1


async def test_a_daemon_leads_the_spaces_that_prefer_it_while_it_is_there(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "1s")
    pair = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'cluster.name = "{name}"\n[spaces.a]\nprefer = "two"\n')
        pair.append(DaemonProcess(postgres_url, "--config", str(path)))
    one, two = pair
    with running(*pair), trio.fail_after(SOON):
        async with dataspace.connect([each.url for each in pair], space="a", grace=60) as space:

            async def led_by(daemon: DaemonProcess) -> None:
                while True:
                    with suppress(Broken):  # by the move itself
                        if (await space.status())["process"] == daemon.process.pid:
                            return
                    await trio.sleep(0.05)

            await space.assert_(Record("here", 1))
            await led_by(two)
            await trio.to_thread.run_sync(two.kill)
            await space.assert_(Record("here", 2))
            await led_by(one)
            await trio.to_thread.run_sync(two.start)
            await led_by(two)
            assert sorted(await space.matches("here($x)")) == [(1,), (2,)]


async def test_a_group_divides_a_topic_that_another_daemon_leads(pair: list[DaemonProcess]) -> None:
    """The state of the group is in its space, and the topic with ``main``; each moves to the other daemon."""
    one, two = pair
    seen: list[object] = []

    async def publish(first: int) -> None:
        urls = ",".join([one.url, two.url])
        async with dataspace.connect(urls) as space, space.publish("t", durable=True) as topic:
            assert isinstance(topic.time, int)
            await topic.finish(first, first + 1, then=topic.time + 1)

    with trio.fail_after(SOON):
        await publish(0)
        async with dataspace.connect(one.url, space="a", grace=60) as space:
            async with space.consume(topic="t", group="w", start=1, in_flight=2) as jobs:

                async def work() -> None:
                    for _ in range(2):
                        job = await jobs.next_job()
                        assert job is not None
                        async with space.turn(done=[job]) as turn:
                            turn.assert_(Record("result", job["item"]), owner="results")
                        seen.append(job["item"])

                await work()
                for number, (name, successor) in enumerate(
                    [("a", "two"), ("main", "two"), ("a", "one"), ("main", "one")], 1
                ):
                    await move(pair, name, successor)
                    await publish(2 * number)
                    await work()
            assert seen == [*range(10)]
            assert sorted(await space.matches("result($)")) == [(number,) for number in range(10)]


async def test_main_moves_with_its_topics(pair: list[DaemonProcess]) -> None:
    urls = [each.url for each in pair]
    with trio.fail_after(SOON):
        async with dataspace.connect(urls, grace=60) as space:
            await space.assert_(Record("here", 1))
            async with space.publish("t", durable=True) as topic:
                await topic.send(1, Record("item", 1))
            await move(pair, "main", "two")
            await space.assert_(Record("here", 2))
            assert (await space.status())["process"] == pair[1].process.pid
            assert sorted(await space.matches("here($x)")) == [(1,), (2,)]
