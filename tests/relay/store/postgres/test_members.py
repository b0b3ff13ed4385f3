"""A lease says in the database's clock which daemon lives; a space goes from one to another, whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.errors import LogAway, LogFenced
from relay.store.postgres.members import Profile
from tests.postgres.servers import Servers, connect, wait_until
from tests.relay.store.postgres.leaders import Leader, leaders, write


def run_out(url: str) -> None:
    """Has all leases run out."""
    with connect(url) as beside:
        beside.execute("UPDATE members SET until = clock_timestamp()")


def test_a_lease_is_renewed_while_it_lasts_and_never_after(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _):
        assert one.take() is not None
        beats = []
        for _ in range(3):
            assert one.member.renew() is not None
            beats.append(one.standing().beat)
        assert beats == [1, 2, 3] and one.standing().lives
        run_out(postgres_url)
        assert not one.standing().lives
        assert one.member.renew() is None and not one.standing().lives
        assert one.standing().beat == 3
        nonce = one.member.nonce
        one.member.join()
        assert one.member.nonce != nonce and not one.standing().lives, "another run of it leads"


def test_a_database_that_fails_over_while_a_member_joins_is_away(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Leader(postgres_url)
    run = one.member.ask_rows

    def failing_over(question: str, **values: object) -> list[object]:
        found = run(question, **values)
        with connect(postgres_url) as beside:
            beside.execute("DELETE FROM members")
        return found

    monkeypatch.setattr(one.member, "ask_rows", failing_over)
    with pytest.raises(LogAway, match="this member joined, and is not there"):
        one.member.join()
    monkeypatch.undo()
    one.member.join()
    assert one.take() is not None
    one.close()


def test_a_lease_runs_out_by_itself(postgres_url: str) -> None:
    one = Leader(postgres_url, lease=0.05)
    while one.take() is None:  # unless it had run out before
        one.member.join()
    wait_until(lambda: not one.standing().lives)
    assert one.member.renew() is None
    one.close()


def test_without_a_lease_nothing_is_taken(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _):
        run_out(postgres_url)
        assert one.take() is None
        one.member.join()
        assert one.take() is not None


def test_a_term_says_who_leads_and_where(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        one.member.profile = Profile("a", "tcp://one:1", "http://one:2")
        one.member.renew()
        before = other.standing()
        assert (before.term, before.nonce, before.name, before.lives) == (0, None, None, False)
        one.take()
        standing = other.standing()
        assert standing[:2] == (1, one.member.nonce)
        assert (standing.name, standing.url, standing.web) == ("a", "tcp://one:1", "http://one:2")
        one.member.leave()
        assert other.standing()[3:] == (None, None, None, None, -1.0, False)


def test_a_term_that_is_no_longer_the_one_seen_is_not_taken(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        seen = other.standing()
        one.take()
        assert other.take_as(seen) is None
        assert other.take_as(seen._replace(term=1)) is None, "with this number another member took it"
        assert other.take().term == 2
        one.give_up(one.writer.fence)
        freed = one.standing()
        other.give_up(other.writer.fence)
        assert one.take_as(freed) is None
        assert one.take_as(one.standing()._replace(term=1)) is None, "it was free then, too"
        assert one.take().term == 3


def test_a_term_that_is_given_up_names_its_successor(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        log = one.log()
        write(log, 1)
        one.give_up(one.writer.fence, "b")
        standing = other.standing()
        assert (standing.term, standing.nonce, standing.wanted) == (1, None, "b")
        with pytest.raises(LogFenced):
            write(log, 2)
        assert other.take().term == 2
        one.give_up(one.writer.fence, "a")  # of an earlier term
        assert other.standing().wanted is None


def test_spaces_are_led_each_by_itself(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        x, y, again = [one.space_of(name) for name in ("x", "y", "x")]
        assert x == again == other.space_of("x") != y
        assert one.take_as(one.standing(x), x).term == 1
        assert other.take_as(other.standing(y), y).term == 1


@pytest.mark.slow
def test_several_make_the_tables_and_the_spaces_at_one_moment(servers: Servers) -> None:
    server = servers.new().start()
    with ThreadPoolExecutor() as pool:
        for schema in ("one", "another"):
            made = [*pool.map(Leader, [server.url(schema)] * 4)]
            assert len({each.space for each in made}) == 1
            for each in made:
                each.close()


def test_a_connection_that_was_lost_is_made_again(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _), connect(postgres_url) as beside:
        beside.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = 'dataspace'"
        )
        assert one.member.renew() is not None


def test_a_renewal_knows_the_members_that_differ_and_those_of_its_name(postgres_url: str) -> None:
    with leaders(postgres_url, postgres_url) as (one, other, _):
        one.member.profile = Profile("a", "tcp://one:1", config=b"x")
        other.member.profile = Profile("b", "tcp://two:1", config=b"x")
        for each in (one, other):
            each.member.leave()
            each.member.join()

        def renewed() -> tuple[list[str], list[str]]:
            assert one.member.renew() is not None
            return one.member.differing, one.member.namesakes

        assert renewed() == ([], [])
        other.member.profile = Profile("b", "tcp://two:1", config=b"y")
        other.member.renew()
        assert renewed() == (["tcp://two:1"], [])
        one.member.profile = Profile("b", "tcp://one:1", config=b"y")
        assert renewed() == ([], ["tcp://two:1"])
        run_out(postgres_url)
        one.member.join()
        assert renewed() == ([], []), "it lives no longer"
