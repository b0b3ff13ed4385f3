"""A write in PostgreSQL is there once it returns, once, and only under the term of the daemon that sent it.

Each situation of ``test_wrong_forms.py``, with the product's own statements, and connections that break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import psycopg

from dataspace.version import compiled_parts
from relay.log.log import Log
from relay.store.errors import LogDamaged, LogFailed, LogFenced
from relay.store.ports import KEY_BITS
from relay.store.postgres import fenced, members
from relay.store.postgres.fenced import FencedWriter
from relay.store.postgres.staged import PostgresStaged
from relay.store.postgres.tables import PostgresLog
from relay.store.postgres.topics import PostgresTopics
from tests.postgres.servers import Connection, Server, Servers, address, connect, wait_until
from tests.relay.store.postgres.leaders import Leader, leaders, numbers, write

TOPIC = [(1, b"seal", b"body")]

GATE = """
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(2); RETURN new; END $$;
CREATE TRIGGER gate BEFORE INSERT ON segments FOR EACH ROW EXECUTE FUNCTION wait_at_gate();
"""
"""Each commit of segments waits, after its fence, as long as a test holds the lock."""

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'dataspace'"
)


@contextmanager
def gate(url: str) -> Iterator[Connection]:
    """Lends a connection that holds commits of segments up, until it opens the gate or the block ends."""
    with connect(url) as connection:
        connection.execute(GATE.encode())
        connection.execute("SELECT pg_advisory_lock(2)")
        yield connection


def open_gate(beside: Connection) -> None:
    beside.execute("SELECT pg_advisory_unlock(2)")


def wait_for_waiting(beside: Connection, count: int) -> None:
    """Waits until so many statements of daemons wait for a lock."""
    wait_until(lambda: beside.execute(WAITING.encode()).fetchone() == (count,))


BEFORE = pytest.mark.parametrize("before", [0, 1], ids=["the first segment", "one after another"])
"""A segment that follows one has a statement of its own."""


def log_after(leader: Leader, before: int) -> Log:
    """Opens the log of a leader, which has so many segments."""
    log = leader.log()
    for number in range(1, before + 1):
        write(log, number)
    return log


# -- taking over --------------------------------------------------------------------------------------


@BEFORE
def test_the_next_leader_waits_for_a_commit_under_way_and_has_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(members, "LOCK_SECONDS", 60.0)
    with leaders(postgres_url, postgres_url) as (old, new, pool):
        log = log_after(old, before)
        with gate(postgres_url) as beside:
            written = pool.submit(write, log, before + 1)
            wait_for_waiting(beside, 1)
            taken = pool.submit(new.take)
            wait_for_waiting(beside, 2)
            open_gate(beside)
            written.result()
            assert taken.result().term == 2
        assert numbers(new.log()) == [*range(1, before + 2)]


@BEFORE
def test_a_commit_that_does_not_end_is_ended_by_the_next_leader(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(members, "LOCK_SECONDS", 0.05)
    with leaders(postgres_url, postgres_url) as (old, new, pool):
        log = log_after(old, before)
        with gate(postgres_url) as beside:
            written = pool.submit(write, log, before + 1)
            wait_for_waiting(beside, 1)
            assert new.take().term == 2
            with pytest.raises(LogFenced):
                written.result()
        assert numbers(new.log()) == [*range(1, before + 1)]


@BEFORE
def test_a_commit_that_meets_a_take_over_waits_and_writes_nothing(postgres_url: str, before: int) -> None:
    with leaders(postgres_url, postgres_url) as (old, new, pool):
        log = log_after(old, before)
        with connect(postgres_url) as beside:
            with beside.transaction():
                beside.execute("UPDATE terms SET term = term + 1, nonce = %s", [new.member.nonce])
                written = pool.submit(write, log, before + 1)
                wait_for_waiting(beside, 1)
            with pytest.raises(LogFenced):
                written.result()
        assert numbers(new.log()) == [*range(1, before + 1)]


def test_a_leader_that_lost_one_of_its_spaces_writes_nothing_there(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (old, new, _):
        log = old.log()
        kept = old.space_of("kept")
        assert old.take_as(old.standing(kept), kept).term == old.writer.fence.term
        assert new.take().term == 2
        with pytest.raises(LogFenced):
            write(log, 1)
        assert numbers(new.log()) == []


OF_TOPIC = 1 << KEY_BITS
ROW = (1, 1, 1, 1, 1, 0, 0, b"sum", b"body")
NAMES = {"oldest": 1, "seal": b"seal"}
LOG_WRITES: list[Callable[[PostgresLog], object]] = [
    lambda log: log.append([(2, *ROW[1:])], NAMES),
    lambda log: log.append([(2, *ROW[1:])], {}),
    lambda log: log.append([(2, *ROW[1:]), (3, *ROW[1:])], {}),
    lambda log: log.begin_start(5, 4, NAMES),
    lambda log: log.put_header(NAMES),
    lambda log: log.drop_before(2, 2, NAMES),
    lambda log: log.begin_snapshot(1, 1, 1),
    lambda log: log.put_chunk(1, 0, b"sum", b"other"),
    lambda log: log.complete_snapshot(1, 1, NAMES),
    lambda log: log.drop_incomplete_snapshots(),
    lambda log: log.put_reader("spark", 2, 2),
    lambda log: log.delete_reader("spark"),
]
TOPICS_WRITES: list[Callable[[PostgresTopics], object]] = [
    lambda topics: topics.write([(OF_TOPIC + 2, *ROW[1:])], [], [(1, b"seal", b"other")], [], NAMES),
    lambda topics: topics.write([], [OF_TOPIC + 2], [], [], NAMES),
    lambda topics: topics.write([], [], [], [1], NAMES),
    lambda topics: topics.write_topics([(1, b"seal", b"other")], NAMES),
    lambda topics: topics.write_topics([], {}),
    lambda topics: topics.put_reader(1, "spark", 2, 2),
]
STAGED_WRITES: list[Callable[[PostgresStaged], object]] = [
    lambda staged: staged.append(b"key", 1.0, b"more"),
    lambda staged: staged.delete([b"key"]),
    lambda staged: staged.purge(9.0),
]
CONTENT = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"


def content(url: str) -> dict[str, list[str]]:
    """Returns all rows of all tables."""
    with connect(url) as beside:
        names = [name for (name,) in beside.execute(CONTENT)]
        rows = {name: beside.execute(f"SELECT t::text FROM {name} AS t".encode()) for name in names}
        return {name: sorted([row for (row,) in found]) for name, found in rows.items()}


def test_an_earlier_leader_writes_nothing_of_any_kind_any_more(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (old, new, _):
        old.take()
        log = PostgresLog(old.database, old.space, old.writer)
        log.append([ROW], {})
        assert log.begin_snapshot(1, 1, 1) == 1
        log.put_chunk(1, 0, b"sum", b"body")
        log.put_reader("spark", 1, 1)
        log.begin_start(1, 0, NAMES)
        topics = PostgresTopics(old.database, old.space, old.writer)
        topics.write([(OF_TOPIC + 1, *ROW[1:]), ((2 << KEY_BITS) + 1, *ROW[1:])], [], TOPIC, [], NAMES)
        topics.put_reader(1, "spark", 1, 1)
        staged = PostgresStaged(old.database, old.space, old.writer)
        staged.append(b"key", 1.0, b"body")
        new.take()
        before = content(postgres_url)
        attempts = [partial(each, log) for each in LOG_WRITES]
        attempts += [partial(each, topics) for each in TOPICS_WRITES]
        attempts += [partial(each, staged) for each in STAGED_WRITES]
        for attempt in attempts:
            old.writer._failure = None  # as if it had not noticed
            with pytest.raises(LogFenced):
                attempt()
            assert content(postgres_url) == before, attempt


def test_a_topic_follows_no_segment_of_the_one_that_had_its_slot_before(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _):
        one.take()
        topics = PostgresTopics(one.database, one.space, one.writer)
        for _ in range(2):
            topics.write([(OF_TOPIC + 1, *ROW[1:]), (OF_TOPIC + 2, *ROW[1:])], [], TOPIC, [], NAMES)
            assert topics.ends(1) == (OF_TOPIC + 1, OF_TOPIC + 2, 1, b"sum")
            topics.write([], [], [], [1], NAMES)
            assert topics.ends(1) is None


def test_a_fenced_writer_stays_fenced_if_the_database_goes_back(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        log = one.log()
        beside.execute("UPDATE terms SET term = term + 1")
        with pytest.raises(LogFenced):
            write(log, 1)
        beside.execute("UPDATE terms SET term = term - 1")
        with pytest.raises(LogFenced):
            write(log, 1)


@pytest.mark.parametrize("end", [FencedWriter.abandon, FencedWriter.close])
def test_a_writer_that_was_ended_has_no_connection_and_writes_nothing(
    postgres_url: str, end: Callable[[FencedWriter], None]
) -> None:
    with leaders(postgres_url) as (one, _):
        log = one.log()
        write(log, 1)
        connection = one.writer._connection
        end(one.writer)
        assert connection.closed
        with pytest.raises(LogFenced, match="is not written any more"):
            write(log, 2)
        assert numbers(log) == [1]


def test_without_a_term_nothing_is_written(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _):
        tables = PostgresLog(one.database, one.space)
        for each in LOG_WRITES:
            with pytest.raises(LogFailed, match="open to read only"):
                each(tables)


@pytest.mark.parametrize(
    "altered",
    [
        "DELETE FROM segments",
        "UPDATE segments SET checksum = ''",
        "UPDATE segments SET segment = segment + 100",
        "UPDATE segments SET space = space + 100",
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_predecessor_that_is_gone_or_another_is_noticed(
    postgres_url: str, altered: str, again: bool
) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _), connect(postgres_url) as beside:
        log = one.log()
        write(log, 1)
        if again:
            log = other.log()
        beside.execute(altered.encode())
        with pytest.raises(LogDamaged, match="lacks segments"):
            write(log, log.next_epoch)


def test_a_leader_may_take_its_own_space_again(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _):
        first = one.take()
        assert one.take() == first  # whose outcome may not have been known
        write(one.log(), 1)


def test_of_several_that_take_at_once_one_gets_it(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "LOCK_SECONDS", 60.0)
    with leaders(*[postgres_url] * 4) as (a, b, c, d, pool):
        for term in range(1, 21):
            seen = a.standing()
            takers = [each for each in (a, b, c, d) if each.member.nonce != seen.nonce]
            taken = [pool.submit(each.take_as, seen) for each in takers]
            (fence,) = [each.result() for each in taken if each.result() is not None]
            standing = a.standing()
            assert (standing.term, standing.nonce) == (fence.term, fence.nonce) == (term, fence.nonce)


# -- databases that lose commits ----------------------------------------------------------------------


def failed_over(
    servers: Servers, before: Callable[[Leader], None], lost: Callable[[Leader], None]
) -> tuple[Server, Leader]:
    """Returns a promoted asynchronous standby that lacks something, and the daemon that wrote."""
    server = servers.new().start()
    standby = server.standby(synchronous=False)
    leader = Leader(address([server, standby], "test"))
    before(leader)
    server.wait_until_followed(standby)
    standby.kill()
    lost(leader)
    server.kill()
    standby.start()
    standby.promote()
    return standby, leader


@pytest.mark.parametrize(
    "write_above",
    [
        lambda tables: tables.complete_snapshot(1, 0, {}),
        lambda tables: tables.drop_before(1, 0, {}),
    ],
)
def test_nothing_from_memory_is_written_once_its_segments_are_gone(
    postgres_url: str, write_above: Callable[[PostgresLog], None]
) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        log = one.log()
        write(log, 1)
        tables = log._tables
        assert isinstance(tables, PostgresLog) and tables.begin_snapshot(1, 1, 0) == 1
        beside.execute(b"DELETE FROM segments")
        with pytest.raises(LogDamaged, match="lacks segments"):
            write_above(tables)


@pytest.mark.slow
def test_a_term_whose_number_has_come_back_is_fenced(servers: Servers) -> None:
    later: list[Log] = []

    def lost(leader: Leader) -> None:
        leader.member.join()
        leader.take()
        later.append(leader.log())

    standby, leader = failed_over(servers, lambda leader: write(leader.log(), 1), lost)
    assert leader.writer is not None
    with leaders(standby.url("test")) as (third, _):
        assert third.take() is not None
        assert third.writer.fence.term == leader.writer.fence.term
        with pytest.raises(LogFenced):
            write(later[0], later[0].next_epoch)
        leader.close()


@pytest.mark.slow
def test_above_lost_segments_nothing_is_written(servers: Servers) -> None:
    logs: list[Log] = []

    def before(leader: Leader) -> None:
        logs.append(leader.log())
        write(logs[0], 1)

    standby, leader = failed_over(servers, before, lambda _: write(logs[0], 2))
    for _ in range(2):  # and it stays so
        with pytest.raises(LogDamaged, match="lacks segments that it had acknowledged"):
            write(logs[0], 3)
    leader.close()
    with standby.connect("test") as connection:
        assert connection.execute("SELECT array_agg(last) FROM segments").fetchone() == ([1],)


def test_rows_of_another_program_are_no_earlier_attempt(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        log = one.log()
        write(log, 1)
        beside.execute("INSERT INTO segments SELECT space, 2, 2, 2, 1, 1, 0, 0, '', '', term FROM segments")
        with pytest.raises(LogDamaged, match="has segments that this daemon did not write"):
            write(log, 2)


# -- outcomes that are not known ----------------------------------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> list[object]:
    """Has the next statement lose its connection before the database gets it, or its answer."""
    left = [after]
    statements: list[object] = []

    def breaking(really: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: FencedWriter, connection: Any, *given: Any) -> Any:
            statements.append(given[0])
            if left and left.pop():
                really(self, connection, *given)
            elif len(statements) > 1:
                return really(self, connection, *given)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

        return run

    for name in ("_committed", "_run_segment"):
        monkeypatch.setattr(FencedWriter, name, breaking(vars(FencedWriter)[name]))
    return statements


@pytest.mark.skipif("log" in compiled_parts(), reason="methods of machine code cannot be replaced")
@pytest.mark.parametrize(("after", "sent"), [(False, 2), (True, 3)])
@BEFORE
def test_what_was_sent_twice_is_there_once_and_a_further_commit_is_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, after: bool, sent: int, before: int
) -> None:
    with leaders(postgres_url) as (one, _):
        log = log_after(one, before)
        statements = broken(monkeypatch, after=after)
        write(log, before + 1)
        assert len(statements) == sent and statements[0] == statements[1]
        assert numbers(log) == [*range(1, before + 2)]
        write(log, before + 2)
        assert numbers(log) == [*range(1, before + 3)]


def test_since_when_an_outcome_is_not_known_is_known_and_logged_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    since: list[float | None] = []
    really = FencedWriter._committed

    def committed(self: FencedWriter, *given: Any) -> Any:
        since.append(self.away_since)
        if len(since) < 4:
            raise psycopg.OperationalError("the connection is lost")
        return really(self, *given)

    monkeypatch.setattr(FencedWriter, "_committed", committed)
    monkeypatch.setattr(fenced, "PAUSES", (0.0, 0.01))  # the last one stays
    with leaders(postgres_url) as (one, _):
        write(one.log(), 1)
        assert one.writer.away_since is None
    assert since[1] is not None and since[:4] == [None, since[1], since[1], since[1]]
    lost, found = [record.getMessage() for record in caplog.records]
    assert "the connection is lost; the same is tried until the outcome is known" in lost
    assert "it is reached again" in found


def test_a_disk_that_is_full_once_an_outcome_is_not_known_is_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt may have written it, so the write must not be refused."""
    with leaders(postgres_url) as (one, _):
        log = one.log()
        answers = iter([psycopg.OperationalError("lost"), psycopg.errors.DiskFull("full")])
        really = FencedWriter._committed

        def committed(self: FencedWriter, *given: Any) -> Any:
            found = really(self, *given)
            for error in answers:
                raise error
            return found

        monkeypatch.setattr(FencedWriter, "_committed", committed)
        write(log, 1)
        assert numbers(log) == [1]


