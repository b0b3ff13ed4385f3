"""A daemon starts followers that share addresses, keeps them running, and no follower outlives the daemon."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import socket
import ssl
import tempfile
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record, Tls
from server.cli.main import main
from server.cluster.directory.readers import FollowerProcesses, NamedLines
from server.config.model import Config
from server.connections.listeners import BEHIND_SECONDS, NOT_THERE, Share
from tests.server.processes import DaemonProcess

SOON: Final = 90.0
CERTIFICATES: Final = Path(__file__).parents[1] / "certificates"


class Family(DaemonProcess):
    """A daemon with two followers that it has started."""

    def __init__(self, top: Path, *more: str, readers: str = "tcp:127.0.0.1:0") -> None:
        super().__init__(top / "data")
        self.readers = [readers]
        self._options = more

    def start(self, *, fault: str = "") -> None:
        words = [word for each in self.readers for word in ("--readers", each)]
        self.more = ("--followers", "2", *words, *self._options)
        super().start(fault=fault)
        assert self.process.stdout is not None
        for at in range(len(self.readers)):
            said = self.process.stdout.readline()
            assert said.startswith("dataspace: 2 followers at "), said
            self.readers[at] = said.strip().removeprefix("dataspace: 2 followers at ")

    @property
    def readers_url(self) -> str:
        scheme, _, rest = self.readers[0].partition(":")
        return f"{scheme}://{rest}"

    def said(self) -> str:
        """What the daemon and its followers have written to stderr so far."""
        return os.pread(self._said.fileno(), 1 << 20, 0).decode()

    async def wait_said(self, *texts: str) -> None:
        """Waits until they have written a line with all these texts."""
        while not self._has_said(texts):  # noqa: ASYNC110  what processes write
            await trio.sleep(0.02)

    def _has_said(self, texts: Iterable[str]) -> bool:
        return any(all(text in line for text in texts) for line in self.said().splitlines())


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives daemons the time of a busy machine for an orderly end."""
    monkeypatch.setenv("DATASPACE_SERVE_STOP", "50s")


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    started = Family(tmp_path)
    started.start()
    yield started
    if started.process.poll() is None:
        started.stop()


@asynccontextmanager
async def readers(
    family: Family, each: int, tls: Tls | None = None, token: str | None = None
) -> AsyncIterator[Counter[int]]:
    """Connects until each of the two followers has so many connections, held meanwhile; counts them."""
    counts: Counter[int] = Counter()
    async with AsyncExitStack() as held:
        while len(counts) < 2 or min(counts.values()) < each:
            assert counts.total() < 500, counts
            process = await held.enter_async_context(reader(family, tls, token))
            counts[process] += 1
            await trio.sleep(0.01)  # one of the two may be starting again
        yield counts


@asynccontextmanager
async def reader(family: Family, tls: Tls | None = None, token: str | None = None) -> AsyncIterator[int]:
    """A connection to a follower, as the number of its process."""
    async with dataspace.connect(family.readers_url, read="leader", tls=tls, token=token) as space:
        process = (await space.status())["process"]
        assert isinstance(process, int)
        yield process


async def wait_gone(processes: set[int]) -> None:
    """Waits until no follower runs."""
    while any(map(is_running, processes)):  # noqa: ASYNC110  they are no children of this one
        await trio.sleep(0.02)


def fetch(url: str, ca: str) -> bytes:
    """What an address answers."""
    context = ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(url, context=context, timeout=SOON) as answer:
        return bytes(answer.read())


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
async def test_connections_spread_over_the_followers(family: Family) -> None:
    with trio.fail_after(SOON):
        async with readers(family, 1) as first, readers(family, 10) as counts:
            assert counts.keys() == first.keys() and family.process.pid not in counts
        async with dataspace.connect(family.url, owner="map") as space:
            await space.assert_(Record("here", 1))
        async with dataspace.connect(family.readers_url, read="leader") as space:
            async with space.observe("here($n)", quiet=True) as seen:
                change = await anext(seen)
                assert change.captures == (1,)


