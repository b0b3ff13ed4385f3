"""Checking: does a condition hold in the facts as they are now?

A pattern that nobody observes costs O(values alike).  So where these are many, the positions that it compares
stay filed in the index, for the sets of positions that were used last, and every pattern with those positions
costs O(matches).

Always: to check a condition changes no fact and announces no interest; it looks at no more values than its
caller allows, and what cannot be decided within that is ``Refused("limit")``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Hashable, Sequence
from typing import Final

from dataspace.kernel.expectations import ABSENT, Condition, rows_text, too_much
from index.patterns.events import Captures, Event
from index.patterns.skeletons import Skeleton
from index.trie.contents import completed
from index.trie.trie import Index
from index.values.values import keys

QUICK: Final = 256
"""Values that are compared with a pattern one by one; where there are more, the index files them."""

KEPT: Final = 16
"""Sets of positions that stay filed for patterns that were expected lately."""

FILLED: Final = 256
"""Values that are filed in one step, in less than a millisecond."""


class Conditions:
    """Checks the conditions of the turns of one space; ``KEPT`` sets of positions stay filed for them."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._kept: OrderedDict[Hashable, Skeleton] = OrderedDict()

    def __len__(self) -> int:
        """Returns how many sets of positions are filed for expectations."""
        return len(self._kept)

    def is_ready(self, condition: Condition) -> bool:
        """True if a check takes little time: few values are alike, or they are filed.  O(path)."""
        form = condition.form
        if self._kept and (at := (form.way, form.group)) in self._kept:
            self._kept.move_to_end(at)
            return True
        return self._index.alike(form) <= QUICK

    def filing(self, condition: Condition) -> Generator[None, None, None]:
        """Files the values that a condition concerns, in steps, where a check would take long otherwise."""
        if self.is_ready(condition):
            return
        form = condition.form
        at = (form.way, form.group)
        try:
            while not self._index.fill(form, FILLED):
                yield
            if at in self._kept:  # another turn has filed the same meanwhile
                self._index.drop_idle(form)
                return
            self._index.add_handler(form, _ignored, tells=False)
            self._kept[at] = form
        except BaseException:
            if self._kept.get(at, form) is form:
                self._drop(at, form)
            self._index.drop_idle(form)
            raise
        while len(self._kept) > KEPT:
            completed(self._drop, *next(iter(self._kept.items())))

    def _drop(self, at: Hashable, form: Skeleton) -> None:
        """Keeps a set of positions filed no longer, as far as it is."""
        if self._index.has_handler(form, _ignored):
            self._index.remove_handler(form, _ignored)
        self._kept.pop(at, None)

    def check(self, condition: Condition, most: int, *, at_once: bool = False) -> int:
        """Raises ``ExpectationFailed`` unless a condition holds now; returns how many values it looked at.

        For ``absent`` and ``exactly``.  Looks at ``most`` values at most.  Returns -1, undecided, for a check
        that is to be ``at_once`` and takes long: see ``is_ready``.
        """
        if at_once and self._kept:
            if not self.is_ready(condition):
                return -1
            at_once = False
        rows, is_whole = self._index.matches_among(
            condition.form, QUICK if at_once and most > QUICK else most
        )
        if at_once and not is_whole and most > QUICK:
            return -1
        expected = condition.expected
        if expected.kind == ABSENT:
            if rows:
                raise condition.failed(f"found {rows_text(rows, len(rows))}", rows, len(rows))
        elif is_whole:
            assert isinstance(expected.argument, tuple)  # as its form was checked
            if not _are_same(rows, expected.argument):  # type: ignore[arg-type]  # as above
                raise condition.failed(f"found {rows_text(rows, len(rows))}", rows, len(rows))
        if not is_whole:
            raise too_much(condition, most)
        return len(rows)


def _are_same(rows: Sequence[Captures], expected: Sequence[Captures]) -> bool:
    """True if these are the same rows, in any order; those found are distinct."""
    if len(rows) == 1 == len(expected):
        return keys(rows[0]) == keys(expected[0])
    return {keys(row) for row in rows} == {keys(row) for row in expected}


def _ignored(_event: Event, _row: object) -> None:
    """Is called with the changes of patterns that only stay filed."""
