"""Skeletons: what a pattern requires of a value, by position.

A pattern is analysed once into a *shape* (which positions must hold which structure), *constants* (which must
hold a certain value), *checks* (what else must hold) and *captures* (which are wanted), as in HOWITWORKS,
"Skeletons".  They are apart from patterns because the index uses skeletons only.

Always: a shape has every position above a position that its skeleton mentions; the shape is in lexicographic
order of paths, parents first; captures are in the order of the pattern, outer before inner.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from index.errors import UsageError
from index.values.positions import (
    MAPPING,
    MISSING,
    SEQUENCE,
    Class,
    Move,
    Path,
    Shape,
    Step,
    label_class,
    project,
    size_of,
    visit,
)
from index.values.scanner import WORD
from index.values.values import DEEPEST, Map, Record, Value, key, keys, same, text_of

Pattern: TypeAlias = Value

MAX_DEPTH: Final = 64
MAX_POSITIONS: Final = 4096
"""Levels that a pattern may nest, and positions that it may mention."""

DISCARD: Final = Record("_")

ATOM_CLASSES: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "time": datetime,
    "record": Record,
    "seq": tuple,
    "map": Map,
    "null": type(None),
}


class CheckKind(enum.StrEnum):
    """What a check requires of a position."""

    HAS = "has"
    CLASS = "class"
    SIZE = "size"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Check:
    """One more condition at a path: a part exists, has a class or a size, or equals that at another path.

    ``argument`` is the name of the class, the number of parts, or the path of the other position.
    """

    kind: CheckKind
    path: Path
    argument: Hashable = None

    def holds(self, value: Value) -> bool:
        """True if a whole value meets the condition; O(path)."""
        part = project(value, self.path)
        if part is MISSING:
            return False
        if self.kind is CheckKind.HAS:
            return True
        if self.kind is CheckKind.CLASS:
            return part.__class__ is ATOM_CLASSES[self.argument]  # type: ignore[index]  # a name, by discard
        if self.kind is CheckKind.SIZE:
            return size_of(part) == self.argument
        other = project(value, self.argument)  # type: ignore[arg-type]  # a path
        return other is not MISSING and same(part, other)  # type: ignore[arg-type]  # neither is MISSING


Group: TypeAlias = tuple[tuple[Path, ...], tuple[Check, ...]]
"""The positions of constants, and checks: what patterns at one node compare together."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The analysis of a pattern; ``captures`` and ``names`` correspond, an unnamed capture has the name None.

    The last three give its place in a trie: the way to its node, the positions that its group compares (its
    checks are the group's, too), and the key of the constants there.
    """

    shape: Shape
    constants: tuple[tuple[Path, Value], ...]
    checks: tuple[Check, ...]
    captures: tuple[Path, ...]
    names: tuple[str | None, ...]
    way: tuple[tuple[Move, Class], ...]
    group: Group
    place: Hashable

    @property
    def size(self) -> int:
        """Number of positions that it mentions."""
        return len(self.shape) + len(self.constants) + len(self.checks) + len(self.captures)


CACHED: Final = 4096
CACHED_SIZE: Final = 64
CACHED_TEXT: Final = 4096
"""Skeletons that are cached, and the positions and characters of a pattern up to which they are.

Larger ones could be used to fill memory: one constant can be as long as a frame.
"""

_cache: OrderedDict[Hashable, Skeleton] = OrderedDict()

_Form: TypeAlias = (
    "tuple[Shape, tuple[tuple[Move, Class], ...], Group, tuple[Path, ...], tuple[str | None, ...]]"
)
_forms: OrderedDict[Hashable, _Form] = OrderedDict()
"""What patterns that differ in constants alone have in common, so that each keeps but its constants."""


def skeleton(pattern: Pattern, *, depth: int = MAX_DEPTH, positions: int = MAX_POSITIONS) -> Skeleton:
    """Returns the skeleton of a pattern; O(pattern) the first time.

    Raises ``UsageError``, with the place, if ``pattern`` is no pattern, nests deeper than ``depth``
    (``DEEPEST`` at most) or mentions more than ``positions``.
    """
    if (depth, positions) != (MAX_DEPTH, MAX_POSITIONS):
        return _Analysis(min(depth, DEEPEST), positions).skeleton(pattern)
    at = key(pattern)
    known = _cache.get(at)
    if known is not None:
        return known
    result = _Analysis(depth, positions).skeleton(pattern)
    if result.size <= CACHED_SIZE and len(text_of(pattern)) <= CACHED_TEXT:
        _cache[at] = result
        if len(_cache) > CACHED:
            _cache.popitem(last=False)
    return result


class _Analysis:
    """One walk over a pattern, which collects the parts of its skeleton."""

    def __init__(self, depth: int, positions: int) -> None:
        self.depth = depth
        self.most = positions
        self.shape: list[tuple[Path, Class]] = []
        self.constants: list[tuple[Path, Value]] = []
        self.checks: list[Check] = []
        self.captures: list[Path] = []
        self.names: list[str | None] = []
        self.named: dict[str, Path] = {}
        self.keys: dict[Hashable, Value] = {}
        self.positions = 0

    def skeleton(self, pattern: Pattern) -> Skeleton:
        self._visit(pattern, (), 0)
        shape, way, (paths, checks), captures, names = self._form(len(text_of(pattern)) <= CACHED_TEXT)
        constants = tuple([constant for _, constant in self.constants])
        return Skeleton(
            shape,
            tuple(zip(paths, constants, strict=True)),
            checks,
            captures,
            names,
            way,
            (paths, checks),
            keys(constants),
        )

    def _form(self, is_short: bool) -> _Form:
        """Returns the part that does not depend on the constants; short patterns that are alike share one
        object."""
        shape, paths = tuple(self.shape), tuple([path for path, _ in self.constants])
        checks, captures, names = tuple(self.checks), tuple(self.captures), tuple(self.names)
        at = (shape, paths, checks, captures, names)
        known = _forms.get(at)
        if known is None:
            known = (shape, tuple(visit(shape)), (paths, checks), captures, names)
            if is_short and self.positions <= CACHED_SIZE:
                _forms[at] = known
                if len(_forms) > CACHED:
                    _forms.popitem(last=False)
        return known

    def _visit(self, pattern: Pattern, path: Path, depth: int, *, is_exact: bool = False) -> None:
        self.positions += 1
        if depth > self.depth:
            raise UsageError(f"pattern nested deeper than {self.depth} levels")
        if self.positions > self.most:
            raise UsageError(f"pattern of more than {self.most} positions")
        if pattern.__class__ is Record:
            self._record(pattern, path, depth, is_exact)
        elif pattern.__class__ is tuple:
            self._structure(path, SEQUENCE, enumerate(pattern), depth, is_exact)
        elif pattern.__class__ is Map:  # its pairs are in order, and therefore its paths
            by_key = {key(at): (at, below) for at, below in pattern.pairs()}
            self.keys.update({by: at for by, (at, _) in by_key.items()})
            parts = [((by,), below) for by, (_, below) in by_key.items()]
            self._structure(path, MAPPING, parts, depth, is_exact)
        elif is_exact:
            raise UsageError(
                f"exact takes a record, a sequence or a map, not {pattern!r:.60}{self._place(path)}"
            )
        else:
            self.constants.append((path, pattern))

    def _record(self, pattern: Record, path: Path, depth: int, is_exact: bool) -> None:
        label = pattern.label
        if label.__class__ is str and label in _RESERVED and not is_exact:
            _RESERVED[label](self, pattern, path, depth)
        else:
            self._structure(path, label_class(label), enumerate(pattern.fields), depth, is_exact)

    def _structure(
        self, path: Path, of_class: Class, parts: Iterable[tuple[Step, Pattern]], depth: int, is_exact: bool
    ) -> None:
        self.shape.append((path, of_class))
        parts = list(parts)
        if is_exact:
            self.checks.append(Check(CheckKind.SIZE, path, len(parts)))
        for by, below in parts:
            self._visit(below, (*path, by), depth + 1)

    def _discard(self, pattern: Record, path: Path, _depth: int) -> None:
        match pattern.fields:
            case ():
                self.checks.append(Check(CheckKind.HAS, path))
            case (str(name),):
                self._class(path, name)
            case _:
                raise UsageError(f"a discard has at most a class: {pattern!r:.60}{self._place(path)}")

    def _capture(self, pattern: Record, path: Path, depth: int) -> None:
        fields = pattern.fields
        if len(fields) != 3 or not (_is_name(fields[0]) and _is_name(fields[1])):
            raise UsageError(
                f"a capture has a name, a class and a pattern: {pattern!r:.80}{self._place(path)}"
            )
        name: str | None = fields[0]  # type: ignore[assignment]  # as has been seen
        of_class: str | None = fields[1]  # type: ignore[assignment]  # as has been seen
        sub = fields[2]
        if of_class is not None:
            self._class(path, of_class)
        self._named(path, name)
        if sub != DISCARD:
            self._visit(sub, path, depth + 1)

    def _named(self, path: Path, name: str | None) -> None:
        if name is not None and name in self.named:
            self.checks.append(Check(CheckKind.SAME, path, self.named[name]))
            return
        self.captures.append(path)
        self.names.append(name)
        if name is not None:
            self.named[known_name(name)] = path

    def _class(self, path: Path, name: str) -> None:
        self.checks.append(Check(CheckKind.CLASS, path, known_class(name)))

    def _literal(self, pattern: Record, path: Path, _depth: int) -> None:
        if len(pattern.fields) != 1:
            raise UsageError(f"lit takes one value: {pattern!r:.60}{self._place(path)}")
        self.constants.append((path, pattern.fields[0]))

    def _exact(self, pattern: Record, path: Path, depth: int) -> None:
        if len(pattern.fields) != 1:
            raise UsageError(f"exact takes one pattern: {pattern!r:.60}{self._place(path)}")
        self._visit(pattern.fields[0], path, depth + 1, is_exact=True)

    def _place(self, path: Path) -> str:
        """Returns a path as text for messages, with a map's key rather than its key form."""
        steps = [by if isinstance(by, int) else self.keys[by[0]] for by in path]
        return " at " + "".join([f"[{by!r:.40}]" for by in steps]) if steps else ""


_RESERVED: Final[dict[str, Callable[[_Analysis, Record, Path, int], None]]] = {
    "_": _Analysis._discard,
    "$": _Analysis._capture,
    "lit": _Analysis._literal,
    "exact": _Analysis._exact,
}


def _is_name(part: Value) -> bool:
    return part is None or part.__class__ is str


def known_class(name: str) -> str:
    """Returns the name if it names an atom class; raises ``UsageError`` otherwise."""
    if name not in ATOM_CLASSES:
        raise UsageError(f"no class {name!r}, known are {', '.join(ATOM_CLASSES)}")
    return name


def known_name(name: str) -> str:
    """Returns the name if a capture may have it; raises ``UsageError`` otherwise.

    Names are words, so that none can be taken for the number of a capture without a name.
    """
    if not WORD.fullmatch(name):
        raise UsageError(f"the name of a capture is a word like who or user-2, not {name!r:.40}")
    return name
