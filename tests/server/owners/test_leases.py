"""A lease keeps its facts for as long as somebody renews it: through lost lines and restarts, no longer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, Refused, RemoteSpace
from dataspace.client.observations import Observation
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.wire import packets as p
from index.values.values import Map
from server.config.model import Config, Limits
from server.daemon.serve import serve
from server.lane import Lane
from server.owners.leases import Leases
from server.spaces.endings import Departures
from tests.server.peers import Peer, fact, turn
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy
from tests.server.streams.inside import inside

LEASE = "lease:200:mine"
LONG = "lease:60000:mine"


@pytest.fixture
async def witness(url: str) -> AsyncIterator[RemoteSpace]:
    async with dataspace.connect(url) as space:
        yield space


async def _take(observation: Observation, count: int) -> list[tuple[str, object]]:
    with trio.fail_after(10):
        return [
            (change.kind, change.captures[0]) for change in [await anext(observation) for _ in range(count)]
        ]


async def _granted(peer: Peer, owner: str) -> object:
    await peer.say(p.Request(1, "lease", Map({"owner": owner})))
    answer = await peer.hear()
    assert isinstance(answer, p.Answer) and isinstance(answer.value, Map)
    return answer.value["fresh"]


@pytest.mark.slow
async def test_facts_outlive_the_connection_and_go_when_nobody_renews(url: str, witness: RemoteSpace) -> None:
    async with witness.observe("fact($n)") as seen:
        async with Peer(url) as peer:
            await peer.greet()
            assert await _granted(peer, LEASE) is True
            begun = trio.current_time()
            await peer.say(turn(1, (ASSERT, 1, fact(1)), owner=LEASE))
            assert isinstance(await peer.hear(), p.Accepted)
            await peer.say(p.Bye("", ""))
        assert await _take(seen, 1) == [("+", 1)]
        assert await _take(seen, 1) == [("-", 1)]
        assert trio.current_time() - begun >= 0.2, "the turn renewed it"
        assert (await witness.status())["leases"] == 0


async def test_without_a_lease_nothing_is_asserted(url: str) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(turn(1, (ASSERT, 1, fact(1)), owner=LONG))
        refusal = await peer.hear()
        assert isinstance(refusal, p.Refusal) and refusal.code == "no-lease"
        await peer.say(p.Request(1, "renew", Map({"owner": LONG})))
        denied = await peer.hear()
        assert isinstance(denied, p.Denied) and denied.code == "no-lease"


async def test_a_lease_is_granted_once_and_then_renewed_by_anybody(url: str) -> None:
    async with Peer(url) as peer, Peer(url) as other:
        await peer.greet("~one")
        await other.greet("~two")
        assert await _granted(peer, LONG) is True
        assert await _granted(other, LONG) is False
        await other.say(turn(1, (ASSERT, 1, fact(1)), owner=LONG))
        assert isinstance(await other.hear(), p.Accepted)
        await peer.say(turn(1, (RETRACT, 1), owner=LONG))
        assert isinstance(await peer.hear(), p.Accepted)


@pytest.mark.parametrize("limits", [Limits(leases=2, lease_seconds=60.0)])
@pytest.mark.parametrize(
    ("owner", "code", "said"),
    [
        ("mine", "bad-request", "a lease is named lease:MILLISECONDS:NAME, not 'mine'"),
        ("lease:soon:mine", "bad-request", "a lease is named"),
        ("lease:1000:", "bad-request", "a lease is named"),
        ("lease:0:mine", "limit", "lease of 0 ms, the limit is limits.lease_seconds=60"),
        ("lease:60001:mine", "limit", "lease of 60001 ms, the limit is limits.lease_seconds=60"),
        (f"lease:{'9' * 4000}:mine", "limit", "the limit is limits.lease_seconds=60"),
        ("lease:1000:third", "limit", "2 leases, the limit is limits.leases=2"),
    ],
)
async def test_what_is_no_lease_is_denied(url: str, owner: str, code: str, said: str) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        for name in ("first", "second"):
            await _granted(peer, f"lease:60000:{name}")
        await peer.say(p.Request(2, "lease", Map({"owner": owner})))
        denied = await peer.hear()
        assert isinstance(denied, p.Denied)
        assert denied.code == code and said in denied.text


async def test_the_client_renews_and_gives_it_up_at_the_end(url: str, witness: RemoteSpace) -> None:
    async with witness.observe("present($who)") as seen:
        async with dataspace.connect(url, name="backup", lease=0.1) as space:
            assert space.owner.startswith("lease:100:backup-")
            await space.assert_(Record("present", "Alice"))
            await trio.sleep(0.4)
            assert await witness.matches("present($who)") == [("Alice",)]
        assert await _take(seen, 2) == [("+", "Alice"), ("-", "Alice")]


@pytest.mark.parametrize("limits", [Limits(lease_seconds=1.0)])
async def test_a_lease_that_is_not_granted_is_said_at_once(url: str) -> None:
    with pytest.raises(Refused, match=r"lease of 60000 ms, the limit is limits.lease_seconds=1"):
        async with dataspace.connect(url, lease=60.0):
            raise AssertionError("not reached")


async def test_a_lost_connection_does_not_touch_the_facts(proxy: Proxy, witness: RemoteSpace) -> None:
    async with witness.observe("present($who)") as seen, dataspace.connect(proxy.url, lease=20.0) as space:
        alice = await space.assert_(Record("present", "Alice"))
        proxy.cut()
        await space.replace(alice, Record("present", "Bob"))
        assert space.reconnects == 1
        assert await _take(seen, 3) == [("+", "Alice"), ("+", "Bob"), ("-", "Alice")]


async def test_who_was_away_for_too_long_asserts_everything_anew(proxy: Proxy, witness: RemoteSpace) -> None:
    async with witness.observe("present($who)") as seen, dataspace.connect(proxy.url, lease=0.1) as space:
        alice = await space.assert_(Record("present", "Alice"))
        proxy.refusing = True
        proxy.cut()
        assert await _take(seen, 2) == [("+", "Alice"), ("-", "Alice")]
        ticket = await space.submit([(SEND, Record("present", "a message"))])
        proxy.refusing = False
        await ticket.wait()
        assert await _take(seen, 2) == [("+", "Alice"), ("!", "a message")]
        await space.retract(alice)
        assert await _take(seen, 1) == [("-", "Alice")]


async def test_who_slept_for_too_long_asserts_everything_anew(url: str, witness: RemoteSpace) -> None:
    """The connection stands, but the lease has ended under it; turns wait until it is granted again."""
    async with witness.observe("present($who)") as seen, dataspace.connect(url, lease=20.0) as space:
        await space.assert_(Record("present", "Alice"))
        await witness.request("release", Map({"owner": space.owner}))
        assert await _take(seen, 2) == [("+", "Alice"), ("-", "Alice")]
        tickets = [await space.submit([(ASSERT, 100 + n, Record("present", n))]) for n in range(20)]
        epochs = [await ticket.wait() for ticket in tickets]
        assert epochs == sorted(set(epochs))
        assert await _take(seen, 21) == [("+", "Alice"), *[("+", n) for n in range(20)]]


async def test_a_restart_gives_a_lease_its_whole_time_anew(tmp_path: Path) -> None:
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path)
    async with trio.open_nursery() as nursery:
        url = (await nursery.start(serve, config))[0]
        async with Peer(url) as peer:
            await peer.greet()
            for owner in (LONG, LEASE):
                assert await _granted(peer, owner) is True
            await peer.say(turn(1, (ASSERT, 1, fact(1)), owner=LONG))
            await peer.say(turn(2, (ASSERT, 1, fact(2)), owner=LEASE))
            assert isinstance(await peer.hear(), p.Accepted)
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        url = (await nursery.start(serve, config))[0]
        async with dataspace.connect(url) as space, space.observe("fact($n)") as seen:
            assert sorted(await _take(seen, 2)) == [("+", 1), ("+", 2)]
            assert await _take(seen, 1) == [("-", 2)]
            await space.request("renew", Map({"owner": LONG}))
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_client_keeps_its_lease_through_a_killed_daemon(tmp_path: Path) -> None:
    process = DaemonProcess(tmp_path / "data")
    process.start()
    try:
        async with dataspace.connect(process.url, lease=30.0) as space:
            alice = await space.assert_(Record("present", "Alice"))
            await trio.to_thread.run_sync(process.kill)
            await trio.to_thread.run_sync(process.start)
            await space.replace(alice, Record("present", "Bob"))
            frontier = await space.request("frontier", Map())
            assert isinstance(frontier, Map)
            async with space.observe("present($who)", after=0, upto=frontier["epoch"]) as told:  # type: ignore[arg-type]  # a number
                changes = [(change.kind, change.who) async for change in told]
        assert changes == [("+", "Alice"), ("+", "Bob"), ("-", "Alice")], "the restart is not to be seen"
    finally:
        process.stop()


# -- leases over a list -------------------------------------------------------------------------------


class Ended:
    """``server.owners.leases.Owners``: the owners that were ended, and at which time."""

    def __init__(self, claims: int = 1) -> None:
        self.owners: list[tuple[float, str]] = []
        self.calls: list[list[str]] = []
        self.flushed = 0
        self.departures = Departures(self.end_owners, lambda _: claims)
        self.end_soon = self.departures.soon
        self.end_due = self.departures.due

    def end_owners(self, owners: Sequence[str]) -> None:
        self.calls.append([*owners])
        self.owners += [(trio.current_time(), owner) for owner in owners]

    def flush(self) -> None:
        self.flushed += 1


async def test_leases_end_in_time_unless_they_are_renewed(autojump_clock: object) -> None:
    ended, begun = Ended(), trio.current_time()
    leases = Leases(ended, most=3, longest=60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leases.run)
        leases.recover(["durable:x", "lease:5000:old"])
        assert leases.grant("lease:1000:a")
        assert leases.grant("lease:2000:b")
        assert not leases.grant("lease:2000:b")
        with pytest.raises(Refused, match=r"3 leases, the limit is limits.leases=3"):
            leases.grant("lease:1000:c")
        await trio.sleep(0.9)
        leases.renew("lease:1000:a")
        leases.release("lease:2000:b")
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    after = [(round(time - begun, 3), owner) for time, owner in ended.owners]
    assert after == [(0.9, "lease:2000:b"), (1.9, "lease:1000:a"), (5.0, "lease:5000:old")]
    assert ended.flushed == 2
    assert not len(leases)


async def test_leases_that_end_in_the_same_moment_end_in_one_turn(autojump_clock: object) -> None:
    ended = Ended()
    leases = Leases(ended, most=3, longest=60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leases.run)
        for name in "abc":
            leases.grant(f"lease:1000:{name}")
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert ended.calls == [["lease:1000:a", "lease:1000:b", "lease:1000:c"]]
    assert ended.flushed == 1


async def test_leases_with_many_facts_that_end_in_the_same_moment_end_one_after_another(
    autojump_clock: object,
) -> None:
    ended = Ended(claims=3_000)
    leases = Leases(ended, most=3, longest=60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leases.run)
        for name in "abc":
            leases.grant(f"lease:1000:{name}")
        await trio.sleep(2)
        assert ended.calls == [], "it would take long, so it is for the lane"
        await ended.departures.in_turns(Lane(), "space")
        nursery.cancel_scope.cancel()
    assert ended.calls == [["lease:1000:a"], ["lease:1000:b"], ["lease:1000:c"]]


def test_a_lease_longer_than_allowed_is_refused() -> None:
    with pytest.raises(Refused, match=r"the limit is limits.lease_seconds=1"):
        Leases(Ended(), most=3, longest=1.0).grant("lease:1001:a")


async def test_a_release_is_answered_once_it_is_on_disk_and_holds_up_nothing(tmp_path: Path) -> None:
    """Else a daemon that is killed has a fact again that its client knows to be retracted."""
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet()
        await wire.say(
            p.Request(1, "lease", Map({"owner": LONG})),
            turn(1, (ASSERT, 1, fact(1)), owner=LONG),
        )
        assert [type(await wire.hear()) for _ in range(2)] == [p.Answer, p.Accepted]
        daemon.hold()
        await wire.say(
            p.Request(2, "release", Map({"owner": LONG})),
            p.Request(3, "renew", Map({"owner": LONG})),
            p.Request(4, "status", Map()),
        )
        denied, status = await wire.hear(), await wire.hear()
        assert isinstance(denied, p.Denied) and (denied.number, denied.code) == (3, "no-lease")
        assert isinstance(status, p.Answer) and status.number == 4
        assert isinstance(status.value, Map) and status.value["facts"] == 0
        daemon.release()
        assert await wire.hear() == p.Answer(2, None)
        assert daemon.hosted.commits.durable == daemon.hosted.space.epoch
