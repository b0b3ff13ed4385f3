"""Traces: every turn with its cause and its effects, as plain records.

The kernel calls a tracer after each turn.  ``Trace`` keeps records; ``readable`` and ``mermaid`` render them.

Always: a turn's cause has a lower number than the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dataspace.wire.packets import ASSERT, REPLACE, RETRACT, Action
from index.text import unparse

if TYPE_CHECKING:
    from dataspace.actors.actor import Event
    from dataspace.actors.draft import Draft


class Tracer(Protocol):
    """Whoever is told of turns."""

    def turn(self, number: int, event: Event, draft: Draft, failure: Exception | None) -> None:
        """A turn is over."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn: of which actor, for which event, caused by which turn (0: from outside), and what it did."""

    number: int
    actor: str
    event: str
    cause: int
    actions: tuple[str, ...]
    failure: str | None


@dataclass
class Trace:
    """Keeps what happened; ``write`` is called with each line of text, if given."""

    write: Callable[[str], object] | None = None
    records: list[TurnRecord] = field(default_factory=list)
    keep: bool = True

    def turn(self, number: int, event: Event, draft: Draft, failure: Exception | None) -> None:
        """Takes down a turn; actions of one that failed never were."""
        actions = () if failure is not None else tuple(_actions(draft))
        made = TurnRecord(
            number,
            event.actor.name,
            str(event),
            event.cause,
            actions,
            None if failure is None else repr(failure),
        )
        if self.keep:
            self.records.append(made)
        if self.write is not None:
            self.write(_line(made))


def _actions(draft: Draft) -> Iterable[str]:
    for action in draft.actions:
        yield _action(action)
    for home, actions in draft.elsewhere.items():
        for action in actions:
            yield f"{_action(action)} in {home.name}"
    for spawn in draft.spawns:
        yield f"spawn {spawn.actor.name}"


def _action(action: Action) -> str:
    verb = action[0]
    if verb == RETRACT:
        return f"- handle {action[1]!r}"
    sign = "+" if verb == ASSERT else "~" if verb == REPLACE else "!"
    return f"{sign} {unparse(action[-1])}"


def _line(made: TurnRecord) -> str:
    actions = "".join([f"\n    {action}" for action in made.actions])
    failure = f"\n    crashed: {made.failure}" if made.failure else ""
    cause = made.cause or "outside"
    return f"turn {made.number} {made.actor}: {made.event} (caused by {cause}){actions}{failure}"


def readable(records: Iterable[TurnRecord]) -> str:
    """The turns as text, a paragraph each."""
    return "\n".join([_line(made) for made in records])


def mermaid(records: Iterable[TurnRecord]) -> str:
    """A mermaid sequence diagram: an arrow from the actor of the causing turn, a note of what was done."""
    records = list(records)
    actors = {made.number: made.actor for made in records}
    lines = ["sequenceDiagram", "    participant outside"]
    lines += [f"    participant {_safe(name)}" for name in dict.fromkeys(actors.values())]
    for made in records:
        source = actors.get(made.cause, "outside")
        lines.append(f"    {_safe(source)}->>{_safe(made.actor)}: {_safe(made.event)}")
        lines += [f"    Note over {_safe(made.actor)}: {_plain(action)}" for action in made.actions]
        if made.failure:
            lines.append(f"    Note over {_safe(made.actor)}: crashed {_plain(made.failure)}")
    return "\n".join(lines)


def _safe(name: str) -> str:
    return "".join([char if char.isalnum() or char in "_- " else "_" for char in name])


def _plain(text: str) -> str:
    return text.replace(";", ",").replace("#", "").replace("\n", " ")
