"""Followers of a store are told by their leader what is new, and it knows how far each of them is."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from dataspace.client.session.uplink import open_link
from dataspace.errors import DataspaceError, Refused
from dataspace.transport.addresses import parse_listen
from index.values.values import Map
from relay.following import polling
from relay.store.address import StoreAddress
from server.cluster.database import contact
from server.config.model import Cluster, Config, ServerTls
from server.config.rights import Key
from server.daemon.serve import serve
from tests.postgres.servers import patient
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SOON = 60
SECRET = "the secret of the plant"
CERTIFICATES = Path(__file__).parents[1] / "certificates"
NEVER = 100_000.0


def name_of(daemon: DaemonProcess) -> str:
    return f"{socket.gethostname()}:{daemon.process.pid}"


# -- processes ----------------------------------------------------------------------------------------


async def known(space: dataspace.RemoteSpace, *, behind: int = 0) -> dict[str, Any]:
    """The followers in the status of a leader, once all of them are so many epochs behind."""
    while True:
        followers: Any = (await space.status())["followers"]
        found = dict(followers.pairs())
        if found and all(each["lag_epochs"] == Map({"main": behind}) for each in found.values()):
            return found
        await trio.sleep(0.02)


async def until_known(space: dataspace.RemoteSpace, daemons: Sequence[DaemonProcess]) -> dict[str, Any]:
    """The same once these are there."""
    while (found := await known(space)).keys() != {name_of(each) for each in daemons}:  # noqa: ASYNC110
        await trio.sleep(0.02)
    return found


async def test_the_leader_names_its_followers_and_so_does_the_next_one(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "10m")
    file = tmp_path / "daemon.toml"
    file.write_text(f'[[tokens]]\nname = "plant"\nsecret = "{SECRET}"\n')
    file.chmod(0o600)
    first, *others = [DaemonProcess(postgres_url, "--config", str(file)) for _ in range(3)]
    with running(first, *others), trio.fail_after(SOON * 2):
        urls = [each.url for each in (first, *others)]
        async with dataspace.connect(urls, owner="map", token=SECRET, grace=60) as space:
            for n in range(10):
                await space.assert_(Record("fact", n))
            found = await until_known(space, others)
            for each in others:
                follower = found[name_of(each)]
                assert (follower["url"], follower["stand_by"]) == (each.url, True)
            async with (
                dataspace.connect(first.url, space="system", token=SECRET) as system,
                system.observe("follower($name, $url, $web, $stand_by)", quiet=True) as seen,
            ):
                facts = set()
                async for change in seen:
                    facts.add(change.captures)
                    if len(facts) == 2:
                        break
            assert facts == {(name_of(each), each.url, "", True) for each in others}

            await trio.to_thread.run_sync(first.stop)
            await space.assert_(Record("fact", 10))
            pid = (await space.status())["process"]
            (left,) = [each for each in others if each.process.pid != pid]
            await until_known(space, [left])
            await trio.to_thread.run_sync(left.stop)
            while (await space.status())["followers"]:  # noqa: ASYNC110  # of another process
                await trio.sleep(0.02)


async def test_each_leader_names_the_followers_of_its_spaces(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "10m")
    file = tmp_path / "daemon.toml"
    file.write_text("[spaces.a]\n[spaces.b]\n")
    daemons = [DaemonProcess(postgres_url, "--config", str(file)) for _ in range(3)]
    with running(*daemons), trio.fail_after(SOON * 2):
        first, *others = daemons
        await trio.to_thread.run_sync(first.stop)  # the others share its spaces, which may move later on
        one, other = others
        while not (await names_followers(one, other) and await names_followers(other, one)):  # noqa: ASYNC110  # of other processes
            await trio.sleep(0.05)


async def names_followers(daemon: DaemonProcess, other: DaemonProcess) -> bool:
    """True if a daemon names the other one as a follower of the spaces that it leads, and of no other one."""
    led: set[str] = set()
    found: set[Map] = set()
    with suppress(DataspaceError):  # while a space moves
        for name in ("main", "a", "b"):
            async with dataspace.connect(daemon.url, space=name, read="any") as space:
                status: Any = await space.status()
                if status["leads"]:
                    led.add(name)
                found.add(Map({known: each["lag_epochs"] for known, each in status["followers"].pairs()}))
        return found == {Map({name_of(other): Map(dict.fromkeys(led, 0))} if led else {})}
    return False


# -- in this process ----------------------------------------------------------------------------------


@pytest.fixture
def config(postgres_url: str) -> Config:
    """What both daemons have; no lease ends, however busy the machine is."""
    address = StoreAddress.parse(patient(postgres_url))
    return Config(("tcp:127.0.0.1:0",), address, cluster=Cluster(lease=600.0))


async def shown(leader: str, follower: str, **more: Any) -> None:
    """Returns once an observer of the follower has seen some turns, each made when it had seen the last."""
    send, receive = trio.open_memory_channel[object](0)

    async def observe() -> None:
        async with (
            dataspace.connect(follower, read="any", **more) as space,
            space.observe("fact($n)", quiet=True) as changes,
        ):
            async for change in changes:
                await send.send(change.captures[0])

    async with dataspace.connect(leader, **more) as writer, trio.open_nursery() as nursery:
        nursery.start_soon(observe)
        for n in range(5):
            await writer.assert_(Record("fact", n))
            assert await receive.receive() == n
        nursery.cancel_scope.cancel()


async def has_topic(space: dataspace.RemoteSpace) -> None:
    """Returns once a daemon knows the topic."""
    while True:
        with suppress(Refused):
            await space.request("lookup", Map({"topic": "t"}))
            return
        await trio.sleep(0.01)


async def hinted(url: str, **more: Any) -> None:
    """Returns once a leader has a follower, which has told it that it is there."""
    async with dataspace.connect(url, read="leader", **more) as space:
        await known(space)


async def test_hints_alone_bring_epochs_and_items_of_topics(
    config: Config, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact.StoreContact, "_read_on", lambda *_: None)
    monkeypatch.setattr(polling, "POLL_SECONDS", NEVER)
    with trio.fail_after(SOON):
        (leader,) = await nursery.start(serve, config)
        (follower,) = await nursery.start(serve, config)
        await hinted(leader)
        await shown(leader, follower)
        async with (
            dataspace.connect(leader) as writer,
            dataspace.connect(follower, read="any") as reader,
            writer.publish("t", durable=True) as topic,
        ):
            await topic.send("a")
            await topic.advance(1)
            await has_topic(reader)
            async with reader.subscribe("t", as_of=0) as epochs:
                times = []
                async for epoch in epochs:
                    times.append(tuple(epoch.items))
                    if len(times) == 3:
                        break
                    await topic.send(len(times))
                    await topic.advance(len(times) + 1)
        assert times == [("a",), (1,), (2,)]


async def test_a_leader_that_is_not_reached_is_logged_once_and_the_store_polled(
    config: Config, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0

    async def count(*args: Any, **more: Any) -> object:
        nonlocal tried
        tried += 1
        return await open_link(*args, **more)

    monkeypatch.setattr(contact, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(contact, "open_link", count)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    with trio.fail_after(SOON), caplog.at_level(logging.WARNING):
        away = replace(config, cluster=replace(config.cluster, advertise=nowhere))
        (leader,) = await nursery.start(serve, away)
        (follower,) = await nursery.start(serve, config)
        await shown(leader, follower)
        while tried < 5:  # noqa: ASYNC110  # what another task counts
            await trio.sleep(0.01)
    assert caplog.text.count("brings no hints, so the store is polled") == 1


@pytest.mark.parametrize("authority", [None, "ca.pem"])
async def test_hints_come_over_tls_where_clients_need_tokens(
    config: Config,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    authority: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("DATASPACE_TLS_CA", str(CERTIFICATES / "ca.pem"))
    own = ServerTls(str(CERTIFICATES / "daemon.pem"), str(CERTIFICATES / "daemon.key"))
    if authority is not None:
        monkeypatch.setenv("DATASPACE_TLS_CERTIFICATE", str(CERTIFICATES / "client.pem"))
        monkeypatch.setenv("DATASPACE_TLS_KEY", str(CERTIFICATES / "client.key"))
        own = replace(own, client_ca=str(CERTIFICATES / authority))
    config = replace(config, listen=("tls:127.0.0.1:0",), tls=own, keys=(Key("plant", SECRET),))
    with trio.fail_after(SOON):
        leader, follower = [parse_listen((await nursery.start(serve, config))[0]).url for _ in range(2)]
        tls = dataspace.Tls(
            str(CERTIFICATES / "ca.pem"), str(CERTIFICATES / "client.pem"), str(CERTIFICATES / "client.key")
        )
        await hinted(leader, token=SECRET, tls=tls)
        await shown(leader, follower, token=SECRET, tls=tls)
    assert "brings no hints" not in caplog.text
