"""PgBouncer in transaction mode before a server: each statement may run on another connection to that."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

import psycopg
import pytest

from tests.ports import free_port
from tests.postgres.servers import BEHIND, NAME, PATIENCE, Server, wait_until

PROGRAM: Final = shutil.which("pgbouncer")

_SETTINGS: Final = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 5
max_client_conn = 500
server_login_retry = 0.1
logfile = {folder}/log
pidfile = {folder}/data/postmaster.pid
"""


@contextmanager
def pooled(server: Server) -> Iterator[Server]:
    """Has all addresses of a server lead through PgBouncer, with five connections for all that it serves."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    servers, own = server.servers, free_port()
    folder = servers.place / f"pooler-{own}"
    (folder / "data").mkdir(parents=True)  # as a server's, so that `keeper` ends it with them
    settings = folder / "settings"
    settings.write_text(_SETTINGS.format(host=server.host, port=server.port, own=own, folder=folder))
    (folder / "users").write_text(f'"{NAME}" ""\n')
    if servers._user is not None:
        for each in (folder, *folder.iterdir()):
            shutil.chown(each, servers._user, servers._group)
    process = servers.start(PROGRAM, settings, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = server.public
    server.public = ("127.0.0.1", own)
    BEHIND[f"127.0.0.1:{own}"] = f"{quote(server.host, safe='')}:{server.port}"
    try:
        wait_until(lambda: _answers(server))
        yield server
    finally:
        server.public = before
        process.terminate()
        process.wait(PATIENCE)
        shutil.rmtree(folder)


def _answers(server: Server) -> bool:
    try:
        psycopg.connect(server.url("public").partition("?")[0]).close()
    except psycopg.OperationalError:
        return False
    return True
