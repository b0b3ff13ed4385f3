"""Chat with presence: who is there is a fact, what is said a message; who leaves is seen to go."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.patterns import capture
from examples.actors.stage import play, tell

Present = record("present", "who")
Says = record("says", "who", "what")


def main(turn: Turn) -> None:
    """Three users; the second one leaves first."""
    turn.spawn(user, "Alice", 0, 9)
    turn.spawn(user, "Bob", 1, 3)
    turn.spawn(user, "Carol", 2, 9)


def user(turn: Turn, name: str, comes: int, stays: int) -> None:
    """Comes after a while, greets whoever is there, and leaves."""
    turn.after(comes)(lambda turn: turn.react(talk, name, stays))


def talk(turn: Turn, name: str, stays: int) -> None:
    """Is present."""
    turn.assert_(Present(name))
    turn.stop_after(stays)

    @turn.during(Present(capture()))
    def other(turn: Turn, who: str) -> None:
        if who == name:
            return
        tell(turn, f"{name} sees {who}")
        turn.send(Says(name, f"hello {who}"))
        turn.on_stop(lambda turn: tell(turn, f"{name} misses {who}"))

    turn.on_message(Says(capture(), f"hello {name}"))(
        lambda turn, who: tell(turn, f"{name} is greeted by {who}")
    )


if __name__ == "__main__":
    play(main)
