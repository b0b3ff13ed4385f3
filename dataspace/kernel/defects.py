"""Defects: which texts of rules are suspended where rules fail as a whole.

A turn that no client has asked for must be made in the end, and a space must be rebuilt, whatever texts
clients have left in it.  So after a defect the turn is tried again, with ever fewer texts.

Always: the first attempt after a defect has all texts, since many a defect does not come again; the last one
has none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from dataspace.kernel.rule_facts import is_rule, rules_of
from dataspace.rules.language.lowering import mark_of
from dataspace.rules.relations.failures import message_of
from dataspace.rules.relations.times import Times
from index.errors import InternalError
from index.trie.nodes import At
from index.trie.trie import Index

logger = logging.getLogger("dataspace")

T = TypeVar("T")

ATTEMPTS: Final = 4
"""How often something is tried anew that a defect of the rules prevents."""


def until_made(
    make: Callable[[], T],
    failed: Callable[[Exception, int], None],
    last: Callable[[], T] | None = None,
) -> T:
    """Returns what ``make`` returns, which is called again after a defect.

    ``failed`` gets each error with the number of the attempt, from 0, and raises an error that is no defect.
    After ``ATTEMPTS`` defects ``last`` is called in place of it; if it is not given, ``make`` once more.
    """
    for attempt in range(ATTEMPTS):
        try:
            return make()
        except Exception as error:  # noqa: BLE001  # a fence: a space goes on without what cannot be computed
            failed(error, attempt)
    return make() if last is None else last()


class RulesFailed(InternalError):
    """A defect of the rules of a space ended a turn that no client has asked for; ``error`` is the cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the rules failed: {message_of(error)}")
        self.error = error


class Defects:
    """The texts that a program which is made anew suspends, by names and texts, with the reason."""

    def __init__(self, index: Index, times: Times) -> None:
        self.refused: dict[tuple[str, str], str] = {}
        self._index = index
        self._times = times

    def made(self, make: Callable[[], T], undo: Callable[[], None]) -> T:
        """Returns what ``make`` returns; after each defect it is undone, and tried with fewer texts."""

        def failed(error: Exception, attempt: int) -> None:
            self.choose(error, attempt)
            undo()

        return until_made(make, failed)

    def choose(self, error: Exception, attempt: int) -> None:
        """Chooses the texts to suspend after a defect, whose undoing has ended the program.

        The first attempt, 0, suspends none.  The second suspends texts whose rows are due, the third all
        texts with times, and the last one all texts.
        """
        logger.error("the rules failed and are computed anew: this is a defect", exc_info=error)
        if not attempt:
            return
        texts = rules_of([value for value in self._index.values() if is_rule(value)])
        due = self._times.due_labels() if attempt < ATTEMPTS - 2 else ()
        chosen = [pair for pair in texts if any(mark_of(*pair) in str(label) for label in due)]
        if not chosen and attempt < ATTEMPTS - 1:
            chosen = [pair for pair in texts if any(mark_of(*pair) in str(at) for at in self._times.forms)]
        self.refuse(chosen or texts, error)

    def refuse(self, texts: Iterable[tuple[str, str]], error: Exception) -> None:
        """Suspends some texts because of a defect."""
        reason = f"it cannot be carried out, which is a defect: {message_of(error)}"
        for pair in texts:
            self.refused.setdefault(pair, reason)


class UndoNotes:
    """The notes for undoing a turn: its claims and the flows' claims, noted before they are made."""

    __slots__ = ("begun", "ended", "flows_added", "flows_removed", "last", "was_following")

    def __init__(self) -> None:
        self.last = 0
        self.was_following = False
        self.begun: Sequence[tuple[At, int]] = ()
        self.ended: Sequence[tuple[At, int]] = ()
        self.flows_added: Sequence[At] = ()
        self.flows_removed: Sequence[At] = ()
