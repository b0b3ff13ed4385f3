"""The stage: plays an example in a room of its own, and prints its lines.

Always: the lines are the same each time.
"""

from __future__ import annotations

from dataspace import Value
from dataspace.actors import Turn, record
from dataspace.actors.engine.actors import Handler
from dataspace.testing import Room
from dataspace.text import unparse

Line = record("line", "text")


def tell(turn: Turn, *words: Value) -> None:
    """Sends a line for whoever watches."""
    turn.send(Line(" ".join([word if isinstance(word, str) else unparse(word) for word in words])))


def lines(main: Handler, *, seconds: float = 60.0) -> list[str]:
    """The lines of an example that may last so many seconds of a clock that jumps."""
    room = Room(strict=False)
    heard: list[str] = []

    def audience(turn: Turn) -> None:
        turn.on_message("line($text)")(lambda turn, text: heard.append(text))

    room.spawn(audience)
    room.run()
    room.spawn(main)
    room.advance(seconds)
    return [*heard, *map(str, room.engine.crashes)]


def play(main: Handler) -> None:
    """Plays an example on the terminal."""
    print("\n".join(lines(main)))
