"""Renderings: a trace as text, or as a mermaid sequence diagram.

Both are made line by line as turns run, so that a daemon can write them meanwhile.

Always: each record becomes whole lines; names and facts of actors cannot break the syntax of a diagram.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dataspace.actors.engine.tracing import TurnRecord

BEGINNING: Final = "sequenceDiagram\n    participant outside"
"""The first lines of a diagram."""
REMEMBERED: Final = 65_536
"""For how many turns a diagram remembers which actor ran each."""

_ESCAPED: Final = str.maketrans(
    {each: f"#{ord(each)};" for each in "#;%<>"} | {"\n": " ", "\r": " "}
)  # what ends a line of a diagram, or is no text there


class Text:
    """Renders a paragraph for each turn; ``origin`` precedes its number where several engines write."""

    def __init__(self, origin: str = "") -> None:
        self.origin = origin

    def of(self, turn: TurnRecord) -> list[str]:
        """Returns the lines of one turn."""
        cause = f"{self.origin}{turn.cause}" if turn.cause else "outside"
        lines = [f"turn {self.origin}{turn.number} {turn.actor}: {turn.event} (caused by {cause})"]
        lines += [f"    {action}" for action in turn.actions]
        if turn.failure is not None:
            lines.append(f"    crashed: {turn.failure}")
        return lines


class Diagram:
    """Renders an arrow for each turn, from the actor of the turn that caused it, and notes of its actions."""

    def __init__(self) -> None:
        self._actors: dict[int, str] = {}
        self._known: set[str] = set()

    def of(self, turn: TurnRecord) -> list[str]:
        """Returns the lines of one turn, which follow ``BEGINNING`` and the lines of the turns before."""
        self._actors[turn.number] = turn.actor
        self._actors.pop(turn.number - REMEMBERED, None)
        at, lines = _identifier(turn.actor), []
        if at not in self._known:
            self._known.add(at)
            lines.append(f"    participant {at} as {_plain(turn.actor)}")
        cause = self._actors.get(turn.cause)
        source = "outside" if cause is None else _identifier(cause)
        lines.append(f"    {source}->>{at}: {_plain(turn.event)}")
        lines += [f"    Note over {at}: {_plain(action)}" for action in turn.actions]
        if turn.failure is not None:
            lines.append(f"    Note over {at}: crashed: {_plain(turn.failure)}")
        return lines


def readable(records: Iterable[TurnRecord]) -> str:
    """Returns the turns as text, a paragraph each."""
    text = Text()
    return "\n".join([line for turn in records for line in text.of(turn)])


def mermaid(records: Iterable[TurnRecord]) -> str:
    """Returns the turns as a mermaid sequence diagram."""
    diagram = Diagram()
    return "\n".join([BEGINNING, *[line for turn in records for line in diagram.of(turn)]])


def _identifier(name: str) -> str:
    """Returns a mermaid identifier that differs for each actor and is no keyword.

    >>> _identifier("module:end")
    'a_module.3a.end'
    """
    return "a_" + "".join([each if each.isalnum() or each == "_" else f".{ord(each):x}." for each in name])


def _plain(text: str) -> str:
    return text.translate(_ESCAPED)
