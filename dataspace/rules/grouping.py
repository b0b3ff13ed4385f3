"""Grouping: the rules whose heads have aggregates.

The solutions of the body are sorted into groups by the other fields of the head; each group keeps an
accumulator for each aggregate.  What a group says is told when its stratum runs, once, whatever has
happened to it in between.

Always: a group that has solutions supports exactly one row of the head; one that has none is not kept.
"""

from __future__ import annotations

from collections.abc import Callable

from dataspace.rules.aggregates import Accumulator, accumulator
from dataspace.rules.relations import Relation
from dataspace.rules.syntax import Aggregate, Rule
from dataspace.rules.terms import Row, Terms
from dataspace.rules.writing import Script, tuple_of


class _Group:
    __slots__ = ("accumulators", "count", "said")

    def __init__(self, accumulators: list[Accumulator]) -> None:
        self.accumulators = accumulators
        self.count = 0
        self.said: Row | None = None


class Grouping:
    """The groups of one rule."""

    __slots__ = ("_groups", "_head", "_is_aggregate", "_kinds", "_row", "_terms", "name", "pending")

    def __init__(self, name: str, rule: Rule, head: Relation, terms: Terms) -> None:
        self.name = name
        self.pending: dict[Row, None] = {}
        self._head = head
        self._terms = terms
        self._kinds = [accumulator(each.name, each.n) for each in rule.head.aggregates]
        self._is_aggregate = [isinstance(each, Aggregate) for each in rule.head.arguments]
        self._row = self._maker()
        self._groups: dict[Row, _Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def change(self, at: Row, taken: Row, by: int) -> None:
        """A solution more, or less, in the group of these fields.  O(log group)."""
        group = self._groups.get(at)
        if group is None:
            group = self._groups[at] = _Group([make() for make in self._kinds])
        group.count += by
        for each, term in zip(group.accumulators, taken, strict=True):
            each.change(term, by)
        self.pending[at] = None

    def settle(self) -> None:
        """Tells the head what has changed."""
        for at in self.pending:
            group = self._groups[at]
            says = self._row(at, group.accumulators) if group.count else None
            if says != group.said:
                if says is not None:
                    self._head.support(says, +1)
                if group.said is not None:
                    self._head.support(group.said, -1)
                group.said = says
            if says is None:
                del self._groups[at]
        self.pending.clear()  # in place: whoever asks whether there is something to do holds it

    def _maker(self) -> Callable[[Row, list[Accumulator]], Row]:
        """What makes the row of a group, written out: ``return (at[0], of(taken[0].value()),)``."""
        script, parts = Script(), []
        of = script.bind(self._terms.of)
        for at, is_one in enumerate(self._is_aggregate):
            n = self._is_aggregate[:at].count(is_one)
            parts.append(f"{of}(taken[{n}].value())" if is_one else f"at[{n}]")
        script.line(f"def row(at, taken): return {tuple_of(parts)}")
        return script.functions("row")["row"]  # type: ignore[no-any-return]  # defined by the text

    def group(self, row: Row) -> Row:
        """The fields by which a row of the head was grouped."""
        return tuple([term for term, is_one in zip(row, self._is_aggregate, strict=True) if not is_one])
