"""An event stream that its session writes is the one that a route writes, made once for all readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from server.config.model import Config, Limits
from server.daemon.serve import serve
from server.web.routes import events
from tests.server.web.routes.callers import HttpDaemon
from tests.server.web_client import Doors, Plain

OBSERVE = b"GET /v1/spaces/main/observe?pattern=%b HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
async def doors(tmp_path: Path, nursery: trio.Nursery, limits: Limits) -> AsyncIterator[Doors]:
    """A daemon in this process."""
    listen = ("tcp:127.0.0.1:0", "http:127.0.0.1:0")
    tcp, http = await nursery.start(serve, Config(listen, tmp_path, limits=limits))
    yield Doors(f"tcp://127.0.0.1:{tcp.rpartition(':')[2]}", int(http.rpartition(":")[2]))


@pytest.mark.parametrize(
    "start", [{"after": 0}, {"as_of": 1}, {"after": 0, "net": True}, {"after": 2}], ids=str
)
def test_its_events_are_those_that_a_route_writes(daemon: HttpDaemon, start: dict[str, object]) -> None:
    """With a window a route takes each value; the state here has several parts, and an epoch one of 40 kB."""
    if not daemon.get("/v1/spaces/main/facts", pattern="poured($n, _)").json()["rows"]:
        daemon.put(*[Record("poured", n, "x" * 50) for n in range(3000)])
        for n in range(20):
            daemon.put(Record("poured", 10_000 + n, "y" * (40_000 if n == 10 else n)))
            daemon.turn({"retract": {"@": "poured", "fields": [n, "x" * 50]}}, owner="tests")
    upto = daemon.get("/v1/status").json()["epoch"]
    asked = {"pattern": "poured($n, $what)", "quiet": True, "upto": upto, **start}
    poured = daemon.get("/v1/spaces/main/observe", **asked).body
    written = daemon.get("/v1/spaces/main/observe", **asked, window=1024).body
    assert without_comments(poured) == without_comments(written)
    assert poured.endswith(b"event: end\ndata: {}\n\n") and len(poured) > 1000


def without_comments(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if not line.startswith(b":")]


async def test_readers_at_the_same_position_share_one_body(doors: Doors) -> None:
    events._shared_chunk.cache_clear()
    with trio.fail_after(20):
        await _share(doors)


async def _share(doors: Doors) -> None:
    async with dataspace.connect(doors.url) as space, AsyncExitStack() as streams:
        readers = [await streams.enter_async_context(Plain(doors.port)) for _ in range(20)]
        for each in readers:
            await each.shout(OBSERVE % b"shared($n)")
            await each.until(b'"state":true')
        await space.assert_(Record("shared", -1))
        for each in readers:  # the first change after which all of them pour
            await each.until(b'"n":-1')
        before = events._shared_chunk.cache_info()
        for n in range(10):
            await space.assert_(Record("shared", n))
            for each in readers:
                await each.until(b'"n":%d}' % n)
        after = events._shared_chunk.cache_info()
    assert after.misses - before.misses == 10
    assert after.hits - before.hits == 10 * (len(readers) - 1)


@pytest.mark.parametrize("limits", [Limits(stalled_seconds=0.2)])
async def test_a_reader_that_stalls_is_let_go_and_gives_its_place_back(doors: Doors) -> None:
    with trio.fail_after(20):
        async with dataspace.connect(doors.url) as space, Plain(doors.port, window=4096) as client:
            await client.shout(OBSERVE % b"large($n,$)")
            await client.until(b'"state":true')
            for n in range(400):
                await space.assert_(Record("large", n, "x" * 20_000))
            status = await space.status()
            while status["streams"]:
                await trio.sleep(0.05)
                status = await space.status()
            assert not (await client.rest()).endswith(b"0\r\n\r\n")  # it was not all, and says so


async def test_a_daemon_that_ends_says_so_in_the_stream(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            (http,) = await nursery.start(serve, Config(("http:127.0.0.1:0",), tmp_path))
            async with Plain(int(http.rpartition(":")[2])) as client:
                await client.shout(OBSERVE % b"quiet($n)")
                await client.until(b'"state":true')
                await trio.testing.wait_all_tasks_blocked(0.05)
                nursery.cancel_scope.cancel()
                await client.rest()
