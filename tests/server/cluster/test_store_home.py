"""A daemon takes the free spaces of a store, or none if its lease runs out meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from psycopg import errors

from relay.store.address import StoreAddress
from relay.store.errors import LogAway, LogDamaged
from relay.store.levels import LATEST
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import Fence
from relay.store.postgres.members import Membership, Profile, Renewal, Standing
from server.cluster.database.cluster_state import StoreView
from server.cluster.database.membership import facts_of, figures_of
from server.cluster.database.reading import move, seen, upgrade
from server.cluster.database.store import SPREAD_SECONDS, StoreHome
from server.config.model import Cluster, Config, SpaceConfig
from tests.postgres.servers import connect, patient

SPACES = ("main", "a", "b")

LEASE = 60.0
"""Seconds, of which no test waits for the end."""


@contextlib.contextmanager
def joined(postgres_url: str, name: str = "one", **preferred: str) -> Iterator[StoreHome]:
    """A member of a store; some spaces prefer a member."""
    address = StoreAddress.parse(patient(postgres_url))
    spaces = tuple([SpaceConfig(each, address, prefer=preferred.get(each)) for each in SPACES[1:]])
    made = StoreHome(Config(data=address, spaces=spaces, cluster=Cluster(lease=LEASE)), address)
    made._member.profile = Profile(name, "tcp://one:1")
    made._join()
    try:
        yield made
    finally:
        made._leave()
        made._database.close()


@pytest.fixture
def home(postgres_url: str) -> Iterator[StoreHome]:
    with joined(postgres_url) as made:
        yield made


def next_move(home: StoreHome) -> tuple[str, str] | None:
    """Returns the next space that a daemon is to hand over, and to which one."""
    return home._move(home.looks.ask())


def run_out(home: StoreHome, url: str) -> None:
    """Has the lease run out, as after a stop of the daemon."""
    home._lease._until = 0.0
    with connect(url) as beside:
        beside.execute("UPDATE members SET until = clock_timestamp()")


def test_the_first_one_takes_all_spaces(home: StoreHome) -> None:
    assert home._take_free(SPACES) == [*SPACES]
    assert {fence.nonce for fence in home._fences.values()} == {home._member.nonce}
    home._fences.clear()
    assert home._take_free(SPACES) == [*SPACES], "as after an answer that was lost"


def test_a_lease_that_ran_out_before_is_begun_anew(home: StoreHome, postgres_url: str) -> None:
    run_out(home, postgres_url)
    assert home._take_free(SPACES) == [*SPACES]
    assert home.looks.ask().standings["main"].nonce == home._member.nonce
    while not home.is_sure():  # once the lease is confirmed, by a thread
        time.sleep(0.01)


def test_a_lease_that_runs_out_between_two_spaces_leaves_nothing_taken(
    home: StoreHome, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, left = home._terms.take_space, [2]

    def take(space: int, seen: Standing, nonce: object, why: str) -> Fence | None:
        left[0] -= 1
        if left[0] == 0:
            run_out(home, postgres_url)
        return really(space, seen, nonce, why)  # type: ignore[arg-type]  # as it is called

    monkeypatch.setattr(home._terms, "take_space", take)
    assert home._take_free(SPACES) == []
    assert not home._fences
    assert home._take_free(SPACES) == [*SPACES], "under another lease"


def test_of_free_spaces_each_member_takes_its_part(postgres_url: str) -> None:
    with contextlib.ExitStack() as stack:
        one, other, third = [stack.enter_context(joined(postgres_url)) for _ in range(3)]
        first = one._take_share(SPACES)
        assert len(first) == 1
        rest = [name for name in SPACES if name not in first]
        second = other._take_share(rest)
        assert len(second) == 1 and third._take_share(first + second) == []
        assert third._take_share(SPACES) == [name for name in SPACES if name not in first + second]
        assert len({each._member.number for each in (one, other, third)}) == 3


def test_a_space_that_is_meant_for_one_member_goes_to_another_one_after_a_lease(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(joined(postgres_url)) for _ in range(2)]
        stack.enter_context(joined(postgres_url, "somebody"))
        one._take_free(SPACES)
        one._terms.give_up(one._fences.pop("a"), "nobody")
        assert other._take_free(["a"]) == ["a"], "there is no such member"
        other._terms.give_up(other._fences.pop("a"), "somebody")
        assert other._take_free(SPACES) == []
        now = time.monotonic()
        monkeypatch.setattr("server.cluster.database.store.monotonic", lambda: now + other._member.lease + 1)
        assert other._take_free(["a"]) == ["a"], "it has not come"
        other._terms.give_up(other._fences.pop("a"), one._member.profile.name)
        assert one._take_free(["a"]) == ["a"]


def test_a_leader_spares_a_space_for_a_member_that_leads_two_less(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(joined(postgres_url, name)) for name in ("one", "other")]
        one._take_free(SPACES)
        assert next_move(one) is None, "it has only begun"
        now = time.monotonic()
        monkeypatch.setattr("server.cluster.database.store.monotonic", lambda: now + SPREAD_SECONDS)
        assert next_move(one) == ("b", "other")
        assert next_move(one) is None, "one after the other"
        one._terms.give_up(one._fences.pop("b"), "other")
        assert other._take_free(SPACES) == ["b"]
        monkeypatch.setattr("server.cluster.database.store.monotonic", lambda: now + 2 * SPREAD_SECONDS)
        assert next_move(one) is None and next_move(other) is None, "two and one"


def test_a_space_that_an_operator_moved_is_the_last_to_be_spared(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(joined(postgres_url, name)) for name in ("one", "other")]
        other._take_free(["b"])
        one._take_free(["main", "a"])
        one._terms.want(one._spaces["b"], "one")
        assert next_move(other) == ("b", "one")
        other._terms.give_up(other._fences.pop("b"), "one")
        assert one._take_free(["b"]) == ["b"]
        now = time.monotonic()
        monkeypatch.setattr("server.cluster.database.store.monotonic", lambda: now + SPREAD_SECONDS)
        assert next_move(one) == ("a", "other")


def test_a_space_goes_to_the_member_that_it_prefers_or_that_an_operator_names(postgres_url: str) -> None:
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(joined(postgres_url, name, b="other")) for name in ("one", "other")]
        one._take_free(SPACES)
        assert next_move(one) == ("b", "other")
        one._terms.give_up(one._fences.pop("b"), "other")
        assert other._take_free(SPACES) == ["b"] and next_move(other) is None
        one._terms.want(one._spaces["main"], "nobody")
        assert next_move(one) is None
        one._terms.want(one._spaces["main"], "other")
        assert next_move(one) == ("main", "other")
        other._terms.want(other._spaces["b"], "one")
        assert next_move(other) == ("b", "one"), "an operator's word counts more"


def test_the_store_has_why_a_space_was_taken(postgres_url: str) -> None:
    def why(home: StoreHome, space: str) -> tuple[str | None, str | None, str | None]:
        [found] = [each for each in home.looks.ask().spaces if each.space == space]
        return found.before, found.last, found.why

    with joined(postgres_url) as one:
        one._take_free(SPACES)
        assert why(one, "a") == (None, "one", "first")
        with joined(postgres_url, "other") as other:
            one._terms.give_up(one._fences["a"])
            assert other._take_free(["a"]) == ["a"] and why(other, "a") == ("one", "other", "ended")
            one._terms.give_up(one._fences["b"], "other")
            assert other._take_free(["b"]) == ["b"] and why(other, "b") == ("one", "other", "moved")
            stands = other.looks.ask().standings["main"]
            assert other._why(stands) == "silent", (
                "its counter stood still, else a living leader is left alone"
            )
            run_out(one, postgres_url)
        with joined(postgres_url, "third") as third:
            assert third._take_free(["main"]) == ["main"]
            assert why(third, "main") == ("one", "third", "lapsed")


def test_a_move_of_a_space_that_is_just_free_is_wanted_once_it_is_led(postgres_url: str) -> None:
    address = StoreAddress.parse(postgres_url)
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(joined(postgres_url, name)) for name in ("one", "other")]
        one._take_free(SPACES)
        one._terms.give_up(one._fences.pop("a"), "other")
        with ThreadPoolExecutor() as threads:
            moved = threads.submit(move, address, "a", "one", patience=20.0)
            time.sleep(0.3)  # so that it has asked for what nobody leads
            assert other._take_free(["a"]) == ["a"]
            while (found := next_move(other)) is None:
                time.sleep(0.01)
            assert found == ("a", "one")
            other._give_up(other._fences.pop("a"), "one", 0.5)
            assert one._take_free(["a"]) == ["a"]
            assert moved.result().leader == "one"


def test_a_move_ends_though_the_pause_is_never_known(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.cluster.database.reading.PAUSE_SECONDS", 0.2)
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(joined(postgres_url, name)) for name in ("one", "other")]
        other.notes.say("other", "tcp://one:1", "", '{"clients": 0, "lag": {}}')
        one._take_free(SPACES)
        one._terms.give_up(one._fences.pop("a"), "other")
        assert other._take_free(["a"]) == ["a"]
        found = move(StoreAddress.parse(postgres_url), "a", "other", patience=0.1)
        assert (found.leader, found.before, found.why, found.pause) == ("other", "one", "moved", None)


def test_a_drained_member_hands_over_main_last_and_takes_only_what_no_other_can(postgres_url: str) -> None:
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(joined(postgres_url, b="one"))
        one._take_free(SPACES)
        assert one.notes.drain("one") and not one.notes.drain("one")
        assert next_move(one) is None, "there is no other member"
        with joined(postgres_url, "other", b="one") as other:
            for space in ("b", "a", "main"):
                assert next_move(one) == (space, "other")
                one._give_up(one._fences.pop(space), "other", 0.0)
                assert one._take_free(SPACES) == []
                assert other._take_free(SPACES) == [space]
            assert next_move(other) is None, "neither a preference nor the spread counts"
            other._terms.give_up(other._fences["a"], "one")
            assert not other.looks.ask().standings["a"].wanted_lives
            assert other._take_free(SPACES) == ["a"]
        assert sorted(one._take_free(SPACES)) == sorted(SPACES)
        assert one.notes.resume("one") and not one.notes.resume("one")


def test_a_drained_member_takes_again_what_it_could_not_give_up(postgres_url: str) -> None:
    with joined(postgres_url) as one, joined(postgres_url, "other"):
        one._take_free(SPACES)
        one.notes.drain("one")
        del one._fences["a"]
        assert one._free(SPACES, one.looks.ask()) == ["a"], "for the task that waits"
        assert one._take_free(SPACES) == ["a"]
        assert next_move(one) == ("b", "other")


def test_a_drained_member_leads_where_the_lease_of_the_only_other_stands_still(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(postgres_url) as one, joined(postgres_url, "other") as other:
        other._take_free(SPACES)
        one.notes.drain("one")
        assert one._take_free(SPACES) == []
        now = time.monotonic()
        monkeypatch.setattr("server.cluster.database.store.monotonic", lambda: now + LEASE + 1)
        assert one._take_free(SPACES) == [*SPACES]
        assert next_move(one) is None, "to whom?"
        other._member.renew()
        assert next_move(one) == ("b", "other")


def test_only_one_that_sees_others_says_when_its_turns_ended(postgres_url: str) -> None:
    with joined(postgres_url) as one:
        one._take_free(SPACES)
        assert not one._retire() and not one._ends_at
        with joined(postgres_url, "other"):
            assert one._retire() and one._ends_at


def test_what_a_member_says_is_compared_with_what_the_store_has(
    home: StoreHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_new(said: str) -> bool:
        view = home.looks.ask()
        return home.notes.is_new(view.noted.daemons.get("one"), view.at, "tcp://one:1", said)

    before = home.looks.ask()
    assert is_new("{}")
    home.notes.say("one", "tcp://one:1", "", "{}")
    assert not is_new("[]"), "it was just now"
    now = time.monotonic()
    monkeypatch.setattr("relay.store.postgres.daemons.monotonic", lambda: now + 2)
    assert is_new("[]") and not is_new("{}")
    assert not home.notes.is_new(None, before.at, "tcp://one:1", "{}"), "seen before it was written"
    home.notes.leave("one", "tcp://one:1", "")
    assert is_new("{}")
    home.notes.say("one", "tcp://one:1", "", "{}")
    noted = home.looks.ask().noted.daemons["one"]
    assert (noted.said, noted.gone is None) == (None, False), "it has left for good"


def test_a_request_that_is_done_is_not_denied_for_a_look_that_fails(
    home: StoreHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> StoreView:
        raise LogAway("away")

    with joined(home.place, "other"):
        monkeypatch.setattr(home.looks, "ask", away)
        assert home.role_of("one", "drain").changed
        monkeypatch.undo()


def test_one_that_was_drained_and_killed_long_ago_is_missed_no_longer(postgres_url: str) -> None:
    with joined(postgres_url) as one, connect(postgres_url) as beside:
        one.notes.say("gone", "tcp://gone:1", "0", "{}")
        one.notes.drain("gone")
        daemons = one.looks.ask().daemons
        [found] = [each for each in daemons if each.name == "gone"]
        assert (found.until, found.is_left, found.left > 0) == (0.0, False, False)
        assert [each.label for each in facts_of([found], [], "")] == ["drained"]
        assert figures_of(daemons, [], "").gone == 0
        beside.execute(
            "INSERT INTO members (nonce, name, url, web, version, config, beat, until, level) VALUES"
            " (gen_random_uuid(), 'gone', 'tcp://gone:1', '', '0', '', 0, now() - interval '1h', 1)"
        )
        assert figures_of(one.looks.ask().daemons, [], "").gone == 1


def test_a_renewal_that_meets_damage_is_tried_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, met = Membership.renew, list[Membership]()

    def renew(member: Membership) -> Renewal | None:
        met.append(member)
        if len(met) == 2:  # the first one is of the beginning
            raise LogDamaged("an index that the view reads is damaged")
        return really(member)

    monkeypatch.setattr(Membership, "renew", renew)
    with joined(postgres_url) as one:
        one._lease.hasten()
        while len(met) < 2:
            time.sleep(0.01)
        one._lease.hasten()
        while len(met) < 3:
            assert one._lease._thread.is_alive()
            time.sleep(0.01)


OLD = """
INSERT INTO members (nonce, name, url, web, version, config, beat, until)
VALUES (gen_random_uuid(), 'old', 'tcp://old:1', '', '0.0.9', '', 0, now() - interval '1h')
"""
"""How a version joins that knows no levels."""


def test_a_version_without_levels_joins_until_the_level_is_raised(postgres_url: str) -> None:
    address = StoreAddress.parse(patient(postgres_url))
    with contextlib.closing(Database(address)) as database, connect(postgres_url) as beside:
        database.prepare()
        with pytest.raises(errors.NotNullViolation):
            beside.execute(OLD)
        beside.execute("ALTER TABLE members DROP COLUMN level; ALTER TABLE store DROP COLUMN level")
        database.prepare()
        beside.execute(OLD)
        assert seen(address).level == 1
        assert upgrade(address) == LATEST == seen(address).level
        with pytest.raises(errors.NotNullViolation):
            beside.execute(OLD)


def test_a_store_gets_levels_once_no_transaction_is_in_the_way(postgres_url: str) -> None:
    address = StoreAddress.parse(postgres_url)
    with contextlib.closing(Database(address)) as database, connect(postgres_url) as beside:
        database.prepare()
        beside.execute("ALTER TABLE members DROP COLUMN level; ALTER TABLE store DROP COLUMN level")
        with beside.transaction():
            beside.execute("SELECT FROM members")
            with pytest.raises(LogAway, match="lock timeout") as away:
                database.prepare()
            assert not away.value.is_refusal, "so the start waits"
        database.prepare()
        assert seen(address).level == 1
