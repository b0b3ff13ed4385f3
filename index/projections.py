"""Projections: readers of the parts of a value, written out as straight-line Python.

Reading parts is all that the index does to a value, once for each group and handler that it reaches.  A
reader that walks paths spends its time on walking; so the walk is done once, here, and what is left is the
code that a person would write for that one pattern:

    def read(value):
        p0 = value.fields
        if len(p0) < 3: return None
        p1 = p0[2].fields
        ...
        return (p0[1], p1[0],)

This is the source's "JIT compilation of shapes, constant checks, captures".  The text is made of our own
words and of integers alone; values, labels and keys of maps are bound by name and never spelt out.  Equal
texts are compiled once.  Large skeletons, rare and a stranger's way to keep a compiler busy, are read by
walking.

Always: a written reader answers as the walking one does; readers of rows and places rely on the shape
that the trie has established, the reader of matches establishes it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Final, TypeAlias

from index.skeletons import (
    ATOM_CLASSES,
    MAPPING,
    MISSING,
    SEQUENCE,
    Check,
    CheckKind,
    Class,
    Missing,
    Path,
    Shape,
    Skeleton,
    class_of,
    project,
)
from index.values import Map, Record, Value, key, keys

Captures: TypeAlias = tuple[Value, ...]
RowReader: TypeAlias = Callable[[Value], Captures | None]
PlaceReader: TypeAlias = Callable[[Value], Hashable]

WRITTEN: Final = 64
"""Up to how many positions a reader is written out."""


def row_reader(shape: Shape, paths: tuple[Path, ...]) -> RowReader:
    """A function from a value of this shape to its parts at the paths, or to None where one is missing."""
    if len(shape) + len(paths) > WRITTEN:
        return walking_rows(paths)
    return _row_reader(shape, paths)


@lru_cache(maxsize=1024)
def _row_reader(shape: Shape, paths: tuple[Path, ...]) -> RowReader:
    text = _Text(shape, paths, "None")
    text.end(text.row(paths))
    return text.function()  # type: ignore[return-value]  # what was written returns rows


def place_reader(shape: Shape, paths: tuple[Path, ...], checks: tuple[Check, ...]) -> PlaceReader:
    """A function from a value of this shape to the key of its parts at the paths, if all checks hold.

    It gives ``MISSING`` if one does not, or if there is no such part.
    """
    if len(shape) + len(paths) + len(checks) > WRITTEN:
        return walking_places(paths, checks)
    text = _Text(shape, [*paths, *_checked(checks)], "MISSING")
    text.check(checks)
    text.end_with_key(paths)
    return text.function()


def match_reader(form: Skeleton) -> RowReader:
    """A function from any value to its captures, or to None if it does not match."""
    if form.size > WRITTEN:
        return walking_matches(form)
    constants = [path for path, _ in form.constants]
    structure = [path for path, _ in form.shape]
    wanted = [*structure, *constants, *_checked(form.checks), *form.captures]
    text = _Text(form.shape, wanted, "None", establish=True)
    for path in structure:
        text.parts(path)
    for path, constant in form.constants:
        text.refuse_unless_same(path, constant)
    text.check(form.checks)
    text.end(text.row(form.captures))
    return text.function()  # type: ignore[return-value]  # as above


def _checked(checks: Iterable[Check]) -> list[Path]:
    return [check.path for check in checks if check.kind is not CheckKind.SIZE]


# -- writing ------------------------------------------------------------------------------------------


class _Text:
    """The text of one reader.  Asking for a part writes what it takes to have it, once."""

    def __init__(
        self, shape: Shape, wanted: Iterable[Path], failure: str, *, establish: bool = False
    ) -> None:
        self._classes: dict[Path, Class] = dict(shape)
        self._failure = failure
        self._establish = establish
        self._lines: list[str] = []
        self._bound: dict[str, object] = {}
        self._names: dict[Path, str] = {}
        self._entries: dict[Path, str] = {}
        self._least: dict[Path, int] = {}
        for path in wanted:
            if path and path[-1].__class__ is int:
                size: int = path[-1] + 1
                self._least[path[:-1]] = max(size, self._least.get(path[:-1], 0))

    def part(self, path: Path) -> str:
        """The expression for the part at a path."""
        if not path:
            return "value"
        parts, by = self.parts(path[:-1]), path[-1]
        if by.__class__ is int:
            return f"{parts}[{by:d}]"
        if path not in self._entries:
            entry = self._entries[path] = f"e{len(self._entries)}"
            self._write(f"{entry} = {parts}.find({self._bind(by[0])})")  # type: ignore[index]  # a boxed key
            self._refuse_if(f"{entry} is None")
        return f"{self._entries[path]}[1]"

    def parts(self, path: Path) -> str:
        """The name of the fields, the elements or the map at a path, of which there are enough."""
        known = self._names.get(path)
        if known is not None:
            return known
        part, of_class = self.part(path), self._classes[path]
        name = self._names[path] = f"p{len(self._names)}"
        if self._establish:
            self._write(f"{name} = {part}")
            self._refuse_other_classes(name, of_class)
            part = name
        self._write(f"{name} = {part}" if of_class in (SEQUENCE, MAPPING) else f"{name} = {part}.fields")
        if self._least.get(path):
            self._refuse_if(f"len({name}) < {self._least[path]:d}")
        return name

    def check(self, checks: Iterable[Check]) -> None:
        for check in checks:
            if check.kind is CheckKind.SIZE:
                self._refuse_if(f"len({self.parts(check.path)}) != {check.argument:d}")
                continue
            part = self.part(check.path)
            if check.kind is CheckKind.CLASS:
                of_class = self._bind(ATOM_CLASSES[check.argument])  # type: ignore[index]  # a name of one
                self._refuse_if(f"{part}.__class__ is not {of_class}")
            elif check.kind is CheckKind.SAME:
                other = self.part(check.argument)  # type: ignore[arg-type]  # a path
                self._refuse_if(f"{part} is not {other} and key({part}) != key({other})")

    def refuse_unless_same(self, path: Path, constant: Value) -> None:
        part, wanted = self.part(path), self._bind(key(constant))
        is_text = constant.__class__ is str  # to which nothing else is equal, even in Python
        self._refuse_if(f"{part} != {wanted}" if is_text else f"key({part}) != {wanted}")

    def row(self, paths: Sequence[Path]) -> str:
        return f"({''.join([self.part(path) + ',' for path in paths])})"

    def end(self, answer: str) -> None:
        self._write(f"return {answer}")

    def end_with_key(self, paths: Sequence[Path]) -> None:
        """Answers what ``keys`` gives for the row; a lone text, the most frequent one, is its own key."""
        if len(paths) == 1:
            self._write(f"part = {self.part(paths[0])}")
            self.end("part if part.__class__ is str else key(part)")
        else:
            self.end(f"keys({self.row(paths)})" if paths else "()")

    def function(self) -> Callable[[Value], Hashable]:
        text = "def read(value):\n" + "".join([f"    {line}\n" for line in self._lines])
        names = {"Record": Record, "Map": Map, "MISSING": MISSING, "key": key, "keys": keys, **self._bound}
        exec(_compiled(text), names)  # our own words and integers: see above
        return names["read"]  # type: ignore[return-value]  # defined by the text

    def _refuse_other_classes(self, name: str, of_class: Class) -> None:
        if of_class == SEQUENCE:
            self._refuse_if(f"{name}.__class__ is not tuple")
        elif of_class == MAPPING:
            self._refuse_if(f"{name}.__class__ is not Map")
        elif of_class.__class__ is str:
            self._refuse_if(f"{name}.__class__ is not Record or {name}.label != {self._bind(of_class)}")
        else:
            label = self._bind(of_class[1])  # type: ignore[index]  # ("label", its key)
            self._refuse_if(f"{name}.__class__ is not Record or key({name}.label) != {label}")

    def _refuse_if(self, condition: str) -> None:
        self._write(f"if {condition}: return {self._failure}")

    def _bind(self, thing: object) -> str:
        name = f"c{len(self._bound)}"
        self._bound[name] = thing
        return name

    def _write(self, line: str) -> None:
        self._lines.append(line)


@lru_cache(maxsize=512)
def _compiled(text: str) -> CodeType:
    return compile(text, "<reader>", "exec")


# -- walking ------------------------------------------------------------------------------------------


def walking_rows(paths: tuple[Path, ...]) -> RowReader:
    """``row_reader`` without writing (HOWITWORKS, "projectMany")."""

    def read(value: Value) -> Captures | None:
        found: list[Value] = []
        for path in paths:
            part = project(value, path)
            if isinstance(part, Missing):
                return None
            found.append(part)
        return tuple(found)

    return read


def walking_places(paths: tuple[Path, ...], checks: tuple[Check, ...]) -> PlaceReader:
    """``place_reader`` without writing."""
    rows = walking_rows(paths)

    def read(value: Value) -> Hashable:
        if not all(check.holds(value) for check in checks):
            return MISSING
        row = rows(value)
        return MISSING if row is None else keys(row)

    return read


def walking_matches(form: Skeleton) -> RowReader:
    """``match_reader`` without writing."""
    wanted = keys(tuple([constant for _, constant in form.constants]))
    place = walking_places(tuple([path for path, _ in form.constants]), form.checks)
    rows = walking_rows(form.captures)

    def read(value: Value) -> Captures | None:
        for path, of_class in form.shape:
            if class_of(project(value, path)) != of_class:
                return None
        return rows(value) if place(value) == wanted else None

    return read
