"""Patterns: which values are meant, and which parts of them are wanted?

A pattern is itself a value, so that an interest can be asserted, sent and observed like any fact.  Four
records have a meaning of their own where a pattern is expected: ``_`` (discard: must be there), ``$``
(capture, with an optional name, atom class and sub-pattern), ``lit`` (exactly this value) and ``exact``
(this structure and no more).  Other records, sequences and maps are structure; atoms are constants.

A pattern is analysed once into a *skeleton* (HOWITWORKS, "Skeletons"): a shape of labelled positions,
constants to compare, checks to make, and positions to capture.  The index lays shapes out as a trie; the
matcher here checks one value at a time and is what the index must agree with.

Always: structure is at-least (``p($)`` matches ``p(1, 2)``) unless it is ``exact``; captures come outer
before inner, left to right; a repeated name captures once and its other places must hold the same value.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Final, TypeAlias

from index.errors import UsageError
from index.values import Map, Record, Value, key, order_key, same

Pattern: TypeAlias = Value

DISCARD: Final = Record("_")

MAX_DEPTH: Final = 64
MAX_POSITIONS: Final = 4096
"""How deep a pattern may nest, and how many positions it may speak of."""

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


def discard(of_class: str | None = None) -> Record:
    """The pattern of anything, or of anything of a class."""
    return DISCARD if of_class is None else Record("_", _class_name(of_class))


def capture(name: str | None = None, of_class: str | None = None, sub: Pattern = DISCARD) -> Record:
    """The pattern that captures what ``sub`` matches."""
    return Record("$", name, None if of_class is None else _class_name(of_class), sub)


def lit(value: Value) -> Record:
    """The pattern of exactly this value, however much it looks like a pattern."""
    return Record("lit", value)


def exact(pattern: Pattern) -> Record:
    """The pattern of a structure that has no more than is written."""
    return Record("exact", pattern)


def observe(pattern: Pattern) -> Record:
    """The fact that somebody is interested in a pattern."""
    return Record("Observe", pattern)


def _class_name(name: str) -> str:
    if name not in ATOM_CLASSES:
        raise UsageError(f"no class {name!r}, known are {', '.join(ATOM_CLASSES)}")
    return name


# -- positions ----------------------------------------------------------------------------------------

Step: TypeAlias = int | tuple[Hashable]
"""From a compound to a part: the index of a field or element, or the boxed key form of a map's key."""

Path: TypeAlias = tuple[Step, ...]
Class: TypeAlias = Hashable
"""What a position must hold for structure below it to make sense: a record's label, sequence, or map."""

SEQUENCE: Final = ("sequence",)
MAPPING: Final = ("map",)


class _Missing:
    """What ``step`` gives where there is nothing."""

    __slots__ = ()


MISSING: Final = _Missing()


def class_of(value: Value) -> Class | None:
    """The class of a compound, None for atoms."""
    kind = value.__class__
    if kind is Record:
        return label_class(value.label)  # type: ignore[union-attr]  # narrowed by class
    if kind is tuple:
        return SEQUENCE
    return MAPPING if kind is Map else None


def label_class(label: Value) -> Class:
    """The class of records with this label: mostly the label itself."""
    return label if label.__class__ is str else ("label", key(label))


def step(value: Value, by: Step) -> Value | _Missing:
    """The part of a value one step below, or ``MISSING``."""
    kind = value.__class__
    if kind is Record:
        fields = value.fields  # type: ignore[union-attr]  # narrowed by class
        return fields[by] if by.__class__ is int and by < len(fields) else MISSING
    if kind is tuple:
        return value[by] if by.__class__ is int and by < len(value) else MISSING  # type: ignore[index, arg-type]
    if kind is Map and by.__class__ is tuple:
        entry = value.find(by[0])  # type: ignore[union-attr, arg-type]  # a map, by its class
        return MISSING if entry is None else entry[1]  # type: ignore[index]  # an entry of a map
    return MISSING


def project(value: Value, path: Path) -> Value | _Missing:
    """The part of a value at a path (HOWITWORKS, "project"), or ``MISSING``; O(path).

    >>> project(Record("x", Record("y", 3, 4)), (0, 1))
    4
    """
    part: Value | _Missing = value
    for by in path:
        part = step(part, by)  # type: ignore[arg-type]  # MISSING has no parts either
    return part


def size_of(value: Value | _Missing) -> int:
    """How many parts a compound has; -1 for anything else."""
    kind = value.__class__
    if kind is Record:
        return len(value.fields)  # type: ignore[union-attr]  # narrowed by class
    return len(value) if kind is tuple or kind is Map else -1  # type: ignore[arg-type]  # as above


