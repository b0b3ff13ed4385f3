"""No turn of an identity is applied twice, and what is remembered of them is bounded."""

from __future__ import annotations

from hypothesis import given, strategies as st

from server.owners.turn_numbers import PASSED, WINDOW, Client, Clients


@given(st.lists(st.integers(1, 5), min_size=1, max_size=50))
def test_the_latest_turns_are_answered_with_their_epochs(steps: list[int]) -> None:
    client, sequence, told = Client("me"), 0, {}
    for epoch, step in enumerate(steps, 1):
        sequence += step
        client.applied(sequence, epoch)
        told[sequence] = epoch
    assert {at: client.epoch_of(at) for at in range(sequence + 2)} == {
        at: None if at < min(told) or at > sequence else told.get(at, 0) for at in range(sequence + 2)
    }
    assert client.first_epoch == 1


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
