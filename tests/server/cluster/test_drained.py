"""A daemon that an operator drains hands over all that it leads, and leads nothing until it is resumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from relay.store.address import StoreAddress
from relay.store.postgres.database import Database
from server.cluster.database.cluster_state import MemberSeen
from server.cluster.database.reading import StoreSeen, seen
from tests.server.cluster.test_failover import LEASE
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SOON = 60
SPACES = ("main", "a", "b")


@pytest.fixture
def daemons(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[DaemonProcess]]:
    """Three daemons that are not started, with leases that a killed one holds for a second."""
    monkeypatch.setenv(LEASE, "1s")
    found = []
    for name in ("one", "two", "three"):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'cluster.name = "{name}"\n[spaces.a]\n[spaces.b]\n')
        found.append(DaemonProcess(postgres_url, "--config", str(path)))
    yield found


class Said:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


async def cluster(*words: str) -> Said:
    done = await trio.run_process(
        [sys.executable, "-m", "dataspace", "cluster", *words],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


async def state_of(daemon: DaemonProcess) -> StoreSeen:
    return await trio.to_thread.run_sync(seen, StoreAddress.parse(daemon.place))


async def led(daemon: DaemonProcess) -> dict[str, str | None]:
    """Returns the leader of each space that has one."""
    return {each.space: each.leader for each in (await state_of(daemon)).spaces if each.left > 0}


async def seen_as(daemon: DaemonProcess, name: str) -> MemberSeen:
    [found] = [each for each in (await state_of(daemon)).daemons if each.name == name]
    return found


async def settled(
    daemon: DaemonProcess, leaders: set[str], spaces: int = len(SPACES)
) -> dict[str, str | None]:
    """Returns the leaders once all spaces are led by these daemons and no other."""
    while True:
        found = await led(daemon)
        if len(found) == spaces and {*found.values()} <= leaders:
            return found
        await trio.sleep(0.05)


async def test_it_hands_over_all_stays_out_when_started_again_and_leads_once_resumed(
    daemons: list[DaemonProcess],
) -> None:
    one, two, _ = daemons
    with running(one, two), trio.fail_after(SOON):
        await settled(one, {"one", "two"})
        drained = await cluster("drain", "one", "--url", two.url)
        assert drained.code == 0, drained.err
        first, *lines = drained.out.splitlines()
        assert first == "one is drained"
        spaces = {line.split("  led by ")[0].removeprefix("space ") for line in lines}
        assert {"a", "main"} <= spaces, "b may have been spared before"
        assert all("led by two, term " in line and line.endswith(" s without turns") for line in lines)
        assert await led(two) == dict.fromkeys(SPACES, "two")
        again = await cluster("drain", "one", "--url", f"{one.url},{two.url}")
        assert (again.code, again.out) == (0, "one is drained already\n")
        assert await trio.to_thread.run_sync(one.stop) == 0
        assert (await seen_as(two, "one")).is_left
        one.start()
        await trio.sleep(1.5)  # longer than a lease, in which it might take spaces
        assert await led(two) == dict.fromkeys(SPACES, "two")
        assert (await seen_as(two, "one")).drained is not None
        moved = await cluster("move", "a", "one", "--data", two.place)
        assert moved.code == 2 and "one is drained" in moved.err
        resumed = await cluster("resume", "one", "--url", one.url)
        assert (resumed.code, resumed.out) == (0, "one may lead\n")
        moved = await cluster("move", "a", "one", "--data", two.place)
        assert moved.code == 0 and "led by one at " in moved.out and " s without turns" in moved.out
        again = await cluster("resume", "one", "--data", two.place)
        assert (again.code, again.out) == (0, "one may lead, and was not drained\n")


async def test_a_client_that_pipelines_turns_meanwhile_notices_nothing(daemons: list[DaemonProcess]) -> None:
    _one, two, three = daemons
    with running(*daemons), trio.fail_after(SOON):
        urls = [each.url for each in daemons]
        async with (
            dataspace.connect(urls, space="a", grace=60) as space,
            dataspace.connect(urls, grace=60) as beside,
            trio.open_nursery() as nursery,
        ):
            await space.assert_(Record("here", 1))
            tickets = []

            async def drain() -> None:
                assert (await cluster("drain", "one", "--url", three.url)).code == 0

            nursery.start_soon(drain)
            for n in range(10):
                for k in range(20):
                    draft = (space if k % 2 else beside).draft()
                    draft.send(Record("tick", 10 * n + k // 2))
                    tickets.append(await (space if k % 2 else beside).submit(draft))
                await trio.sleep(0.1)
            for ticket in tickets:
                await ticket.wait()
            assert {*(await settled(two, {"two", "three"})).values()} <= {"two", "three"}
            assert await space.matches("here($x)") == [(1,)]
            for each in (space, beside):
                async with each.observe("tick($n)", after=0, upto=await each.sync(), durable=True) as log:
                    ticks = [change.captures[0] async for change in log if change.captures]
                assert sorted(ticks) == [*range(100)]  # type: ignore[type-var]  # numbers


async def test_the_last_and_a_stranger_are_refused(daemons: list[DaemonProcess]) -> None:
    one, *_ = daemons
    with running(one), trio.fail_after(SOON):
        for asked in (("--url", one.url), ("--data", one.place)):
            last = await cluster("drain", "one", *asked)
            assert last.code == 1 and "no other daemon" in last.err and "start one first" in last.err
            stranger = await cluster("drain", "won", *asked)
            assert stranger.code == 1 and "no daemon 'won'" in stranger.err and "but one" in stranger.err
        assert (await seen_as(one, "one")).drained is None


async def test_one_that_is_down_is_drained_and_leads_only_while_no_other_lives(
    daemons: list[DaemonProcess],
) -> None:
    one, two, three = daemons
    with running(one, three), trio.fail_after(SOON):
        two.start()
        await trio.to_thread.run_sync(two.kill)
        assert (await cluster("drain", "two", "--data", one.place)).code == 0
        await trio.to_thread.run_sync(three.stop)
        await settled(one, {"one"})
        last = await cluster("drain", "one", "--url", one.url)
        assert last.code == 1 and "no other daemon" in last.err
        with running(two):
            last = await cluster("drain", "one", "--url", one.url)
            assert last.code == 1 and "or resume two" in last.err
            assert await led(one) == dict.fromkeys(SPACES, "one")
            await trio.to_thread.run_sync(one.kill)
            await settled(two, {"two"})
            one.start()
            await settled(two, {"one"})


async def test_of_those_that_are_drained_at_one_moment_one_goes_on(daemons: list[DaemonProcess]) -> None:
    one, two, three = daemons
    with running(*daemons), trio.fail_after(SOON):
        found: list[int] = []

        async def drain(name: str, by: DaemonProcess) -> None:
            found.append((await cluster("drain", name, "--url", by.url)).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain, "one", two)
            nursery.start_soon(drain, "two", one)
        assert found == [0, 0]
        await settled(three, {"three"})
        assert (await cluster("resume", "two", "--url", three.url)).code == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain, "two", one)
            nursery.start_soon(drain, "three", one)
        assert 1 in found[2:]
        left = [each.name for each in (await state_of(one)).daemons if each.drained is None]
        assert left and {*left} <= {"two", "three"}
        await settled(one, {*left})


async def test_one_that_takes_over_just_then_hands_over_again(daemons: list[DaemonProcess]) -> None:
    one, two, three = daemons
    with running(*daemons), trio.fail_after(SOON):
        await trio.to_thread.run_sync(one.kill)
        assert (await cluster("drain", "two", "--url", two.url)).code == 0
        await settled(three, {"three"})


async def test_a_token_without_administer_is_refused(daemons: list[DaemonProcess], tmp_path: Path) -> None:
    _one, two, _three = daemons
    tokens = [
        f'[[tokens]]\nname = "{name}"\nsecret = "the secret of {name}"\nassert = true\n{rights}'
        for name, rights in (("admin", "administer = true\n"), ("guest", "inspect = true\n"))
    ]
    for name in ("one", "two", "three"):
        with (tmp_path / f"{name}.toml").open("a") as file:
            file.write("".join(tokens))
    with running(*daemons), trio.fail_after(SOON):
        words = ("drain", "one", "--url", two.url, "--token")
        denied = await cluster(*words, "the secret of guest")
        assert denied.code == 1 and "does not allow to drain a daemon" in denied.err
        assert (await seen_as(two, "one")).drained is None
        assert (await cluster(*words, "the secret of admin")).code == 0


async def test_a_daemon_over_a_directory_has_no_cluster(tmp_path: Path) -> None:
    alone = DaemonProcess(tmp_path)
    with running(alone), trio.fail_after(SOON):
        refused = await cluster("drain", "one", "--url", alone.url)
        assert refused.code == 1 and "is of no cluster" in refused.err


async def test_a_store_of_an_earlier_version_is_read_as_it_is_and_gets_what_it_lacks(
    daemons: list[DaemonProcess],
) -> None:
    """The tables that an earlier version made stay, and its daemons say nothing of themselves."""
    one, two, _ = daemons
    with running(one), trio.fail_after(SOON):
        await trio.to_thread.run_sync(one.stop)
        with closing(Database(StoreAddress.parse(one.place))) as database, database.connect() as connection:
            connection.execute(database.statement("DROP TABLE {s}.daemons, {s}.handovers"))
            connection.execute(
                database.statement(
                    "INSERT INTO {s}.members (nonce, name, url, web, version, config, beat, until, level)"
                    " VALUES (gen_random_uuid(), 'old', 'tcp://old:1', '', '0.0.9', '', 0,"
                    " now() + interval '1h', 1)"
                )
            )
        status = await cluster("status", "--data", one.place)
        assert "daemon old  tcp://old:1  version 0.0.9, " in status.out and "lag not known" in status.out
        with running(two):
            drained = await cluster("drain", "old", "--url", two.url)
            assert (drained.code, drained.out) == (0, "old is drained\n")
            found = json.loads((await cluster("status", "--data", one.place, "--json")).out)
            rows = {each["name"]: each for each in found["members"]}
            assert rows["old"]["drained"] and rows["old"]["lag"] is None
            while (await seen_as(two, "two")).clients is None:  # noqa: ASYNC110  # of another process
                await trio.sleep(0.05)


async def test_the_status_and_the_facts_show_who_is_drained_behind_and_gone(
    daemons: list[DaemonProcess],
) -> None:
    one, _two, three = daemons
    with running(*daemons), trio.fail_after(SOON):
        assert (await cluster("drain", "two", "--url", one.url)).code == 0
        await trio.to_thread.run_sync(three.stop)
        async with (
            dataspace.connect(one.url, space="system", read="any") as system,
            system.observe("drained($name, $since)", quiet=True) as seen_there,
        ):
            async for epoch in seen_there.epochs():  # the first one may be from before it was known here
                if epoch.added:
                    assert [name for name, _ in epoch.added] == ["two"]
                    break
            while await system.matches('member("three", _)'):  # noqa: ASYNC110  # it has left, and is not missed
                await trio.sleep(0.05)
            while (await seen_as(one, "two")).lag != {space: [0, 0] for space in SPACES}:  # noqa: ASYNC110
                await trio.sleep(0.05)
            status = await cluster("status", "--data", one.place)
            lines = {line.split()[1]: line for line in status.out.splitlines() if line.startswith("daemon ")}
            assert ", not behind, drained since 20" in lines["two"] and " clients" in lines["one"]
            assert ", left 20" in lines["three"]
            assert (await cluster("resume", "two", "--url", one.url)).code == 0
            assert [name for name, _ in (await anext(seen_there.epochs())).removed] == ["two"]
