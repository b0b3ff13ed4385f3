"""Renderings: a trace as text to be read, or as a mermaid sequence diagram.

Both are made line by line as turns come, so that a daemon can write them while it runs.

Always: what is made of a record is lines that stand by themselves; a diagram stays one whatever actors are
called and whatever they say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dataspace.actors.engine.tracing import TurnRecord

BEGINNING: Final = "sequenceDiagram\n    participant outside"
"""The first lines of a diagram."""
REMEMBERED: Final = 65_536
"""How many turns back a diagram knows whose turn it was."""

_ESCAPED: Final = str.maketrans(
    {each: f"#{ord(each)};" for each in "#;%<>"} | {"\n": " ", "\r": " "}
)  # what ends a line of a diagram, or is no text there


class Text:
    """A paragraph for each turn; ``origin`` is put before its number, where several engines write."""

    def __init__(self, origin: str = "") -> None:
        self.origin = origin

    def of(self, made: TurnRecord) -> list[str]:
        """The lines of one turn."""
        cause = f"{self.origin}{made.cause}" if made.cause else "outside"
        lines = [f"turn {self.origin}{made.number} {made.actor}: {made.event} (caused by {cause})"]
        lines += [f"    {action}" for action in made.actions]
        if made.failure is not None:
            lines.append(f"    crashed: {made.failure}")
        return lines


class Diagram:
    """An arrow for each turn, from the actor of the turn that caused it, and notes of what was done."""

    def __init__(self) -> None:
        self._actors: dict[int, str] = {}
        self._known: set[str] = set()

    def of(self, made: TurnRecord) -> list[str]:
        """The lines of one turn, to be put after ``BEGINNING`` and those of the turns before."""
        self._actors[made.number] = made.actor
        self._actors.pop(made.number - REMEMBERED, None)
        at, lines = _identifier(made.actor), []
        if at not in self._known:
            self._known.add(at)
            lines.append(f"    participant {at} as {_plain(made.actor)}")
        cause = self._actors.get(made.cause)
        source = "outside" if cause is None else _identifier(cause)
        lines.append(f"    {source}->>{at}: {_plain(made.event)}")
        lines += [f"    Note over {at}: {_plain(action)}" for action in made.actions]
        if made.failure is not None:
            lines.append(f"    Note over {at}: crashed: {_plain(made.failure)}")
        return lines


def readable(records: Iterable[TurnRecord]) -> str:
    """The turns as text, a paragraph each."""
    text = Text()
    return "\n".join([line for made in records for line in text.of(made)])


def mermaid(records: Iterable[TurnRecord]) -> str:
    """The turns as a mermaid sequence diagram."""
    diagram = Diagram()
    return "\n".join([BEGINNING, *[line for made in records for line in diagram.of(made)]])


def _identifier(name: str) -> str:
    """A name that is no word of mermaid's, and another one for each actor.

    >>> _identifier("module:end")
    'a_module.3a.end'
    """
    return "a_" + "".join([each if each.isalnum() or each == "_" else f".{ord(each):x}." for each in name])


def _plain(text: str) -> str:
    return text.translate(_ESCAPED)
