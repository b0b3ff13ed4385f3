"""What PostgreSQL raises has a meaning for the store, and no broken connection is lent again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from psycopg import errors

from relay.store.address import StoreAddress
from relay.store.errors import LogAway, LogDamaged, LogFailed, LogFenced
from relay.store.postgres import database as database_module
from relay.store.postgres.database import READERS, Database, ReadingTurns
from relay.store.postgres.members import SpaceTerms
from tests.postgres.servers import Servers, address, connect, patient, wait_until

NUMBER = "SELECT %(n)s::int8 FROM {s}.store"


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    made = Database(StoreAddress.parse(patient(postgres_url)))
    made.prepare()
    yield made
    made.close()


def test_it_reads_from_any_thread(database: Database) -> None:
    with ThreadPoolExecutor(4 * READERS) as pool:
        found = pool.map(lambda number: database.rows(NUMBER, {"n": number}), range(200))
        assert [rows[0][0] for rows in found] == [*range(200)]
    assert 0 < len([each for each in database._open if not each.closed]) <= READERS


def test_readers_get_a_connection_in_the_order_in_which_they_came(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or an error, where those that have one keep it."""
    turns, order = ReadingTurns(1), list[int]()

    def read(number: int) -> None:
        with turns.turn("here"):
            order.append(number)

    with ThreadPoolExecutor(20) as pool:
        with turns.turn("here"):
            for number in range(20):
                pool.submit(read, number)
                wait_until(lambda: len(turns._waiting) == number + 1)  # noqa: B023  # at once
            assert order == []
    assert order == [*range(20)]
    monkeypatch.setattr(database_module, "TURN_SECONDS", 0.01)
    with turns.turn("here"):
        with pytest.raises(LogAway, match="all 1 connections that read here were busy"):
            read(20)
        assert not turns._waiting
    read(21)
    assert order[20:] == [21]


def test_connections_that_nobody_uses_are_closed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with database.moment(), database.moment(), database.moment():
        assert database.held == 3
    assert database.held == 3
    monkeypatch.setattr(database_module, "IDLE_SECONDS", -1.0)
    assert database.rows(NUMBER, {"n": 1}) == [(1,)]
    assert database.held == 1


def test_a_connection_that_was_lost_meanwhile_is_no_error(database: Database, postgres_url: str) -> None:
    assert database.rows(NUMBER, {"n": 1}) == [(1,)]
    for _ in range(2):
        end_all(postgres_url)
        assert database.rows(NUMBER, {"n": 2}) == [(2,)]
        end_all(postgres_url)
        with database.moment() as connection:
            assert connection.execute("SELECT 3").fetchone() == (3,)


def end_all(url: str) -> None:
    """Ends the connections of daemons."""
    with connect(url) as beside:
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        beside.execute(f"{ended} WHERE application_name = 'dataspace'".encode())


def test_a_moment_is_one(database: Database, postgres_url: str) -> None:
    count = database.statement("SELECT count(*) FROM {s}.spaces")
    with connect(postgres_url) as beside, database.moment() as connection:
        assert connection.execute(count).fetchone() == (0,)
        beside.execute("INSERT INTO spaces (name, touched) VALUES ('x', 0)")
        assert connection.execute(count).fetchone() == (0,)
        with pytest.raises(LogFailed), database.moment() as reading:
            reading.execute("DELETE FROM spaces")  # it writes nothing


@pytest.mark.parametrize(
    ("error", "meaning", "full"),
    [
        (errors.DiskFull, LogFailed, True),
        (errors.OutOfMemory, LogFailed, True),
        (errors.DataCorrupted, LogDamaged, None),
        (errors.AdminShutdown, LogAway, True),
        (errors.CannotConnectNow, LogAway, True),
        (errors.TooManyConnections, LogAway, True),
        (errors.ReadOnlySqlTransaction, LogAway, True),
        (errors.QueryCanceled, LogAway, True),
        (errors.DeadlockDetected, LogAway, True),
        (errors.InsufficientPrivilege, LogFailed, False),
        (errors.UndefinedTable, LogFailed, False),
    ],
)
def test_each_error_means_something(
    database: Database, error: type[Exception], meaning: type[Exception], full: bool | None
) -> None:
    with pytest.raises(meaning) as raised, database.translated("write"):
        raise error("it says so")
    assert type(raised.value) is meaning and "it says so" in str(raised.value)
    assert getattr(raised.value, "full", None) == full


