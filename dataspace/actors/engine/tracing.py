"""Traces: every turn with its cause and its effects, as plain records.

The kernel calls a tracer after each turn.  ``Trace`` keeps the records, or tells somebody of each;
``rendering`` makes text and diagrams of them.

Always: a turn's cause has a lower number than the turn; what a turn that failed had wanted is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dataspace.actors.engine.crashes import described
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from index.patterns.text import unparse

if TYPE_CHECKING:
    from dataspace.actors.engine.effects import Effects
    from dataspace.actors.engine.events import ActorEvent


class Tracer(Protocol):
    """Whoever is told of turns."""

    def turn(self, number: int, event: ActorEvent, effects: Effects, failure: BaseException | None) -> None:
        """A turn is over."""

    def fell(self, number: int, actor: str, event: str, failure: BaseException) -> None:
        """An actor crashed outside of its turns."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn: of which actor, for which event, caused by which turn (0: from outside), and what it did.

    The crash of an actor outside of its turns, by a linked task, is the failure of one that did nothing.
    """

    number: int
    actor: str
    event: str
    cause: int
    actions: tuple[str, ...]
    failure: str | None


@dataclass
class Trace:
    """Keeps what happened, unless told not to; ``tell`` is called with each record, if given."""

    tell: Callable[[TurnRecord], object] | None = None
    records: list[TurnRecord] = field(default_factory=list)
    keep: bool = True

    def turn(self, number: int, event: ActorEvent, effects: Effects, failure: BaseException | None) -> None:
        """Takes down a turn."""
        actions = () if failure is not None else tuple(_actions(effects))
        failed = None if failure is None else described(failure)
        self._take(TurnRecord(number, event.actor.name, str(event), event.cause, actions, failed))

    def fell(self, number: int, actor: str, event: str, failure: BaseException) -> None:
        """Takes down a crash that no turn brought about."""
        self._take(TurnRecord(number, actor, event, 0, (), described(failure)))

    def _take(self, made: TurnRecord) -> None:
        if self.keep:
            self.records.append(made)
        if self.tell is not None:
            self.tell(made)


def _actions(effects: Effects) -> Iterable[str]:
    for action in effects.actions:
        yield _action(action)
    for home, actions in effects.elsewhere.items():
        for action in actions:
            yield f"{_action(action)} in {home.name}"
    for spawn in effects.spawns:
        yield f"spawn {spawn.actor.name}"


def _action(action: Action) -> str:
    verb = action[0]
    if verb == RETRACT:
        return f"- handle {action[1]!r}"
    sign = "+" if verb == ASSERT else "~" if verb == REPLACE else "!"
    return f"{sign} {unparse(action[-1])}"
