"""Bank account: a balance that is a fact, changed by messages."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.patterns import capture
from examples.actors.stage import play, tell

Account = record("account", "balance")
Deposit = record("deposit", "amount")


def main(turn: Turn) -> None:
    """Starts the account, one that watches it, and a client."""
    turn.spawn(account)
    turn.spawn(watcher)
    turn.spawn(client)


def account(turn: Turn) -> None:
    """Adds up what is deposited."""
    balance = turn.field("balance", 0)
    turn.assert_(lambda: Account(balance.value))

    @turn.on_message(Deposit(capture()))
    def deposit(turn: Turn, amount: int) -> None:
        balance.value += amount


def watcher(turn: Turn) -> None:
    """Tells of each balance."""
    turn.on_asserted(Account(capture()))(lambda turn, balance: tell(turn, "balance", balance))


def client(turn: Turn) -> None:
    """Waits for interest in deposits: so none is lost."""

    def pay(turn: Turn) -> None:
        turn.send(Deposit(100))
        turn.send(Deposit(-30))

    turn.stop_when("Observe(deposit(_))", pay)


if __name__ == "__main__":
    play(main)