@pytest.mark.slow
async def test_a_follower_that_stands_still_keeps_no_client(family: Family) -> None:
    with trio.fail_after(SOON):
        async with readers(family, 1) as counts:
            stopped, other = sorted(counts)
        os.kill(stopped, signal.SIGSTOP)
        try:
            async with AsyncExitStack() as held:
                found = [await held.enter_async_context(reader(family)) for _ in range(20)]
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert set(found) == {other}


@pytest.mark.slow
async def test_a_killed_follower_is_started_again(family: Family) -> None:
    with trio.fail_after(SOON):
        async with readers(family, 1) as before:
            killed, other = sorted(before)
            os.kill(killed, signal.SIGKILL)
            await family.wait_said(f"[{killed}] was ended by SIGKILL; it is started again in 0.1 s")
        async with readers(family, 1) as after:
            assert killed not in after and other in after


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_follower_outlives_the_daemon(family: Family, number: signal.Signals) -> None:
    with trio.fail_after(SOON):
        async with readers(family, 1) as counts:
            family.process.send_signal(number)
            code = await trio.to_thread.run_sync(family.wait)
        await wait_gone({*counts})
        assert code == (0 if number is signal.SIGTERM else -number)
        assert "started again" not in family.errors


@pytest.mark.slow
async def test_a_killed_daemon_starts_again_on_the_same_addresses(family: Family) -> None:
    with trio.fail_after(SOON):
        async with readers(family, 1) as before:
            family.process.kill()
            await trio.to_thread.run_sync(family.wait)
            await trio.to_thread.run_sync(family.start)
        async with readers(family, 1) as after:
            assert not before.keys() & after.keys()


@pytest.mark.slow
async def test_followers_read_the_configuration_again_with_the_daemon(tmp_path: Path) -> None:
    def tokens(*names: str) -> str:
        return "".join(f'[[tokens]]\nname = "{name}"\nsecret = "{name * 8}"\n' for name in names)

    config = tmp_path / "dataspace.toml"
    config.write_text(tokens("stays", "goes"))
    family = Family(tmp_path, "--config", str(config))
    family.start()
    try:
        with trio.fail_after(SOON):
            async with readers(family, 1, token="stays" * 8):
                config.write_text(tokens("stays"))
                family.process.send_signal(signal.SIGHUP)
            for name in ("dataspace: SIGHUP, ", "follower-1[", "follower-2["):
                await family.wait_said(name, "the configuration was reloaded: 1 token, ")
    finally:
        if family.process.poll() is None:
            family.stop()


@pytest.mark.slow
async def test_readers_may_use_tls_http_and_unix_sockets(tmp_path: Path) -> None:
    ca = str(CERTIFICATES / "ca.pem")
    certificate = ("--tls-certificate", str(CERTIFICATES / "daemon.pem"))
    key = ("--tls-key", str(CERTIFICATES / "daemon.key"))
    family = Family(tmp_path, *certificate, *key, readers="tls:127.0.0.1:0")
    family.readers += ["http:127.0.0.1:0", "https:127.0.0.1:0", f"unix:{tmp_path}/readers"]
    family.start()
    try:
        with trio.fail_after(SOON):
            _, http, https, unix = family.readers
            async with readers(family, 1, Tls(ca=ca)) as counts:
                for address in (http, https):
                    url = address.replace(":", "://", 1) + "/v1/status"
                    answer = await trio.to_thread.run_sync(fetch, url, ca)
                    assert json.loads(answer)["process"] in counts
                async with dataspace.connect(f"unix://{tmp_path}/readers", read="leader") as space:
                    assert (await space.status())["process"] in counts
            assert unix == f"unix:{tmp_path}/readers"
            assert await trio.to_thread.run_sync(family.stop) == 0
            assert not (tmp_path / "readers").exists()
    finally:
        if family.process.poll() is None:
            family.stop()


