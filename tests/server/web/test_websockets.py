"""A WebSocket is a session as any other; what breaks its protocol, or a bound, ends it with the reason."""

from __future__ import annotations

import itertools
import ssl
from pathlib import Path

import pytest
import trio
import trio.testing

import dataspace
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from server.config.model import Config, Limits, ServerTls, Web
from server.config.principals import Quotas
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from tests.server.peers import EVERYTHING, Peer, hello, opening, turn
from tests.server.web_client import JSON, MSGPACK, Doors, Plain, WebPeer, body_of, masked, upgrade

BOTH = pytest.mark.parametrize("subprotocol", [MSGPACK, JSON])


# -- the handshake ------------------------------------------------------------------------------------


REFUSED = [
    (upgrade("other"), 400, "the subprotocols offered are other; offer dataspace.1.msgpack or"),
    (upgrade("").replace(b"Sec-WebSocket-Protocol: \r\n", b""), 400, "offered are none"),
    (upgrade(JSON, path="/ws?token=x"), 400, "a token belongs into the hello"),
    (upgrade(JSON, path="/elsewhere"), 404, "a WebSocket is at /ws"),
    (upgrade(JSON).replace(b"Version: 13", b"Version: 8"), 426, "version of WebSocket is 13"),
    (upgrade(JSON).replace(b"-Key: ", b"-Key: ="), 400, "16 bytes in base 64"),
    (upgrade(JSON).replace(b"-Key: ", b"-None: "), 400, "16 bytes in base 64"),
    (upgrade(JSON).replace(b"GET", b"POST"), 405, "with GET"),
    (upgrade(JSON).replace(b"Upgrade: websocket\r\n", b""), 426, "ask for an upgrade"),
    (upgrade(JSON, "Content-Length: 1") + b"x", 400, "has no body"),
    (upgrade(JSON, "Origin: https://evil.example"), 403, "is not in web.origins"),
    (upgrade(JSON, host="evil.example"), 421, "evil.example"),
    (b"GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n", 426, "ask for an upgrade"),
]


