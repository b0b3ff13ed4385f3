"""A daemon is admitted as a follower by a proof that only a living member of the store can make."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from dataspace.kernel.actions import ASSERT
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.values.values import Map
from relay.store.address import StoreAddress
from server.cluster.database.proofs import proof_of
from server.cluster.database.store import StoreHome
from server.cluster.followers import FollowerReport
from server.config.model import Cluster, Config
from server.config.principals import Principal
from server.config.rights import Key
from server.daemon.serve import serve
from server.sessions.peer import Peer as ServedPeer
from tests.postgres.servers import connect, patient
from tests.server.peers import Peer, fact, opening, turn

SOON = 60
SECRET = "the secret of the plant"
LEASE = 600.0
REPORT = Map({"name": "b", "url": "tcp://b:1", "hints": ("main",), "epochs": Map({"main": 1})})


def home_of(url: str, name: str) -> StoreHome:
    address = StoreAddress.parse(patient(url))
    return StoreHome(Config(data=address, cluster=Cluster(name=name, lease=LEASE)), address)


def end(home: StoreHome) -> None:
    home._leave()
    home._database.close()


@pytest.fixture
def members(postgres_url: str) -> Iterator[tuple[StoreHome, StoreHome]]:
    """Two members of a store."""
    made = home_of(postgres_url, "a"), home_of(postgres_url, "b")
    for each in made:
        each._join()
    yield made
    for each in made:
        end(each)


Members = tuple[StoreHome, StoreHome]


# -- proofs -------------------------------------------------------------------------------------------


async def test_a_living_member_is_known_by_its_proof(members: Members) -> None:
    a, b = members
    proof = b.proof_for(a.nonce)
    assert await a.follower(proof) == "b"
    for each in (a, b):
        assert each.nonce.hex not in proof.lower(), "neither secret is shown"
    a._proofs._living = []
    assert await a.follower(proof) == "b", "the store is asked anew"


WRONG: dict[str, Callable[[StoreHome, StoreHome], str]] = {
    "for another leader": lambda a, b: b.proof_for(b.nonce),
    "of the leader itself": lambda a, b: a.proof_for(a.nonce),
    "the other way round": lambda a, b: a.proof_for(b.nonce),
    "of no member": lambda a, b: proof_of(a.nonce, type(a.nonce)(int=7)),
    "cut": lambda a, b: b.proof_for(a.nonce)[:-1],
    "a nonce": lambda a, b: f"member:{b.nonce.hex}",
    "nothing": lambda a, b: "member:",
    "no ASCII": lambda a, b: "member:\u00e9\ud800",
}


@pytest.mark.parametrize("way", WRONG)
async def test_a_wrong_proof_is_nobody_s(members: Members, way: str) -> None:
    assert await members[0].follower(WRONG[way](*members)) is None


async def test_a_member_whose_lease_has_run_out_is_none_until_it_joins_again(
    members: Members, postgres_url: str
) -> None:
    a, b = members
    before = b.proof_for(a.nonce)
    with connect(postgres_url) as beside:
        beside.execute("UPDATE members SET until = clock_timestamp() WHERE name = 'b'")
    assert await a.follower(before) is None
    b._lease._until = 0.0
    await b.view(0.0)
    assert await a.follower(b.proof_for(a.nonce)) == "b"
    assert await a.follower(before) is None, "under another nonce"


async def test_many_proofs_at_once_ask_the_store_once(members: Members) -> None:
    a, b = members
    found: list[str | None] = []

    async def show(proof: str) -> None:
        found.append(await a.follower(proof))

    async with trio.open_nursery() as nursery:
        for n in range(100):
            nursery.start_soon(show, f"member:{n:064x}")
        nursery.start_soon(show, b.proof_for(a.nonce))
    assert sorted(map(str, found)) == [*["None"] * 100, "b"]
    assert a._proofs.questions == 1


# -- connections --------------------------------------------------------------------------------------


@pytest.fixture
async def leader(postgres_url: str, nursery: trio.Nursery) -> str:
    """The URL of a daemon that requires tokens."""
    cluster, address = Cluster(name="a", lease=LEASE), StoreAddress.parse(patient(postgres_url))
    config = Config(("tcp:127.0.0.1:0",), address, cluster=cluster, keys=(Key("plant", SECRET),))
    addresses: list[str] = await nursery.start(serve, config)
    return addresses[0]


@pytest.fixture
async def other(postgres_url: str, leader: str) -> AsyncIterator[StoreHome]:
    """A member that follows that daemon, if it wants to."""
    made = home_of(postgres_url, "b")
    await trio.to_thread.run_sync(made._join)
    yield made
    await trio.to_thread.run_sync(end, made)


def hello(token: str, client: str = "~b") -> p.Hello:
    return p.Hello(p.VERSION, client, "follower", Wanted(token=token).packed())


async def heard(peer: Peer) -> p.Packet | None:
    """The next packet that is no hint."""
    while isinstance(packet := await peer.hear(), p.Reached):
        pass
    return packet


def proof(member: StoreHome) -> str:
    nonce = member.looks.ask().standings["main"].nonce
    assert nonce is not None
    return member.proof_for(nonce)


@pytest.mark.slow
async def test_a_follower_reports_and_may_do_nothing_else(leader: str, other: StoreHome) -> None:
    with trio.fail_after(SOON):
        async with Peer(leader) as peer, Peer(leader) as client:
            await peer.say(hello(await trio.to_thread.run_sync(proof, other)))
            assert isinstance(await peer.hear(), p.Welcome)
            await peer.say(p.Request(1, "follow", REPORT))
            answer = await peer.hear()
            assert isinstance(answer, p.Answer) and isinstance(answer.value, Map)
            assert answer.value["url"] == leader.replace("tcp:", "tcp://", 1)
            await client.say(hello(SECRET, "~client"), p.Request(1, "status", Map()))
            assert isinstance(await client.hear(), p.Welcome)
            status = await client.hear()
            assert isinstance(status, p.Answer) and isinstance(status.value, Map)
            assert isinstance(status.value["followers"], Map) and list(status.value["followers"]) == ["b"]
            await client.say(turn(1, (ASSERT, 1, fact(1))))
            accepted = await client.hear()
            assert isinstance(accepted, p.Accepted)
            while await peer.hear() != p.Reached(accepted.epochs[0], (1,)):
                pass

            await peer.say(
                turn(1, (ASSERT, 1, fact(2))), opening(), p.Request(2, "drain", Map({"within": 1_000}))
            )
            for _ in range(3):
                refused = await heard(peer)
                assert isinstance(refused, p.Refusal | p.Error | p.Denied)
                assert refused.code == "not-allowed"


@pytest.mark.slow
async def test_a_client_is_no_follower(leader: str) -> None:
    with trio.fail_after(SOON):
        async with Peer(leader) as client:
            await client.say(hello(SECRET), p.Request(1, "follow", REPORT))
            assert isinstance(await client.hear(), p.Welcome)
            denied = await client.hear()
            assert isinstance(denied, p.Denied) and denied.code == "not-allowed"


@pytest.mark.slow
async def test_a_wrong_proof_is_refused_like_any_wrong_token_and_not_logged(
    leader: str, other: StoreHome, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = proof_of(other.nonce, other.nonce)
    with trio.fail_after(SOON):
        async with Peer(leader) as peer:
            await peer.say(hello(wrong))
            refused = await peer.hear()
            assert isinstance(refused, p.Bye) and refused.code == "unauthorized"
    assert "refused a token" in caplog.text and wrong not in caplog.text


# -- hints --------------------------------------------------------------------------------------------


class Slow:
    """A connection that takes packets, or none while it is blocked."""

    def __init__(self) -> None:
        self.blocked = False
        self.said: list[p.Packet] = []
        self.sending = self

    def is_blocked(self) -> bool:
        return self.blocked

    def say(self, packet: p.Packet) -> None:
        self.said.append(packet)

    def flush(self) -> None:
        pass


def test_hints_of_a_follower_that_does_not_read_become_one_for_each_space() -> None:
    peer = Slow()
    served: ServedPeer = peer  # type: ignore[assignment]  # a part of one
    known = FollowerReport(served, "b", "", "", False, {"": 0, "main": 1, "other": 2})
    peer.blocked = True
    for epoch in range(1, 1000):
        known.due[1 + epoch % 2] = epoch
        known.tell()
    assert peer.said == []
    peer.blocked = False
    known.tell()
    assert sorted(peer.said) == [p.Reached(998, (1,)), p.Reached(999, (2,))]
    known.tell()
    assert len(peer.said) == 2


def test_a_member_is_a_principal_of_its_own() -> None:
    assert str(Principal.of_member("a b/c")) == "member:a%20b%2Fc"
    assert not Principal.of_member("x").covers(Principal("daemon"))
