"""Terms: one object for each value that rows of rules hold.

Rules join, compare and count rows of values all the time.  Values are distinguished strictly by type, and a
client that chooses values must not be able to make hashes collide; both would cost a key for each look-up.
So a value gets its term once, when it comes in, and from then on equality is identity and a hash is an
address.

Always: two terms of one table are the same object exactly if their values are the same value; a term that no
row holds is deleted by itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Final, TypeAlias

from index.emitter import Script
from index.errors import UsageError
from index.values.freezing import bounded
from index.values.values import SECRET, SMALL, Value, key, text_of

_LEAST: Final = -SMALL

MAX_DEPTH: Final = 53
"""How deep a fact may nest that a rule derives: as deep as a client's, so that rules and queries have each
value that is there.  The wire and the log put some levels around it."""

MAX_FACT: Final = 1024 * 1024
"""Bytes, about, of one fact that a rule derives."""

TEXT_FACTOR: Final = 4
"""Bytes that a character takes at most, where not all of a text are ASCII."""

TOO_DEEP: Final = 1 << 40
"""The size of a value that is too deep to be in a derived fact: larger than any fact may be."""

_SMALL_BYTES: Final = 8


class RuleTerm:
    """The one stand-in of a value; ``text`` is empty until it is asked for by ``term_text``.

    ``size`` is about how many bytes it takes in a fact, or ``TOO_DEEP``.
    """

    __slots__ = ("__weakref__", "size", "text", "value")

    def __init__(self, value: Value, size: int) -> None:
        self.value = value
        self.size = size
        self.text = ""

    def __repr__(self) -> str:
        return f"<{self.value!r}>"


def term_text(term: RuleTerm) -> str:
    """Returns the text of a term's value; O(size) once, then O(1)."""
    if not term.text:
        term.text = text_of(term.value)
    return term.text


def size_in_facts(value: Value) -> int:
    """Returns about how many bytes a value takes in a derived fact, or ``TOO_DEEP``; O(size)."""
    return _size_at(key(value), value)


def _size_at(at: Hashable, value: Value) -> int:
    """Returns the same for a value whose key is known, by its text; a comma counts as three."""
    kind = at.__class__
    if kind is tuple:
        text: str = at[-1]  # type: ignore[index]  # a tuple, and its text is the last of it
        if text.count("(") >= MAX_DEPTH:  # as often as there are levels at least; texts have some as well
            try:
                bounded(value, depth=MAX_DEPTH - 1)
            except UsageError:
                return TOO_DEEP
        return (len(text) if text.isascii() else TEXT_FACTOR * len(text)) + 2 * text.count(",")
    if kind is str:
        return len(at) if at.isascii() else TEXT_FACTOR * len(at)  # type: ignore[arg-type,attr-defined]  # a text
    return TEXT_FACTOR * len(at) if kind is bytes else _SMALL_BYTES  # type: ignore[arg-type]  # bytes


Row: TypeAlias = tuple[RuleTerm, ...]


class _Reference(weakref.ref[RuleTerm]):
    __slots__ = ("at",)

    at: Hashable


class Terms:
    """The table of terms."""

    def __init__(self) -> None:
        self._references: dict[Hashable, _Reference] = {}
        self._made = self._make  # one object, and so one name in what is written

    def __len__(self) -> int:
        return len(self._references)

    def of(self, value: Value) -> RuleTerm:
        """Returns the term of a value; O(1) for small values, else O(size)."""
        at = key(value)
        known = self._references.get(at)
        if known is not None:
            term = known()
            if term is not None:
                return term
        return self._made(at, value)

    def _make(self, at: Hashable, value: Value) -> RuleTerm:
        term = RuleTerm(value, _size_at(at, value))
        reference = self._references[at] = _Reference(term, self._forget)
        reference.at = at
        return term

    def write(self, script: Script, name: str, value: str) -> None:
        """Writes that a local becomes the term of another: ``of``, mostly without a call."""
        small = f"{value} * {script.bind(SECRET)}"
        least, most = script.bind(_LEAST), script.bind(SMALL)
        is_small = f"{value}.__class__ is int and {least} < {value} < {most}"
        other = f"{small} if {is_small} else {script.bind(key)}({value})"
        script.line(f"p = {value} if {value}.__class__ is str else {other}")
        script.line(f"{name} = {script.bind(self._references)}.get(p)")
        script.line(f"{name} = ({name} and {name}()) or {script.bind(self._made)}(p, {value})")

    def row(self, values: tuple[Value, ...]) -> Row:
        """Returns the terms of several values."""
        of = self.of
        return tuple([of(value) for value in values])

    def _forget(self, reference: weakref.ref[RuleTerm]) -> None:
        assert isinstance(reference, _Reference)  # it was made above
        if self._references.get(reference.at) is reference:
            del self._references[reference.at]

    def values(self) -> list[Value]:
        """Returns the values that have terms now."""
        return [
            term.value for reference in list(self._references.values()) if (term := reference()) is not None
        ]


def too_large(size: int) -> UsageError:
    """Returns the error for a fact of this size."""
    if size >= TOO_DEEP:
        return UsageError(f"a derived fact is nested deeper than {MAX_DEPTH} levels")
    return UsageError(f"a derived fact of about {size} bytes, limit {MAX_FACT}")
