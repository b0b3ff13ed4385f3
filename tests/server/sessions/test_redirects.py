"""A client goes where a daemon sends it, with all that is under way, whatever it asks and wherever it is sent
away; each turn happens once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

import dataspace
from dataspace import ConnectionEvent, ProtocolError, Record, Refused, RemoteSpace, Unreachable, absent
from index.values.values import Map, Value
from tests.server.peers import fact
from tests.server.relays import Relay, Way, relay

SOON = 15
WAYS: list[Way] = ["hello", "asked", "welcomed"]

DOWN = "tcp://127.0.0.1:9"
"""An address at which nothing listens."""


# -- what a client does ---------------------------------------------------------------------------------


async def turn(space: RemoteSpace) -> None:
    await space.assert_(fact(1))


async def many_turns(space: RemoteSpace) -> None:
    async with trio.open_nursery() as nursery:
        for n in range(1, 30):
            nursery.start_soon(space.assert_, fact(n))


async def conditional(space: RemoteSpace) -> None:
    async with space.turn(expect=[absent("fact(1)")]) as draft:
        draft.assert_(fact(1))


async def put(space: RemoteSpace) -> None:
    await space.put("key", "a", 1, owner="it")
    assert await space.withdraw("key(_, _)", owner="it") == 1
    await space.put(fact(1), by="fact(_)")


async def interest(space: RemoteSpace) -> None:
    async with space.observe("fact($n)") as seen, space.asserting(fact(1)):
        async for change in seen:
            assert change.n == 1
            break
    await space.assert_(fact(1))


async def hold(space: RemoteSpace) -> None:
    await space.hold(fact(1), ttl=60)


async def lock(space: RemoteSpace) -> None:
    async with space.lock("l"):
        await space.assert_(fact(1))


async def topic(space: RemoteSpace) -> None:
    async with space.publish("t") as publication:
        await publication.send([1])
    await space.assert_(fact(1))


async def why(space: RemoteSpace) -> None:
    said = await space.request("rules", Map({"ask": "why", "about": Record("fact", 1)}))
    assert isinstance(said, str)
    await space.assert_(fact(1))


async def asks_together(space: RemoteSpace) -> None:
    async with trio.open_nursery() as nursery:
        for n in range(5):
            about = Map({"owner": f"lease:60000:{n}"})
            nursery.start_soon(space.request, "lease", about)
    await space.assert_(fact(1))


VERBS = [turn, many_turns, conditional, put, interest, hold, lock, topic, why, asks_together]
Verb = Callable[[RemoteSpace], Awaitable[None]]


@asynccontextmanager
async def witness(url: str) -> AsyncIterator[RemoteSpace]:
    async with dataspace.connect(url, name="witness") as space:
        yield space


@pytest.mark.parametrize("grace", [0.0, 30.0])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("verb", VERBS)
async def test_whatever_a_client_asks_it_goes_where_it_is_sent(
    url: str, verb: Verb, way: Way, grace: float
) -> None:
    async with relay(url, way) as follower, witness(url) as leader:
        with trio.fail_after(SOON):
            async with dataspace.connect(follower.here, grace=grace) as space:
                await verb(space)
                assert (1,) in await leader.matches("fact($n)")
                assert follower.refused >= 1 and len(follower.hellos) == 1
        if verb is not hold:
            assert await leader.matches("fact($n)") == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_lease_is_granted_where_the_client_is_sent(url: str, way: Way) -> None:
    async with relay(url, way) as follower, witness(url) as leader:
        with trio.fail_after(SOON):
            async with dataspace.connect(follower.here, lease=60, name="x") as space:
                await space.assert_(fact(1))
                assert await leader.matches("fact($n)") == [(1,)]


@pytest.mark.parametrize("grace", [0.0, 30.0])
@pytest.mark.parametrize("way", WAYS)
async def test_facts_observations_and_turns_go_along_when_a_leader_moves(
    url: str, way: Way, grace: float
) -> None:
    """Over a follower that sends the client on as well, and without any fact that is lost, or twice."""
    said: list[ConnectionEvent] = []
    async with (
        relay(url, way) as follower,
        relay(url, "passes") as old,
        witness(url) as leader,
        leader.observe("fact($n)", quiet=True, policy="wait") as seen,
    ):
        assert (await seen.next_epoch()) is not None
        with trio.fail_after(SOON):
            async with dataspace.connect(
                [old.here, follower.here], grace=grace, on_connection=said.append
            ) as space:
                first = await space.assert_(fact(1))
                async with space.observe("fact($n)", quiet=True) as mine:
                    assert await anext(mine.epochs())
                    tickets = []
                    for n in range(2, 12):
                        draft = space.draft()
                        draft.assert_(fact(n))
                        tickets.append(await space.submit(draft))
                        if n == 6:
                            await old.send_away("moved", follower.here)
                    epochs = [await ticket.wait() for ticket in tickets]
                    assert epochs == sorted(set(epochs)) and (first.epoch or 0) < epochs[0]
                    known: set[tuple[Value, ...]] = {(1,)}
                    async for epoch in mine.epochs():
                        known = known.union(epoch.added).difference(epoch.removed)
                        if known >= {(n,) for n in range(1, 12)}:
                            break
                assert sorted(await leader.matches("fact($n)")) == [(n,) for n in range(1, 12)]
                assert space.reconnects >= 1
                if grace and way == "hello":
                    assert said[-1].change.name == "RESUMED", said
        came: list[tuple[str, object]] = []
        while not (came and all((("-", n) in came) for n in range(1, 12))):
            changes = await seen.next_epoch()
            assert changes is not None
            came += [("+", n) for (n,) in changes.added] + [("-", n) for (n,) in changes.removed]
        if grace and way == "hello":
            assert sorted(came, key=str) == sorted(
                [(sign, n) for sign in "+-" for n in range(1, 12)], key=str
            ), "a fact blinked"


async def test_addresses_that_are_down_are_passed_over(url: str) -> None:
    for urls in ([DOWN, url], f"{DOWN},{url}", (url, DOWN), f"{DOWN}, {DOWN},{url}"):
        with trio.fail_after(SOON):
            async with dataspace.connect(urls) as space:
                await space.assert_(fact(1))


async def test_the_error_names_each_address_that_does_not_answer() -> None:
    with pytest.raises(Unreachable) as raised:
        async with dataspace.connect(["tcp://127.0.0.1:9", "tcp://127.0.0.1:11"]):
            pass
    assert "127.0.0.1:9 " in str(raised.value) and "127.0.0.1:11 " in str(raised.value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ring", [1, 2])
async def test_followers_that_send_to_one_another_are_not_asked_hot(url: str, way: Way, ring: int) -> None:
    """They are asked ten times a second at most, and left as soon as one knows the leader."""
    async with relay(url, way) as one, relay(url, way) as two, trio.open_nursery() as nursery:
        ends = [one, two] if ring == 2 else [one, one]
        one.said = ("elsewhere", "not here", ends[1].here)
        two.said = ("elsewhere", "not here", one.here)
        done = trio.Event()

        async def write() -> None:
            async with dataspace.connect(one.here) as space:
                await space.assert_(fact(1))
            done.set()

        nursery.start_soon(write)
        await trio.sleep(1.5)
        asked = len(one.hellos) + len(two.hellos)
        assert not done.is_set() and 2 <= asked <= 20, asked
        one.said = ("elsewhere", "there", url)
        with trio.fail_after(SOON):
            await done.wait()


@pytest.mark.parametrize("way", WAYS)
async def test_the_leader_is_found_beside_daemons_that_send_to_one_another(url: str, way: Way) -> None:
    async with relay(url, way) as one, relay(url, way) as two:
        one.said, two.said = ("elsewhere", "", two.here), ("elsewhere", "", one.here)
        with trio.fail_after(SOON):
            async with dataspace.connect([DOWN, one.here, two.here, url]) as space:
                await space.assert_(fact(1))
        assert len(one.hellos) + len(two.hellos) <= 6


async def test_a_client_waits_where_nothing_leads(url: str) -> None:
    async with relay(url, "hello", code="no-leader") as follower, trio.open_nursery() as nursery:
        done = trio.Event()

        async def write() -> None:
            async with dataspace.connect([follower.here]) as space:
                await space.assert_(fact(1))
            done.set()

        nursery.start_soon(write)
        await trio.sleep(0.5)
        assert not done.is_set() and 1 <= len(follower.hellos) <= 8
        follower.way = "passes"
        with trio.fail_after(SOON):
            await done.wait()


@pytest.mark.parametrize("code", ["elsewhere", "no-leader"])
@pytest.mark.parametrize("way", ["asked", "welcomed"])
@pytest.mark.parametrize("stale", range(4))
async def test_no_turn_happens_twice_over_a_daemon_that_does_not_know_the_newest(
    url: str, way: Way, stale: int, code: str
) -> None:
    """It welcomes the client with an old number, after which facts would be asserted again in between."""
    async with (
        relay(url, "passes") as old,
        relay(url, way, code=code) as follower,
        witness(url) as leader,
        leader.observe("said($n)", quiet=True, policy="wait") as said,
    ):
        follower.stale = stale
        assert await said.next_epoch() is not None
        with trio.fail_after(SOON):
            async with dataspace.connect([old.here, follower.here]) as space:
                for n in range(3):
                    await space.assert_(fact(n))
                old.deaf = True
                tickets = []
                for n in range(3):
                    draft = space.draft()
                    draft.send(Record("said", n))
                    tickets.append(await space.submit(draft))
                came: list[tuple[Value, ...]] = []
                while len(came) < 3:
                    epoch = await said.next_epoch()
                    assert epoch is not None
                    came += epoch.messages
                old.deaf = False  # and passes to the leader, where the follower knows none
                await old.send_away("closing", follower.here)
                for ticket in tickets:
                    await ticket.wait()
                await space.send(Record("said", 3))
                assert sorted(await leader.matches("fact($n)")) == [(n,) for n in range(3)]
        while (3,) not in came:
            epoch = await said.next_epoch()
            assert epoch is not None
            came += epoch.messages
        assert came == [(n,) for n in range(4)]


async def test_a_client_that_does_not_reconnect_gets_the_refusal_and_its_address(url: str) -> None:
    async with relay(url, "asked") as follower:
        async with dataspace.connect(follower.here, reconnect=False) as space:
            with pytest.raises(Refused) as refused:
                await space.assert_(fact(1))
            assert (refused.value.code, refused.value.url) == ("elsewhere", url)
            with pytest.raises(Refused, match="elsewhere"):
                await space.request("lease", Map({"owner": "lease:60000:x"}))


async def test_no_code_but_these_sends_a_client_on(url: str) -> None:
    async with relay(url, "hello", code="not-allowed") as follower:
        with pytest.raises(ProtocolError) as refused:
            async with dataspace.connect([follower.here, url]):
                pass
        assert refused.value.code == "not-allowed"


async def test_a_daemon_that_is_behind_is_passed_over_while_another_is_not(url: str) -> None:
    async with relay(url, "passes") as old, relay(url, "passes") as late, relay(url, "passes") as new:
        late.late = 100
        with trio.fail_after(SOON):
            async with dataspace.connect([old.here, late.here, new.here]) as space:
                await space.assert_(fact(1))
                old.way, old.said = "hello", ("no-leader", "", "")
                await old.send_away("closing", late.here)
                await space.assert_(fact(2))
                assert len(late.hellos) >= 1 and len(new.hellos) == 1
            async with dataspace.connect([late.here]) as space:
                await space.assert_(fact(3))
                await late.send_away("closing", "")
                await space.assert_(fact(4))


async def test_a_token_goes_along_only_where_the_program_or_a_safe_daemon_sends_it(url: str) -> None:
    """Another scheme at the same place is enough: a redirect to a Unix socket is not followed from TCP."""
    here = Relay(url, "hello", "unix:///tmp/none.sock")
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, here.serve, [listener])
        place = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
        with trio.fail_after(SOON):
            async with dataspace.connect([place, url]) as space:
                await space.assert_(fact(1))
        nursery.cancel_scope.cancel()
