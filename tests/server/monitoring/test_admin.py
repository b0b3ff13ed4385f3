"""The admin address reads or refuses any bytes, and has room for health however many peers come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings, strategies as st
from trio.testing import open_stream_to_socket_listener

from server.config.kinds import names
from server.config.model import Config
from server.daemon.serve import serve
from server.monitoring import admin
from server.monitoring.admin import MOST_BYTES, PLACES, Admin
from tests.server.monitoring.conftest import Served
from tests.server.monitoring.scraping import Page, all_of, get, read_page

PIECES = st.sampled_from(
    b"GET |POST |/metrics| HTTP/1.1|\r\n|\n|Host: here|: |\0|\xff| |a".split(b"|"),
)
RUBBISH = st.lists(PIECES | st.binary(max_size=8), max_size=40).map(b"".join)
HOST = b"Host: 127.0.0.1:1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n"


async def pages(path: str, headers: object) -> tuple[int, list[tuple[str, str]], bytes]:
    await trio.lowlevel.checkpoint()
    return 200, [("Content-Type", "text/plain")], f"{path} {headers}\n".encode()


async def opened(nursery: trio.Nursery, door: Admin) -> trio.SocketListener:
    """A listener whose peers the door serves."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, door.serve, [listener])
    return listener


async def answer(*said: bytes) -> Page | None:
    """What one peer is answered that sends these bytes and no more; None for nothing."""
    async with trio.open_nursery() as nursery:
        door = Admin(pages, ())
        async with await open_stream_to_socket_listener(await opened(nursery, door)) as stream:
            try:
                for part in said:
                    await stream.send_all(part)
                    await trio.lowlevel.checkpoint()
                await stream.send_eof()
            except trio.BrokenResourceError:
                pass  # it was refused before its end
            found = await all_of(stream)
        nursery.cancel_scope.cancel()
    return read_page(found) if found else None


async def test_a_request_is_read_with_its_headers_in_their_order() -> None:
    headers = HOST + b"Accept:  text/plain;q=0.5 \r\nX-Empty:\r\n\r\nmore"
    page = await answer(b"GET /healthz?x=1 HTTP/1.1\r\n" + headers)
    assert page is not None and page.status == 200
    assert page.text.startswith("/healthz?x=1 [('host', '127.0.0.1:1'), ('accept', 'text/plain;q=0.5')")
    assert page.headers["connection"] == "close" and page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["content-length"] == str(len(page.body))


@given(RUBBISH)
@settings(max_examples=60, deadline=None)
async def test_any_bytes_are_answered_or_refused_and_cut_anywhere_alike(data: bytes) -> None:
    whole = await answer(data)
    cut = await answer(*[data[at : at + 3] for at in range(0, len(data), 3)])
    assert whole is None or whole.status in (200, 400, 404, 405, 421, 431, 501)
    assert (None if whole is None else whole.status) == (None if cut is None else cut.status)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"CONNECT here:1 HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x80\x00\x00\x01\r\n\r\n", 400),
        (GET + b"Host\r\n\r\n", 400),
        (GET + HOST + HOST + b"\r\n", 400),
        (GET + HOST + b"A: b\r\n" * 64 + b"\r\n", 431),
        (GET + HOST + b"A: " + b"x" * MOST_BYTES, 431),
        (b"GET /" + b"x" * MOST_BYTES, 431),
        (GET + HOST + b"\r\n", 200),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
    ],
)
async def test_what_is_refused(said: bytes, status: int) -> None:
    page = await answer(said)
    assert page is not None and page.status == status
    if status == 405:
        assert page.headers["allow"] == "get, head"


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    page = await answer(b"HEAD /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
    assert page is not None and (page.status, page.body) == (200, b"")
    assert int(page.headers["content-length"]) > 0


async def until(holds: Callable[[], bool]) -> None:
    """Returns when something holds that the door does by itself."""
    with trio.fail_after(20):
        while not holds():  # noqa: ASYNC110  # the door tells nobody
            await trio.sleep(0.001)


async def half(served: Served, count: int) -> list[trio.SocketStream]:
    """Peers that have sent the half of a request."""
    host, port = served.admin.removeprefix("http://").split(":")
    found = [await trio.open_tcp_stream(host, int(port)) for _ in range(count)]
    for each in found:
        try:
            await each.send_all(b"GET /metrics HTTP/1.1\r\nHost: 1")
        except trio.BrokenResourceError:
            pass  # closed in favour of a later one
    return found


@pytest.mark.parametrize("count", [PLACES + 8, 3 * PLACES])
async def test_half_requests_do_not_keep_health_from_being_answered(served: Served, count: int) -> None:
    idle = await half(served, count)
    for _ in range(2 * PLACES):
        for path in ("/healthz", "/readyz"):
            assert (await get(served.admin, path)).status == 200
    for each in idle:
        await each.aclose()


async def test_peers_that_do_not_read_do_not_either(served: Served) -> None:
    host, port = served.admin.removeprefix("http://").split(":")
    deaf = [await trio.open_tcp_stream(host, int(port)) for _ in range(PLACES + 8)]
    for each in deaf:
        await each.send_all(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    for _ in range(PLACES):
        assert (await get(served.admin, "/healthz")).status == 200
    for each in deaf:
        await each.aclose()


async def test_a_half_request_is_closed_before_one_that_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape that takes its time survives any number of idle peers."""
    monkeypatch.setattr(admin, "PLACES", 4)
    released = trio.Event()

    async def slow(path: str, headers: object) -> tuple[int, list[tuple[str, str]], bytes]:
        await released.wait()
        return await pages(path, headers)

    async with trio.open_nursery() as nursery:
        door = Admin(slow, ())
        listener = await opened(nursery, door)
        async with await open_stream_to_socket_listener(listener) as scraping:
            await scraping.send_all(GET + HOST + b"\r\n")
            await until(lambda: door.statistics().answering == 1)
            idle = [await open_stream_to_socket_listener(listener) for _ in range(9)]
            await until(lambda: door.statistics().closed_early == 6)
            assert door.statistics().peers == 4
            released.set()
            assert read_page(await all_of(scraping)).status == 200
        for each in idle:
            await each.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:7379", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("localhost:7379", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:7379", 200),
        ("[::1]:7379", 200),
        ("10.1.2.3:7379", 200),
        ("metrics.internal:7379", 200),
        ("Metrics.Internal", 200),
    ],
)
async def test_metrics_are_answered_for_names_of_this_machine_alone(
    tmp_path: Path, nursery: trio.Nursery, host: str, status: int
) -> None:
    """A page whose name leads here reads nothing (DNS rebinding); health is for any name, and says little."""
    config = Config(
        ("tcp:127.0.0.1:0",), tmp_path, admin="tcp:127.0.0.1:0", admin_names=("metrics.internal",)
    )
    _, url = await nursery.start(serve, config)
    at = url.removeprefix("http://").rpartition(":")
    for path, wanted in (("/metrics", status), ("/healthz", 200)):
        async with await trio.open_tcp_stream(at[0], int(at[2])) as stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            page = read_page(await all_of(stream))
        assert page.status == wanted, page.text
        if wanted == 421:
            assert "add it to admin_names" in page.text and "dataspace_" not in page.text


def test_names_are_read_from_text_or_an_array() -> None:
    assert names("a.example, B.example") == names(["a.example", "b.example"]) == ("a.example", "b.example")
