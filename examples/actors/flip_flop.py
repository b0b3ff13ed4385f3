"""Flip-flop: a state machine whose states are facets, each stopping into the next."""

from __future__ import annotations

from dataspace.actors import Turn, record
from examples.actors.stage import play, tell

State = record("flip-flop", "state")
Toggle = record("toggle")


def main(turn: Turn) -> None:
    """The machine and one that toggles it three times."""
    turn.spawn(lambda turn: state(turn, "off"), name="flip-flop")
    turn.spawn(finger)


def state(turn: Turn, name: str) -> None:
    """One state, until it is toggled."""

    def within(turn: Turn) -> None:
        tell(turn, f"now {name}")
        turn.assert_(State(name))
        turn.stop_when_message(Toggle(), lambda turn: state(turn, "on" if name == "off" else "off"))

    turn.react(within)


def finger(turn: Turn) -> None:
    """Toggles each second."""
    turn.every(1)(lambda turn: turn.send(Toggle()))
    turn.stop_after(3.5)


if __name__ == "__main__":
    play(main)
