"""Readers: generated functions that read the parts of a value, as straight-line Python.

Reading parts is the only work of the index on a value, once for each group and handler that the value
reaches.  A reader that walks paths spends its time on the walk; so the walk is done once, here, and the
result is the code that one would write by hand for that one pattern:

    def read(value):
        p0 = value.fields
        if len(p0) < 3: return None
        p1 = p0[2].fields
        ...
        return (p0[1], p1[0],)

This is the source's "JIT compilation of shapes, constant checks, captures".  The text consists of fixed words
and integers only; values, labels and keys of maps are bound by name and never part of it.  Equal texts are
compiled once.  Large skeletons, which are rare and could be used to keep the compiler busy, are read by
walking.

Always: a generated reader returns what the walking one does; readers of rows and places rely on the shape
that the trie has established, the reader of matches establishes it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from index.emitter import emitted
from index.patterns.events import MESSAGE, Captures, Visible
from index.patterns.skeletons import ATOM_CLASSES, Check, CheckKind, Group, Skeleton
from index.values.positions import MAPPING, MISSING, SEQUENCE, Class, Missing, Path, Shape, class_of, project
from index.values.values import COMPILED, SECRET, SMALL, Map, Record, Value, key, keys, row_text

RowReader: TypeAlias = Callable[[Value], Captures | None]
PlaceReader: TypeAlias = Callable[[Value], Hashable]

WRITTEN: Final = 64
"""Positions up to which code is generated and kept; 0 where walking is compiled code, and faster."""


@dataclass(frozen=True, slots=True, eq=False)
class HandlerCode:
    """The generated code of a handler: what happens for a value of its shape, for its paths.

    ``read(value)`` returns the captures, or None where one is missing.  ``gain(handler, value, news)`` counts
    one more value with its captures and ``lose(handler, value, news)`` one less; when that is the first or
    the last, they add the handler and the captures to the news.  Where they are None, the handler's own
    methods do that.
    """

    captures: tuple[Path, ...]
    paths: Visible
    rows: ReaderRows
    read: RowReader
    gain: Callable[..., None] | None = None
    lose: Callable[..., None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GroupCode:
    """The generated code of a group: what happens for a value of its shape, for its paths and checks.

    ``place(value)`` returns the key of the parts at the paths, or ``MISSING`` if a check does not hold or a
    part is missing.  ``file(group, at, value, values, news)`` and ``drop(group, at, value, news)`` add and
    remove a value at its place and go on to the handlers there; ``tell(group, value)`` calls the handlers of
    a message.  A handler with the code ``usual``, alone in its leaf, is served inline.  Where they are None,
    the group's own methods do that.
    """

    usual: HandlerCode
    places: Places
    place: PlaceReader
    file: Callable[..., None] | None = None
    drop: Callable[..., None] | None = None
    tell: Callable[..., None] | None = None


def handler_code(shape: Shape, captures: tuple[Path, ...]) -> HandlerCode:
    """Returns the code of a handler that captures at these paths of values of this shape."""
    if len(shape) + len(captures) > WRITTEN:
        return _walking_handler_code(captures)
    return _handler_code(shape, captures)


def _walking_handler_code(captures: tuple[Path, ...]) -> HandlerCode:
    rows = ReaderRows(captures)
    return HandlerCode(captures, frozenset(captures), rows, rows.read)


@lru_cache(maxsize=1024)
def _handler_code(shape: Shape, captures: tuple[Path, ...]) -> HandlerCode:
    if COMPILED:
        return _walking_handler_code(captures)
    text = _Text(shape, "return None")
    row = text.row(captures)
    read = text.function("read", "value", [f"return {row}"])
    gain = text.function(
        "gain", "handler, value, news", [*text.further(captures, _Text.write_row_and_place), *_GAIN]
    )
    lose = text.function("lose", "handler, value, news", [*text.further(captures, _Text.write_place), *_LOSE])
    return HandlerCode(captures, frozenset(captures), ReaderRows(captures), read, gain, lose)


_GAIN: Final = [
    "rows = handler.rows",
    "if place in rows:",
    "    handler.again(place)",
    "else:",
    "    rows[place] = row",
    "    news.append((handler, row))",
]
_LOSE: Final = [
    "if not handler.more or not handler.less(place):",
    "    news.append((handler, handler.rows.pop(place)))",
]


def group_code(
    shape: Shape,
    paths: tuple[Path, ...],
    checks: tuple[Check, ...],
    usual: HandlerCode,
    *,
    in_trie: bool = True,
) -> GroupCode:
    """Returns the code of a group that compares these paths of values of this shape, and makes these
    checks.

    Outside of the trie it looks for the shape as well, and does not keep idle values.
    """
    if COMPILED or len(shape) + len(paths) + len(checks) + len(usual.captures) > WRITTEN:
        places = Places(paths, checks, () if in_trie else shape)
        return GroupCode(usual, places, places.place)
    return _group_code(shape, paths, checks, usual, in_trie)


@lru_cache(maxsize=1024)
def _group_code(
    shape: Shape, paths: tuple[Path, ...], checks: tuple[Check, ...], usual: HandlerCode, in_trie: bool
) -> GroupCode:
    text = _Text(shape, "return MISSING", establish=not in_trie)
    if not in_trie:
        text.establish()
    text.check(checks)
    text.write_place(paths)
    place = text.function("place", "value", ["return place"])
    gained, lost, message = [
        text.further(usual.captures, write)
        for write in (_Text.write_row_and_place, _Text.write_place, _Text.write_row)
    ]
    return GroupCode(
        usual,
        Places(paths, checks, () if in_trie else shape),
        place,
        text.function("file", "group, at, value, values, news", [*_filing(_FILE, in_trie), *gained, *_GAIN]),
        text.function("drop", "group, at, value, news", [*_filing(_DROP, in_trie), *lost, *_LOSE]),
        text.function("tell", "group, value", [*_TELL, *message, *_TOLD]),
    )


def _filing(lines: list[str], in_trie: bool) -> list[str]:
    """Returns the lines, without those for idle values where none are kept."""
    return [line for line in lines if in_trie or line not in _IDLE]


_IDLE: Final = ("    group.rest(at, place, values)", "    group.rouse(at, place)")
_FILE: Final = [
    "leaf = group.leaves.get(place)",
    "if leaf is None:",
    "    group.rest(at, place, values)",
    "    return",
    "leaf.values[at] = value",
    "handler = leaf.sole",
    "if handler is None or handler.code is not group.usual:",
    "    leaf.gain(value, news)",
    "    return",
]
_DROP: Final = [
    "leaf = group.leaves.get(place)",
    "if leaf is None:",
    "    group.rouse(at, place)",
    "    return",
    "del leaf.values[at]",
    "handler = leaf.sole",
    "if handler is None or handler.code is not group.usual:",
    "    leaf.lose(value, news)",
    "    return",
]
_TELL: Final = [
    "leaf = group.leaves.get(place)",
    "if leaf is None:",
    "    return",
    "handler = leaf.sole",
    "if handler is None or handler.code is not group.usual:",
    "    leaf.tell(value)",
    "    return",
]
_TOLD: Final = [
    "if handler.sole is not None:",
    "    handler.sole(MESSAGE, row)",
    "    return",
    "for callback in handler.callbacks:",
    "    callback(MESSAGE, row)",
]


def match_reader(form: Skeleton) -> RowReader:
    """Returns a function from any value to its captures, or to None if it does not match."""
    if COMPILED or form.size > WRITTEN:
        return walking_matches(form)
    text = _Text(form.shape, "return None", establish=True)
    text.establish()
    for path, constant in form.constants:
        text.refuse_unless_same(path, constant)
    text.check(form.checks)
    return text.function("read", "value", [f"return {text.row(form.captures)}"])


def alike_reader(form: Skeleton) -> RowReader:
    """Returns the same function as ``match_reader``; quickly, where patterns differ in constants alone."""
    read = _alike_reader(form.shape, form.group, form.captures)
    return walking_matches(form) if read is None else partial(read, form.place)


@lru_cache(maxsize=1024)
def _alike_reader(
    shape: Shape, group: Group, captures: tuple[Path, ...]
) -> Callable[..., Captures | None] | None:
    """Returns a function of a place and a value, which is compiled once for all constants; None if walking
    is to be preferred."""
    paths, checks = group
    if COMPILED or len(shape) + len(paths) + len(checks) + len(captures) > WRITTEN:
        return None
    text = _Text(shape, "return None", establish=True)
    text.establish()
    text.check(checks)
    text.write_place(paths)
    return text.function(
        "read", "wanted, value", ["if place != wanted: return None", f"return {text.row(captures)}"]
    )


# -- writing ------------------------------------------------------------------------------------------


class _Text:
    """The text of one reader.  Each part is read where it is first needed, once.

    Always: the text tests the number of fields or elements before it reads one of them.  The test stands
    where these are named, and is written when the text ends, for the highest index that was read: so no
    reader can read further than its test.
    """

    def __init__(self, shape: Shape, failure: str, *, establish: bool = False) -> None:
        self._classes: dict[Path, Class] = dict(shape)
        self._failure = failure
        self._establish = establish
        self._lines: list[str] = []
        self._bound: dict[str, object] = {}
        self._names: dict[Path, str] = {}
        self._entries: dict[Path, str] = {}
        self._least: dict[Path, int] = {}
        """The number of parts that each path must have, for all reads together."""
        self._tested: dict[Path, int] = {}
        """How many there are known to be, by a text before this one."""
        self._tests: dict[Path, int] = {}
        """The line at which the number of parts at a path is tested, if it must be."""

    def part(self, path: Path) -> str:
        """Returns the expression for the part at a path."""
        if not path:
            return "value"
        parts, by = self.parts(path[:-1]), path[-1]
        if by.__class__ is int:
            self._least[path[:-1]] = max(by + 1, self._least.get(path[:-1], 0))
            return f"{parts}[{by:d}]"
        if path not in self._entries:
            entry = self._entries[path] = f"e{len(self._entries)}"
            self.write(f"{entry} = {parts}.find({self._bind(by[0])})")  # type: ignore[index]  # a boxed key
            self._refuse_if(f"{entry} is None")
        return f"{self._entries[path]}[1]"

    def parts(self, path: Path) -> str:
        """Returns the name of the fields, the elements or the map at a path."""
        known = self._names.get(path)
        if known is not None:
            return known
        part, of_class = self.part(path), self._classes[path]
        name = self._names[path] = f"p{len(self._names)}"
        if self._establish:
            self.write(f"{name} = {part}")
            self._refuse_other_classes(name, of_class)
            part = name
        self.write(f"{name} = {part}" if of_class in (SEQUENCE, MAPPING) else f"{name} = {part}.fields")
        self._test(path)
        return name

    def establish(self) -> None:
        """Writes the tests for the whole shape."""
        for path in self._classes:
            self.parts(path)

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
        is_text = constant.__class__ is str  # nothing else equals text, even in Python
        self._refuse_if(f"{part} != {wanted}" if is_text else f"key({part}) != {wanted}")

    def row(self, paths: Sequence[Path]) -> str:
        return f"({''.join([self.part(path) + ',' for path in paths])})"

    def write_place(self, paths: Sequence[Path]) -> None:
        """Writes the result of ``keys`` for the parts as ``place``."""
        if len(paths) == 1:
            self.write(f"part = {self.part(paths[0])}")
            self.write(_LONE)
        else:
            self.write(f"place = row_text({self.row(paths)})" if paths else "place = ()")

    def write_row(self, paths: Sequence[Path]) -> None:
        """Writes the parts as ``row``."""
        self.write(f"row = {self.row(paths)}")

    def write_row_and_place(self, paths: Sequence[Path]) -> None:
        """Writes both."""
        self.write_row(paths)
        if len(paths) == 1:
            self.write("part = row[0]")
            self.write(_LONE)
        else:
            self.write("place = row_text(row)" if paths else "place = row")

    def further(self, wanted: Sequence[Path], write: Callable[[_Text, Sequence[Path]], None]) -> list[str]:
        """Returns the lines after these that read more parts and write something of them."""
        text = _Text(tuple(self._classes.items()), "return")
        text._bound = self._bound
        text._entries = dict(self._entries)
        text._names = dict(self._names)
        text._tested = self._least
        for path in self._names:
            text._test(path)
        write(text, wanted)
        return text.lines

    def function(self, name: str, arguments: str, end: Sequence[str]) -> Callable[..., Any]:
        """Returns a function of the text so far, with this end."""
        text = f"def {name}({arguments}):\n" + "".join([f"    {line}\n" for line in [*self.lines, *end]])
        return _defined(text, name) if not self._bound else _define(text, name, self._bound)

    @property
    def lines(self) -> list[str]:
        """Returns the text so far, with its tests."""
        lines = self._lines[:]
        for path, at in self._tests.items():
            least = self._least.get(path, 0)
            if least > self._tested.get(path, 0):
                lines[at] = f"if len({self._names[path]}) < {least:d}: {self._failure}"
        return [line for line in lines if line]

    def _test(self, path: Path) -> None:
        """Leaves a line for the test of the number of parts at a path."""
        self._tests[path] = len(self._lines)
        self.write("")

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
        self.write(f"if {condition}: {self._failure}")

    def _bind(self, thing: object) -> str:
        name = f"c{len(self._bound)}"
        self._bound[name] = thing
        return name

    def write(self, line: str) -> None:
        self._lines.append(line)


_LONE: Final = (
    "place = part if (kind := part.__class__) is str"
    " else part * SECRET if kind is int and -SMALL < part < SMALL else key(part)"
)
"""The key of a single part; text and small integers, nearly all cases, need no call."""

FUNCTIONS: Final = 512
"""Functions without bound names that are kept.  There are about four for each form of pattern, however many
labels."""

_NAMES: Final[dict[str, object]] = {
    "Record": Record,
    "Map": Map,
    "MISSING": MISSING,
    "MESSAGE": MESSAGE,
    "key": key,
    "row_text": row_text,
    "SECRET": SECRET,
    "SMALL": SMALL,
}


def _define(text: str, name: str, bound: Mapping[str, object]) -> Callable[..., Any]:
    """Returns the function that a text defines, with these names bound."""
    return emitted(text, {**_NAMES, **bound}, of="index")[name]  # type: ignore[no-any-return]  # by the text


@lru_cache(maxsize=FUNCTIONS)
def _defined(text: str, name: str) -> Callable[..., Any]:
    return _define(text, name, {})


# -- walking ------------------------------------------------------------------------------------------


class ReaderRows:
    """Reads the parts of values at certain paths, by walking (HOWITWORKS, "projectMany")."""

    __slots__ = ("_lone", "_paths")

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._lone = -1
        """The index of the field, if the only part is a field of the value itself: the most frequent case."""
        if len(paths) == 1 and len(paths[0]) == 1:
            by = paths[0][0]
            if isinstance(by, int):
                self._lone = by

    def read(self, value: Value) -> Captures | None:
        """Returns the parts, or None where one is missing; O(lengths of the paths)."""
        lone = self._lone
        if lone >= 0 and isinstance(value, Record):
            fields = value.fields
            return (fields[lone],) if lone < len(fields) else None
        found: list[Value] = []
        for path in self._paths:
            part = project(value, path)
            if isinstance(part, Missing):
                return None
            found.append(part)
        return tuple(found)


class Places:
    """Reads the places of values: the key of the parts at certain paths, where certain checks hold.

    A shape that is known to be there is empty here.
    """

    __slots__ = ("_checks", "_rows", "_shape")

    def __init__(self, paths: tuple[Path, ...], checks: tuple[Check, ...], shape: Shape = ()) -> None:
        self._rows = ReaderRows(paths)
        self._checks = checks
        self._shape = shape

    def place(self, value: Value) -> Hashable:
        """Returns the place, or ``MISSING`` where a check does not hold, or a part is missing."""
        for path, of_class in self._shape:
            if class_of(project(value, path)) != of_class:
                return MISSING
        for check in self._checks:
            if not check.holds(value):
                return MISSING
        row = self._rows.read(value)
        return MISSING if row is None else keys(row)


def walking_matches(form: Skeleton) -> RowReader:
    """Returns the same as ``match_reader``, without generated code."""
    wanted, places, rows = form.place, Places(*form.group), ReaderRows(form.captures)

    def read(value: Value) -> Captures | None:
        for path, of_class in form.shape:
            if class_of(project(value, path)) != of_class:
                return None
        return rows.read(value) if places.place(value) == wanted else None

    return read
