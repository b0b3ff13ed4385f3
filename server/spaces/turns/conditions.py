"""Checking: what stays filed in the index for expectations, so that they are decided soon.

A pattern that nobody observes costs O(values alike).  So where these are many, the positions that it compares
stay filed in the index, for the sets of positions that were used last, and every pattern with those positions
costs O(matches).

Always: filing changes no fact and announces no interest; it is bounded in sets of positions, and in values
unless one set alone has more.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from dataspace.steps import Steps
from index.patterns.events import Callback, Event
from index.patterns.skeletons import Skeleton
from index.trie.contents import completed
from index.trie.trie import Index

QUICK: Final = 256
"""Values that are compared with a pattern one by one; where there are more, the index files them."""

KEPT: Final = 16
KEPT_VALUES: Final = 1 << 20
"""Sets of positions that stay filed for patterns that were expected lately, and the values filed there."""

FILLED: Final = 64
"""Values that are filed in one step, in less than half a millisecond."""


FILED_BYTES: Final = 300
"""About what a value takes that is filed once more."""


class Conditions:
    """The values filed for the conditions of the turns of one space."""

    def __init__(self, index: Index) -> None:
        self.index: Final = index
        self._kept: dict[Hashable, tuple[int, Skeleton, int]] = {}
        """By positions: when they were used last, a pattern that compares them, and the values filed.

        Not an ``OrderedDict``, whose ``pop`` leaves half of an item behind if a comparison of keys raises.
        """
        self._uses = self._values = 0

    def __len__(self) -> int:
        """Returns how many sets of positions are filed for expectations."""
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory they take; O(1)."""
        return FILED_BYTES * self._values

    def alike(self, form: Skeleton) -> int:
        """Returns how many values would be compared with a pattern one by one; O(path)."""
        if self._kept and (kept := self._kept.get(at := (form.way, form.group))) is not None:
            self._uses += 1
            self._kept[at] = self._uses, *kept[1:]
        return self.index.alike(form)

    def filing(self, form: Skeleton) -> Steps[None]:
        """Prepares a handler of a pattern in steps; ``add_handler`` or ``drop_idle`` must follow."""
        while not self.index.fill(form, FILLED):
            yield

    def keep_positions(self, form: Skeleton) -> None:
        """Keeps the positions filed that a pattern compares; drops those used long ago."""
        at, alike = (form.way, form.group), self.index.of_shape(form)
        if at in self._kept:
            return
        try:
            self.index.add_handler(form, _ignored, tells=False)
            self._uses += 1
            self._kept[at] = self._uses, form, alike
            self._values += alike
        except BaseException:
            self._drop(at, form)
            raise
        while len(self._kept) > KEPT or (self._values > KEPT_VALUES and len(self._kept) > 1):
            oldest, (_, idle, _) = min(self._kept.items(), key=_used)
            completed(self._drop, oldest, idle)

    def drop(self, forms: list[Skeleton], callback: Callback) -> None:
        """Removes a callback from each of the patterns that have it, and empties the list."""
        completed(self._remove_all, forms, callback)

    def _remove_all(self, forms: list[Skeleton], callback: Callback) -> None:
        while forms:
            if self.index.has_handler(forms[-1], callback):
                self.index.remove_handler(forms[-1], callback)
            forms.pop()

    def _drop(self, at: Hashable, form: Skeleton) -> None:
        """Keeps a set of positions filed no longer, as far as it is."""
        if self.index.has_handler(form, _ignored):
            self.index.remove_handler(form, _ignored)
        self._values -= self._kept.pop(at, (0, form, 0))[2]


def _used(kept: tuple[Hashable, tuple[int, Skeleton, int]]) -> int:
    return kept[1][0]


def _ignored(_event: Event, _row: object) -> None:
    """Is called with the changes of patterns that only stay filed."""
