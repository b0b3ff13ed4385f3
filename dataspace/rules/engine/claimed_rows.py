"""Claimed rows: claimed facts that are rows of what rules derive.

A fact that rules derive may be claimed as well, and an atom that shows it sees both.  So an engine takes the
claimed facts of the classes that it derives into its own relations: as support of a row where other rules see
that row, and as a note where they do not, so that a fact that is claimed is not derived as well.

Always: a claimed fact supports the rows that show it once for each claim, since the relation is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dataspace.rules.engine.dependencies import DependencyGraph, Growth
from dataspace.rules.language.syntax import Verb
from dataspace.rules.relations.base_facts import Claim
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.failures import Unalias
from dataspace.rules.relations.terms import Terms
from dataspace.rules.relations.views import View
from index.values.positions import Class, class_of, label_class
from index.values.values import Record, Value, key


class ClaimedRows:
    """Takes claimed facts into the relations of one engine; ``fail`` is called if one cannot be."""

    __slots__ = ("_claimable", "_fail", "_of", "_roots", "_row", "_views")

    def __init__(self, terms: Terms, fail: Callable[[Exception], None]) -> None:
        self._of = terms.of
        self._row = terms.row
        self._fail = fail
        self._roots: dict[Class | None, None] = {}
        self._claimable: Mapping[Class, Sequence[HeadRelation]] = {}
        self._views: dict[Class | None, list[View]] = {}

    def follow(self, dependencies: DependencyGraph) -> list[tuple[Class | None, Claim]]:
        """Follows a graph that has grown; returns what to call for claims on facts of further classes.

        O(added claims).
        """
        growth = dependencies.growth
        self._claimable = dependencies.claimable
        roots: dict[Class | None, None] = {label_class(head.of): None for head in _of_facts(growth)}
        for view in (*_own(growth, dependencies), *growth.fed):
            self._views[view.root] = [*self._views.get(view.root, ()), view]
            roots[view.root] = None
        new = [root for root in roots if root not in self._roots]
        self._roots.update(dict.fromkeys(new))
        return [(root, self._taking(root)) for root in new]

    def claims(self) -> Iterator[tuple[Class | None, Claim]]:
        """Yields what is to be called for claims on facts of each class; None for all classes."""
        for root in self._roots:
            yield root, self._taking(root)

    def _taking(self, root: Class | None) -> Claim:
        return self._take if root is not None else self._take_any

    def read(self, dependencies: DependencyGraph, facts: Callable[[Class | None], Iterator[Value]]) -> None:
        """Takes the facts there are into relations that are new, or show claims from now on.

        O(facts of their classes).
        """
        growth = dependencies.growth
        for head in _of_facts(growth):
            for value in facts(label_class(head.of)):
                self._claim(head, value, +1)  # type: ignore[arg-type]  # a record, by its class
        for head in growth.shown:
            for value in facts(label_class(head.of)):
                self._show(head, value)  # type: ignore[arg-type]  # as above
        for view in _own(growth, dependencies):
            for value in facts(view.root):
                captures = view.read(value)
                if captures is not None:
                    view.support(self._row(captures), +1)

    def _take(self, value: Value, by: int) -> None:
        """Takes a claimed fact into the relations that it is a row of."""
        root, of = class_of(value), self._of
        if root in self._claimable:
            for head in self._claimable[root]:
                self._claim(head, value, by)  # type: ignore[arg-type]  # a record, by its class
        for view in self._views.get(root, ()):
            captures = view.read(value)
            if captures is not None:
                view.support(tuple([of(capture) for capture in captures]), by)

    def _take_any(self, value: Value, by: int) -> None:
        """Does the same for views of facts of any class."""
        for view in self._views[None]:
            captures = view.read(value)
            if captures is not None:
                view.support(self._row(captures), by)

    def _claim(self, head: HeadRelation, value: Record, by: int) -> None:
        """Takes the claim on a fact that rules could derive: then they need not."""
        if len(value.fields) == head.width:
            row = self._row(value.fields)
            if head.is_shown:
                head.claim(row, by)
            else:
                head.note(row, by)
        elif len(value.fields) > head.width and head.is_shown:
            self._fail(Unalias(key(head.of)))

    def _show(self, head: HeadRelation, value: Record) -> None:
        """Turns a noted claim into support of its row, which other rules see from now on."""
        if len(value.fields) == head.width:
            head.support(self._row(value.fields), +1)
        elif len(value.fields) > head.width:
            self._fail(Unalias(key(head.of)))


def _of_facts(growth: Growth) -> list[HeadRelation]:
    return [head for head in growth.heads if head.verb is Verb.ASSERT]


def _own(growth: Growth, dependencies: DependencyGraph) -> list[View]:
    """Returns the new views that show heads, and are not one with them."""
    return [
        view for view in growth.views if dependencies.alias(view) is None and not dependencies.is_plain(view)
    ]
