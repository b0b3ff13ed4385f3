"""A supervisor is told when the daemon listens, that it is alive, and that it ends; a client waits for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from dataspace.errors import UsageError
from server.cli.main import main
from server.daemon.command import VARIABLES, Supervisor
from tests.ports import free_port


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    """A supervisor's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(30)
        yield made


def heard(listening: socket.socket) -> str:
    return listening.recv(4096).decode()


def test_what_is_sent(listening: socket.socket, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "HOME": "/"}
    supervisor = Supervisor.of(environment)
    assert environment == {"HOME": "/"}, "what the daemon starts is not supervised by it"
    supervisor.ready(["tcp:127.0.0.1:7", "unix:/x"])
    supervisor.stopping()
    assert heard(listening) == "READY=1\nSTATUS=listening on tcp:127.0.0.1:7, unix:/x"
    assert heard(listening).startswith("STOPPING=1\n")


def test_an_address_in_the_abstract_namespace() -> None:
    name = f"dataspace-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(f"\0{name}")
        Supervisor.of({"NOTIFY_SOCKET": f"@{name}"}).ready([])
        assert heard(made).startswith("READY=1")


async def test_the_watchdog_is_fed_from_the_loop(
    listening: socket.socket, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    with trio.move_on_after(40):
        await Supervisor.of(environment).feed()
    listening.setblocking(False)
    assert [heard(listening) for _ in range(3)] == ["WATCHDOG=1"] * 3, "at 0, 15 and 30 s"
    with pytest.raises(BlockingIOError):
        heard(listening)


async def test_a_watchdog_of_another_process_is_not_fed(listening: socket.socket, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}
    await Supervisor.of(environment).feed()
    listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        heard(listening)


def test_a_supervisor_that_has_gone_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Supervisor.of({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready([])
    assert "cannot notify the supervisor: No such file or directory" in caplog.text


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    closed = os.dup(0)
    os.close(closed)
    with pytest.raises(UsageError, match=f"--ready-fd {closed} is no open descriptor"):
        Supervisor.of({}, closed)


@pytest.mark.slow
def test_a_daemon_under_a_supervisor(listening: socket.socket, tmp_path: Path) -> None:
    """With a client that waits for it, from before it is there."""
    port = free_port()
    reading, writing = os.pipe()
    codes: list[int] = []
    url = f"tcp://127.0.0.1:{port}"
    client = threading.Thread(target=lambda: codes.append(status(url)), daemon=True)
    client.start()
    environment = {name: each for name, each in os.environ.items() if name not in VARIABLES}
    environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3600000000"}
    words = ["serve", "--listen", f"tcp:127.0.0.1:{port}", "--data", str(tmp_path / "data")]
    daemon = subprocess.Popen(
        [sys.executable, "-m", "dataspace", *words, "--ready-fd", str(writing)],
        env=environment,
        pass_fds=[writing],
        stdout=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as ready:
        assert ready.read() == f"tcp:127.0.0.1:{port}\n", "all of it, and then the end"
    assert heard(listening) == f"READY=1\nSTATUS=listening on tcp:127.0.0.1:{port}"
    assert heard(listening) == "WATCHDOG=1"
    client.join()
    assert codes == [0]
    daemon.send_signal(signal.SIGTERM)
    assert heard(listening).startswith("STOPPING=1")
    assert daemon.wait(60) == 0


def status(url: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "dataspace", "status", "--url", url, "--wait", "60s"], capture_output=True
    ).returncode


def test_a_client_that_has_waited_long_enough_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--url", f"unix://{tmp_path}/none", "--wait", "50ms"]) == 3
    assert "no daemon at" in capsys.readouterr().err
    assert main(["status", "--url", f"unix://{tmp_path}/none", "--wait", "soon"]) == 2
