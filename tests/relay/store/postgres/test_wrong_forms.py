"""Why the statement of a commit is what it is: each cheaper form loses a commit, or blocks.

These are experiments with PostgreSQL alone.  ``test_fenced.py`` has the product's own statements in the same
situations.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import psycopg

from tests.postgres.servers import Connection, Server, Servers, connect, wait_until

TABLES: Final = """
CREATE TABLE terms (space int PRIMARY KEY, term bigint NOT NULL, nonce text NOT NULL);
INSERT INTO terms VALUES (1, 1, 'first');
CREATE TABLE segments (segment bigint PRIMARY KEY, checksum text NOT NULL, term bigint NOT NULL);
"""

GATE: Final = """
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN new; END $$;
CREATE TRIGGER gate BEFORE INSERT ON segments FOR EACH ROW EXECUTE FUNCTION wait_at_gate();
"""
"""Each commit waits, after its fence, as long as a test holds the lock."""

UNLOCKED: Final = """
INSERT INTO segments SELECT %(segment)s, 'sum', 1
 WHERE EXISTS (SELECT FROM terms WHERE space = 1 AND term = %(term)s AND nonce = %(nonce)s)
"""

LOCKED: Final = """
WITH lead AS MATERIALIZED
    (SELECT term FROM terms WHERE space = 1 AND term = %(term)s AND nonce = %(nonce)s {lock})
INSERT INTO segments SELECT %(segment)s, 'sum', lead.term FROM lead
"""
KEY_SHARE: Final = LOCKED.format(lock="FOR KEY SHARE")
SHARE: Final = LOCKED.format(lock="FOR SHARE")

NUMBER_ONLY: Final = SHARE.replace("AND nonce = %(nonce)s", "")
FOLLOWING: Final = f"""{SHARE}
 WHERE EXISTS (SELECT FROM segments WHERE segment = %(segment)s - 1 AND checksum = 'sum')
