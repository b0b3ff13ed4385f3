"""A half-open connection is found within two intervals, by either side, and one that is only idle is kept."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

import dataspace
from dataspace import ConnectionChange, Record, UsageError
from dataspace.kernel.actions import SEND
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from dataspace.wire.session import Heartbeat
from index.values.values import Map
from server.config.model import Limits
from tests.server.peers import Peer, hello, turn
from tests.server.proxies import Proxy

INTERVAL = 0.1


async def test_an_idle_connection_beats_and_is_kept(url: str) -> None:
    """Three intervals without a word of the application: were nobody to ping, it would be given up."""
    async with dataspace.connect(url, heartbeat=INTERVAL) as space:
        await trio.sleep(5 * INTERVAL)
        await space.send("still there")
        assert space.reconnects == 0


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"heartbeat": None}, "heartbeat is in seconds, above 0 (math.inf for none), not None"),
        ({"heartbeat": 0.0}, "heartbeat is in seconds, above 0 (math.inf for none), not 0.0"),
        ({"grace": math.nan}, "grace is in seconds, 0 for none, not nan"),
        ({"grace": math.inf}, "grace is in seconds, 0 for none, not inf"),
        ({"lease": -1.0}, "lease is in seconds, 0 for none, not -1.0"),
    ],
)
async def test_times_that_are_none_are_refused(times: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        async with dataspace.connect("tcp://127.0.0.1:1", **times):
            pass
    assert str(raised.value) == said


async def test_a_client_finds_a_silent_daemon_and_comes_back(url: str, proxy: Proxy) -> None:
    async with dataspace.connect(proxy.url, heartbeat=INTERVAL) as space:
        lost = trio.Event()
        space.on_connection = lambda event: lost.set() if event.change is ConnectionChange.LOST else None
        await space.assert_(Record("present", "Alice"))
        proxy.silent = True
        with trio.fail_after(60):
            await lost.wait()
        proxy.silent = False
        await space.send("back")
        assert space.reconnects >= 1


async def test_the_daemon_finds_a_silent_client_and_its_facts_go(url: str, proxy: Proxy) -> None:
    async with (
        dataspace.connect(url) as witness,
        witness.observe("present($who)") as seen,
        dataspace.connect(proxy.url, heartbeat=INTERVAL) as space,
    ):
        await space.assert_(Record("present", "Alice"))
        assert (await anext(seen)).kind == "+"
        proxy.silent = True
        with trio.fail_after(60):
            gone = await anext(seen)
        assert (gone.kind, gone.who) == ("-", "Alice")


async def test_a_peer_that_agreed_and_says_nothing_is_told_and_parted_from(url: str) -> None:
    async with Peer(url) as peer:
        await peer.say(hello()._replace(features=Wanted(heartbeat=INTERVAL).packed()))
        welcome = await peer.hear()
        assert isinstance(welcome, p.Welcome) and welcome.features["heartbeat"] == 100
        begun = trio.current_time()
        bye = await peer.farewell()
        assert bye == p.Bye("timeout", "no data for 0.2 s")
        assert trio.current_time() - begun >= 2 * INTERVAL * 0.9


async def test_a_peer_that_agreed_on_nothing_may_be_silent(url: str) -> None:
    async with Peer(url) as peer:
        assert (await peer.greet()).features == Map()
        await peer.say(turn(1, (SEND, "hi")))
        assert isinstance(await peer.hear(), p.Accepted)
        with trio.move_on_after(3 * INTERVAL) as patience:
            assert await peer.hear() is not None, "nothing at all, not even a ping"
        assert patience.cancelled_caught


@pytest.mark.parametrize("limits", [Limits(heartbeat_seconds=0.5, heartbeat_least=0.2)])
@pytest.mark.parametrize(("wanted", "got"), [(0.001, 200), (0.3, 300), (60.0, 500)])
async def test_the_daemon_bounds_the_interval(url: str, wanted: float, got: int) -> None:
    async with Peer(url) as peer:
        await peer.say(hello()._replace(features=Wanted(heartbeat=wanted).packed()))
        welcome = await peer.hear()
        assert isinstance(welcome, p.Welcome) and welcome.features["heartbeat"] == got


async def test_values_that_are_not_taken_hold_no_beat_back(url: str) -> None:
    """A client whose application reads nothing still hears and pings: it is slow, not gone."""
    async with dataspace.connect(url, heartbeat=INTERVAL) as space, space.observe("n($n)") as unread:
        unread.open()
        for n in range(50):
            await space.send(Record("n", n))
        await trio.sleep(4 * INTERVAL)
        assert space.reconnects == 0


def test_without_an_interval_nothing_is_ever_due() -> None:
    beat = Heartbeat(now=5.0)
    assert beat.due == beat.lost == float("inf")


async def test_features_that_are_none_are_refused(url: str) -> None:
    async with Peer(url) as peer:
        strange = Map({"heartbeat": "often"})
        await peer.say(hello()._replace(features=strange))
        bye = await peer.farewell()
        assert bye.code == "malformed" and "features.heartbeat must be a number of milliseconds" in bye.text
