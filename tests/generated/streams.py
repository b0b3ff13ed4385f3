"""What a client's own observation is shown, against the epochs of the log: a state, and every epoch after it
that concerns its pattern, whole, once and in order, also over broken lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from index.values.values import Value, key
from tests.model.daemon import Seen
from tests.model.patterns import match

CONTINUED, STATE = 1, 2


class Shown(NamedTuple):
    """One epoch as a pattern saw it: additions and removals in any order, messages in theirs."""

    number: int
    added: frozenset[object]
    messages: tuple[object, ...]
    removed: frozenset[object]


class Stream:
    """One observation, over all its connections."""

    def __init__(self, number: int, pattern: Value, after: int = -1) -> None:
        self.number, self.pattern = number, pattern
        self.has_state = after < 0
        self.begun = after
        """The epoch of the state with which it began, -1 before that has come; or after which it began."""
        self.shown: list[Shown] = []
        self._rows: list[list[object]] = []

    @property
    def after(self) -> int | None:
        """The epoch after which it goes on; None for a state."""
        if self.shown:
            return self.shown[-1].number
        return None if self.has_state else self.begun

    def broken(self) -> None:
        """Forgets an epoch that came in part."""
        self._rows = []

    def take(self, values: Iterable[Any]) -> None:
        """Takes values of the wire."""
        for number, _time, flags, *rows, _first in values:
            self._rows = self._rows or [[], [], []]
            for kept, some in zip(self._rows, rows, strict=True):
                kept += map(key, some)
            if flags & STATE and self.begun < 0:
                self.begun = number
            if not flags & CONTINUED:
                added, messages, removed = self._rows
                self._rows = []
                self.shown.append(Shown(number, frozenset(added), tuple(messages), frozenset(removed)))

    def expected(self, epochs: Sequence[Seen], values: Mapping[object, Value]) -> list[Shown]:
        """Returns what it should be shown of these epochs, which begin with the first of the space."""
        counts, state = Counter[object](), list[Shown]()
        for epoch in epochs:
            if epoch.number > self.begun and not state:
                state.append(Shown(self.begun, frozenset(+counts), (), frozenset()))
            added, messages, removed = (
                [key(row) for at in some if (row := match(self.pattern, values[at])) is not None]
                for some in (epoch.added, epoch.messages, epoch.removed)
            )
            if not (added or messages or removed):
                continue
            before = frozenset(+counts)
            counts.update(added)
            counts.subtract(removed)
            after = frozenset(+counts)
            if state and (before != after or messages):
                state.append(Shown(epoch.number, after - before, tuple(messages), before - after))
        state = state or [Shown(self.begun, frozenset(+counts), (), frozenset())]
        return state if self.has_state else state[1:]
