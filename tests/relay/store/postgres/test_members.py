"""A lease says in the database's clock which daemon lives; a space goes from one to another, whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.address import StoreAddress
from relay.store.errors import LogFenced
from relay.store.postgres.database import Database
from relay.store.postgres.members import Membership, Profile
from tests.postgres.servers import Servers, connect, wait_until
from tests.relay.store.postgres.leaders import leaders, write


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    made = Database(StoreAddress.parse(postgres_url))
    made.prepare()
    yield made
    made.close()


def lives(member: Membership, space: int) -> bool:
    return member.standing(space).lives


def test_a_lease_is_renewed_while_it_lasts_and_never_after(database: Database, postgres_url: str) -> None:
    member = Membership(database, Profile("a", "tcp://a:1"), 600.0)
    member.join()
    space = member.space("main")
    assert member.take(space, member.standing(space)) is not None
    beats = []
    for _ in range(3):
        assert member.renew() is not None
        beats.append(member.standing(space).beat)
    assert beats == [1, 2, 3]
    with connect(postgres_url) as beside:
        beside.execute("UPDATE members SET until = clock_timestamp()")
    assert not lives(member, space)
    assert member.renew() is None and not lives(member, space)
    assert member.standing(space).beat == 3
    nonce = member.nonce
    member.join()
    assert member.nonce != nonce and not lives(member, space), "another run of it leads"
    member.close()


def test_a_lease_runs_out_by_itself(database: Database) -> None:
    member = Membership(database, Profile("a"), 0.05)
    while True:
        member.join()
        space = member.space("main")
        if member.take(space, member.standing(space)) is not None:
            break  # before it had run out
    wait_until(lambda: not lives(member, space))
    assert member.renew() is None
    member.close()


def test_without_a_lease_nothing_is_taken(database: Database, postgres_url: str) -> None:
    member = Membership(database, Profile("a"), 600.0)
    space = member.space("main")
    assert member.take(space, member.standing(space)) is None, "it never joined"
    member.join()
    with connect(postgres_url) as beside:
        beside.execute("UPDATE members SET until = clock_timestamp()")
    assert member.take(space, member.standing(space)) is None
    member.close()


def test_a_term_says_who_leads_and_where(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        one.member.profile = Profile("a", "tcp://one:1", "http://one:2")
        one.member.renew()
        before = other.member.standing(other.space)
        assert (before.term, before.nonce, before.name, before.lives) == (0, None, None, False)
        one.take()
        standing = other.member.standing(other.space)
        assert standing[:2] == (1, one.member.nonce)
        assert (standing.name, standing.url, standing.web) == ("a", "tcp://one:1", "http://one:2")
        one.member.leave()
        assert other.member.standing(other.space)[3:] == (None, None, None, None, False)


def test_a_term_that_is_no_longer_the_one_seen_is_not_taken(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        seen = other.member.standing(other.space)
        one.take()
        assert other.member.take(other.space, seen) is None
        assert other.take().term == 2


def test_a_term_that_is_given_up_names_its_successor(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        log = one.log()
        write(log, 1)
        one.member.give_up(one.writer.fence, "b")
        standing = other.member.standing(other.space)
        assert (standing.term, standing.nonce, standing.wanted) == (1, None, "b")
        with pytest.raises(LogFenced):
            write(log, 2)
        assert other.take().term == 2
        one.member.give_up(one.writer.fence, "a")  # of an earlier term
        assert other.member.standing(other.space).wanted is None


def test_spaces_are_led_each_by_itself(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        numbers = [one.member.space(name) for name in ("x", "y", "x")]
        assert numbers[0] == numbers[2] == other.member.space("x") != numbers[1]
        assert one.member.take(numbers[0], one.member.standing(numbers[0])).term == 1
        assert other.member.take(numbers[1], other.member.standing(numbers[1])).term == 1


def test_several_make_the_tables_and_the_spaces_at_one_moment(servers: Servers) -> None:
    server = servers.new().start()
    urls = [server.url("new")] * 4
    with leaders(urls[0]) as (first, pool):
        first.close()
        databases = [Database(StoreAddress.parse(server.url("other"))) for _ in urls]
        made = [Membership(each, Profile("a"), 600.0) for each in databases]

        def begin(member: Membership) -> int:
            member._database.prepare()
            member.join()
            return member.space("main")

        assert len({*pool.map(begin, made)}) == 1
        for each in made:
            each.close()
        for database in databases:
            database.close()


def test_a_connection_that_was_lost_is_made_again(database: Database, postgres_url: str) -> None:
    member = Membership(database, Profile("a"), 600.0)
    member.join()
    with connect(postgres_url) as beside:
        others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        beside.execute(f"{others} AND application_name = 'dataspace'".encode())
    assert member.renew() is not None
    member.close()
