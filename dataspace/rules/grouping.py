"""Grouping: the rules whose heads have aggregates.

The solutions of the body are sorted into groups by the other fields of the head; each group keeps an
accumulator for each aggregate.  What a group says is told when its stratum runs, once, whatever has
happened to it in between.

Always: a group that has solutions supports exactly one row of the head; one that has none is not kept.
"""

from __future__ import annotations

from collections.abc import Callable

from dataspace.rules.aggregates import COUNT, Accumulator, accumulator
from dataspace.rules.relations import Relation, State
from dataspace.rules.syntax import Aggregate, Rule
from dataspace.rules.terms import Row, Terms
from dataspace.rules.writing import Script, tuple_of


class _Group:
    """How many solutions there are, what aggregates make of them, and what was said: a row, by its state."""

    __slots__ = ("accumulators", "count", "said", "state")

    def __init__(self, accumulators: tuple[Accumulator, ...]) -> None:
        self.accumulators = accumulators
        self.count = 0
        self.said: Row | None = None
        self.state: State | None = None


class Grouping:
    """The groups of one rule.  ``change(at, taken, by)`` says that there is a solution more, or less.

    ``at`` are its fields to group by, ``taken`` those that aggregates take.  O(log group).
    """

    __slots__ = ("_groups", "_head", "_is_aggregate", "_kinds", "_row", "_terms", "change", "name", "pending")

    def __init__(self, name: str, rule: Rule, head: Relation, terms: Terms) -> None:
        self.name = name
        self.pending: dict[Row, None] = {}
        self._head = head
        self._terms = terms
        self._kinds = [
            None if each.name == COUNT else accumulator(each.name, each.n) for each in rule.head.aggregates
        ]
        self._is_aggregate = [isinstance(each, Aggregate) for each in rule.head.arguments]
        self._groups: dict[Row, _Group] = {}
        self.change: Callable[[Row, Row, int], None] = self._changer()
        self._row = self._maker()

    def __len__(self) -> int:
        return len(self._groups)

    def settle(self) -> None:
        """Tells the head what has changed."""
        groups, support = self._groups, self._head.support
        for at in self.pending:
            group = groups[at]
            says = self._row(at, group) if group.count else None
            if says != group.said:
                before = group.state
                group.state = None if says is None else support(says, +1)
                if before is not None:
                    self._head.unsupport(before)
                group.said = says
            if says is None:
                del groups[at]
        self.pending.clear()  # in place: whoever asks whether there is something to do holds it

    def _group(self, at: Row) -> _Group:
        group = self._groups[at] = _Group(tuple([make() for make in self._kinds if make is not None]))
        return group

    def _changer(self) -> Callable[[Row, Row, int], None]:
        """What is done with a solution, written out: how many there are needs no accumulator."""
        script = Script()
        script.line("def change(at, taken, by):")
        script.depth = 1
        script.line(f"group = {script.bind(self._groups)}.get(at) or {script.bind(self._group)}(at)")
        script.line("group.count += by")
        kept = [n for n, make in enumerate(self._kinds) if make is not None]
        for at, n in enumerate(kept):
            script.line(f"group.accumulators[{at}].change(taken[{n}], by)")
        script.line(f"{script.bind(self.pending)}[at] = None")
        return script.functions("change")["change"]  # type: ignore[no-any-return]  # defined by the text

    def _maker(self) -> Callable[[Row, _Group], Row]:
        """What makes the row of a group, written out: ``(at[0], t1,)`` with the term of what it comes to."""
        script, parts = Script(), []
        script.line("def row(at, group):")
        script.depth = 1
        for at, is_one in enumerate(self._is_aggregate):
            n = self._is_aggregate[:at].count(True)
            if not is_one:
                parts.append(f"at[{at - n}]")
                continue
            kept = sum(make is not None for make in self._kinds[:n])
            script.line(f"v = group.{'count' if self._kinds[n] is None else f'accumulators[{kept}].value()'}")
            self._terms.write(script, f"t{n}", "v")
            parts.append(f"t{n}")
        script.line(f"return {tuple_of(parts)}")
        return script.functions("row")["row"]  # type: ignore[no-any-return]  # defined by the text

    def group(self, row: Row) -> Row:
        """The fields by which a row of the head was grouped."""
        return tuple([term for term, is_one in zip(row, self._is_aggregate, strict=True) if not is_one])