async def test_a_request_that_becomes_no_websocket_says_why(doors: Doors) -> None:
    for said, status, text in REFUSED:
        async with Plain(doors.port) as client:
            await client.shout(said)
            found, headers, body = await client.response()
            assert found == status and text in body.decode(), said
            assert (found == 426) == (headers.get("sec-websocket-version") == "13")
            await client.shout(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if "Content-Length" not in said.decode():
                assert (await client.response())[0] == 404  # the connection goes on


@pytest.mark.parametrize("web", [Web(origins=("https://app.example",))])
async def test_pages_of_listed_origins_and_its_own_may_connect(doors: Doors) -> None:
    for page in ("Origin: https://app.example", f"Origin: http://localhost:{doors.port}"):
        headers = upgrade(JSON, page, host=f"localhost:{doors.port}")
        async with Plain(doors.port) as client:
            await client.shout(headers)
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


async def test_the_answer_is_that_of_the_standard_and_the_first_known_subprotocol(doors: Doors) -> None:
    async with Plain(doors.port) as client:
        said = upgrade(f"other, {JSON}, {MSGPACK}")
        key = said.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        await client.shout(said.replace(key, b"dGhlIHNhbXBsZSBub25jZQ=="))  # the example of RFC 6455
        heads = (await client.until(b"\r\n\r\n")).decode().lower()
        assert "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in heads
        assert f"sec-websocket-protocol: {JSON}\r\n" in heads
        assert "extensions" not in heads


@BOTH
async def test_what_is_sent_with_the_request_is_heard(subprotocol: str, doors: Doors) -> None:
    async with WebPeer(doors.port, subprotocol) as peer:
        greeting = masked(0x80 | peer.kind, body_of(hello("~eager"), subprotocol))
    async with Plain(doors.port) as client:
        await client.shout(upgrade(subprotocol) + greeting)
        await client.until(b"\r\n\r\n")
        assert await client.exactly(2) is not None  # a welcome


# -- the protocol -------------------------------------------------------------------------------------


@BOTH
async def test_fragments_with_pings_between_them_are_one_message(subprotocol: str, doors: Doors) -> None:
    async with WebPeer(doors.port, subprotocol) as peer:
        body = body_of(hello(), subprotocol)
        await peer.shout(masked(peer.kind, body[:3]) + masked(0x89, b"are you there?"))
        await peer.shout(masked(0x00, body[3:5]) + masked(0x8A, b"unasked"))
        await peer.shout(masked(0x80, body[5:]))
        assert isinstance(await peer.hear(), p.Welcome)
        assert peer.pongs == [b"are you there?"]


async def test_of_many_pings_that_wait_the_latest_is_answered(doors: Doors) -> None:
    async with WebPeer(doors.port, window=4096) as peer:
        await peer.greet()
        await peer.shout(b"".join([masked(0x89, b"%d" % n) for n in range(3000)]))
        await peer.say(p.Ping(1))
        assert await peer.hear() == p.Pong(1)
        assert peer.pongs[-1] == b"2999"


EARLY = masked(0x81, b'[2,1,"main","",[[9]]]')
"""A turn whose action is none."""

BROKEN = [
    (MSGPACK, b"\x82\x01x", "malformed", 1002),
    (MSGPACK, masked(0xC2, b"x"), "malformed", 1002),
    (MSGPACK, masked(0x81, b"x"), "malformed", 1003),
    (JSON, masked(0x82, b"x"), "malformed", 1003),
    (JSON, masked(0x81, b'["\xff"]'), "malformed", 1007),
    (JSON, masked(0x81, b"["), "malformed", 1008),
    (JSON, masked(0x81, b"{}"), "malformed", 1008),
    (JSON, EARLY, "malformed", 1008),
    (JSON, masked(0x81, b"[99]"), "unknown-packet", 1008),
    (MSGPACK, masked(0x82, b"\x91\x63"), "unknown-packet", 1008),
    (MSGPACK, masked(0x80, b"x"), "malformed", 1002),
    (MSGPACK, masked(0x09, b"x"), "malformed", 1002),
    (MSGPACK, masked(0x8A, b"") * 5000, "limit", 1002),
    (MSGPACK, masked(0x83, b"x"), "malformed", 1002),
    (MSGPACK, masked(0x88, b"x"), "malformed", 1002),
    (JSON, masked(0x88, b"\x03\xec"), "malformed", 1002),
    (JSON, masked(0x88, b"\x03\xe8\xff"), "malformed", 1007),
    (MSGPACK, b"\x82\xfe\x00\x01" + b"\0" * 4 + b"x", "malformed", 1002),
    (MSGPACK, masked(0x82, b"\x92\x01"), "malformed", 1008),
]


@pytest.mark.parametrize("greeted", [True, False])
async def test_what_breaks_the_protocol_ends_this_session_only(greeted: bool, doors: Doors) -> None:
    async with WebPeer(doors.port) as other:
        await other.greet("~other")
        for subprotocol, said, code, closed in BROKEN:
            async with WebPeer(doors.port, subprotocol) as peer:
                if greeted:
                    await peer.greet()
                await peer.shout(said)
                is_early = not greeted and said == EARLY  # a packet that may not come is read no further
                found = (await peer.farewell()).code, peer.closed
                assert found == ("unexpected" if is_early else code, closed), said
        await other.say(p.Ping(1))
        assert await other.hear() == p.Pong(1)


@pytest.mark.parametrize("limits", [Limits(frame_bytes=50_000)])
async def test_a_message_beyond_the_limit_is_refused(doors: Doors) -> None:
    for subprotocol, greeted, divided in itertools.product((MSGPACK, JSON), (False, True), (False, True)):
        limit = 50_000 if greeted else 16_384
        async with WebPeer(doors.port, subprotocol) as peer:
            if greeted:
                await peer.greet()
            if divided:
                await peer.shout(masked(peer.kind, b" " * limit) + masked(0x80, b" "))
            else:
                await peer.shout(masked(0x80 | peer.kind, b" " * (limit + 1))[:14])
            said = await peer.farewell()
            assert (said.code, said.text) == ("limit", f"message of {limit + 1} bytes, limit {limit}")
            assert peer.closed == 1009


@pytest.mark.parametrize("limits", [Limits(frame_elements=1000)])
async def test_json_has_the_limit_of_elements_and_levels(doors: Doors) -> None:
    for said, text in (
        (b"[6,1,[%s1]]" % (b"1," * 1000), "elements, limit 1000"),
        (b"[" * 60 + b"]" * 60, "deep"),
    ):
        async with WebPeer(doors.port, JSON) as peer:
            await peer.greet()
            await peer.shout(masked(0x81, said))
            bye = await peer.farewell()
            assert bye.code == "limit" and text in bye.text


@pytest.mark.parametrize("limits", [Limits(hello_seconds=0.05, frame_seconds=0.05)])
async def test_what_does_not_come_in_time_ends_the_session(doors: Doors) -> None:
    for said in (b"", masked(0x01, b"[1,"), masked(0x81, b"[1,2]")[:7]):
        async with WebPeer(doors.port, JSON) as peer:
            await peer.shout(said)
            assert (await peer.farewell()).text == "no hello within 0.05 s"
    for said in (masked(0x01, b"[7,"), masked(0x01, b""), masked(0x81, b"[7,2]")[:7], b"\x81"):
        async with WebPeer(doors.port, JSON) as peer:
            await peer.greet()
            await peer.shout(said)
            assert (await peer.farewell()).text == "a frame took longer than 0.05 s"


# -- the end ------------------------------------------------------------------------------------------


async def test_closing_is_answered_whichever_side_begins(doors: Doors) -> None:
    for subprotocol in (MSGPACK, JSON):
        async with WebPeer(doors.port, subprotocol) as peer:
            await peer.greet()
            await peer.close(1001)
            assert await peer.hear() is None
            assert peer.closed == 1000
        async with WebPeer(doors.port, subprotocol) as peer:
            await peer.greet()
            await peer.say(p.Bye("", ""))
            assert await peer.farewell() == p.Bye("", "")
            assert peer.closed == 1000


async def test_a_client_that_answers_no_closing_frame_is_closed_all_the_same(doors: Doors) -> None:
    async with WebPeer(doors.port) as peer:
        await peer.shout(masked(0x82, b"\x91\x63"))
        while peer.closed is None:
            found = await peer.frame()
            assert found is not None
            if found[0] == 0x88:
                peer.closed = 1
        assert await peer.frame() is None


def rows_of(packet: p.Values) -> list[Value]:
    """The rows that a packet adds."""
    rows: list[Value] = []
    for value in packet.values:
        assert isinstance(value, tuple) and isinstance(value[3], tuple)
        rows += value[3]
    return rows


# -- the session --------------------------------------------------------------------------------------


async def test_a_session_goes_on_over_another_transport(doors: Doors) -> None:
    asked = Map({"grace": 60_000})
    async with WebPeer(doors.port, JSON) as peer:
        await peer.say(p.Hello(1, "~same", "page", asked))
        welcome = await peer.hear()
        assert isinstance(welcome, p.Welcome)
        await peer.say(turn(1, (ASSERT, 1, Record("mine", 1.0))))
        assert isinstance(await peer.hear(), p.Accepted)
    resume = (welcome.session, welcome.features["secret"])
    async with Peer(doors.url) as other:
        await other.say(p.Hello(1, "~same", "page", Map({"grace": 60_000, "resume": resume})))
        again = await other.hear()
        assert isinstance(again, p.Welcome)
        assert (again.session, again.features["resumed"]) == (welcome.session, True)
        await other.say(opening(1, Record("mine", capture("x"))))
        state = await other.hear()
        assert isinstance(state, p.Values) and rows_of(state) == [(1.0,)]


@BOTH
async def test_observers_of_all_doors_see_the_same_epochs(subprotocol: str, doors: Doors) -> None:
    async with dataspace.connect(doors.url) as space, WebPeer(doors.port, subprotocol) as peer:
        await peer.greet()
        await peer.say(opening(1, Record("v", capture("x")), snapshot=False))
        assert isinstance(await peer.hear(), p.Reached)
        for n in range(3):
            await space.assert_(Record("v", n))
        rows: list[Value] = []
        while len(rows) < 3:
            found = await peer.hear()
            assert isinstance(found, p.Values)
            rows += rows_of(found)
        assert rows == [(0,), (1,), (2,)]


async def test_a_token_is_in_the_hello(tmp_path: Path, nursery: trio.Nursery) -> None:
    key = Key("page", "0123456789abcdef", Rights.read(Map({"observe": True})))
    config = Config(("http:127.0.0.1:0",), tmp_path, keys=(key,))
    addresses = await nursery.start(serve, config)
    port = int(addresses[0].rpartition(":")[2])
    async with WebPeer(port, JSON, "Authorization: Bearer 0123456789abcdef") as peer:
        await peer.say(hello())
        assert (await peer.farewell()).code == "unauthorized"
    async with WebPeer(port, JSON) as peer:
        await peer.say(p.Hello(1, "~page", "page", Map({"token": "0123456789abcdef"})))
        assert isinstance(await peer.hear(), p.Welcome)
        await peer.say(turn(1, (SEND, Record("v", 1))))
        refused = await peer.hear()
        assert isinstance(refused, p.Refusal) and refused.code == "not-allowed"


async def test_a_client_that_does_not_read_holds_nothing_up(doors: Doors) -> None:
    async with dataspace.connect(doors.url) as space, WebPeer(doors.port, JSON, window=4096) as peer:
        await peer.greet()
        await peer.say(opening(1, EVERYTHING, policy="fail"))
        async with space.observe("v($n, _)", policy="wait") as changes:
            for n in range(40):
                await space.send(Record("v", n, "x" * 500_000))
            seen = 0
            async for _ in changes:
                seen += 1
                if seen == 40:
                    break
        last = (await read_until(peer, p.Error))[-1]
        assert isinstance(last, p.Error) and last.code == "slow-observer"


async def read_until(peer: WebPeer, kind: type[p.Packet]) -> list[p.Packet]:
    heard: list[p.Packet] = []
    while not heard or not isinstance(heard[-1], kind):
        packet = await peer.hear()
        assert packet is not None
        heard.append(packet)
    return heard


async def test_a_daemon_stops_while_a_client_does_not_read(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        tcp, http = await nursery.start(serve, Config(("tcp:127.0.0.1:0", "http:127.0.0.1:0"), tmp_path))
        async with WebPeer(int(http.rpartition(":")[2]), window=4096) as peer:
            await peer.greet()
            await peer.say(opening(1, EVERYTHING))
            async with dataspace.connect(f"tcp://{tcp[4:]}") as space:
                for n in range(12):
                    await space.send(Record("v", n, "x" * 500_000))
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("quotas", [Quotas(strangers=8)])
@pytest.mark.parametrize("limits", [Limits(hello_seconds=0.5)])
@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.torture(long=True))])
async def test_a_flood_of_upgrades_is_bounded(count: int, doors: Doors) -> None:
    async with dataspace.connect(doors.url) as space:
        counts = {101: 0, 503: 0, 0: 0}
        together = trio.CapacityLimiter(100)
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(knock, doors.port, counts, together)
        assert counts[101] >= 8 and counts[503] > 0 and sum(counts.values()) == count
        await space.send(Record("still", "served"))


