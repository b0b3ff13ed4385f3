"""Observers of patterns in a space, compared with what the model's matching makes of the epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

from dataspace.kernel.changes import Changes, Epoch
from dataspace.kernel.space import Space
from index.patterns.text import parse_pattern
from index.values.values import Value, key
from tests.model.patterns import match

Seen: TypeAlias = tuple[int, Counter[Hashable], list[Hashable], Counter[Hashable]]
"""An epoch's number, and what was added, sent and removed of one pattern."""


class Watcher:
    """One observer; ``rows`` counts the facts with each captures."""

    def __init__(self, text: str, facts: Iterable[Value]) -> None:
        self.pattern = parse_pattern(text)
        self.offered: list[Seen] = []
        self._rows: Counter[Hashable] = Counter(self._matching(facts))

    def offer(self, changes: Changes) -> None:
        """Takes one epoch's changes."""
        added, messages, removed = (
            list(map(key, rows)) for rows in (changes.added, changes.messages, changes.removed)
        )
        self.offered.append((changes.number, Counter(added), messages, Counter(removed)))

    def expected(self, epoch: Epoch) -> list[Seen]:
        """Returns what should be offered of the next epoch: nothing, or one."""
        before = set(+self._rows)
        self._rows.update(self._matching(epoch.added))
        self._rows.subtract(self._matching(epoch.removed))
        after, sent = set(+self._rows), self._matching(epoch.messages)
        if before == after and not sent:
            return []
        return [(epoch.number, Counter(after - before), sent, Counter(before - after))]

    def _matching(self, values: Iterable[Value]) -> list[Hashable]:
        return [key(row) for value in values if (row := match(self.pattern, value)) is not None]


class Watchers:
    """The observers of a space, by the texts of their patterns."""

    def __init__(self) -> None:
        self._by_text: dict[str, Watcher] = {}
        self._leave: dict[str, Callable[[], None]] = {}

    def toggle(self, space: Space, texts: Sequence[str], facts: Sequence[Value]) -> None:
        """Begins to observe patterns, or ends that."""
        for text in texts:
            if text in self._by_text:
                self._leave.pop(text)()
                del self._by_text[text]
            else:
                self._by_text[text] = Watcher(text, facts)
                self._observe(space, text)

    def move(self, space: Space) -> None:
        """Goes on observing in a space that takes the place of another one."""
        for text in self._by_text:
            self._observe(space, text)

    def _observe(self, space: Space, text: str) -> None:
        watcher = self._by_text[text]
        interest = space.observe(watcher.pattern, watcher)
        self._leave[text] = lambda: space.ignore(interest, watcher)

    def different(self, epochs: Sequence[Epoch]) -> str | None:
        """Returns what an observer was offered of these epochs that it should not have been, or was not."""
        for text, watcher in self._by_text.items():
            expected = [each for epoch in epochs for each in watcher.expected(epoch)]
            offered, watcher.offered = watcher.offered, []
            if offered != expected:
                return f"an observer of {text} is shown {offered}, the model says {expected}"
        return None


def captures(pattern: Value, facts: Iterable[Value]) -> set[Hashable]:
    """Returns the keys of the captures of a pattern among facts."""
    return {key(row) for fact in facts if (row := match(pattern, fact)) is not None}
