"""Memoised service on demand: interest in an answer starts who computes it, while it is wanted."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.patterns import capture
from examples.actors.stage import play, tell

Factorial = record("factorial", "n", "is")


def main(turn: Turn) -> None:
    """Two clients want the same answer, one of them longer."""
    turn.spawn(service)
    turn.spawn(client, "first", 1)
    turn.spawn(client, "second", 2)


def service(turn: Turn) -> None:
    """An actor for each number that somebody is interested in."""

    @turn.during_spawn("Observe(factorial($n:int, $))")
    def answer(turn: Turn, n: int, *_: object) -> None:
        tell(turn, "computing", n)
        if n == 0:
            turn.assert_(Factorial(0, 1))
        else:
            turn.during(Factorial(n - 1, capture()))(lambda turn, is_: turn.assert_(Factorial(n, n * is_)))
        turn.on_stop(lambda turn: tell(turn, "forgetting", n))


def client(turn: Turn, name: str, seconds: float) -> None:
    """Wants to know for a while."""
    turn.on_asserted(Factorial(3, capture()))(lambda turn, is_: tell(turn, f"{name} knows", is_))
    turn.stop_after(seconds)


if __name__ == "__main__":
    play(main)
