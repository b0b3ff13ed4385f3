"""A daemon that waits for its leader or its database says so, goes on once it can, and ends when told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.postgres.database import is_refusal
from server.cli.main import main
from tests import warm
from tests.ports import free_port
from tests.postgres.servers import Servers

pytestmark = pytest.mark.slow

SOON = 60


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dataspace", "serve", "--listen", f"tcp:127.0.0.1:{free_port()}", *words]
    return warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str], text: str) -> None:
    """Returns once a process has said this on stderr."""
    assert process.stderr is not None  # a pipe
    while text not in (line := process.stderr.readline()):
        assert line, f"it ended: {process.wait()}"


def test_a_follower_that_waits_for_the_log_of_its_leader_ends_when_told(tmp_path: Path) -> None:
    follower = start("--follow", str(tmp_path))
    said(follower, "there is no log")
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(SOON / 3) == 0
    follower.communicate()


def test_a_daemon_waits_for_a_database_that_is_away(servers: Servers) -> None:
    server = servers.new().start()
    with server.schema() as schema:
        url = server.url(schema)
        server.kill()
        daemons = [start("--data", url) for _ in range(2)]
        for each in daemons:
            said(each, "this daemon waits for its database: cannot open")
        daemons[0].send_signal(signal.SIGTERM)
        assert daemons[0].wait(SOON / 3) == 0
        server.start()
        assert daemons[1].stdout is not None
        assert "listening on" in daemons[1].stdout.readline()
        daemons[1].send_signal(signal.SIGTERM)
        assert daemons[1].wait(SOON) == 0
        for each in daemons:
            each.communicate()


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("connection refused", False),
        ("FATAL: the database system is starting up", False),
        ('FATAL: password authentication failed for user "x"', True),
        ('FATAL: database "x" does not exist', True),
        ("SSL error: certificate verify failed", True),
        ("timeout expired", False),
    ],
)
def test_what_a_start_waits_for(text: str, *, refused: bool) -> None:
    assert is_refusal(text) is refused


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--follow", "postgresql://h/db"], "daemons of a store follow its leader by themselves"),
        (["--actor", "nomod:fn", "--check"], "No module named 'nomod'"),
    ],
)
def test_wrong_settings_end_with_2(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("lease", "code"), [("10ms", 2), ("2h", 2), ("200ms", 0), ("3s", 0)])
def test_a_lease_has_bounds(lease: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", lease)
    assert main(["serve", "--check"]) == code