# -- skeletons ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """One more thing that must hold: ``kind`` is "has", "class", "size" or "same"."""

    kind: str
    path: Path
    argument: Hashable = None

    def holds(self, value: Value) -> bool:
        """Whether it does, for a whole value; O(path)."""
        part = project(value, self.path)
        if part is MISSING:
            return False
        if self.kind == "has":
            return True
        if self.kind == "class":
            return part.__class__ is ATOM_CLASSES[self.argument]  # type: ignore[index]  # a name, by discard
        if self.kind == "size":
            return size_of(part) == self.argument
        other = project(value, self.argument)  # type: ignore[arg-type]  # a path
        return other is not MISSING and same(part, other)  # type: ignore[arg-type]  # neither is MISSING


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A pattern, analysed.

    ``shape`` is in lexicographic order of paths, parents before children, as the trie wants it;
    ``constants`` and ``checks`` are in the order of the pattern; ``captures`` and ``names`` correspond.
    """

    pattern: Pattern
    shape: tuple[tuple[Path, Class], ...]
    constants: tuple[tuple[Path, Value], ...]
    checks: tuple[Check, ...]
    captures: tuple[Path, ...]
    names: tuple[str | None, ...]


_cache: OrderedDict[Hashable, Skeleton] = OrderedDict()
CACHED: Final = 4096
"""Skeletons that are remembered."""


def skeleton(pattern: Pattern) -> Skeleton:
    """The skeleton of a pattern; O(pattern) the first time.

    Raises ``UsageError`` for what is no pattern, with its place, and beyond the limits.
    """
    at = key(pattern)
    known = _cache.get(at)
    if known is not None:
        return known
    analysis = _Analysis()
    analysis.visit(pattern, (), 0)
    known = _cache[at] = analysis.skeleton(pattern)
    if len(_cache) > CACHED:
        _cache.popitem(last=False)
    return known


def capture_names(pattern: Pattern) -> tuple[str, ...]:
    """The names of the captures in order; unnamed ones are called by their position among all."""
    return tuple([str(at) if name is None else name for at, name in enumerate(skeleton(pattern).names)])


class _Analysis:
    """One walk over a pattern, collecting what a skeleton is made of."""

    def __init__(self) -> None:
        self.shape: list[tuple[Path, Class]] = []
        self.constants: list[tuple[Path, Value]] = []
        self.checks: list[Check] = []
        self.captures: list[Path] = []
        self.names: list[str | None] = []
        self.named: dict[str, Path] = {}
        self.positions = 0

    def skeleton(self, pattern: Pattern) -> Skeleton:
        return Skeleton(
            pattern,
            tuple(self.shape),
            tuple(self.constants),
            tuple(self.checks),
            tuple(self.captures),
            tuple(self.names),
        )

    def visit(self, pattern: Pattern, path: Path, depth: int, *, is_exact: bool = False) -> None:
        self.positions += 1
        if depth > MAX_DEPTH:
            raise UsageError(f"pattern nested deeper than {MAX_DEPTH} levels")
        if self.positions > MAX_POSITIONS:
            raise UsageError(f"pattern of more than {MAX_POSITIONS} positions")
        if pattern.__class__ is Record:
            self._record(pattern, path, depth, is_exact)
        elif pattern.__class__ is tuple:
            self._structure(path, SEQUENCE, list(enumerate(pattern)), depth, is_exact)
        elif pattern.__class__ is Map:
            steps = [((key(at),), below) for at, below in _in_order(pattern)]
            self._structure(path, MAPPING, steps, depth, is_exact)  # type: ignore[arg-type]
        elif is_exact:
            raise UsageError(f"exact takes a record, a sequence or a map, not {pattern!r:.60}")
        else:
            self.constants.append((path, pattern))

    def _record(self, pattern: Record, path: Path, depth: int, is_exact: bool) -> None:
        label, fields = pattern.label, pattern.fields
        if label.__class__ is str and label in _RESERVED and not is_exact:
            _RESERVED[label](self, pattern, path, depth)
        else:
            self._structure(path, label_class(label), list(enumerate(fields)), depth, is_exact)

    def _structure(
        self, path: Path, of_class: Class, parts: list[tuple[Step, Pattern]], depth: int, is_exact: bool
    ) -> None:
        self.shape.append((path, of_class))
        if is_exact:
            self.checks.append(Check("size", path, len(parts)))
        for by, below in parts:
            self.visit(below, (*path, by), depth + 1)

    def _discard(self, pattern: Record, path: Path, _depth: int) -> None:
        match pattern.fields:
            case ():
                self.checks.append(Check("has", path))
            case (str(name),):
                self.checks.append(Check("class", path, _class_name(name)))
            case _:
                raise UsageError(f"a discard has at most a class: {pattern!r:.60}")

    def _capture(self, pattern: Record, path: Path, depth: int) -> None:
        match pattern.fields:
            case (None | str() as name, None | str() as of_class, sub):
                pass
            case _:
                raise UsageError(f"a capture has a name, a class and a pattern: {pattern!r:.80}")
        if of_class is not None:
            self.checks.append(Check("class", path, _class_name(of_class)))
        if name is not None and name in self.named:
            self.checks.append(Check("same", path, self.named[name]))
        else:
            self.captures.append(path)
            self.names.append(name)
            if name is not None:
                self.named[name] = path
        if sub != DISCARD:
            self.visit(sub, path, depth + 1)

    def _literal(self, pattern: Record, path: Path, _depth: int) -> None:
        if len(pattern.fields) != 1:
            raise UsageError(f"lit takes one value: {pattern!r:.60}")
        self.constants.append((path, pattern.fields[0]))

    def _exact(self, pattern: Record, path: Path, depth: int) -> None:
        if len(pattern.fields) != 1:
            raise UsageError(f"exact takes one pattern: {pattern!r:.60}")
        self.visit(pattern.fields[0], path, depth + 1, is_exact=True)


_RESERVED: Final[dict[str, Callable[[_Analysis, Record, Path, int], None]]] = {
    "_": _Analysis._discard,
    "$": _Analysis._capture,
    "lit": _Analysis._literal,
    "exact": _Analysis._exact,
}


def _in_order(pattern: Map) -> list[tuple[Value, Pattern]]:
    return sorted(pattern.pairs(), key=lambda pair: order_key(pair[0]))


# -- matching one value -------------------------------------------------------------------------------


Matcher: TypeAlias = Callable[[Value], tuple[Value, ...] | None]


def matcher(pattern: Pattern) -> Matcher:
    """A function that gives a value's captures, or None if the pattern does not match it.

    >>> matcher(Record("says", capture("who"), DISCARD))(Record("says", "Alice", 1))
    ('Alice',)

    Raises ``UsageError`` for no pattern.  Each call is O(positions of the pattern).
    """
    form = skeleton(pattern)
    return _flat_matcher(form) if _is_flat(form) else _general_matcher(form)


def _general_matcher(form: Skeleton) -> Matcher:
    shape, checks, captures = form.shape, form.checks, form.captures
    constants = [(path, key(value)) for path, value in form.constants]

    def match(value: Value) -> tuple[Value, ...] | None:
        for path, of_class in shape:
            part = project(value, path)
            if class_of(part) != of_class:  # type: ignore[arg-type]  # MISSING has no class
                return None
        for path, wanted in constants:
            part = project(value, path)
            if part is MISSING or key(part) != wanted:  # type: ignore[arg-type]  # not MISSING
                return None
        for check in checks:
            if not check.holds(value):
                return None
        found = tuple([project(value, path) for path in captures])
        return None if any(part is MISSING for part in found) else found  # type: ignore[return-value]

    return match


def _is_flat(form: Skeleton) -> bool:
    """Whether a pattern is a record labelled by text that speaks of its own fields only, as most are."""
    if len(form.shape) != 1 or form.shape[0][1].__class__ is not str:
        return False
    places = [path for path, _ in form.constants] + [check.path for check in form.checks] + [*form.captures]
    kinds = all(check.kind in ("has", "class") for check in form.checks)
    return kinds and all(len(path) == 1 for path in places)


def _flat_matcher(form: Skeleton) -> Matcher:
    """The same as ``_general_matcher`` for flat patterns, several times as fast."""
    label = form.shape[0][1]
    constants = [(path[0], key(value)) for path, value in form.constants]
    classes = [
        (check.path[0], ATOM_CLASSES[check.argument])  # type: ignore[index]  # a name, by discard
        for check in form.checks
        if check.kind == "class"
    ]
    captures: list[int] = [path[0] for path in form.captures]  # type: ignore[misc]  # fields, as it is flat
    places = [*captures, *(path[0] for path, _ in form.constants), *(check.path[0] for check in form.checks)]
    needed = 1 + max(places, default=-1)  # type: ignore[operator]  # as above
    pick = itemgetter(*captures) if len(captures) > 1 else None
    only = captures[0] if len(captures) == 1 else None

    def match(value: Value) -> tuple[Value, ...] | None:
        if value.__class__ is not Record or value.label != label or value.label.__class__ is not str:
            return None
        fields = value.fields
        if len(fields) < needed:
            return None
        for at, wanted in constants:
            if key(fields[at]) != wanted:  # type: ignore[index]  # as above
                return None
        for at, of_class in classes:
            if fields[at].__class__ is not of_class:  # type: ignore[index]  # as above
                return None
        if pick is not None:
            return pick(fields)  # type: ignore[no-any-return]  # a tuple of several
        return () if only is None else (fields[only],)

    return match
