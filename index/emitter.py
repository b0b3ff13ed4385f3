"""The emitter: functions out of text that is written at run time.

The readers of the index, the functions of rules and the selections of the log are generated for one pattern
or one rule, because a general loop over all possible steps takes longer than the work itself.  All of them
are made here, and nowhere else.  A ``Script`` is the text under way, with the things that its names stand
for.

Always: input from outside is bound to a name and never part of the text; equal structure is equal text, which
is compiled once; a traceback or a debugger shows the lines of a recently compiled function.
"""

from __future__ import annotations

import linecache
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import count
from types import CodeType
from typing import Any, Final

TEXTS: Final = 2048
"""Compiled texts that are kept, with their lines.  Equal structure is equal text, so there are few."""

_codes: Final[OrderedDict[str, CodeType]] = OrderedDict()
_numbers: Final = count(1)


def emitted(text: str, bound: Mapping[str, object], *, of: str) -> dict[str, Any]:
    """Returns all names of a text that was carried out: those ``bound``, and the functions that it defines.

    ``of`` is whose text it is, for tracebacks.

    >>> emitted("def double(n):\\n    return n * two\\n", {"two": 2}, of="doctest")["double"](4)
    8
    """
    names = dict(bound)
    exec(_compiled(text, of), names)  # words, numbers and operators of this product only: see above
    return names


def _compiled(text: str, of: str) -> CodeType:
    code = _codes.get(text)
    if code is None:
        file = f"<{of} text {next(_numbers)}>"
        code = _codes[text] = compile(text, file, "exec")
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        if len(_codes) > TEXTS:
            linecache.cache.pop(_codes.popitem(last=False)[1].co_filename, None)
    return code


# -- scripts ---------------------------------------------------------------------------------------


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
