"""Daemons of a store with nothing to do leave it alone, and have no more connections than they state."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.address import StoreAddress
from relay.store.postgres.database import Database
from relay.store.postgres.staged import PostgresStaged, StagedWriter, StagingLine
from server.cli.main import main
from tests.postgres.servers import Server, Servers, wait_until
from tests.relay.store.postgres.leaders import Leader
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SETTLED = 4
"""Renewals of each daemon after which it has nothing to do any more."""
BEATS = 8
"""Renewals of each daemon for which statements are counted: with the default lease some eight seconds."""
MOST = 3
"""Statements of a daemon for each of its renewals; it was more than fifty."""

NAMES = ("one", "two", "three")
PREFERRED = {f"s{number}": NAMES[number % 3] for number in range(7)}
"""Spaces beside ``main``, and the daemon that leads each of them."""


@pytest.fixture
def server(servers: Servers) -> Iterator[Server]:
    """A server that logs each statement."""
    yield servers.new(log_statement="all", log_line_prefix="%a: ").start()


def statements(server: Server) -> int:
    """Counts the statements of daemons so far."""
    return len(re.findall(r"^dataspace .*: LOG:  (?:statement|execute)", server.said(), re.MULTILINE))


@pytest.mark.parametrize("spaces", [{}, PREFERRED], ids=["one space", "eight spaces"])
def test_a_daemon_with_nothing_to_do_asks_little_beside_its_renewals(
    server: Server, tmp_path: Path, spaces: dict[str, str]
) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text("".join([f'[spaces.{name}]\nprefer = "{leader}"\n' for name, leader in spaces.items()]))
    with server.schema() as schema:
        daemons = [DaemonProcess(server.url(schema), "--config", str(file)) for _ in NAMES]
        for daemon, name in zip(daemons, NAMES, strict=True):
            daemon.environment["DATASPACE_SERVE_CLUSTER_NAME"] = name
        with running(*daemons), server.connect(schema) as beside:

            def leaders() -> dict[str, str]:
                led = "SELECT s.name, m.name FROM spaces AS s JOIN terms USING (space) JOIN members AS m"
                return dict(beside.execute(f"{led} USING (nonce) WHERE s.name NOT IN ('', 'main')".encode()))

            def beats() -> int:
                time.sleep(0.1)
                [(least, number)] = beside.execute("SELECT min(beat), count(*) FROM members").fetchall()
                assert number == len(daemons)
                return int(least)

            wait_until(lambda: leaders() == spaces)
            began = beats()
            wait_until(lambda: beats() >= began + SETTLED)
            before, began = statements(server), beats()
            wait_until(lambda: beats() >= began + BEATS)
            asked = statements(server) - before
        assert BEATS <= asked / len(daemons) <= MOST * BEATS


def test_status_shows_the_connections_that_a_daemon_has_and_may_have(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text('[spaces.a]\n[cluster]\nconnections = 9\nname = "one"\n')
    with server.schema() as schema:
        daemon = DaemonProcess(server.url(schema), "--config", str(file))
        with running(daemon):
            assert main(["status", "--url", daemon.url]) == 0
            found = re.search(r"connections +(\d+) of 9 to the database", capsys.readouterr().out)
            assert found is not None and 0 < int(found[1]) <= 9
            assert main(["cluster", "status", "--data", server.url(schema), "--json"]) == 0
            status = json.loads(capsys.readouterr().out)
            assert 0 < status["connections"]["one"] <= 9
            assert status["connections_allowed"] == 197
            assert main(["cluster", "status", "--data", server.url(schema)]) == 0
            said = capsys.readouterr().out
            assert re.search(r"^connections: one \d+; the database allows 197 in all$", said, re.MULTILINE)


def test_staged_batches_of_several_spaces_share_a_connection(postgres_url: str) -> None:
    leader = Leader(postgres_url)
    database, line = Database(StoreAddress.parse(postgres_url)), StagingLine()
    spaces = [leader.space_of(name) for name in ("a", "b", "c")]
    fences = [leader.take_as(leader.standing(space), space) for space in spaces]
    staged = [
        PostgresStaged(database, fence.space, StagedWriter(database, fence, line))
        for fence in fences
        if fence
    ]
    for number in range(6):
        staged[number % 3].append(b"key", 1.0, bytes([number]))
    found = [[body for *_, body in each.rows()] for each in staged]
    assert found == [[bytes([at]), bytes([at + 3])] for at in range(3)]
    assert database.held == 2, "one writes, one reads"
    for batches in staged:
        batches.close()
    database.close()
    leader.close()
