"""Firewall between layers: what is inside reaches out only by what is allowed, and hears only that."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.actors.layers import Inbound, Outbound, Quit, layer
from dataspace.patterns import capture
from examples.actors.stage import play, tell

Public = record("public", "what")
Secret = record("secret", "what")


def main(turn: Turn) -> None:
    """An inner space behind a firewall, and who looks at it from outside."""
    turn.spawn(watcher)
    turn.spawn(lambda turn: layer(turn, inside, allow=["public(_)", "line(_)"]), name="firewall")


def inside(turn: Turn) -> None:
    """Says more than gets out, and ends its space."""
    turn.assert_(Outbound(Public("weather")))
    turn.assert_(Outbound(Secret("plan")))

    @turn.on_asserted(Inbound(capture()))
    def heard(turn: Turn, what: object) -> None:
        turn.send(Outbound(record("line", "text")(f"inside hears {what.label}")))  # type: ignore[attr-defined]  # a record

    turn.after(1)(lambda turn: turn.send(Quit()))


def watcher(turn: Turn) -> None:
    """Tells what is to be seen, and knows a secret too."""
    turn.assert_(Secret("outside"))
    for label in "public", "secret":
        turn.on_asserted(f"{label}($what)")(lambda turn, what: tell(turn, "seen", what))
        turn.on_retracted(f"{label}($what)")(lambda turn, what: tell(turn, "gone", what))


if __name__ == "__main__":
    play(main)