@pytest.mark.slow
def test_a_taken_address_is_named_and_nothing_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        family = Family(tmp_path, readers=f"tcp:127.0.0.1:{port}")
        with pytest.raises(
            AssertionError, match=f"cannot listen on tcp:127.0.0.1:{port}: Address already in"
        ):
            family.start()
    assert family.process.returncode == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--followers", "2"], "belong together: --followers N --readers ADDRESS"),
        (["--readers", "tcp:127.0.0.1:0"], "belong together: --followers N --readers ADDRESS"),
        (["--followers", "65", "--readers", "tcp:127.0.0.1:0"], "0 to 64 is needed, not 65"),
        (["--followers", "-1", "--readers", "tcp:127.0.0.1:0"], "a number from 0"),
        (["--followers", "two", "--readers", "tcp:127.0.0.1:0"], "a number from 0"),
        (["--followers", "1", "--readers", "127.0.0.1"], "tcp:HOST:PORT"),
        (["--followers", "1", "--readers", "tls:127.0.0.1:0"], "a certificate is needed"),
        (["--followers", "1", "--readers", "tcp:127.0.0.1:0", "--follow", "x"], "leave out --followers"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--data", str(tmp_path / "data"), "--listen", "tcp:127.0.0.1:0", *words]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


async def test_a_follower_that_cannot_be_started_is_tried_again(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    processes = FollowerProcesses(Config(followers=1, readers=("tcp:127.0.0.1:0",)))
    ending = trio.Event()
    with closing(processes):
        await processes.open()
        async with trio.open_nursery() as nursery:
            monkeypatch.setattr(os, "pipe", fail)
            nursery.start_soon(processes.run, ending)
            await trio.sleep(0.5)
            ending.set()
    assert [record.getMessage() for record in caplog.records] == [
        f"follower-1 cannot be started: Too many open files; it is started again in {pause} s"
        for pause in (0.1, 0.2, 0.4)
    ]


async def test_a_process_with_more_connections_waits_a_moment(autojump_clock: trio.testing.MockClock) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(each.to_bytes(8, "little") for each in (NOT_THERE, NOT_THERE)))
        file.flush()
        one, other = Share(file.fileno(), 0), Share(file.fileno(), 1)

        async def waited(own: int, others: int) -> float:
            one.served, other.served = range(own), range(others)
            other.show_count()
            began = trio.current_time()
            await one.wait_turn()
            return trio.current_time() - began

        assert await waited(0, 0) == await waited(3, 3) == await waited(2, 3) == 0.0
        assert await waited(4, 3) == await waited(1, 0) == pytest.approx(BEHIND_SECONDS)
        assert await waited(1008, 1000) == 0.0, "a few more of many make no difference"
        assert await waited(1200, 1000) == pytest.approx(BEHIND_SECONDS)


async def test_a_process_that_is_alone_waits_for_none(autojump_clock: trio.testing.MockClock) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(NOT_THERE.to_bytes(8, "little") * 2)
        file.flush()
        share = Share(file.fileno(), 1)
        share.served = range(7)
        await share.wait_turn()
        assert trio.current_time() == pytest.approx(0.0)


def test_each_line_of_a_follower_has_its_name() -> None:
    text = io.StringIO()
    named = NamedLines(text, 2)
    print("one\ntwo", file=named)
    named.write("be")
    named.write("gun\n" + json.dumps({"message": "m"}) + "\nnot yet")
    *lines, written, end = text.getvalue().split("\n")
    name = f"follower-2[{os.getpid()}]: "
    assert lines == [f"{name}one", f"{name}two", f"{name}begun"]
    assert json.loads(written) == {"follower": 2, "process": os.getpid(), "message": "m"}
    assert end == ""


def test_a_line_of_a_follower_is_written_whole() -> None:
    class Pieces(io.StringIO):
        def write(self, text: str, /) -> int:
            assert text.endswith("\n")
            return super().write(text)

    print("a", "b", file=NamedLines(Pieces(), 1))
