"""Views: the rows that an atom of a rule stands for, and how facts become rows of them.

Two atoms that read the same positions share a view, whatever their variables are called.  A fact that an
owner claims goes to the views of its class.  A fact that a rule derives is a row of fields already, and most
often the view has the same columns: then relation and view are one.

Always: the columns of a view are the variables of its atom, outer before inner; a row is in it exactly if
some fact matches with these captures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dataspace.rules.language.syntax import Atom
from dataspace.rules.relations.relations import Columns, Index, Relation
from dataspace.rules.relations.terms import MAX_FACT, Row, Terms
from index.emitter import Script, tuple_of
from index.patterns.patterns import skeleton
from index.patterns.readers import RowReader, match_reader
from index.patterns.skeletons import CheckKind, Skeleton
from index.patterns.text import unparse
from index.values.positions import Class, label_class
from index.values.values import Map, Record, Value, key

Projection: TypeAlias = Callable[[Row], Row | None]


@dataclass(frozen=True, slots=True)
class ViewForm:
    """The pattern of an atom with its variables numbered, and the names that they had."""

    pattern: Value
    names: tuple[str, ...]


def form_of(atom: Atom, *, everything: bool) -> ViewForm:
    """Returns the form of an atom; with ``everything``, what it discards is a variable without a name."""
    at = key(atom.pattern), everything
    known = _FORMS.get(at)
    if known is None:
        _bound(_FORMS)
        numbering = _Numbering(everything=everything)
        known = _FORMS[at] = ViewForm(numbering.pattern(atom.pattern), tuple(numbering.names))
    return known


MAX_KNOWN: Final = 4096
"""Patterns whose findings are kept: a component is made anew with each rule that joins it."""

_FORMS: Final[dict[tuple[Hashable, bool], ViewForm]] = {}
_READ: Final[dict[Hashable, tuple[Skeleton, RowReader, str]]] = {}


def _bound(known: dict[Any, Any]) -> None:
    """Forgets all where there is too much."""
    if len(known) >= MAX_KNOWN:
        known.clear()


def _read(pattern: Value) -> tuple[Skeleton, RowReader, str]:
    """Returns what is known of the pattern of a form: its skeleton, what reads values by it, its name."""
    at = key(pattern)
    known = _READ.get(at)
    if known is None:
        _bound(_READ)
        read = skeleton(pattern)
        known = _READ[at] = read, match_reader(read), _shown(pattern)
    return known


class _Numbering:
    """One walk over a pattern, as ``index.patterns.skeletons`` walks it."""

    def __init__(self, *, everything: bool) -> None:
        self.names: dict[str, str] = {}
        self._everything = everything

    def pattern(self, part: Value, *, is_exact: bool = False) -> Value:
        match part:
            case Record(label="lit") if not is_exact:
                return part
            case Record(label="exact", fields=(inner,)) if not is_exact:
                return Record.of("exact", (self.pattern(inner, is_exact=True),))
            case Record(label="_", fields=fields) if not is_exact:
                if not self._everything:
                    return part
                return Record.of("$", (self._number(None), fields[0] if fields else None, Record("_")))
            case Record(label="$", fields=(name, of_class, sub)) if not is_exact:
                return self._capture(name, of_class, sub)
            case Record(label=label, fields=fields):
                return Record.of(label, tuple([self.pattern(each) for each in fields]))
            case tuple():
                return tuple([self.pattern(each) for each in part])
            case Map():
                return Map.of([(at, self.pattern(each)) for at, each in part.pairs()])
            case _:
                return part

    def _capture(self, name: Value, of_class: Value, sub: Value) -> Value:
        if name is None and not self._everything:
            if of_class is None:
                return self.pattern(sub)
            if sub == Record("_"):
                return Record("_", of_class)
        # only a capture gives a class to what it matches further, so one without a name has a column as well
        number = self._number(name)  # before those within it, as captures are read
        inner = sub if sub == Record("_") else self.pattern(sub)
        return Record.of("$", (number, of_class, inner))

    def _number(self, name: Value) -> str:
        at = name if isinstance(name, str) else f" {len(self.names)}"  # which no variable is called
        return self.names.setdefault(at, f"v{len(self.names)}")


class View(Relation):
    """The relation of a form, and how values are read into it."""

    __slots__ = ("form", "read", "skeleton", "wanted")

    def __init__(self, form: ViewForm) -> None:
        self.form = form
        self.wanted: set[Columns] = set()  # which indexes were asked for, until the engine has noted them
        self.skeleton, self.read, shown = _read(form.pattern)
        named = [name for name in self.skeleton.names if name is not None]
        super().__init__(shown, len(named))

    def index(self, columns: Columns) -> Index:
        self.wanted.add(columns)
        return super().index(columns)

    @property
    def root(self) -> Class | None:
        """Returns the class that a fact must have to match, or None if several may."""
        return root_of(self.skeleton)

    def may_match(self, label: Value, arity: int) -> bool:
        """True if a record of this label and arity could match, with some fields."""
        return may_match(self.skeleton, label, arity)

    def columns(self, label: Value) -> tuple[int, ...] | None:
        """Returns the fields of a record with this label that make a row, if only its arity matters."""
        form = self.skeleton
        if self.root != label_class(label) or len(form.shape) != 1 or form.constants:
            return None
        if any(len(path) != 1 for path in form.captures):
            return None
        if any(check.kind not in (CheckKind.HAS, CheckKind.SIZE) for check in form.checks):
            return None
        return tuple([path[0] for path in form.captures if isinstance(path[0], int)])

    def write_row(self, script: Script, fields: list[str], terms: Terms) -> None:
        """Writes how the fields of a row come out of ``value``, which is of this class; leaves if it is none.

        Reading from a plain record is written out; for anything else ``read`` is called.
        """
        values = [f"a{at}" for at in range(len(fields))]
        label = self.root if isinstance(self.root, str) else None
        columns = None if label is None else self.columns(label)
        if columns is None:
            script.line(f"a = {script.bind(self.read)}(value)")
            script.line("if a is None: return")
            script.line(f"{tuple_of(values)} = a" if values else "pass")
        else:
            script.line("a = value.fields")
            for check in self.skeleton.checks:
                if check.kind is CheckKind.SIZE:
                    script.line(f"if len(a) != {check.argument:d}: return")
            asked = [*self.skeleton.captures, *[check.path for check in self.skeleton.checks]]
            least = max([at + 1 for path in asked for at in path if isinstance(at, int)], default=0)
            script.line(f"if len(a) < {least:d}: return")
            for name, at in zip(values, columns, strict=True):
                script.line(f"{name} = a[{at:d}]")
        for name, value in zip(fields, values, strict=True):
            terms.write(script, name, value)

    def projection(self, label: Value, arity: int, terms: Terms) -> Projection:
        """Returns what makes a row of this view from the fields of such a record, or None."""
        columns = self.columns(label)
        if columns is not None:
            chosen = columns
            return lambda row: tuple([row[at] for at in chosen])
        read = self.read

        def project(row: Row) -> Row | None:
            if sum([term.size for term in row]) > MAX_FACT:
                return None  # nor is it a fact; and what it would take to write it down has no limit
            captures = read(Record.of(label, tuple([term.value for term in row])))
            return None if captures is None else terms.row(captures)

        return project


def root_of(form: Skeleton) -> Class | None:
    """Returns the class that a value must have to conform, or None if several may."""
    return form.shape[0][1] if form.shape and form.shape[0][0] == () else None


def may_match(form: Skeleton, label: Value, arity: int) -> bool:
    """True if a record of this label and arity could conform, with some fields.  O(positions)."""
    if root_of(form) not in (None, label_class(label)):
        return False
    for path, constant in form.constants:
        if path == () and not (isinstance(constant, Record) and _like(constant, label, arity)):
            return False
    for check in form.checks:
        if check.path == () and check.kind is CheckKind.SIZE and check.argument != arity:
            return False
        if check.path == () and check.kind is CheckKind.CLASS and check.argument != "record":
            return False
    paths = [path for path, _ in form.constants] + [c.path for c in form.checks] + list(form.captures)
    paths += [path for path, _ in form.shape]
    return all(not path or (isinstance(path[0], int) and path[0] < arity) for path in paths)


def _like(constant: Record, label: Value, arity: int) -> bool:
    return key(constant.label) == key(label) and len(constant.fields) == arity


def _shown(pattern: Value) -> str:
    return unparse(_unnumbered(pattern))


def _unnumbered(pattern: Value) -> Value:
    match pattern:
        case Record(label="$", fields=(_, of_class, sub)):
            return Record("$", None, of_class, _unnumbered(sub))
        case Record(label=label, fields=fields):
            return Record.of(label, tuple([_unnumbered(each) for each in fields]))
        case tuple():
            return tuple([_unnumbered(each) for each in pattern])
        case _:
            return pattern
