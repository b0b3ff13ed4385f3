"""Declared relations: the fields that facts of a label have, and what contradicts that.

    relation temp(device: str, celsius: number).
    strict relation job(id: int).

Rules of all texts are held to a declaration, and facts that clients assert to one with ``strict``.

Always: a refused rule or fact has a declared label with other fields, or an undeclared label much like a
declared one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeAlias

from dataspace.rules.language.functions import with_article
from dataspace.rules.language.groups import ungrouped
from dataspace.rules.language.lowering import flattened
from dataspace.rules.language.syntax import (
    DEVIATION,
    Aggregate,
    Atom,
    Comparison,
    Expression,
    Rule,
    Structure,
    Verb,
    class_of,
)
from index.errors import UsageError
from index.patterns.patterns import DISCARD
from index.patterns.text import unparse
from index.values.values import Map, Record, Value

MAX_LABEL: Final = 80
SHORTEST: Final = 4
"""Characters of labels that are compared with others, at most and at least."""

KINDS: Final = {
    "bool": "truth",
    "int": "number",
    "float": "number",
    "number": "number",
    "str": "text",
    "bytes": "bytes",
    "time": "time",
    "record": "record",
    "seq": "sequence",
    "map": "map",
    "null": "null",
    "any": "",
}
"""The classes of fields, and what expressions of these classes are called."""

MAX_RELATIONS: Final = 1000
"""Relations that the texts of a space declare together."""

_OWN: Final = ("rule", "rule-error", "flow-error", "suspended", "Observe", "$", "_", "lit", "exact")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A relation: its label, and the names and classes of its fields; ``strict`` ones bind clients too."""

    label: str
    fields: tuple[tuple[str, str], ...]
    strict: bool = False

    def __str__(self) -> str:
        fields = ", ".join([f"{name}: {of_class}" for name, of_class in self.fields])
        return f"{'strict ' if self.strict else ''}relation {self.label}({fields})."


Declarations: TypeAlias = Mapping[str, Declaration]


def check_fact(fact: Value, declared: Declarations) -> None:
    """Raises ``UsageError`` for a fact that contradicts a declaration; O(declarations) for unknown labels."""
    if not isinstance(fact, Record) or not isinstance(fact.label, str) or fact.label in _OWN:
        return
    for at, (of_class, field) in enumerate(_fields(fact, declared)):
        if not _fits(_class_name(field), of_class):
            raise _wrong(declared[fact.label], at, unparse(field))


def check_rule(rule: Rule, declared: Declarations) -> None:
    """Raises ``UsageError`` for a rule that contradicts a declaration; O(literals × declarations)."""
    for part in ungrouped(rule):
        known: dict[str, tuple[str, Atom]] = {}
        plain = flattened(part)
        for atom in plain.atoms:
            _check_atom(atom, declared, known)
        kinds = {name: KINDS[of_class] for name, (of_class, _) in known.items()}
        if part.head.verb is not Verb.HIDDEN:
            _check_head(part, declared, kinds)
        for literal in plain.body:
            if isinstance(literal, Comparison):
                left, right = class_of(literal.left, kinds), class_of(literal.right, kinds)
                if left and right and left != right:
                    raise UsageError(f"{literal} never holds: {with_article(left)} and {with_article(right)}")


def _fields(fact: Record, declared: Declarations) -> Iterator[tuple[str, Value]]:
    """Yields the fields of a fact or a pattern with their declared classes; none where it has none."""
    assert isinstance(fact.label, str)  # by the caller
    of = declared.get(fact.label)
    if of is None:
        near = _nearest(fact.label, declared)
        if near:
            raise UsageError(
                f"no relation {fact.label[:80]} is declared: did you mean {near}? (if both are meant,"
                f" declare {fact.label[:80]} as well)"
            )
        return
    if len(fact.fields) != len(of.fields):
        raise UsageError(f"{fact.label} has {len(fact.fields)} fields here, declared is {of}")
    for (_, of_class), field in zip(of.fields, fact.fields, strict=True):
        yield of_class, field


def _nearest(label: str, declared: Declarations) -> str:
    """Returns a declared label that differs in one place: a letter more, less, another, or two exchanged."""
    if len(label) > MAX_LABEL:
        return ""
    known = _shortened_labels(tuple(declared))
    return next((known[each] for each in _shortened(label) if each in known), "")


