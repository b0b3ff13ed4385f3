"""Reads go to any daemon of a store, show what the client has done and seen, and go on at another one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

import dataspace
from dataspace import RemoteSpace, UsageError
from tests.server.peers import fact
from tests.server.proxies import Proxy
from tests.server.relays import Relay, relay

SOON = 20


@asynccontextmanager
async def store(url: str, followers: int = 1) -> AsyncIterator[tuple[RemoteSpace, list[Relay]]]:
    """A client that reads anywhere, and daemons that follow the one that leads."""
    async with trio.open_nursery() as nursery:
        made: list[Relay] = []
        for _ in range(followers):
            here = Relay(url, "hello", url)
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            here.here = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
            nursery.start_soon(trio.serve_listeners, here.serve, [listener])
            made.append(here)
        with trio.fail_after(SOON):
            async with dataspace.connect([each.here for each in made], read="any") as space:
                yield space, made
        nursery.cancel_scope.cancel()


async def test_quiet_reads_are_served_by_a_follower_and_all_else_by_the_leader(url: str) -> None:
    async with store(url) as (space, [follower]):
        await space.assert_(fact(1))
        assert await space.matches("fact($n)") == [(1,)]
        assert (await space.query("fact($n)")).epoch > 0
        assert await space.first("fact($n)") == (1,)
        async with space.observe("fact($n)", quiet=True, as_of=1, upto=1) as past:
            assert await past.next_epoch() is not None
        assert len(follower.opened) == 4
        async with space.observe("fact($n)") as loud:
            assert await loud.next_epoch() is not None
        assert len(follower.opened) == 4
        # a client that only reads, and a client that was sent to the leader
        assert len(follower.hellos) == 2 and follower.refused == 1


async def test_a_client_reads_what_it_has_written(url: str) -> None:
    async with store(url) as (space, [follower]):
        written = await space.assert_(fact(1))
        epoch = written.epoch
        assert epoch is not None
        follower.newest = epoch - 1
        async with trio.open_nursery() as nursery:
            found: list[list[tuple[object, ...]]] = []

            async def look() -> None:
                found.append(sorted(await space.matches("fact($n)"), key=str))

            before = len(follower.opened)
            await space.assert_(fact(2))
            for _ in range(3):
                nursery.start_soon(look)
            await trio.sleep(0.3)
            assert found == [] and len(follower.opened) == before, "opened at a daemon that is behind"
            follower.newest = epoch
            await trio.sleep(0.3)
            assert found == [] and len(follower.opened) == before
            follower.newest = epoch + 1
        assert found == [[(1,), (2,)]] * 3


async def test_a_client_reads_on_while_a_daemon_does_not_reach_its_store(url: str) -> None:
    async with store(url, followers=2) as (space, relays):
        epoch = (await space.assert_(fact(1))).epoch
        assert epoch is not None
        for each in relays:
            each.newest, each.away = epoch - 1, 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(space.matches, "fact($n)")
            while any(each.away for each in relays):  # noqa: ASYNC110  # a test sets a plain number
                await trio.sleep(0.01)
            for each in relays:
                each.newest = epoch
        assert await space.matches("fact($n)") == [(1,)]


async def test_an_observation_that_ended_meanwhile_is_not_opened(url: str) -> None:
    async with store(url) as (space, [follower]):
        claim = await space.assert_(fact(1))
        assert claim.epoch is not None
        follower.newest = claim.epoch
        await space.assert_(fact(2))
        before = len(follower.opened)
        for _ in range(3):
            observation = space.watch("fact($n)")
            with trio.move_on_after(0.1):
                await observation.next_epoch()
            observation.close()
        follower.newest = None
        assert len(await space.matches("fact($n)")) == 2
        assert len(follower.opened) == before + 1


async def test_another_daemon_is_tried_where_one_stays_behind(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataspace.client.session.reading.BEHIND_SECONDS", 0.2)
    async with store(url, 2) as (space, followers):
        claim = await space.assert_(fact(1))
        assert claim.epoch is not None
        used = next(each for each in followers if any(h.features.get("read") for h in each.hellos))
        used.newest = claim.epoch - 1
        assert await space.matches("fact($n)") == [(1,)]
        assert sum(len(other.opened) for other in followers if other is not used) == 1
        assert used.opened == []


@pytest.mark.parametrize("ends", ["closed", "over"])
async def test_no_daemon_shows_an_earlier_state_than_an_observation_that_has_ended(
    url: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataspace.client.session.reading.BEHIND_SECONDS", 0.2)
    async with store(url, 2) as (space, followers), dataspace.connect(url) as other:
        assert await space.matches("fact($n)") == []
        used = next(each for each in followers if any(h.features.get("read") for h in each.hellos))
        behind = next(each for each in followers if each is not used)
        claim = await other.assert_(fact(1))
        assert claim.epoch is not None
        upto = claim.epoch if ends == "over" else None
        async with space.observe("fact($n)", quiet=True, as_of=claim.epoch, upto=upto) as seen:
            state = await seen.next_epoch()
        assert state is not None and state.number == claim.epoch
        behind.newest = claim.epoch - 1
        await used.send_away("closing", behind.here)
        before = len(behind.opened)
        assert await space.matches("fact($n)") == [(1,)]
        assert len(behind.opened) == before


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_cut_each_read_shows_the_last_write_and_nothing_is_lost(
    url: str, seed: int
) -> None:
    """A law: a counter that this client writes is read as written, and its observer sees each value."""
    chance = random.Random(seed)
    async with store(url, 3) as (space, followers), trio.open_nursery() as nursery:
        seen: list[object] = []

        async def watch() -> None:
            async with space.observe("count($n)", quiet=True, policy="wait") as counts:
                last = 0
                async for epoch in counts.epochs():
                    assert epoch.number > last
                    last = epoch.number
                    seen.extend(n for (n,) in epoch.added)
                    if 40 in seen:
                        return

        nursery.start_soon(watch)
        for n in range(1, 41):
            if chance.random() < 0.3:
                follower = chance.choice(followers)
                code = chance.choice(["closing", "behind", "elsewhere", "moved"])
                await follower.send_away(code, chance.choice(followers).here if chance.random() < 0.5 else "")
            await space.put(dataspace.Record("count", n), by="count(_)")
            if chance.random() < 0.5:
                assert await space.matches("count($n)") == [(n,)]
    assert seen == [*range(41 - len(seen), 41)], "a value was lost, or came twice"


def test_the_blocking_client_reads_anywhere_too(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="leader, any"):
        dataspace.connect_blocking("tcp://127.0.0.1:9", read="follower")


async def test_a_blocking_client_reads_what_it_has_written(url: str) -> None:
    async with relay(url, "hello") as follower:

        def use() -> list[tuple[object, ...]]:
            with dataspace.connect_blocking(follower.here, read="any") as space:
                space.assert_(fact(1))
                return list(space.matches("fact($n)"))

        assert await trio.to_thread.run_sync(use) == [(1,)]
        assert len(follower.opened) == 1


async def test_a_session_with_the_leader_that_is_at_a_follower_waits_for_what_it_has_seen(
    url: str, proxy: Proxy
) -> None:
    async with relay(url, "asked", proxy.url) as follower:
        with trio.fail_after(SOON):
            async with (
                dataspace.connect([proxy.url, follower.here], owner="map") as space,
                trio.open_nursery() as nursery,
            ):
                epoch = (await space.assert_(fact(1))).epoch
                assert epoch is not None
                follower.newest = epoch - 1
                proxy.refusing = True
                proxy.cut()
                found: list[object] = []

                async def look() -> None:
                    found.append(await space.matches("fact($n)"))

                nursery.start_soon(look)
                while not follower.hellos:  # noqa: ASYNC110  # of another task
                    await trio.sleep(0.01)
                await trio.sleep(0.3)
                assert follower.opened == [], "opened at a daemon that is behind"
                follower.newest = epoch
                while not found:  # noqa: ASYNC110  # of another task
                    await trio.sleep(0.01)
                assert (found, follower.opened) == ([[(1,)]], [epoch])
                assert await space.matches("fact($n)") == [(1,)], "what comes later is of that daemon"