@pytest.mark.slow
def test_a_server_that_is_not_there_is_away_and_then_there(servers: Servers) -> None:
    server = servers.new()
    database = Database(StoreAddress.parse(patient(server.url("test"))))
    with pytest.raises(LogAway):
        database.prepare()
    server.start()
    database.prepare()
    assert database.rows(NUMBER, {"n": 1}) == [(1,)]
    server.kill()
    with pytest.raises(LogAway):
        database.rows(NUMBER, {"n": 1})
    server.start()
    assert database.rows(NUMBER, {"n": 1}) == [(1,)]
    database.close()
    with pytest.raises(LogFailed, match="is closed"):
        database.rows(NUMBER, {"n": 1})


def test_a_database_that_is_abandoned_is_asked_nothing_any_more(postgres_url: str) -> None:
    """As where a leader steps down: its writers end by that alone, and so does what reads for them."""
    database = Database(StoreAddress.parse(postgres_url))
    database.abandon()
    with pytest.raises(LogFenced):
        database.rows(NUMBER, {"n": 1})
    with pytest.raises(LogFenced):
        database.connect()
    with pytest.raises(LogFenced):
        SpaceTerms(database).standing(1)
    database.close()


@pytest.mark.slow
def test_a_standby_is_no_place_for_a_store(servers: Servers) -> None:
    server = servers.new().start()
    standby = server.standby(synchronous=False)
    database = Database(StoreAddress.parse(patient(standby.url("test"))))
    with pytest.raises(LogAway, match=r"read-only|read-write"):
        database.prepare()
    database.close()


@pytest.mark.slow
def test_the_server_that_can_be_written_is_found(servers: Servers) -> None:
    server = servers.new().start()
    standby = server.standby(synchronous=False)
    database = Database(StoreAddress.parse(patient(address([standby, server], "test"))))
    database.prepare()
    assert database.rows(NUMBER, {"n": 1}) == [(1,)]
    database.close()


@pytest.mark.slow
def test_text_is_text_in_a_database_without_an_encoding(servers: Servers) -> None:
    server = servers.new().start()
    with server.connect(superuser=True) as connection:
        connection.execute("CREATE DATABASE plain OWNER dataspace TEMPLATE template0 ENCODING 'SQL_ASCII'")
    url = patient(server.url("test")).replace("/dataspace?", "/plain?")
    database = Database(StoreAddress.parse(url))
    database.prepare()
    terms = SpaceTerms(database)
    terms.space("Zürich")
    assert database.rows("SELECT name FROM {s}.spaces", {}) == [("Zürich",)]
    terms.close()
    database.close()


def test_tables_of_another_version_are_refused(database: Database, postgres_url: str) -> None:
    with connect(postgres_url) as beside:
        beside.execute("UPDATE store SET format = 9")
    for attempt in (database.prepare, database.check):
        with pytest.raises(LogDamaged, match="have version 9, this program has 1"):
            attempt()


def test_a_schema_without_tables_is_none(postgres_url: str) -> None:
    database = Database(StoreAddress.parse(patient(postgres_url)))
    with pytest.raises(LogFailed):
        database.check()
    database.prepare()
    database.check()
    database.close()


@pytest.mark.parametrize("weaker", ["off", "local", "remote_write"])
def test_commits_wait_for_the_disk_whatever_the_role_says(
    postgres_url: str, database: Database, weaker: str
) -> None:
    with connect(postgres_url) as beside:
        beside.execute(f"ALTER ROLE CURRENT_USER SET synchronous_commit = {weaker}".encode())
        try:
            with database.connect() as connection:
                assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        finally:
            beside.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")
