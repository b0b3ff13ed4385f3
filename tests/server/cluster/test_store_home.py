"""A daemon takes all spaces of a store, or none if its lease runs out meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.address import StoreAddress
from relay.store.postgres.fenced import Fence
from relay.store.postgres.members import Standing
from server.cluster.store import StoreHome
from server.config.model import Config, SpaceConfig
from tests.postgres.servers import connect, patient

SPACES = ("main", "a", "b")


@pytest.fixture
def home(postgres_url: str) -> Iterator[StoreHome]:
    address = StoreAddress.parse(patient(postgres_url))
    spaces = tuple([SpaceConfig(name, address) for name in SPACES[1:]])
    made = StoreHome(Config(data=address, spaces=spaces), address)
    made._join()
    yield made
    made._leave()
    made._database.close()


def run_out(home: StoreHome, url: str) -> None:
    """Has the lease run out, as after a stop of the daemon."""
    home._lease._until = 0.0
    with connect(url) as beside:
        beside.execute("UPDATE members SET until = clock_timestamp()")


def test_it_takes_all_spaces(home: StoreHome) -> None:
    assert home._take_all(home.standing())
    assert [*home._fences] == [*SPACES]
    assert {fence.nonce for fence in home._fences.values()} == {home._member.nonce}


def test_a_lease_that_ran_out_before_is_begun_anew(home: StoreHome, postgres_url: str) -> None:
    run_out(home, postgres_url)
    assert home._take_all(home.standing())
    assert home.standing().nonce == home._member.nonce and home.is_sure()


def test_a_lease_that_runs_out_between_two_spaces_leaves_nothing_taken(
    home: StoreHome, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, left = home._terms.take, [2]

    def take(space: int, seen: Standing, nonce: object) -> Fence | None:
        left[0] -= 1
        if left[0] == 0:
            run_out(home, postgres_url)
        return really(space, seen, nonce)  # type: ignore[arg-type]  # as it is called

    monkeypatch.setattr(home._terms, "take", take)
    assert not home._take_all(home.standing())
    assert not home._fences
    assert home._take_all(home.standing()), "under another lease"
    assert [*home._fences] == [*SPACES]
