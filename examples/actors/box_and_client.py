"""Box and client: one keeps a value as a fact, the other asks for the next one whenever it changes."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.patterns import capture
from examples.actors.stage import play, tell

BoxState = record("box-state", "value")
SetBox = record("set-box", "value")


def main(turn: Turn, limit: int = 5) -> None:
    """Starts both."""
    turn.spawn(box, limit)
    turn.spawn(client)


def box(turn: Turn, limit: int) -> None:
    """Keeps a value until it reaches a limit."""
    value = turn.field("value", 0)
    turn.assert_(lambda: BoxState(value.value))
    turn.stop_when_true(lambda: value.value >= limit, lambda turn: tell(turn, "box: limit reached"))

    @turn.on_message(SetBox(capture()))
    def put(turn: Turn, new: int) -> None:
        tell(turn, "box: taking on", new)
        value.value = new


def client(turn: Turn) -> None:
    """Wants one more than there is, until the box is gone."""
    turn.on_asserted(BoxState(capture()))(lambda turn, value: turn.send(SetBox(value + 1)))
    turn.stop_when_retracted("box-state(_)", lambda turn: tell(turn, "client: box has gone"))


if __name__ == "__main__":
    play(main)