"""

TAKE: Final = "UPDATE terms SET term = term + 1, nonce = %(nonce)s WHERE space = 1 AND term = %(term)s"
TAKE_AND_READ: Final = f"WITH taken AS ({TAKE} RETURNING term) SELECT count(segment) FROM taken, segments"
COUNT: Final = "SELECT count(*) FROM segments"

FIRST: Final = {"term": 1, "nonce": "first"}
SECOND: Final = {"term": 2, "nonce": "second"}


def commit(leader: Connection, form: str, segment: int, term: dict[str, object]) -> int:
    """Returns how many rows a leader has committed."""
    return leader.execute(form.encode(), {"segment": segment, **term}).rowcount


def take(taker: Connection, after: int = 1, nonce: str = "second") -> None:
    assert taker.execute(TAKE, {"term": after, "nonce": nonce}).rowcount == 1


def count(connection: Connection) -> int:
    row = connection.execute(COUNT).fetchone()
    assert row is not None
    found: int = row[0]
    return found


def waits(connection: Connection, beside: Connection) -> None:
    """Waits until a connection waits for a lock."""
    question = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    pid = connection.info.backend_pid
    wait_until(lambda: beside.execute(question, [pid]).fetchone() == (True,))


class UnderWay:
    """A leader whose commit is between its fence and its end."""

    def __init__(self, pool: ThreadPoolExecutor, url: str, form: str) -> None:
        self.pool = pool
        self.leader = connect(url)
        self.taker = connect(url)
        self.gate = connect(url)
        self.gate.execute(TABLES.encode())
        self.gate.execute(GATE.encode())
        self.gate.execute("SELECT pg_advisory_lock(1)")
        self.committed: Future[int] = pool.submit(commit, self.leader, form, 1, FIRST)
        waits(self.leader, self.gate)

    def open(self) -> None:
        """Lets the commit go on."""
        self.gate.execute("SELECT pg_advisory_unlock(1)")

    def close(self) -> None:
        for each in (self.gate, self.taker, self.leader):
            each.close()


@contextmanager
def under_way(url: str, form: str) -> Iterator[UnderWay]:
    with ThreadPoolExecutor() as pool:
        made = UnderWay(pool, url, form)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("form", [UNLOCKED, KEY_SHARE], ids=["no lock", "key share"])
def test_without_the_right_lock_the_next_leader_misses_what_is_acknowledged(
    postgres_url: str, form: str
) -> None:
    with under_way(postgres_url, form) as one:
        take(one.taker)
        assert count(one.taker) == 0
        one.open()
        assert one.committed.result() == 1
        assert count(one.taker) == 1  # in the middle of the next term


def test_with_a_share_lock_the_next_leader_waits_and_has_it(postgres_url: str) -> None:
    with under_way(postgres_url, SHARE) as one:
        taken = one.pool.submit(take, one.taker)
        waits(one.taker, one.gate)
        one.open()
        taken.result()
        assert count(one.taker) == 1
        assert one.committed.result() == 1


def test_the_statement_that_takes_over_does_not_see_the_commit_for_which_it_waited(postgres_url: str) -> None:
    with under_way(postgres_url, SHARE) as one:
        taken = one.pool.submit(one.taker.execute, TAKE_AND_READ, {"term": 1, "nonce": "second"})
        waits(one.taker, one.gate)
        one.open()
        assert taken.result().fetchone() == (0,)
        assert one.committed.result() == 1
        assert count(one.taker) == 1  # but the next statement does


def test_a_commit_that_meets_a_take_over_waits_and_writes_nothing(postgres_url: str) -> None:
    with ThreadPoolExecutor() as pool, connect(postgres_url) as leader, connect(postgres_url) as taker:
        taker.execute(TABLES.encode())
        with taker.transaction():
            take(taker)
            committed = pool.submit(commit, leader, SHARE, 1, FIRST)
            waits(leader, taker)
        assert committed.result() == 0
        assert count(taker) == 0


def test_a_leader_that_stops_within_a_transaction_holds_the_take_over_up(postgres_url: str) -> None:
    with ThreadPoolExecutor() as pool, connect(postgres_url) as taker, connect(postgres_url) as beside:
        taker.execute(TABLES.encode())
        leader = connect(postgres_url)
        leader.execute("BEGIN")
        assert commit(leader, SHARE, 1, FIRST) == 1
        taken = pool.submit(take, taker)
        waits(taker, beside)
        blocking = "SELECT pg_terminate_backend(unnest(pg_blocking_pids(%s)))"
        beside.execute(blocking, [taker.info.backend_pid])
        taken.result()
        assert count(taker) == 0
        with pytest.raises(psycopg.OperationalError):
            leader.execute("COMMIT")
        leader.close()


def test_a_leader_that_stops_after_its_statement_holds_nothing(postgres_url: str) -> None:
    with connect(postgres_url) as leader, connect(postgres_url) as taker:
        taker.execute(TABLES.encode())
        sent = SHARE % {"segment": 1, "term": 1, "nonce": "'first'"}
        leader.pgconn.send_query(sent.encode())  # and its answer is not read
        wait_until(lambda: count(taker) == 1)
        take(taker)
        while leader.pgconn.get_result():
            pass


def failed_over(servers: Servers, before: str, lost: str) -> Server:
    """Returns a promoted asynchronous standby; what was ``lost`` was committed after it had gone."""
    server = servers.new().start()
    with server.connect() as connection:
        connection.execute(TABLES.encode())
        standby = server.standby(synchronous=False)
        connection.execute(before.encode())
        server.wait_until_followed(standby)
        standby.kill()
        connection.execute(lost.encode())
    server.kill()
    standby.start()
    standby.promote()
    return standby


@pytest.mark.slow
@pytest.mark.parametrize(("form", "written"), [(NUMBER_ONLY, 1), (SHARE, 0)], ids=["number", "nonce"])
def test_the_number_of_a_term_comes_back_after_a_failover(servers: Servers, form: str, written: int) -> None:
    lost = TAKE % {"term": 1, "nonce": "'second'"}
    with failed_over(servers, "", lost).connect() as connection:
        take(connection, nonce="third")
        assert commit(connection, form, 1, SECOND) == written  # of the leader whose term was lost


@pytest.mark.slow
@pytest.mark.parametrize(("form", "written"), [(SHARE, 1), (FOLLOWING, 0)], ids=["none", "predecessor"])
def test_a_leader_that_names_no_predecessor_writes_above_a_gap(
    servers: Servers, form: str, written: int
) -> None:
    insert = "INSERT INTO segments VALUES ({}, 'sum', 1)"
    with failed_over(servers, insert.format(1), insert.format(2)).connect() as connection:
        assert commit(connection, form, 3, FIRST) == written


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_row_can_be_seen_that_no_standby_has(servers: Servers, ended: str) -> None:
    server = servers.new().start()
    with server.connect() as leader, server.connect(superuser=True) as beside, ThreadPoolExecutor() as pool:
        beside.execute(TABLES.encode())
        beside.execute("GRANT ALL ON terms, segments TO dataspace")
        standby = server.standby(synchronous=True)
        standby.kill()
        warned: list[str | None] = []
        leader.add_notice_handler(lambda notice: warned.append(notice.sqlstate))
        committed = pool.submit(commit, leader, SHARE, 1, FIRST)
        server.wait_for_waiting()
        assert count(beside) == 0
        beside.execute(f"SELECT {ended}(%s)".encode(), [leader.info.backend_pid])
        if ended == "pg_cancel_backend":
            assert committed.result() == 1  # like any other success
            assert warned == ["01000"]
        else:
            with pytest.raises(psycopg.OperationalError):
                committed.result()
        assert count(beside) == 1
    server.kill()
    standby.start()
    standby.promote()
    with standby.connect(superuser=True) as connection:
        assert count(connection) == 0