@lru_cache(maxsize=64)
def _shortened_labels(labels: tuple[str, ...]) -> dict[str, str]:
    """Returns each label under its own text, and under its text without one letter."""
    return {each: label for label in labels if len(label) <= MAX_LABEL for each in _shortened(label)}


def _shortened(label: str) -> list[str]:
    if len(label) < SHORTEST:
        return [label]
    return [label, *[label[:at] + label[at + 1 :] for at in range(len(label))]]


def _wrong(of: Declaration, at: int, found: str) -> UsageError:
    name, of_class = of.fields[at]
    return UsageError(f"{found:.80} as {name} of {of.label}, declared is {name}: {of_class} in {of}")


def _check_atom(atom: Atom, declared: Declarations, known: dict[str, tuple[str, Atom]]) -> None:
    pattern = atom.pattern
    while isinstance(pattern, Record) and pattern.label in ("$", "exact"):
        if not pattern.fields or pattern.fields[-1] == DISCARD:
            return
        pattern = pattern.fields[-1]
    if not isinstance(pattern, Record) or not isinstance(pattern.label, str) or pattern.label in _OWN:
        return
    if atom.shown:
        return  # it stands for a group, whose literals are looked at themselves
    for at, (of_class, field) in enumerate(_fields(pattern, declared)):
        for name, part in _parts(field):
            if part is not None and not _fits(part, of_class):
                raise _wrong(declared[pattern.label], at, unparse(field))
            if name is None or of_class == "any":
                continue
            before, other = known.setdefault(name, (of_class, atom))
            if KINDS[before] != KINDS[of_class] or {before, of_class} == {"int", "float"}:
                raise UsageError(f"${name} is {before} in {other} and {of_class} in {atom}, as declared")


def _parts(field: Value) -> Iterator[tuple[str | None, str | None]]:
    """Yields the variable of a field and its class, as far as the pattern says them."""
    match field:
        case Record(label="$", fields=(name, of_class, sub)):
            yield (None if name is None else str(name)), (None if of_class is None else str(of_class))
            if sub != DISCARD:
                yield from _parts(sub)
        case Record(label="_", fields=fields):
            yield None, str(fields[0]) if fields else None
        case Record(label="lit", fields=(value,)):
            yield None, _class_name(value)
        case Record(label="exact", fields=(value,)):
            yield from _parts(value)
        case _:
            yield None, _class_name(field)


def _check_head(rule: Rule, declared: Declarations, kinds: Mapping[str, str]) -> None:
    head = rule.head
    if not isinstance(head.label, str) or head.label in _OWN:
        return
    shape = Record.of(head.label, (None,) * len(head.arguments))
    for at, ((of_class, _), argument) in enumerate(
        zip(_fields(shape, declared), head.arguments, strict=False)
    ):
        if isinstance(argument, Structure) and class_of(argument):
            fits = _fits(_class_name(argument.template), of_class)
        else:
            found = _kind_of(argument, kinds)
            fits = not found or KINDS[of_class] in ("", found)
        if not fits:
            raise _wrong(declared[head.label], at, str(argument))


def _kind_of(argument: Expression | Aggregate, kinds: Mapping[str, str]) -> str:
    if not isinstance(argument, Aggregate):
        return class_of(argument, kinds)
    if argument.name in ("count", "sum", "avg", DEVIATION):
        return "number"
    return "sequence" if argument.name in ("collect", "top") else class_of(argument.of, kinds)


def _class_name(value: Value) -> str:
    """Returns the class of a value as patterns name it."""
    match value:
        case None:
            return "null"
        case Record():
            return "record"
        case tuple():
            return "seq"
        case Map():
            return "map"
        case datetime():
            return "time"
    return type(value).__name__


def _fits(found: str, of_class: str) -> bool:
    return of_class in ("any", found) or (of_class == "number" and found in ("int", "float"))


def check_all(rules: Iterable[Rule], declared: Declarations) -> None:
    """Raises ``UsageError`` for the first rule that contradicts a declaration."""
    if declared:
        for rule in rules:
            check_rule(rule, declared)
