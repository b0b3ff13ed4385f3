"""Fences: a rule that fails does not affect others that get the same row.

Components share the views of base facts.  The function of a view for a row that comes calls the triggers of
one component after the other; an exception in one must not keep the row from those behind it.

Always: if a rule raises because of a row, all others get that row nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from dataspace.rules.relations.relations import Relation, State, Trigger
from dataspace.rules.relations.terms import Row
from index.emitter import Script, tuple_of


class Fenced:
    """A trigger of one engine on the rows of base facts: its errors fail that engine and no other."""

    def __init__(self, trigger: Trigger, relation: Relation, fail: Callable[[Exception], None]) -> None:
        self.trigger = trigger
        self._width = relation.width
        self._fail = fail

    def write(self, script: Script, fields: Sequence[str]) -> None:
        """Writes it; the fence costs nothing as long as nothing is raised."""
        script.line("try:")
        script.depth += 1
        since = script.mark()
        self.trigger.write(script, fields)
        if script.mark() == since:
            script.line("pass")
        script.depth -= 1
        script.line(f"except Exception as error: {script.bind(self._fail)}(error)")

    @cached_property
    def function(self) -> Callable[[Row, State], None]:
        """Returns the same as a function."""
        script, fields = Script(), [f"f{at}" for at in range(self._width)]
        script.begin("def run(row, st):", loops=False)
        if fields:
            script.line(f"{tuple_of(fields)} = row")
        self.write(script, fields)
        return script.functions("run")["run"]  # type: ignore[no-any-return]  # defined by the text
