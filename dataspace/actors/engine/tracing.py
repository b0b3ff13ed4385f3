"""Traces: every turn with its cause and its effects, as plain records.

The engine calls a tracer after each turn.  ``Trace`` keeps the records, or passes each to a function;
``rendering`` makes text and diagrams of them.

Always: the cause of a turn has a lower number than the turn; the actions of a turn that failed are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dataspace.actors.engine.handlers import described
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from index.patterns.text import unparse

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import ActorEvent, Effects


class Tracer(Protocol):
    """Gets every turn of an engine."""

    def turn(self, number: int, event: ActorEvent, effects: Effects, failure: BaseException | None) -> None:
        """Records a turn that has ended."""

    def fell(self, number: int, actor: str, event: str, failure: BaseException) -> None:
        """Records the crash of an actor outside of its turns."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn: its actor, its event, the turn that caused it (0: from outside), and its effects.

    The crash of an actor outside of its turns, in a linked task, is a record with a failure and no actions.
    """

    number: int
    actor: str
    event: str
    cause: int
    actions: tuple[str, ...]
    failure: str | None


@dataclass
class Trace:
    """Keeps a record of each turn if ``keep``; calls ``report`` with each record, if given."""

    report: Callable[[TurnRecord], object] | None = None
    records: list[TurnRecord] = field(default_factory=list)
    keep: bool = True

    def turn(self, number: int, event: ActorEvent, effects: Effects, failure: BaseException | None) -> None:
        """Records a turn that has ended."""
        actions = () if failure is not None else tuple(_actions(effects))
        failed = None if failure is None else described(failure)
        self._take(TurnRecord(number, event.actor.name, str(event), event.cause, actions, failed))

    def fell(self, number: int, actor: str, event: str, failure: BaseException) -> None:
        """Records the crash of an actor outside of its turns."""
        self._take(TurnRecord(number, actor, event, 0, (), described(failure)))

    def _take(self, made: TurnRecord) -> None:
        if self.keep:
            self.records.append(made)
        if self.report is not None:
            self.report(made)


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