async def knock(port: int, counts: dict[int, int], together: trio.CapacityLimiter) -> None:
    """Asks for a WebSocket, says nothing on it, and counts how that was answered; 0 if not at all."""
    async with together, Plain(port) as client:
        await client.shout(upgrade(JSON))
        while b"\r\n\r\n" not in client.held:
            if not await client.more():
                counts[0] += 1  # it made room before it was answered, or the refusal was overtaken by a reset
                return
        counts[int(client.held.split()[1])] += 1
        if b" 101 " in client.held:
            await client.rest()  # until another one needs the place


async def test_over_tls(tmp_path: Path, nursery: trio.Nursery) -> None:
    here = Path(__file__).parents[1] / "certificates"
    tls = ServerTls(str(here / "daemon.pem"), str(here / "daemon.key"))
    addresses = await nursery.start(serve, Config(("https:127.0.0.1:0",), tmp_path, tls=tls))
    assert addresses[0].startswith("https:127.0.0.1:")
    port = int(addresses[0].rpartition(":")[2])
    context = ssl.create_default_context(cafile=str(here / "ca.pem"))
    async with Plain(port, context=context) as client:
        await client.shout(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nOrigin: https://localhost\r\n\r\n")
        assert (await client.response())[0] == 404
    for subprotocol in (MSGPACK, JSON):
        async with WebPeer(port, subprotocol, "Origin: https://localhost", context=context) as peer:
            await peer.greet(f"~{subprotocol}")
            big = Record("big", "x" * 1_000_000)
            await peer.say(opening(1, Record("big", capture("x"))), turn(1, (ASSERT, 1, big)))
            values = [each for each in await read_until(peer, p.Accepted) if isinstance(each, p.Values)]
            while not any(map(rows_of, values)):
                values += [each for each in await read_until(peer, p.Values) if isinstance(each, p.Values)]
            await peer.say(p.Bye("", ""))
            assert await peer.farewell() == p.Bye("", "")
    async with Plain(port) as client:  # who does not speak TLS
        await client.shout(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.rest()