TELLING = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE {} 'by the way'; RETURN new; END $$;
CREATE TRIGGER tell BEFORE INSERT ON segments FOR EACH ROW EXECUTE FUNCTION tell();
"""
TOUCHED = "SELECT touched FROM spaces WHERE name = 'main'"


def test_a_notice_in_a_commit_is_no_warning(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        beside.execute(TELLING.format("NOTICE").encode())
        write(log := one.log(), 1)
        write(log, 2)
        assert beside.execute(TOUCHED).fetchone() == (0,)
    assert not caplog.records


def test_after_a_warning_in_a_commit_a_further_commit_is_waited_for(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        beside.execute(TELLING.format("WARNING").encode())
        log = one.log()
        for number in (1, 2, 3):
            write(log, number)
            assert beside.execute(TOUCHED).fetchone() == (number,)
        assert numbers(log) == [1, 2, 3]
    warned = [each.getMessage() for each in caplog.records if "warned in a commit" in each.getMessage()]
    assert len(warned) == 3


HIGH = 2**63 - 1
LATER = [
    (2, HIGH, HIGH, HIGH, HIGH, HIGH, HIGH, bytes(16), b""),
    (3, 0, 0, 0, 0, -HIGH, 0, b"\xff" * 16, bytes(range(256)) * 4096),
]
ROWS = "SELECT segment, first, last, entries, changes, since, until, checksum, body, term FROM segments"


def test_one_segment_is_the_same_row_in_either_statement(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        one.take()
        found = []
        for parts in ([[ROW], LATER[:1], LATER[1:]], [[ROW, *LATER]]):
            log = PostgresLog(one.database, one.space, one.writer)
            for rows in parts:
                log.append(rows, {})
            found.append(beside.execute(f"{ROWS} ORDER BY segment".encode(), binary=True).fetchall())
            beside.execute("DELETE FROM segments")
        assert found[0] == found[1] == [(*row, 1) for row in (ROW, *LATER)]


@pytest.mark.parametrize("pooled", [False, True])
def test_behind_a_pooler_no_statement_is_prepared(postgres_url: str, pooled: bool) -> None:
    with leaders(postgres_url) as (one, _):
        log = one.log()
        connection = one.writer._connected()
        if pooled:
            connection.prepare_threshold = None
        for number in range(1, 30):
            write(log, number)
        prepared = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
        assert prepared == ([] if pooled else [("segment",)])
        assert numbers(log) == [*range(1, 30)]


def test_a_preparation_that_is_cancelled_is_tried_again(postgres_url: str) -> None:
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        leaders(postgres_url) as (one, pool),
        connect(postgres_url) as holds,
        connect(postgres_url) as beside,
    ):
        log = log_after(one, 1)
        with holds.transaction():
            holds.execute("LOCK TABLE segments IN ACCESS EXCLUSIVE MODE")
            written = pool.submit(write, log, 2)
            wait_for_waiting(beside, 1)
            assert beside.execute(cancel).fetchall() == [(True,)]
            wait_until(lambda: one.writer.away_since is not None or written.done())
        written.result()
        assert numbers(log) == [1, 2]


@pytest.mark.parametrize("names", [{}, NAMES], ids=["alone", "with the header"])
def test_a_predecessor_is_found_by_the_index(postgres_url: str, names: dict[str, object]) -> None:
    """Also by a plan that was made when there were no segments, and is kept."""
    count = "SELECT seq_tup_read, n_tup_ins FROM pg_stat_user_tables WHERE relid = 'segments'::regclass"
    last = 300
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        one.take()
        log = PostgresLog(one.database, one.space, one.writer)
        for ordinal in range(1, last + 1):
            log.append([(ordinal, *ROW[1:])], names)
        one.writer.close()  # which has its counts known
        wait_until(lambda: (beside.execute(count).fetchone() or (0, 0))[1] == last)
        read, _ = beside.execute(count).fetchone() or (0, 0)
        assert read <= last, "a few, each once or twice"


def test_a_write_that_is_given_up_says_that_its_outcome_is_not_known(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced, "PAUSES", (600.0,))
    with leaders(postgres_url) as (one, pool):
        log = one.log()
        broken(monkeypatch, after=False)
        written = pool.submit(write, log, 1)
        wait_until(lambda: one.writer.away_since is not None)
        one.writer.abandon()
        with pytest.raises(LogFenced, match="whether the last write is there is not known"):
            written.result()


def ended_waiting(beside: Connection, pid: int) -> bool:
    """True once a connection waits for the standby no longer."""
    question = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = %s"
    return beside.execute(question, [pid]).fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_whose_wait_for_the_standby_is_ended_waits_for_it_all_the_same(
    servers: Servers, ended: str
) -> None:
    server = servers.new().start()
    standby = server.standby(synchronous=True)
    with leaders(server.url("test")) as (one, pool):
        log = one.log()
        standby.kill()
        written = pool.submit(write, log, 1)
        with server.connect(superuser=True) as beside:
            for _ in range(3):
                server.wait_for_waiting()
                waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                (pid,) = beside.execute(waiting).fetchone() or (0,)
                beside.execute(f"SELECT {ended}(%s)".encode(), [pid])
                wait_until(partial(ended_waiting, beside, pid))
        server.wait_for_waiting()
        assert not written.done()
        standby.start()
        written.result()
        assert numbers(log) == [1]


@pytest.mark.slow
def test_a_commit_is_made_again_where_the_synchronous_standby_is_promoted(servers: Servers) -> None:
    server = servers.new().start()
    standby = server.standby(synchronous=True)
    with leaders(address([server, standby], "test")) as (one, pool):
        log = one.log()
        write(log, 1)
        standby.kill()
        written = pool.submit(write, log, 2)
        server.wait_for_waiting()
        server.kill()
        standby.start()
        assert not written.done()
        standby.promote()
        written.result()
        write(log, 3)
        assert numbers(log) == [1, 2, 3]


@pytest.mark.slow
def test_a_killed_server_is_waited_for(servers: Servers) -> None:
    server = servers.new().start()
    with leaders(server.url("test")) as (one, pool):
        log = one.log()
        for number in range(1, 4):
            server.kill()
            written = pool.submit(write, log, number)
            wait_until(lambda: one.writer.away_since is not None)
            server.start()
            written.result()
            assert one.writer.away_since is None
        assert numbers(log) == [1, 2, 3]


@pytest.mark.slow
def test_a_server_that_is_stopped_is_waited_for(servers: Servers) -> None:
    server = servers.new().start()
    with leaders(server.url("test")) as (one, pool):
        log = one.log()
        server.pause()
        written = pool.submit(write, log, 1)
        server.resume()
        written.result()
        assert numbers(log) == [1]


@pytest.mark.slow
def test_giving_up_ends_the_wait_and_says_that_the_outcome_is_not_known(servers: Servers) -> None:
    server = servers.new().start()
    with leaders(server.url("test")) as (one, pool):
        log = one.log()
        server.pause()
        written = pool.submit(write, log, 1)
        one.writer.abandon()
        with pytest.raises(LogFailed):
            written.result()
        server.resume()


@pytest.mark.slow
def test_whatever_is_ended_each_epoch_is_there_once(postgres_url: str) -> None:
    """Connections are ended at random while a leader writes: in the end the log has all, in order, once."""
    random = Random(5)
    last = 150
    with leaders(postgres_url) as (one, pool), connect(postgres_url) as beside:
        log = one.log()

        def live() -> None:
            for number in range(1, last + 1):
                write(log, number)

        written = pool.submit(live)
        ended = 0
        while ended < 20 and not written.done():
            pids = beside.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'dataspace'")
            if found := pids.fetchall():
                beside.execute("SELECT pg_terminate_backend(%s)", random.choice(found))
                ended += 1
            wait([written], random.choice([0, 0.01]))
        written.result()
        assert ended > 0
        assert numbers(log) == list(range(1, last + 1))


def test_a_full_disk_is_said_and_nothing_is_half_written(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        log = one.log()
        beside.execute(
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF new.segment = 3 THEN RAISE 'no room' USING ERRCODE = 'disk_full'; END IF; RETURN new; END $$"
        )
        beside.execute("CREATE TRIGGER fill BEFORE INSERT ON segments FOR EACH ROW EXECUTE FUNCTION fill()")
        write(log, 1)
        write(log, 2)
        with pytest.raises(LogFailed, match="no room") as refused:
            write(log, 3)
        assert refused.value.full
        assert numbers(log) == [1, 2]
        beside.execute("DROP TRIGGER fill ON segments")
        write(log, 3)
        write(log, 4)
        assert numbers(log) == [1, 2, 3, 4]
