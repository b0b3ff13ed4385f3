"""A daemon that waits for its leader or its database says so, goes on once it can, and ends when told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.address import StoreAddress
from relay.store.postgres import database
from relay.store.postgres.database import Database, is_refusal
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


def test_a_daemon_waits_for_a_connection_that_others_have(servers: Servers) -> None:
    """It says what it waits for, and begins once there is one."""
    server = servers.new(max_connections="8", superuser_reserved_connections="1", max_wal_senders="0").start()
    with server.schema() as schema:
        others = [server.connect() for _ in range(7)]
        daemon = start("--data", server.url(schema))
        said(daemon, "it has no connection free")
        for each in others:
            each.close()
        assert daemon.stdout is not None
        assert "listening on" in daemon.stdout.readline()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SOON) == 0
        daemon.communicate()


def test_a_start_that_gets_no_answer_says_so_and_ends_when_told(servers: Servers) -> None:
    """As from a pooler whose connections are all used: it accepts a client, and then says nothing."""
    server = servers.new().start()
    with server.schema() as schema:
        with server.connect(schema) as beside:
            Database(StoreAddress.parse(server.url(schema))).prepare()
            beside.execute("BEGIN")
            beside.execute("LOCK TABLE store")
            daemon = start("--data", server.url(schema))
            said(daemon, "this daemon waits for an answer of postgresql://")
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(SOON / 3) == 0
            daemon.communicate()
            beside.execute("ROLLBACK")


def test_commands_wait_for_a_store_that_is_away(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = servers.new().start()
    monkeypatch.setattr(database, "sleep", lambda _: server.start())
    with server.schema() as schema:
        url = server.url(schema)
        Database(StoreAddress.parse(url)).prepare()
        server.kill()
        assert main(["cluster", "status", "--data", url]) == 1
        assert "cannot open" in capsys.readouterr().err
        assert main(["cluster", "status", "--data", url, "--wait", "1m"]) == 0
        assert "durability:" in capsys.readouterr().out
        assert main(["cluster", "status", "--data", f"{url}_none", "--wait", "1m"]) == 1
        assert "no daemon has used it yet" in capsys.readouterr().err
        assert main(["cluster", "status", "--data", f"{url}&wait=soon"]) == 2


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("connection refused", False),
        ("FATAL: the database system is starting up", False),
        ("FATAL: sorry, too many clients already", False),
        ('FATAL: too many connections for role "x"', False),
        ("FATAL: remaining connection slots are reserved for superusers", False),
        ("FATAL: no more connections allowed (max_client_conn)", False),
        ("FATAL: server login has been failing, try again later (server_login_retry)", False),
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


@pytest.mark.parametrize(("most", "spaces", "code"), [(7, 0, 2), (8, 0, 0), (9, 2, 2), (10, 2, 0), (0, 2, 0)])
def test_connections_are_as_many_as_the_spaces_need(
    most: int, spaces: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "daemon.toml"
    named = "".join([f"[spaces.s{number}]\n" for number in range(spaces)])
    file.write_text(f'data = "postgresql://h/db"\n[cluster]\nconnections = {most}\n{named}')
    assert main(["serve", "--config", str(file), "--check"]) == code
    shown = capsys.readouterr()
    if code == 0:
        assert f"connections = {most or spaces + 11}" in shown.out
    else:
        assert "connections" in shown.err
