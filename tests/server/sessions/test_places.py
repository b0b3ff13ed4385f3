"""One principal at its quota is refused by the name of the limit, and all others go on; on real sockets.

Peers come from several addresses of this machine, which are several principals.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from server.config.model import Config, Limits
from server.config.principals import Quotas
from server.daemon.serve import serve
from tests.server.peers import Peer, fact, opening, turn

BULLY, OTHER = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def quotas() -> Quotas:
    """What each principal may have; a test parametrizes it."""
    return Quotas()


@pytest.fixture
async def url(tmp_path: Path, nursery: trio.Nursery, limits: Limits, quotas: Quotas) -> AsyncIterator[str]:
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path, limits=limits, quotas=quotas)
    addresses = await nursery.start(serve, config)
    with trio.fail_after(30):
        yield addresses[0]


@asynccontextmanager
async def _three(url: str) -> AsyncIterator[tuple[Peer, Peer, Peer]]:
    """Yields two clients of one address and one of another."""
    async with (
        Peer(url, source=BULLY) as one,
        Peer(url, source=BULLY) as two,
        Peer(url, source=OTHER) as other,
    ):
        for name, each in {"~one": one, "~two": two, "~other": other}.items():
            await each.greet(name)
        yield one, two, other


async def _ask(peer: Peer, verb: str, **arguments: Value) -> p.Answer | p.Denied:
    await peer.say(p.Request(1, verb, Map(arguments)))
    answer = await peer.hear()
    assert isinstance(answer, p.Answer | p.Denied), answer
    return answer


def _is_refused(answer: p.Packet | None, limit: str) -> bool:
    assert isinstance(answer, p.Denied | p.Refusal | p.Bye | p.Error), answer
    return answer.code == "limit" and limit in answer.text and f"address:{BULLY}" in answer.text


@pytest.mark.parametrize("limits", [Limits(strangers=40, hello_seconds=60)])
@pytest.mark.parametrize("quotas", [Quotas(strangers=30)])
async def test_silent_connections_of_one_address_keep_no_other_out(url: str) -> None:
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(Peer(url, source=BULLY)) for _ in range(40)]
        refused = [await each.hear() for each in silent[30:]]
        assert all(_is_refused(each, "the limit is quota.strangers=30") for each in refused)
        for number in range(30):
            async with Peer(url, source=OTHER) as other:
                await other.greet(f"~{number}")


@pytest.mark.parametrize("limits", [Limits(strangers=4, hello_seconds=60)])
@pytest.mark.parametrize("quotas", [Quotas(strangers=3)])
@pytest.mark.parametrize("source", [BULLY, OTHER])
async def test_a_silent_connection_that_has_had_its_time_makes_room(url: str, source: str) -> None:
    async with Peer(url, source=BULLY) as one, Peer(url, source=BULLY), Peer(url, source=BULLY):
        async with Peer(url, source=OTHER):
            while True:
                async with Peer(url, source=source) as late:
                    await late.say(p.Hello(p.VERSION, "~late", "late", Map()))
                    if isinstance(await late.hear(), p.Welcome):
                        break
            ended = await one.farewell()
            assert ended.code == "limit" and "no hello" in ended.text


@pytest.mark.parametrize("quotas", [Quotas(connections=2)])
async def test_connections_of_one_address_are_bounded(url: str) -> None:
    async with Peer(url, source=BULLY) as one, Peer(url, source=BULLY) as two:
        await one.greet("~one")
        await two.greet("~two")
        async with Peer(url, source=BULLY) as three, Peer(url, source=OTHER) as other:
            await three.say(p.Hello(p.VERSION, "~three", "", Map()))
            assert _is_refused(await three.farewell(), "the limit is quota.connections=2")
            await other.greet("~other")
        await two.say(p.Bye("", ""))
        assert (await two.farewell()).code == ""
        await two.socket.aclose()
        while True:  # until the daemon has seen the end of it
            async with Peer(url, source=BULLY) as four:
                await four.say(p.Hello(p.VERSION, "~four", "", Map()))
                if isinstance(await four.hear(), p.Welcome):
                    break


@pytest.mark.parametrize("quotas", [Quotas(facts=3), Quotas(facts_bytes=1300)])
async def test_facts_of_one_address_are_bounded_over_all_its_sessions(url: str, quotas: Quotas) -> None:
    limit = "the limit is quota.facts=3" if quotas.facts == 3 else "the limit is quota.facts_bytes=1300"
    async with _three(url) as (one, two, other):
        await one.say(turn(1, (ASSERT, 1, fact(1)), (ASSERT, 2, fact(2))))
        assert isinstance(await one.hear(), p.Accepted)
        await two.say(turn(1, (ASSERT, 1, fact(3))))
        assert isinstance(await two.hear(), p.Accepted)
        await two.say(turn(2, (ASSERT, 2, fact(4))))
        assert _is_refused(await two.hear(), limit)
        await other.say(turn(1, (ASSERT, 1, fact(5)), (ASSERT, 2, fact(6))))
        assert isinstance(await other.hear(), p.Accepted)
        await one.say(turn(2, (RETRACT, 1)))
        assert isinstance(await one.hear(), p.Accepted)
        await two.say(turn(3, (ASSERT, 2, fact(4))))
        assert isinstance(await two.hear(), p.Accepted), "what was retracted makes room"
        await one.say(p.Bye("", ""))
        await one.farewell()
        await two.say(turn(4, (ASSERT, 3, fact(7))))
        assert isinstance(await two.hear(), p.Accepted), "so does a session that ends"


@pytest.mark.parametrize("quotas", [Quotas(leases=2)])
async def test_leases_of_one_client_lock_no_other_out(url: str) -> None:
    async with Peer(url, source=BULLY) as one, Peer(url, source=OTHER) as other:
        await one.greet("~one")
        await other.greet("~other")
        for number in range(2):
            assert isinstance(await _ask(one, "lease", owner=f"lease:86400000:{number}"), p.Answer)
        assert _is_refused(await _ask(one, "lease", owner="lease:86400000:2"), "the limit is quota.leases=2")
        denied = await _ask(
            one, "publish", owner="lease:86400000:2", client="c", sequence=1, keys=(), replace=False
        )
        assert _is_refused(denied, "the limit is quota.leases=2")
        assert isinstance(await _ask(other, "lease", owner="lease:86400000:3"), p.Answer)
        assert isinstance(await _ask(one, "lease", owner="lease:86400000:1"), p.Answer), "renewed"
        assert isinstance(await _ask(one, "release", owner="lease:86400000:0"), p.Answer)
        assert isinstance(await _ask(one, "lease", owner="lease:86400000:2"), p.Answer)


@pytest.mark.parametrize("quotas", [Quotas(topics=1)])
@pytest.mark.parametrize("durable", [False, True])
async def test_topics_of_one_client_lock_no_other_out(url: str, durable: bool) -> None:
    async with Peer(url, source=BULLY) as one, Peer(url, source=OTHER) as other:
        await one.greet("~one")
        await other.greet("~other")
        assert isinstance(await _ask(one, "join", topic="a", durable=durable), p.Answer)
        denied = await _ask(one, "join", topic="b", durable=durable)
        assert _is_refused(denied, "the limit is quota.topics=1")
        assert isinstance(await _ask(one, "join", topic="a", durable=durable), p.Answer)
        assert isinstance(await _ask(other, "join", topic="b", durable=durable), p.Answer)
        assert isinstance(await _ask(one, "end-topic", topic="a"), p.Answer)
        assert isinstance(await _ask(one, "join", topic="c", durable=durable), p.Answer)


@pytest.mark.parametrize("quotas", [Quotas(streams=2)])
async def test_streams_of_one_address_are_bounded_over_all_its_connections(url: str) -> None:
    async with _three(url) as (one, two, other):
        await one.say(opening(1, fact(1)))
        assert isinstance(await one.hear(), p.Values)
        await two.say(opening(1, fact(1)), opening(2, fact(2)))
        assert {type(each): each for each in (await two.hear(), await two.hear())}.keys() == {
            p.Values,
            p.Error,
        }
        await other.say(opening(1, fact(1)))
        assert isinstance(await other.hear(), p.Values)
        await one.say(p.Abort(1, "", True))
        assert isinstance(await one.hear(), p.Done)
        await two.say(opening(3, fact(3)))
        assert isinstance(await two.hear(), p.Values)


LONG = "x" * 2000


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("lease", {"owner": f"lease:1000:{LONG}"}),
        ("publish", {"owner": "o", "client": LONG, "sequence": 1, "keys": ()}),
        ("publish", {"owner": LONG, "client": "c", "sequence": 1, "keys": ()}),
        ("publish", {"owner": f"lease:1000:{LONG}", "client": "c", "sequence": 1, "keys": ()}),
        ("acknowledge", {"reader": LONG, "epoch": 0}),
    ],
)
async def test_a_name_that_is_too_long_is_refused(url: str, verb: str, arguments: dict[str, Value]) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        denied = await _ask(peer, verb, **arguments)
        assert isinstance(denied, p.Denied) and denied.code == "limit" and "1024" in denied.text
        await peer.say(turn(1, (ASSERT, 1, fact(1)), owner=LONG))
        refusal = await peer.hear()
        assert isinstance(refusal, p.Refusal) and "limits.name_bytes=1024" in refusal.text
        async with Peer(url) as long:
            await long.say(p.Hello(p.VERSION, LONG, "", Map()))
            bye = await long.farewell()
            assert bye.code == "limit" and "limits.name_bytes=1024" in bye.text


@pytest.mark.parametrize("quotas", [Quotas(readers=1)])
async def test_readers_of_one_client_lock_no_other_out(url: str) -> None:
    async with Peer(url, source=BULLY) as one, Peer(url, source=OTHER) as other:
        await one.greet("~one")
        await other.greet("~other")
        assert isinstance(await _ask(one, "acknowledge", reader="a", epoch=0), p.Answer)
        denied = await _ask(one, "acknowledge", reader="b", epoch=0)
        assert _is_refused(denied, "the limit is quota.readers=1")
        assert isinstance(await _ask(one, "acknowledge", reader="a", epoch=0), p.Answer)
        assert isinstance(await _ask(other, "acknowledge", reader="b", epoch=0), p.Answer)
        assert isinstance(await _ask(one, "acknowledge", reader="a", forget=True), p.Answer)
        assert isinstance(await _ask(one, "acknowledge", reader="c", epoch=0), p.Answer)


@pytest.mark.parametrize("quotas", [Quotas(staged_bytes=5_000)])
async def test_what_one_client_stages_locks_no_other_out(url: str) -> None:
    async with Peer(url, source=BULLY) as one, Peer(url, source=OTHER) as other:
        await one.greet("~one")
        await other.greet("~other")
        batch: tuple[Value, ...] = (("assert", "x" * 3_000),)
        assert isinstance(await _ask(one, "stage", key=("a",), operations=batch), p.Answer)
        denied = await _ask(one, "stage", key=("b",), operations=batch)
        assert _is_refused(denied, "the limit is quota.staged_bytes=5000")
        assert isinstance(await _ask(other, "stage", key=("c",), operations=batch), p.Answer)
        published = await _ask(one, "publish", keys=(("a",),), owner="o", client="c", sequence=1)
        assert isinstance(published, p.Answer)
        assert isinstance(await _ask(one, "stage", key=("d", "e"), operations=batch), p.Answer)
        assert isinstance(await _ask(one, "discard", key=("d",)), p.Answer)
        await one.say(p.Offer(1, Map({"kind": "stage", "key": ("f",)})))
        assert isinstance(await one.hear(), p.Ask)
        await one.say(p.Values(1, 0, batch, 0), p.Values(1, 1, batch, 0))
        heard = await one.hear()
        while isinstance(heard, p.Ask):
            heard = await one.hear()
        assert _is_refused(heard, "the limit is quota.staged_bytes=5000")
        assert isinstance(await _ask(one, "discard", key=("f",)), p.Answer)
        assert isinstance(await _ask(one, "stage", key=("g",), operations=batch), p.Answer)


def _rule(number: int) -> Record:
    return Record("rule", f"r{number}", f"a{number}($x) <- b($x).")


@pytest.mark.parametrize("quotas", [Quotas(rules=2), Quotas(rules_bytes=40)])
async def test_rules_of_one_client_leave_room_for_those_of_others(url: str, quotas: Quotas) -> None:
    limit = "the limit is quota.rules=2" if quotas.rules == 2 else "the limit is quota.rules_bytes=40"
    async with _three(url) as (one, two, other):
        await one.say(turn(1, (ASSERT, 1, _rule(1))))
        assert isinstance(await one.hear(), p.Accepted)
        await two.say(turn(1, (ASSERT, 1, _rule(2))))
        assert isinstance(await two.hear(), p.Accepted)
        await two.say(turn(2, (ASSERT, 2, _rule(3))), turn(3, (ASSERT, 2, fact(1))))
        assert _is_refused(await two.hear(), limit)
        assert isinstance(await two.hear(), p.Accepted), "other facts are no rules"
        await other.say(turn(1, (ASSERT, 1, _rule(4))))
        assert isinstance(await other.hear(), p.Accepted)
        await two.say(turn(4, (REPLACE, 1, 3, _rule(5))))
        assert isinstance(await two.hear(), p.Accepted), "one for another is no more"
        await one.say(turn(2, (RETRACT, 1)))
        assert isinstance(await one.hear(), p.Accepted)
        await two.say(turn(5, (ASSERT, 4, _rule(6))))
        assert isinstance(await two.hear(), p.Accepted), "what one retracts another one has"
        await two.say(p.Bye("", ""))
        await two.farewell()
        await one.say(turn(3, (ASSERT, 1, _rule(7)), (ASSERT, 2, _rule(8))))
        assert isinstance(await one.hear(), p.Accepted), "what ends with its session counts no more"


@pytest.mark.parametrize("quotas", [Quotas(patterns_bytes=20_000)])
async def test_patterns_of_one_client_leave_room_for_those_of_others(url: str) -> None:
    async with Peer(url, source=BULLY) as one, Peer(url, source=OTHER) as other:
        await one.greet("~one")
        await other.greet("~other")
        long = Record("p", "x" * 6_000, capture("x"))
        await one.say(opening(1, long))
        assert isinstance(await one.hear(), p.Values)
        await one.say(opening(2, long, after=0), opening(3, fact(1)))
        assert _is_refused(await one.hear(), "the limit is quota.patterns_bytes=20000")
        assert isinstance(await one.hear(), p.Values), "a short one has room"
        await other.say(opening(1, long))
        assert isinstance(await other.hear(), p.Values)
        for number in (1, 4, 5):
            await one.say(p.Abort(number, "", True))
            assert isinstance(await one.hear(), p.Done)
            await one.say(opening(max(4, number + 1), long))
            assert isinstance(await one.hear(), p.Values), "one that is closed makes room"
        async with Peer(url, source=BULLY) as two:
            await two.greet("~two")
            await two.say(opening(1, long))
            assert _is_refused(await two.hear(), "the limit is quota.patterns_bytes=20000")
            await one.say(p.Bye("", ""))
            await one.farewell()
            await two.say(opening(2, long))
            assert isinstance(await two.hear(), p.Values), "so does a connection that ends"


@pytest.mark.parametrize("quotas", [Quotas(shapes=2)])
async def test_shapes_of_patterns_of_one_label_are_bounded_for_each_principal(url: str) -> None:
    one_there, other_there = Record("p", "a", capture("x")), Record("p", capture("x"), "a")
    async with Peer(url, source=BULLY) as one, Peer(url, source=OTHER) as other:
        await one.greet("~one")
        await other.greet("~other")
        shapes = [one_there, other_there, Record("p", capture("x"))]
        for number, pattern in enumerate([*shapes[:2], Record("p", "b", capture("y"))]):
            await one.say(opening(number + 1, pattern))
            assert isinstance(await one.hear(), p.Values), "another constant is no further shape"
        await one.say(opening(4, shapes[2]), opening(5, Record("q", capture("x"))))
        assert _is_refused(await one.hear(), "3 shapes of patterns for the label 'p' in space main")
        assert isinstance(await one.hear(), p.Values), "another label has its own"
        status = await _ask(one, "status")
        assert isinstance(status, p.Answer) and isinstance(status.value, Map)
        principals = status.value["principals"]
        assert isinstance(principals, Map)
        assert "('shapes', 2)" in repr(principals[f"address:{BULLY}"]), "of the label with most"
        for number, pattern in enumerate(shapes[:2]):
            await other.say(opening(number + 1, pattern))
            assert isinstance(await other.hear(), p.Values), "other principals have their own"
        await one.say(p.Abort(1, "", True))
        assert isinstance(await one.hear(), p.Done)
        await one.say(opening(6, shapes[2]))
        assert _is_refused(await one.hear(), "quota.shapes=2"), "another stream has the shape"
        await one.say(p.Abort(3, "", True))
        assert isinstance(await one.hear(), p.Done)
        await one.say(opening(7, shapes[2]))
        assert isinstance(await one.hear(), p.Values), "the last stream of a shape that is closed makes room"
        async with Peer(url, source=BULLY) as two:
            await two.greet("~two")
            await two.say(opening(1, one_there))
            assert _is_refused(await two.hear(), "quota.shapes=2")
            await one.say(p.Bye("", ""))
            await one.farewell()
            await two.say(opening(2, one_there))
            assert isinstance(await two.hear(), p.Values), "so does a connection that ends"


async def test_who_is_connected_is_stated_for_those_who_may_inspect(url: str) -> None:
    async with Peer(url, source=OTHER) as other:
        await other.greet("~other")
        pattern = Record("session", capture("n"), "main", capture("name"), capture("who"))
        await other.say(opening(1, pattern, space="system"))
        first = await other.hear()
        assert isinstance(first, p.Values)
        async with Peer(url, source=BULLY) as one:
            await one.say(p.Hello(p.VERSION, "~one", "x" * 1_000, Map()))
            assert isinstance(await one.hear(), p.Welcome)
            came = await other.hear()
            assert isinstance(came, p.Values)
            text = repr(came.values)
            assert f"address:{BULLY}" in text and "x" * 256 in text and "x" * 257 not in text
            await one.say(turn(1, (ASSERT, 1, fact(1))))
            assert isinstance(await one.hear(), p.Accepted)
            status = await _ask(other, "status")
            assert isinstance(status, p.Answer) and isinstance(status.value, Map)
            principals = status.value["principals"]
            assert isinstance(principals, Map)
            mine = principals[f"address:{BULLY}"]
            assert isinstance(mine, Map)
            assert (mine["connections"], mine["facts"]) == (1, 1) and "topics" not in mine
        gone = await other.hear()
        assert isinstance(gone, p.Values) and f"address:{BULLY}" in repr(gone.values)
