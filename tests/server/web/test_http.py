"""Requests are answered one after the other, within bounds; what an application raises ends nothing else."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import h11
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings, strategies as st

from dataspace.errors import UsageError
from server import extras
from server.config.kinds import origins
from server.config.model import Config, Limits, Web
from server.config.principals import Quotas
from server.daemon.serve import serve
from server.web.exchange import EVENTS, MOST_HEADERS, ClientGone, HttpStream, Receive, Scope, Send
from tests.server.web_client import Doors, Plain

Listen = Callable[..., Awaitable[int]]

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
NOWHERE = GET.replace(b"/", b"/nowhere", 1)
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


async def answer(send: Send, body: bytes = b"fine", **more: object) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body, **more})


async def fine(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answers without reading the body."""
    await answer(send)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body."""
    body = scope["path"].encode()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RuntimeError("the body has no end")
        body += message["body"]
        if not message["more_body"]:
            return await answer(send, body)


def code(body: bytes) -> object:
    """The code of a problem."""
    return json.loads(body)["code"]


# -- requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", [fine, echo])
async def test_requests_on_one_connection_are_answered_in_order(app: object, listen: Listen) -> None:
    port = await listen(app)
    with trio.fail_after(10):
        async with Plain(port) as client:
            chunked = CHUNKED.replace(b"/", b"/2", 1) + b"3\r\nabc\r\n0\r\n\r\n"
            await client.shout(POST % 100_000 + b"x" * 100_000 + chunked + GET)
            bodies = [(await client.response())[2] for _ in range(3)]
            assert bodies == ([b"fine"] * 3 if app is fine else [b"/" + b"x" * 100_000, b"/2abc", b"/"])


async def test_the_scope_says_what_was_asked(listen: Listen) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append(scope)
        await answer(send)

    async with Plain(await listen(app)) as client:
        await client.shout(b"PUT /a%20b/c?d=%20e HTTP/1.1\r\nHOST: localhost\r\nX-Y: z\r\n\r\n")
        assert (await client.response())[0] == 200
    scope = seen[0]
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("PUT", "/a b/c", b"/a%20b/c")
    assert (scope["query_string"], scope["scheme"], scope["server"]) == (
        b"d=%20e",
        "http",
        ("127.0.0.1", client.port),
    )
    assert scope["headers"] == [(b"host", b"localhost"), (b"x-y", b"z")]
    assert scope["client"][0] == "127.0.0.1" and scope["state"]["peer"].startswith("127.0.0.1:")
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}


async def test_a_head_has_the_headers_and_no_body(listen: Listen) -> None:
    async with Plain(await listen(fine)) as client:
        await client.shout(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)
        head = await client.until(b"\r\n\r\n")
        assert b"content-length: 4\r\n" in head
        assert (await client.response())[2] == b"fine"


async def test_an_old_client_is_answered_and_let_go(listen: Listen) -> None:
    async with Plain(await listen(fine)) as client:
        await client.shout(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\nfine")


async def test_a_client_that_waits_to_be_asked_for_the_body_is_asked(listen: Listen) -> None:
    waiting = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    port = await listen(echo)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(waiting)
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            await client.shout(b"abc")
            assert (await client.response())[2] == b"/abc"


async def test_a_body_that_is_not_asked_for_ends_the_connection(listen: Listen) -> None:
    waiting = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    port = await listen(fine)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(waiting)
            said = await client.rest()
            assert said.startswith(b"HTTP/1.1 200 ") and said.endswith(b"fine")


async def test_a_stream_comes_as_it_is_sent(listen: Listen) -> None:
    goes_on = trio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await answer(send, b"first", more_body=True)
        await goes_on.wait()
        await send({"type": "http.response.body", "body": b"second"})

    port = await listen(app)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(GET)
            head = await client.until(b"5\r\nfirst\r\n")
            assert b"transfer-encoding: chunked" in head.lower()
            goes_on.set()
            assert await client.until(b"0\r\n\r\n") == b"6\r\nsecond\r\n0\r\n\r\n"


# -- bounds -------------------------------------------------------------------------------------------

TIGHT = Web(header_bytes=2000, body_bytes=1000)
HURRIED = Web(header_seconds=0.05, body_seconds=0.05, idle_seconds=0.05)


WRONG = [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 3000, 431, "limit"),
    (b"GET /" + b"x" * 3000, 431, "limit"),
    (GET[:-2] + b"X: " + b"x" * 2000 + b"\r\n\r\n", 431, "limit"),
    (GET[:-2] + b"a:b\r\n" * 200 + b"\r\n", 431, "limit"),
    (b"\x00\x01\x02\r\n\r\n", 400, "malformed"),
    (b"GET / HTTP/1.1\r\n\r\n", 400, "malformed"),
    (POST % 1001 + b"x" * 1001, 413, "limit"),
    (
        CHUNKED + b"7d0\r\n" + b"x" * 2000,
        413,
        "limit",
    ),
    (CHUNKED + b"zz\r\n", 400, "malformed"),
]


async def test_too_much_and_what_is_no_request_is_answered_with_a_problem(listen: Listen) -> None:
    port = await listen(echo, web=TIGHT)
    for said, status, what in WRONG:
        async with Plain(port) as client:
            await client.shout(said)
            found, headers, body = await client.response()
            assert (found, headers["content-type"]) == (status, "application/problem+json"), said
            assert code(body) == what
            assert await client.rest() == b""


@pytest.mark.parametrize("before", [b"", GET, POST % 3 + b"abc", CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_bounds_of_a_head_hold_to_the_byte(before: bytes, data: st.DataObject) -> None:
    """However it is cut, whatever came before it on the connection, and with all of it there at once."""
    size = data.draw(st.integers(1990, 2010) | st.integers(60, 9000), "bytes")
    count = data.draw(st.integers(MOST_HEADERS - 3, MOST_HEADERS + 3) | st.integers(0, 300), "headers")
    head = GET[:-2] + b"a:b\r\n" * count
    head += b"X:" + b"x" * max(0, size - len(head) - 6) + b"\r\n\r\n"
    places = sorted(data.draw(st.lists(st.integers(1, len(before + head)), max_size=3), "cuts"))
    said = before + head
    chunks = [said[begin:end] for begin, end in zip([0, *places], [*places, len(said)], strict=True)]
    fits = len(head) <= 2000 and count + 2 <= MOST_HEADERS
    assert trio.run(heads_of, chunks, 2000) == [True] * bool(before) + [fits]


async def heads_of(chunks: list[bytes], header_bytes: int) -> list[bool]:
    """Reads requests of a connection: True for each that comes, and False for one beyond a bound."""
    stream = HttpStream(Chunks(chunks), header_bytes=header_bytes, stalled_seconds=1)
    found: list[bool] = []
    try:
        while isinstance(await stream.next_event(), h11.Request):
            found.append(True)
            while not isinstance(await stream.next_event(), h11.EndOfMessage):
                pass
            stream.machine.send(h11.Response(status_code=204, headers=[]))
            stream.machine.send(h11.EndOfMessage())
            assert stream.next_cycle()
    except h11.RemoteProtocolError as error:
        assert error.error_status_hint == 431
        found.append(False)
    return found


class Chunks:
    """A link on which these chunks come, and nothing more."""

    peer = "nowhere"
    pending = False

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [each for each in chunks if each]

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._chunks.pop(0) if self._chunks else b""

    def receive_nowait(self) -> bytes | None:
        return self._chunks.pop(0) if self._chunks else b""

    def send_nowait(self, data: bytes | bytearray) -> int:
        return len(data)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


async def test_many_small_chunks_and_trailers_let_others_run(listen: Listen) -> None:
    """At 64 KiB of chunks of one byte, or of trailers, which would take tens of ms in one piece."""
    taken: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["more_body"]:
            taken.append(len(message["body"]))
        await answer(send)

    port = await listen(app)
    beats: list[int] = []

    async def beat() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            beats.append(len(taken))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat)
            async with Plain(port) as client:
                await client.shout(CHUNKED + b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n")
                assert (await client.response())[0] == 200
            async with Plain(port) as client:
                await client.shout(CHUNKED + b"0\r\n" + b"a:b\r\n" * 10_000 + b"\r\n")
                assert (await client.response())[0] == 431
            nursery.cancel_scope.cancel()
    assert len(taken) == 10_000
    assert max(after - before for before, after in itertools.pairwise(beats)) <= 2 * EVENTS


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nHost", POST % 10 + b"x"])
async def test_a_slow_request_is_answered_with_a_problem(said: bytes, listen: Listen) -> None:
    port = await listen(echo, web=HURRIED)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(said)
            found, _, body = await client.response()
            assert (found, code(body)) == (408, "timeout")
            assert await client.rest() == b""


@pytest.mark.parametrize("said", [b"", GET])
async def test_a_silent_connection_is_closed(said: bytes, listen: Listen) -> None:
    port = await listen(fine, web=HURRIED)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(said)
            if said:
                await client.response()
            assert await client.rest() == b""


async def test_a_body_that_nobody_reads_is_bounded_as_well(listen: Listen) -> None:
    port = await listen(fine, web=TIGHT)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(POST % 1001 + b"x" * 1001 + GET)
            assert (await client.response())[2] == b"fine"
            assert await client.rest() == b""


@pytest.mark.parametrize("quotas", [Quotas(strangers=4)])
async def test_connections_without_a_request_are_few_and_make_room(doors: Doors) -> None:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            idle = [Plain(doors.port) for _ in range(4)]
            for each in idle:
                await each.__aenter__()
            while True:  # until the daemon has accepted all of them
                async with Plain(doors.port) as late:
                    await late.shout(NOWHERE)
                    said = await late.rest()
                    if b"503" in said:
                        assert b"quota.strangers=4" in said
                        break
            await trio.sleep(0.3)  # they have their time, which is of the daemon
            async with Plain(doors.port) as late:
                await late.shout(NOWHERE)
                assert (await late.response())[0] == 404
            assert await idle[0].rest() == b""
            for each in idle:
                await each.__aexit__(None, None, None)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("quotas", [Quotas(connections=2)])
async def test_connections_with_requests_are_counted_too(doors: Doors) -> None:
    with trio.fail_after(20):
        async with Plain(doors.port) as one, Plain(doors.port) as two, Plain(doors.port) as three:
            for each, status in ((one, 404), (two, 404), (three, 503)):
                await each.shout(NOWHERE)
                assert (await each.response())[0] == status
            await one.stream.aclose()
            while True:
                await three.shout(NOWHERE)
                if (await three.response())[0] == 404:
                    break


# -- applications -------------------------------------------------------------------------------------

RAISED = [
    ValueError("mine"),
    ExceptionGroup("some", [ValueError("one"), ExceptionGroup("more", [OSError("two")])]),
    SystemExit(3),
    GeneratorExit(),
    BaseExceptionGroup("worse", [SystemExit(1), ValueError("two")]),
]


@pytest.mark.parametrize("error", RAISED, ids=repr)
@pytest.mark.parametrize("begun", [False, True])
async def test_whatever_an_application_raises_ends_its_request_only(
    error: BaseException, begun: bool, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/fine":
            return await answer(send)
        if begun:
            await answer(send, b"half", more_body=True)
        raise error

    port = await listen(app)
    with trio.fail_after(10), caplog.at_level(logging.ERROR, logger="dataspace"):
        async with Plain(port) as client, Plain(port) as other:
            await client.shout(GET)
            if begun:
                assert (await client.rest()).endswith(b"4\r\nhalf\r\n")  # without the end of a stream
            else:
                status, _, body = await client.response()
                assert (status, code(body)) == (500, "internal")
            await other.shout(GET.replace(b"/ ", b"/fine "))
            assert (await other.response())[0] == 200
    assert [repr(each.exc_info[1]) for each in caplog.records if each.exc_info] == [repr(error)]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"type": "http.response.body", "body": b"x"}],
        [{"type": "http.response.start", "status": 99}, {"type": "http.response.body"}],
        [
            {"type": "http.response.start", "status": 200, "headers": [(b"a b", b"c")]},
            {"type": "http.response.body"},
        ],
        [
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]},
            {"type": "http.response.body", "body": b"more"},
        ],
        [{"type": "lifespan.startup.complete"}],
    ],
)  # fmt: skip
async def test_a_wrong_response_is_a_defect_and_closes_at_the_most(
    messages: list[dict[str, object]], listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for each in messages:
            await send(each)

    port = await listen(app)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(GET)
            await client.stream.send_eof()  # type: ignore[attr-defined]  # a socket has it
            said = await client.rest()
            assert said == b"" or said.startswith(b"HTTP/1.1 500 ")
        async with Plain(port) as client:
            await client.shout(GET)
            await client.more()
    assert caplog.records or not messages


async def test_the_end_of_a_client_is_told_while_a_stream_is_silent(listen: Listen) -> None:
    told = trio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"first", more_body=True)
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        assert (await receive())["type"] == "http.disconnect"
        told.set()

    port = await listen(app)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(GET + GET)  # with another request that came meanwhile
            await client.until(b"first\r\n")
        await told.wait()


async def test_waiting_for_the_end_of_a_client_ends_with_the_response(listen: Listen) -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await answer(send)

    port = await listen(app)
    with trio.fail_after(10):
        async with Plain(port) as client:
            await client.shout(GET + GET)
            for _ in range(2):
                assert (await client.response())[2] == b"fine"


async def flood(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})


async def test_a_client_that_does_not_read_holds_the_application_back_and_is_let_go(listen: Listen) -> None:
    ended = trio.Event()
    raised: list[ClientGone] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await flood(scope, receive, send)
        except ClientGone as error:
            raised.append(error)
            ended.set()
            raise

    port = await listen(app, limits=Limits(stalled_seconds=0.1))
    with trio.fail_after(10):
        async with Plain(port, window=4096) as client:
            await client.shout(GET)
            await ended.wait()
    assert "has read nothing for 0.1 s" in str(raised[0])


async def test_a_write_that_waits_for_a_client_can_be_cancelled(
    listen: Listen, nursery: trio.Nursery
) -> None:
    port = await listen(flood)
    with trio.fail_after(10):
        async with Plain(port, window=4096) as client:
            await client.shout(GET)
            await client.until(b"x" * 1000)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()
            await client.rest()


# -- pages --------------------------------------------------------------------------------------------


PAGES = [
    ("localhost", None, 404),
    ("127.0.0.1:7378", "http://127.0.0.1:7378", 404),
    ("localhost:80", "http://localhost", 404),
    ("[::1]:7378", "HTTP://[::1]:7378", 404),
    ("localhost", "https://app.example", 404),
    ("app.example", "https://app.example", 404),
    ("localhost", "https://localhost", 403),
    ("localhost", "http://localhost:81", 403),
    ("localhost", "https://evil.example", 403),
    ("localhost", "null", 403),
    ("evil.example", "http://evil.example", 421),
    ("evil.example", None, 421),
    ("127.0.0.1.evil.example", None, 421),
]


OWN = "Sec-Fetch-Site: same-origin"
TYPED = "Sec-Fetch-Site: none"
LINKED = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document"
SITES = [
    (OWN, 404, 404),
    (TYPED, 404, 404),
    (LINKED, 404, 403),
    (LINKED.replace("cross-site", "same-site"), 404, 403),
    (LINKED.replace("document", "iframe"), 403, 403),
    (LINKED.replace("navigate", "no-cors"), 403, 403),
    ("Sec-Fetch-Site: cross-site", 403, 403),
    ("Sec-Fetch-Site: same-site", 403, 403),
    (f"{OWN}\r\nSec-Fetch-Site: cross-site", 403, 403),
    ("Sec-Fetch-Site: cross-site\r\nOrigin: https://app.example", 404, 404),
    ("Origin: https://app.example\r\nOrigin: https://evil.example", 400, 400),
    ("Origin: http://localhost\r\nOrigin: http://localhost", 400, 400),
]


@pytest.mark.parametrize("web", [Web(origins=("https://app.example",))])
async def test_a_page_of_another_site_opens_pages_and_asks_for_nothing_else(doors: Doors) -> None:
    for said, page, route in SITES:
        for path, status in (("/nowhere", page), ("/v1/nowhere", route), ("/%76%31/nowhere", route)):
            async with Plain(doors.port) as client:
                await client.shout(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{said}\r\n\r\n".encode())
                assert (await client.response())[0] == status, (path, said)


async def test_a_length_with_chunks_is_answered_and_closes(doors: Doors) -> None:
    both = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n") + b"3\r\nabc\r\n0\r\n\r\n"
    async with Plain(doors.port) as client:
        await client.shout(both + GET)
        status, headers, body = await client.response()
        assert (status, code(body), headers["connection"]) == (400, "malformed", "close")
        assert await client.rest() == b""


async def test_an_escaped_slash_stays_within_its_segment(listen: Listen) -> None:
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await answer(send)

    async with Plain(await listen(app)) as client:
        for path in (b"/main%2ffacts", b"/main%2Ffacts", b"/main%252Ffacts", b"/main/facts", b"/a%20b"):
            await client.shout(GET.replace(b"/", path, 1))
            await client.response()
    assert seen == ["/main%2Ffacts", "/main%2Ffacts", "/main%252Ffacts", "/main/facts", "/a b"]


@pytest.mark.parametrize("is_group", [False, True])
async def test_a_client_that_has_reset_is_no_defect(
    is_group: bool, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    ended = trio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await answer(send, b"x" * 1000, more_body=True)
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        except ClientGone as error:
            ended.set()
            if is_group:
                raise ExceptionGroup("of a nursery", [error]) from None
            raise

    port = await listen(app)
    with trio.fail_after(10), caplog.at_level(logging.ERROR, logger="dataspace"):
        async with Plain(port) as client:
            await client.shout(GET)
            await client.until(b"x" * 1000)
            assert isinstance(client.stream, trio.SocketStream)
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await ended.wait()
        async with Plain(port) as client:
            await client.shout(GET)  # answered only if the daemon goes on
            assert await client.more()
    assert not caplog.records


@pytest.mark.parametrize("quotas", [Quotas(connections=2)])
async def test_health_is_answered_beyond_the_quota_of_connections(doors: Doors) -> None:
    with trio.fail_after(20):
        async with Plain(doors.port) as one, Plain(doors.port) as two:
            for each in (one, two):
                await each.shout(NOWHERE)
                assert (await each.response())[0] == 404
            for path in ("/healthz", "/readyz"):
                for method in ("GET", "HEAD"):
                    async with Plain(doors.port) as probe:
                        await probe.shout(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                        said = await probe.rest()
                        assert said.startswith(b"HTTP/1.1 200 ") and b"connection: close" in said.lower()
            async with Plain(doors.port) as other:
                await other.shout(NOWHERE)
                assert (await other.response())[0] == 503


@pytest.mark.parametrize(
    ("quotas", "limits"), [(Quotas(connections=6), Limits()), (Quotas(), Limits(connections=6))]
)
async def test_an_event_stream_takes_one_place_and_gives_it_back(doors: Doors) -> None:
    with trio.fail_after(20):
        for again in (False, True):
            async with AsyncExitStack() as streams:
                for _ in range(6):
                    client = await streams.enter_async_context(Plain(doors.port))
                    while not await observes(client):
                        assert again  # the daemon may have to see yet that the others have gone
                        client = await streams.enter_async_context(Plain(doors.port))
                async with Plain(doors.port) as client:
                    assert not await observes(client)


async def observes(client: Plain) -> bool:
    """Opens an event stream; False if there is no place for it."""
    await client.shout(b"GET /v1/spaces/main/observe?pattern=seen($n) HTTP/1.1\r\nHost: localhost\r\n\r\n")
    said = await client.until(b"\r\n\r\n")
    assert said.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 "))
    return b" 200 " in said


@pytest.mark.parametrize("web", [Web(origins=("https://app.example",))])
async def test_only_pages_of_known_origins_are_served(doors: Doors) -> None:
    for host, origin, status in PAGES:
        page = "" if origin is None else f"Origin: {origin}\r\n"
        async with Plain(doors.port) as client:
            await client.shout(f"GET /nowhere HTTP/1.1\r\nHost: {host}\r\n{page}\r\n".encode())
            found, _, body = await client.response()
            assert found == status, (host, origin)
            assert code(body) == ("no-route" if status == 404 else "not-allowed")


# -- settings -----------------------------------------------------------------------------------------


async def test_a_daemon_without_the_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "WEB_EXTRA", ("h11", "no_such_package"))
    with pytest.raises(UsageError, match=r"needs no_such_package: pip install 'dataspace-server\[web\]'"):
        await serve(Config(("http:127.0.0.1:0",), tmp_path))


async def test_https_needs_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="https: a certificate is needed"):
        await serve(Config(("https:127.0.0.1:0",), tmp_path))


def test_a_daemon_without_http_loads_nothing_of_it() -> None:
    program = "import importlib, sys; [*map(importlib.import_module, sys.argv[1:])]; print(*sys.modules)"
    daemon = ["server.daemon.serve", "server.cli.main"]
    found = subprocess.run(
        [sys.executable, "-c", program, *daemon], capture_output=True, text=True, check=True
    )
    loaded = set(found.stdout.split())
    assert {*daemon} <= loaded
    assert not loaded & {"h11", "orjson", "starlette", "anyio", "server.web"}


@pytest.mark.parametrize("said", ["app.example", "https://", "ftp://a", "https://a/b", 7, ["https://a b"]])
def test_what_is_no_origin_is_refused(said: object) -> None:
    with pytest.raises(UsageError, match="origin"):
        origins(said)
