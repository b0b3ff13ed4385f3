"""Responsibility transfer: one actor hands a fact over to the next, and nobody sees a moment without it."""

from __future__ import annotations

from dataspace.actors import Turn, record
from examples.actors.stage import play, tell

OnDuty = record("on-duty")


def main(turn: Turn) -> None:
    """Three guards, one after the other, and who watches them."""
    turn.spawn(watcher)
    turn.spawn(guard, ("first", "second", "third"))


def guard(turn: Turn, names: tuple[str, ...]) -> None:
    """Is on duty for a second, and hands over to the next, if there is one."""
    tell(turn, f"{names[0]} guard")
    turn.assert_(OnDuty())

    @turn.after(1)
    def relieve(turn: Turn) -> None:
        if names[1:]:
            turn.spawn(guard, names[1:], initial=[OnDuty()])
        turn.stop()


def watcher(turn: Turn) -> None:
    """Sees one beginning and one end."""
    turn.on_asserted(OnDuty())(lambda turn: tell(turn, "guarded"))
    turn.on_retracted(OnDuty())(lambda turn: tell(turn, "unguarded"))


if __name__ == "__main__":
    play(main)
