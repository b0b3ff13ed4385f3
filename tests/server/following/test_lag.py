"""How far a follower is behind: what it counts, what it tells, and where it sends new readers."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.transport.addresses import parse_listen
from index.values.values import Map
from relay.following.following import Following
from relay.log.segments import Segment
from relay.store.address import StoreAddress
from server.config.model import Cluster, Config, Follow
from server.daemon.serve import serve
from server.spaces.roles import MOST_LEADER_EPOCHS, FollowerLag, LeaderEpochs
from tests.server.web_client import Plain

MOST = 0.2
SOON = 40


# -- counting -----------------------------------------------------------------------------------------


def test_the_lag_is_the_age_of_the_oldest_epoch_that_is_told_and_not_applied() -> None:
    grid = itertools.product(range(4), repeat=4), itertools.combinations_with_replacement(range(4), 4)
    for told, applied in itertools.product(*grid):
        newest = LeaderEpochs()
        for now, (epoch, done) in enumerate(zip(told, applied, strict=True)):
            newest.add(epoch, float(now))
            missing = [at for at in range(now + 1) if told[at] > done]
            late = FollowerLag(max(told[: now + 1]) - done, float(now - missing[0])) if missing else None
            assert newest.lag(done, float(now)) == (late or FollowerLag(0, 0.0)), (told, applied)


def test_a_follower_that_stands_still_remembers_no_more_than_its_bound() -> None:
    newest = LeaderEpochs()
    for number in range(1, 3 * MOST_LEADER_EPOCHS):
        newest.add(number, float(number))
    assert newest.lag(0, 5_000.0) == FollowerLag(3 * MOST_LEADER_EPOCHS - 1, 4_999.0)
    assert len(newest._waiting) == MOST_LEADER_EPOCHS
    assert newest.lag(MOST_LEADER_EPOCHS, 5_000.0).epochs == 2 * MOST_LEADER_EPOCHS - 1
    assert newest.lag(3 * MOST_LEADER_EPOCHS, 5_000.0) == FollowerLag(0, 0.0)


# -- telling ------------------------------------------------------------------------------------------


class Held:
    """A follower that gets no further while it is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on = trio.Event()
        take_all = Following._take_all

        async def hold(following: Following, segment: Segment, items: Sequence[object]) -> None:
            with trio.move_on_after(SOON):  # the follower shields itself here
                await self.may_go_on.wait()
            await take_all(following, segment, items)  # type: ignore[arg-type]  # as it was called

        monkeypatch.setattr(Following, "_take_all", hold)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture(params=["directory", pytest.param("postgres", marks=pytest.mark.slow)])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path | StoreAddress:
    """Where the log is."""
    if request.param == "directory":
        return tmp_path
    return StoreAddress.parse(patient(request.getfixturevalue("postgres_url")))


def patient(url: str) -> str:
    """Returns an address with which a daemon does not give up a connection because the machine is busy."""
    return f"{url}&connect_timeout={SOON}"


@pytest.fixture
async def addresses(
    home: Path | StoreAddress, nursery: trio.Nursery, held: Held
) -> AsyncIterator[tuple[list[str], list[str]]]:
    """The URLs of a leader and of its follower: for clients, and for HTTP."""
    listen = ("tcp:127.0.0.1:0", "http:127.0.0.1:0")
    config = Config(listen, home, cluster=Cluster(lease=600.0))
    leader = await nursery.start(serve, config)
    follow = Follow(home if isinstance(home, Path) else None, most_lag=MOST)
    follower = await nursery.start(serve, replace(config, follow=follow))
    yield (
        [parse_listen(leader[0]).url, parse_listen(leader[1]).http],
        [
            parse_listen(follower[0]).url,
            parse_listen(follower[1]).http,
        ],
    )
    held.may_go_on.set()


async def told(space: dataspace.RemoteSpace, *, late: bool) -> Map:
    """The status of a follower once it has fallen three epochs behind, as it was told, or caught up."""
    while True:
        status = await space.status()
        lag = status["lag_seconds"]
        assert isinstance(lag, float)
        if status["leader"] and status["lag_epochs"] == (3 if late else 0) and (lag > MOST or not late):
            return status
        await trio.sleep(0.05)


async def got(web: str, path: str) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(web)
    async with Plain(parts.port or 0) as plain:
        await plain.shout(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        return await plain.response()


ROLES = ("", "?role=reader", "?role=leader")


async def ready(web: str, role: str) -> int:
    """Returns the status of what a probe asks."""
    return (await got(web, f"/readyz{role}"))[0]


async def test_new_readers_go_to_the_leader_while_others_stay(
    held: Held, addresses: tuple[list[str], list[str]], home: Path | StoreAddress
) -> None:
    (url, web), (follower_url, follower_web) = addresses
    with trio.fail_after(SOON):
        async with (
            dataspace.connect(url) as writer,
            dataspace.connect(follower_url) as before,
            dataspace.connect(follower_url) as asking,
            before.observe("fact($n)", quiet=True) as seen,
        ):
            for number in range(3):
                await writer.assert_(Record("fact", number))
            status = await told(asking, late=True)
            assert status["leads"] is False and status["leader"] == url and status["lag_epochs"] == 3

            async with dataspace.connect(f"{follower_url},{url}", read="any") as late:
                assert len(await late.matches("fact($n)")) == 3, "the leader has answered"
            path = "/v1/spaces/main/facts?pattern=fact(_)"
            status_code, headers, body = await got(follower_web, path)
            assert (status_code, json.loads(body)["code"]) == (307, "behind")
            assert headers["location"] == web + path
            assert [await ready(follower_web, role) for role in ROLES] == [200, 503, 503]
            assert [await ready(web, role) for role in ROLES] == [200, 200, 200]

            tellers = [url] if isinstance(home, Path) else [url, follower_url]  # each member of a cluster
            for each in tellers:
                async with (
                    dataspace.connect(each, space="system", read="leader") as system,
                    system.observe("follower-lag($name, $space, $seconds)", quiet=True) as lags,
                ):
                    async for change in lags:
                        seconds = change.captures[2]
                        assert seconds in (1, 2, 4, 8, 16, 32), "it changes ever more rarely"
                        break
            leads: Any = await writer.status()
            ((_, follower),) = leads["followers"].pairs()
            assert follower["lag_epochs"] == Map({"main": 3}) and follower["lag_seconds"]["main"] >= 1

            held.may_go_on.set()
            found = set()
            async for change in seen:
                found.add(change.captures)
                if len(found) == 3:
                    break
            assert found == {(0,), (1,), (2,)}, "it is still connected"
            assert (await told(asking, late=False))["lag_seconds"] == 0.0
            assert len(await asking.matches("fact($n)")) == 3
            assert [await ready(follower_web, role) for role in ROLES] == [200, 200, 503]
