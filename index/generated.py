"""Scripts: Python that is written at run time, with the things that its names stand for.

The work of rules, tables and heads for each row is known once the rules are, and a general loop would take
longer than that work.  So it is written out, and what several of them have to say about one row is put into
one function.  What strangers say is bound to a name and never spelt out.

Always: equal structure is equal text, whatever the names stand for, so that it is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from index.emitter import emitted


class Script:
    """Functions under way: lines, how deep the next one is indented, and what names stand for."""

    __slots__ = ("_begun", "_bound", "_known", "_lines", "_local", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self._lines: list[str] = []
        self._begun = 0
        self._local: dict[str, str] | None = None
        self._bound: dict[str, object] = {}
        self._known: dict[int, str] = {}

    def begin(self, header: str, *, loops: bool) -> None:
        """Begins a function; a function that ``loops`` over many rows keeps its counts in locals
        meanwhile."""
        self.line(header)
        self._begun = len(self._lines)
        self._local = {} if loops else None
        self.depth = 1

    def end(self, result: str = "") -> None:
        """Ends it."""
        self.depth = 1
        for attribute, local in (self._local or {}).items():
            self._lines.insert(self._begun, f"    {local} = {attribute}")
            self.line(f"{attribute} = {local}")
        if result:
            self.line(f"return {result}")
        self.depth = 0

    def counter(self, attribute: str) -> str:
        """What stands for an attribute that is counted up or down in the function that has begun."""
        if self._local is None:
            return attribute
        return self._local.setdefault(attribute, f"n{len(self._local)}")

    def line(self, text: str) -> None:
        """Writes one line."""
        self._lines.append("    " * self.depth + text)

    def lines(self, *texts: str) -> None:
        """Writes several, which may be indented themselves."""
        for text in texts:
            self.line(text)

    def bind(self, thing: object) -> str:
        """The name of a thing, the same each time."""
        name = self._known.get(id(thing))
        if name is None:
            name = self._known[id(thing)] = f"c{len(self._bound)}"
            self._bound[name] = thing  # which also keeps its id from being that of another
        return name

    def new(self, kind: str) -> str:
        """A name for a local that nothing else has."""
        return f"{kind}{len(self._lines)}"

    def mark(self) -> int:
        """A place in the text, for ``wrap``."""
        return len(self._lines)

    def wrap(self, since: int, before: str, after: str) -> None:
        """Puts the lines since a mark into a block that begins with one line and ends with another."""
        self._lines[since:] = [f"    {line}" for line in self._lines[since:]]
        self._lines.insert(since, "    " * self.depth + before)
        self._lines.append("    " * (self.depth + 1) + after)

    @property
    def text(self) -> str:
        """The text so far, for people and for the compiler."""
        return "\n".join(self._lines) + "\n"

    def functions(self, *names: str) -> dict[str, Any]:
        """The functions of these names, which have been written."""
        found = emitted(self.text, self._bound, of="rules")
        return {name: found[name] for name in names}


def tuple_of(names: Iterable[str]) -> str:
    """The expression for a tuple, or for the names that one is taken apart into."""
    return f"({''.join([name + ', ' for name in names])})".replace(", )", ",)")
