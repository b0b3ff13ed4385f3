"""The admin address answers whoever comes in good order, and nobody else for long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import UsageError
from server.cli.main import main
from server.config.model import Config
from server.daemon.serve import serve
from server.monitoring import admin
from server.monitoring.admin import PLACES
from server.sessions.state import Readiness
from tests.server.monitoring.conftest import Served
from tests.server.monitoring.scraping import all_of, get, read_page


async def test_a_daemon_that_works_is_healthy_and_ready(served: Served) -> None:
    for path in ("/healthz", "/readyz", "/readyz?verbose", "/readyz?role=leader", "/readyz?role=reader"):
        page = await get(served.admin, path)
        assert (page.status, page.text) == (200, "ok\n")
    assert (await get(served.admin, "/")).status == 404
    assert (await get(served.admin, "/readyz?role=king")).status == 400


async def test_what_is_no_request_is_answered_with_why(served: Served) -> None:
    host, port = served.admin.removeprefix("http://").split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(b"HELO there\r\n\r\n")
        assert read_page(await all_of(stream)).status == 400
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(b"PUT /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc")
        page = read_page(await all_of(stream))
        assert (page.status, page.headers["allow"]) == (405, "get, head")


async def test_peers_that_say_nothing_lose_their_places(
    served: Served, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    monkeypatch.setattr(admin, "SECONDS", 0.2)
    host, port = served.admin.removeprefix("http://").split(":")
    silent = [await trio.open_tcp_stream(host, int(port)) for _ in range(PLACES + 3)]
    with trio.fail_after(20):
        for each in silent:
            assert await ended(each)
    assert (await get(served.admin, "/healthz")).status == 200


async def ended(stream: trio.SocketStream) -> bool:
    """True once the other side has closed."""
    async with stream:
        try:
            return not await stream.receive_some(1)
        except trio.BrokenResourceError:
            return True


def test_readiness_begins_once_and_ends_for_good() -> None:
    readiness = Readiness()
    assert readiness.reason == "the daemon is starting"
    readiness.begin()
    assert readiness.reason == ""
    readiness.end("drained")
    readiness.end()
    readiness.begin()
    assert readiness.reason == "drained"


async def test_the_pages_of_a_daemon_that_ends(tmp_path: Path) -> None:
    """It is asked while the sessions end: what was queued is still written."""
    config = Config(("tcp:127.0.0.1:0",), tmp_path, admin="tcp:127.0.0.1:0")
    async with trio.open_nursery() as nursery:
        url, admin = await nursery.start(serve, config)
        async with dataspace.connect(url) as space:
            await space.assert_(Record("here"))
        assert (await get(admin, "/readyz")).status == 200
        nursery.cancel_scope.cancel()
    with pytest.raises(OSError):
        await get(admin, "/healthz")


async def test_without_the_package_a_daemon_refuses_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "server.monitoring.exposition", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"pip install 'dataspace-server\[metrics\]'"):
        await serve(Config(("tcp:127.0.0.1:0",), tmp_path, admin="tcp:127.0.0.1:0"))


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--admin", "nowhere", "--check"]) == 2
    assert "--admin: HOST:PORT is needed, such as 127.0.0.1:7379, not 'nowhere'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_daemon_loads_no_package_for_metrics_by_itself() -> None:
    names = "('prometheus_client', 'rich', 'starlette')"
    code = f"import sys, {serve.__module__}; print([name for name in {names} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
