"""No turn of an identity is applied twice, and what is remembered of them is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from relay.log.reader import NOT_APPLIED
from server.config.principals import Principal, Quotas
from server.owners.accounts import Accounts
from server.owners.turn_numbers import KEPT, OWN_PASSED, PASSED, WINDOW, Client, Clients


@given(st.lists(st.integers(1, 5), min_size=1, max_size=50))
def test_the_latest_turns_are_answered_with_their_epochs(steps: list[int]) -> None:
    client, sequence, told = Client("me"), 0, {}
    for epoch, step in enumerate(steps):
        sequence += step
        client.applied(sequence, epoch)
        told[sequence] = epoch
    assert {at: client.epoch_of(at) for at in range(sequence + 2)} == {
        at: None if at < min(told) or at > sequence else told.get(at, NOT_APPLIED)
        for at in range(sequence + 2)
    }
    assert client.first_epoch == 0


def test_old_turns_are_forgotten_and_the_window_is_kept() -> None:
    client = Client("me", 10, 100)
    assert client.epoch_of(10) == 100
    for sequence in range(11, 3 * WINDOW):
        client.applied(sequence, sequence + 90)
    newest = 3 * WINDOW - 1
    assert client.epoch_of(10) is None
    assert [client.epoch_of(at) for at in (newest - WINDOW, newest, newest + 1)] == [
        newest - WINDOW + 90,
        newest + 90,
        None,
    ]
    client.applied(newest + 10 * WINDOW, 1)
    assert (client.epoch_of(newest), client.epoch_of(newest + 10 * WINDOW)) == (None, 1)


def test_passing_identities_are_forgotten_in_the_log_as_well() -> None:
    logged = {"owner:me": (7, 70), "~restart": (1, 1)}
    clients = Clients(logged)
    for number in range(PASSED + 10):
        client = clients.get(f"~{number}")
        client.applied(1, number + 1)
        logged[client.name] = (1, number + 1)
        clients.left(client)
    visitor = clients.get("~visitor")
    clients.left(visitor)
    assert clients.get("owner:me").sequence == 7
    assert len(clients) == PASSED + 1
    assert logged.keys() == {"owner:me", *(f"~{number}" for number in range(10, PASSED + 10))}


def test_identities_without_a_connection_are_bounded_and_those_connected_are_remembered() -> None:
    logged: dict[str, tuple[int, int]] = {}
    clients = Clients(logged, most=10)
    connected = clients.connect("owner:connected")
    connected.applied(3, 1)
    logged["owner:connected"] = (3, 1)
    for number in range(100):
        client = clients.connect(f"owner:{number}")
        client.applied(5, number + 2)
        logged[client.name] = (5, number + 2)
        clients.left(client)
    assert len(clients) == 11
    assert clients.get("owner:connected") is connected
    assert [clients.get(f"owner:{number}").sequence for number in range(90, 100)] == [5] * 10
    assert logged.keys() == {"owner:connected", *(f"owner:{number}" for number in range(90, 100))}
    again = Clients(dict(logged), most=10)
    assert len(again) == 10, "what the log has is bounded from the start as well"
    assert again.get("owner:99").sequence == 5


def test_an_identity_that_is_only_asked_for_is_not_remembered_for_ever() -> None:
    clients = Clients({})
    for number in range(3 * PASSED):
        clients.get(f"owner:{number}")
    assert len(clients) == PASSED


def test_a_publisher_that_numbers_its_first_turn_is_kept_among_those_that_have() -> None:
    logged: dict[str, tuple[int, int]] = {}
    clients = Clients(logged)
    clients.get("owner:me").applied(1, 7)
    for number in range(3 * PASSED):
        clients.get(f"owner:{number}")
    assert clients.get("owner:me").sequence == 1


def test_an_identity_without_a_connection_answers_its_latest_turns() -> None:
    clients = Clients({})
    client = clients.connect("owner:me")
    for sequence in range(1, 1001):
        client.applied(sequence, sequence)
    clients.left(client)
    assert client.epoch_of(1000) == 1000
    assert client.epoch_of(1001 - KEPT) == client.first_epoch == 1001 - KEPT
    assert client.epoch_of(1000 - KEPT) is None, "it is looked up in the log"


def test_a_name_that_is_too_long_is_refused_by_the_limit() -> None:
    clients = Clients({}, name_bytes=8)
    clients.get("12345678")
    for name in ("123456789", "äääää"):
        with pytest.raises(Refused, match=r"the limit is limits\.name_bytes=8"):
            clients.connect(name)
    assert len(clients) == 1


@pytest.mark.parametrize(("form", "most"), [("owner:{}", 5), ("~{}", OWN_PASSED)])
def test_who_uses_many_identities_makes_its_own_be_forgotten_and_no_other(form: str, most: int) -> None:
    logged: dict[str, tuple[int, int]] = {}
    accounts = Accounts(Quotas(identities=5))
    bully, other = (accounts.of(Principal("address", (f"10.0.0.{n}",))) for n in (1, 2))
    clients = Clients(logged, most=3 * most)
    for account, names in (other, ["other"]), (bully, range(4 * PASSED)):
        for at, name in enumerate(names):
            client = clients.connect(form.format(name), account)
            client.applied(5, at + 1)
            logged[client.name] = (5, at + 1)
            clients.left(client)
    assert len(clients) == len(logged) == most + 1
    assert clients.get(form.format("other")).sequence == 5
    assert [clients.get(form.format(4 * PASSED - n)).sequence for n in (most + 1, most, 1)] == [0, 5, 5]
    shown = (0, 0) if form.startswith("~") else (5, 1)
    assert (bully.used("identities"), other.used("identities")) == shown


def test_an_identity_counts_for_the_principal_that_used_it_last() -> None:
    accounts = Accounts(Quotas(identities=2))
    one, other = (accounts.of(Principal("address", (f"10.0.0.{n}",))) for n in (1, 2))
    clients = Clients({})
    for account in one, other:
        client = clients.get("owner:shared", account)
        client.applied(client.sequence + 1, 1)
        clients.get("owner:shared", account)
    assert (one.used("identities"), other.used("identities")) == (0, 1)
    held = clients.connect("owner:shared", one)
    assert (one.used("identities"), other.used("identities")) == (0, 0), "it is that of a connection"
    clients.left(held)
    assert (one.used("identities"), other.used("identities")) == (1, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["get", "connect", "leave", "turn"]), st.integers(0, 9), st.integers(0, 2))
    )
)
def test_whatever_is_used_shares_hold_and_counts_are_those_of_what_is_kept(
    steps: list[tuple[str, int, int]],
) -> None:
    accounts = Accounts(Quotas(identities=2))
    each = [accounts.of(Principal("address", (f"10.0.0.{n}",))) for n in range(3)]
    clients, connected = Clients({}, most=4), dict[int, Client]()
    for verb, name, who in steps:
        if verb == "connect" and name not in connected:
            connected[name] = clients.connect(f"owner:{name}", each[who])
        elif verb == "leave" and name in connected:
            clients.left(connected.pop(name))
        elif verb == "get":
            clients.get(f"owner:{name}", each[who])
        elif verb == "turn":
            client = clients.get(f"owner:{name}")
            client.applied(client.sequence + 1, 1)
    for client in connected.values():
        assert clients.get(client.name) is client, "one that is connected is not forgotten"
    for account in each:
        assert 0 <= account.used("identities") <= 2
    assert sum(account.used("identities") for account in each) <= 4
