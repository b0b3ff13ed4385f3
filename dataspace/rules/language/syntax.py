"""Rules as data: heads, atoms, comparisons and expressions, and the values of expressions.

A rule is a head and a body.  The body is a list of atoms (patterns, as observed), negated atoms, and
comparisons between expressions.  The head is the result: a fact that holds, a fact that will hold in the next
tick, or a message.  Everything here is immutable, prints as the text that is read back as it, and does not
depend on how rules are carried out.

Always: ``str(rule)`` reads back as the same rule.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dataspace.rules.language.functions import (
    CHOICE,
    FLOOR_OF,
    FUNCTIONS,
    NEGATIVE,
    Function,
    begun,
    kind_of,
    with_article,
)
from index.errors import UsageError
from index.patterns.text import unparse
from index.values.values import Map, Record, Value


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in an expression."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True)
class Structure:
    """A value with variables in it, written as the pattern that it looks like; without any, a constant."""

    template: Value

    def __str__(self) -> str:
        return _made_text(self.template)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two expressions with an operator between them: ``+ - * / // %``, or both within ``floor(…)``."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        if self.operator == FLOOR:
            return f"{FLOOR}({self.left}, {self.right})"
        return f"({self.left} {self.operator} {self.right})"


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the epoch, which stands alone on one side of a comparison."""

    def __str__(self) -> str:
        return "now"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function: of ``functions.FUNCTIONS`` by its name, or of a ``hosted`` one."""

    name: str
    arguments: tuple[Expression, ...]
    hosted: Function | None = None

    @property
    def function(self) -> Function:
        if self.hosted is not None:
            return self.hosted
        return FLOOR_OF if self.name == FLOOR and len(self.arguments) == 3 else FUNCTIONS[self.name]

    def __str__(self) -> str:
        if self.name != NEGATIVE:
            return f"{self.name}({', '.join(map(str, self.arguments))})"
        (of,) = self.arguments
        return f"-({of})" if isinstance(of, Structure) else f"-{of}"


@dataclass(frozen=True, slots=True)
class Choice:
    """``if(condition, then, otherwise)``: only one of the two is calculated."""

    condition: Comparison
    then: Expression
    otherwise: Expression

    def __str__(self) -> str:
        return f"{CHOICE}({self.condition}, {self.then}, {self.otherwise})"


@dataclass(frozen=True, slots=True)
class Compound:
    """A ``"record"``, ``"sequence"`` or ``"map"`` with parts that are calculated.

    The parts of a map are keys and values in turn.
    """

    kind: str
    parts: tuple[Expression, ...]
    label: Value = None

    def __str__(self) -> str:
        parts = [str(each) for each in self.parts]
        if self.kind == "map":
            pairs = zip(parts[::2], parts[1::2], strict=True)
            return f"{{{', '.join([f'{at}: {part}' for at, part in pairs])}}}"
        if self.kind == "sequence":
            return f"[{', '.join(parts)}]"
        return f"{_label_text(self.label)}({', '.join(parts)})"

    def made(self, *values: Value) -> Value:
        """Returns the value with these parts; ``UsageError`` for a map that has a key twice."""
        if self.kind == "map":
            return Map(zip(values[::2], values[1::2], strict=True))
        return values if self.kind == "sequence" else Record.of(self.label, values)


TIMELY: Final = "timely"
"""What ``lowering`` puts around a value that is compared with the present time: it must be no number."""

FLOOR: Final = "floor"
"""The function that rounds a time, or a number, down to a multiple."""

NO_CLASSES: Final[Mapping[str, str]] = {}

Expression: TypeAlias = Variable | Structure | Arithmetic | Now | FunctionCall | Choice | Compound


def parts_of(expression: Expression | Aggregate) -> tuple[Expression, ...]:
    """Returns the expressions that stand directly in an expression."""
    match expression:
        case Arithmetic(_, left, right):
            return left, right
        case FunctionCall(_, arguments):
            return arguments
        case Choice(condition, then, otherwise):
            return condition.left, condition.right, then, otherwise
        case Compound(_, parts):
            return parts
        case Aggregate(_, of):
            return (of,) if expression.by is None else (of, expression.by)
    return ()


def with_operands(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Returns an expression with each of its direct parts changed; itself if it has none."""
    match expression:
        case Arithmetic(operator, left, right):
            return Arithmetic(operator, change(left), change(right))
        case FunctionCall(name, arguments, hosted):
            return FunctionCall(name, tuple(map(change, arguments)), hosted)
        case Choice(Comparison(operator, left, right), then, otherwise):
            condition = Comparison(operator, change(left), change(right))
            return Choice(condition, change(then), change(otherwise))
        case Compound(kind, parts, label):
            return Compound(kind, tuple(map(change, parts)), label)
    return expression


def class_of(expression: Expression, known: Mapping[str, str] = NO_CLASSES) -> str:
    """Returns the class that an expression certainly has, as ``functions.KINDS``; empty if that is not known.

    ``known`` are classes of variables.
    """
    match expression:
        case Now():
            return "time"
        case Variable(name):
            return known.get(name, "")
        case Structure(template):
            return "" if is_special(template) else kind_of(template)
        case Compound(kind):
            return kind
        case FunctionCall(_, arguments):
            given = {class_of(each, known) for each in arguments}
            gives = expression.function.gives
            if expression.hosted is not None:
                return "" if "|" in gives else gives
            return gives or (given.pop() if len(given) == 1 else "")
        case Choice(_, then, otherwise):
            one, other = class_of(then, known), class_of(otherwise, known)
            return one if one == other else ""
        case Arithmetic(_, left, right):
            one, other = class_of(left, known), class_of(right, known)
            if one == "time":
                return "number" if other == "time" else "time"
            return "number" if one == other == "number" else ""


def is_special(template: Value) -> bool:
    """True if a value that is made is something else than it looks like: a variable, or quoted."""
    return isinstance(template, Record) and template.label in ("$", "_", "lit", "exact")


def _made_text(template: Value) -> str:
    """Returns the text of a value that is made; a record that is called like a function has a quoted
    label."""
    match template:
        case Record(label="$" | "_" | "lit" | "exact"):
            return unparse(template)
        case Record(label=label, fields=fields):
            return f"{_label_text(label)}({', '.join(map(_made_text, fields))})"
        case tuple():
            return f"[{', '.join(map(_made_text, template))}]"
        case Map():
            return (
                f"{{{', '.join([f'{_made_text(at)}: {_made_text(each)}' for at, each in template.pairs()])}}}"
            )
    return unparse(template)


def _label_text(label: Value) -> str:
    word = label.lower() if isinstance(label, str) else ""  # in any case, as it is read
    if isinstance(label, str) and (word in FUNCTIONS or word in AGGREGATES or word == CHOICE):
        return f'"{label}"'
    return unparse(Record.of(label, ())).removesuffix("()")


AGGREGATES = ("count", "sum", "avg", "stddev", "min", "max", "percentile", "first", "last", "collect", "top")

CHOOSING: Final = ("first", "last")
"""Aggregates that take the value with the least, or the greatest, of another one."""


DEVIATION: Final = "stddev"
"""The aggregate that needs two values."""

SOLUTIONS: Final = Structure(True)
"""What ``count()`` counts: each solution."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value made of all solutions of a body for the same other fields of the head.

    ``n`` is for ``top`` and ``percentile``, ``by`` for ``CHOOSING``; ``distinct`` takes equal values once.
    ``otherwise`` is the value where it has none.
    """

    name: str
    of: Expression
    n: int | float = 0
    distinct: bool = False
    otherwise: Structure | None = None
    by: Expression | None = None

    def __str__(self) -> str:
        of = (
            f"{'distinct ' if self.distinct else ''}{self.of}"
            if self.of != SOLUTIONS or self.distinct
            else ""
        )
        otherwise = "" if self.otherwise is None else f" else {self.otherwise}"
        by = "" if self.by is None else f", {self.by}"
        if self.name == "percentile":
            by = f", {self.n}"
        return f"{self.name}({f'{self.n}, ' if self.name == 'top' else ''}{of}{by}){otherwise}"


@dataclass(frozen=True, slots=True)
class Atom:
    """A fact that must be there, or must not; with ``maybe`` one that aggregates take if it is there."""

    pattern: Value
    negated: bool = False
    shown: str = field(default="", compare=False)
    """The text of the literal for which it stands, if it is not written so itself."""
    maybe: bool = False

    def __str__(self) -> str:
        text = self.shown or unparse(self.pattern)
        if text.startswith("not("):
            text = f'"not"{text[3:]}'  # a fact of that label, and no negation
        if self.shown:
            return text
        return f"not {text}" if self.negated else f"maybe {text}" if self.maybe else text


@dataclass(frozen=True, slots=True)
class Comparison:
    """``= != < <= > >=`` between expressions; ``=`` gives a variable its value if nothing else does."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class TimedAtom:
    """An atom with times: ``at`` is the variable that gets the time at which its fact came.

    With ``within``, in microseconds, it ranges over what was there in that time.
    """

    pattern: Value
    negated: bool = False
    at: str | None = None
    within: int | None = None
    maybe: bool = False

    def __str__(self) -> str:
        at = "" if self.at is None else f" at ${self.at}"
        within = "" if self.within is None else f" within {duration_text(self.within)}"
        return f"{Atom(self.pattern, self.negated, maybe=self.maybe)}{at}{within}"


@dataclass(frozen=True, slots=True)
class LastingGroup:
    """Literals that have held together in every epoch for so many microseconds."""

    literals: tuple[Literal, ...]
    span: int

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.literals))}) for {duration_text(self.span)}"


@dataclass(frozen=True, slots=True)
class Elements:
    """Each element of a sequence in turn; with two variables, each entry of a map."""

    names: tuple[str, ...]
    of: Expression

    def __str__(self) -> str:
        return f"{': '.join([f'${name}' for name in self.names])} in {self.of}"


def members(member: Elements, whole: Value) -> list[tuple[Value, ...]]:
    """Returns the values of the variables in turn, in order, with repetitions; ``UsageError`` for a value of
    another class."""
    if len(member.names) == 1 and whole.__class__ is tuple:
        return [(each,) for each in whole]
    if len(member.names) == 2 and isinstance(whole, Map):
        return list(whole.pairs())
    wanted = "the elements of a sequence" if len(member.names) == 1 else "the entries of a map"
    hint = ": for a map write $key: $value in …" if isinstance(whole, Map) else ""
    raise UsageError(f"in goes through {wanted}, not {begun(whole)}, {with_article(kind_of(whole))}{hint}")


@dataclass(frozen=True, slots=True)
class EitherGroup:
    """At least one of the branches holds: all of its literals together."""

    branches: tuple[tuple[Literal, ...], ...]

    def __str__(self) -> str:
        return f"({' or '.join([', '.join(map(str, each)) for each in self.branches])})"


@dataclass(frozen=True, slots=True)
class NegatedGroup:
    """Literals that must not hold together."""

    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"not ({', '.join(map(str, self.literals))})"


@dataclass(frozen=True, slots=True)
class MaybeGroup:
    """Literals whose variables only aggregates take, if they hold together."""

    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"maybe ({', '.join(map(str, self.literals))})"


@dataclass(frozen=True, slots=True)
class GroupAggregate:
    """An aggregate over the solutions of some literals, compared with an expression."""

    aggregate: Aggregate
    literals: tuple[Literal, ...]
    operator: str
    other: Expression

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.literals))
        return f"{self.aggregate} of ({inside}) {self.operator} {self.other}"


Literal: TypeAlias = (
    Atom
    | Comparison
    | Elements
    | TimedAtom
    | LastingGroup
    | EitherGroup
    | NegatedGroup
    | MaybeGroup
    | GroupAggregate
)

UNITS: Final = {"ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
"""Units of durations, in microseconds."""


def duration_text(micros: int) -> str:
    """Returns a duration as it is written: in the largest unit that divides it.

    >>> duration_text(90_000_000), duration_text(3_600_000_000), duration_text(1_500)
    ('90 s', '1 h', '1.5 ms')
    """
    for unit, size in reversed(UNITS.items()):
        if micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros / 1000} ms"


class Verb(enum.StrEnum):
    """What becomes of a head: a fact, a fact of the next tick, a message; or the facts of whole windows.

    ``HIDDEN`` is for the heads of rules that ``groups`` and ``lowering`` make: their rows are facts for the
    other rules of their text, and for nobody else.
    """

    ASSERT = "assert"
    NEXT = "next"
    SEND = "send"
    FINAL = "final"
    HIDDEN = "hidden"


class TimeKind(enum.Enum):
    """What time does with the rows of a rule with the verb ``HIDDEN``."""

    WITHIN = 1
    """A row stays until a span after its end; of several ends the last counts."""
    OCCURRENCES = 2
    """The same for each occurrence by itself: two columns more, its time and its number."""
    AT = 3
    """A row has its time as the last column."""
    FOR = 4
    """A row comes a span after it has begun."""
    NOW = 5
    """A row is there while its last columns compare with the present time as ``operators`` say."""
    FINAL = 6
    """Like ``OCCURRENCES``, all of one window of time together: after its end, until a span after its
    beginning."""
    CLOCK = 7
    """One row, with what clocks and calendars show at present, while that compares as ``literals`` say."""


@dataclass(frozen=True, slots=True)
class TimeForm:
    """How the rows of a rule depend on time; ``span`` and ``window`` are in microseconds.

    Windows of a calendar have their unit and zone in ``calendar``, and ``window`` is the longest of them.
    ``shows`` are the functions of the present time of which ``CLOCK`` shows the values.  ``pattern`` is the
    pattern of a window, whose messages count as well; all of its parts are captured.
    """

    kind: TimeKind
    span: int = 0
    window: int = 0
    pattern: Value = None
    operators: tuple[str, ...] = ()
    is_exact: bool = False
    """True if the time of each fact is shown, however old it is."""
    shown: str = ""
    """The text of the literal in its rule."""
    literals: tuple[Literal, ...] = ()
    """That literal; several comparisons with the present time; none for the age of a rule."""
    calendar: tuple[str, str] | None = None
    shows: tuple[FunctionCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """What follows: a record with exactly these fields."""

    label: Value
    arguments: tuple[Expression | Aggregate, ...]
    verb: Verb = Verb.ASSERT

    def __str__(self) -> str:
        name = unparse(Record.of(self.label, ())).removesuffix("()")
        text = f"{name}({', '.join(map(str, self.arguments))})"
        return text if self.verb is Verb.ASSERT else f"{self.verb}({text})"

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        return tuple([each for each in self.arguments if isinstance(each, Aggregate)])


@dataclass(frozen=True, slots=True)
class Rule:
    """A head that follows from a body; without a body it always holds."""

    head: Head
    body: tuple[Literal, ...] = ()
    form: TimeForm | None = None
    """What time does with its rows, for the verb ``HIDDEN``."""
    written: str = field(default="", compare=False)
    """The rule of the text from which this one was made; empty if it stands there itself."""
    part: Literal | None = field(default=None, compare=False)
    """The group of that rule for which it was made."""

    @property
    def text(self) -> str:
        """Returns the rule as its author has written it."""
        return self.written or str(self)

    @property
    def shown(self) -> str:
        """Returns what explanations call its head: the part of the written rule for which it was made."""
        if self.form is not None:
            return self.form.shown
        return str(self.head) if self.part is None else str(self.part)

    def __str__(self) -> str:
        body = ", ".join(map(str, self.body))
        return f"{self.head} <- {body}." if body else f"{self.head}."

    @property
    def atoms(self) -> tuple[Atom, ...]:
        return tuple([each for each in self.body if isinstance(each, Atom)])

    @property
    def loops(self) -> int:
        """Returns how many loops are in each other where one of its atoms has changed."""
        members = sum(isinstance(each, Elements) for each in self.body)
        needed = sum(not (atom.negated or atom.maybe) for atom in self.atoms)
        return members + needed + any(atom.maybe for atom in self.atoms)

    @property
    def collects(self) -> bool:
        """True if its solutions are collected before its head changes: for aggregates, or over time."""
        return self.form is not None or bool(self.head.aggregates)


def variables_of(expression: Expression | Aggregate) -> Iterator[str]:
    """Yields the names of the variables in an expression, with repetitions."""
    match expression:
        case Variable(name):
            yield name
        case Structure(template):
            yield from template_variables(template)
        case _:
            for each in parts_of(expression):
                yield from variables_of(each)


def template_variables(template: Value) -> Iterator[str]:
    """Yields the names of the captures in a value that looks like a pattern; what ``lit`` quotes has none."""
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            yield name
        case Record(label="lit", fields=(_,)):
            return
        case Record(fields=parts):
            for part in parts:
                yield from template_variables(part)
        case tuple():
            for part in template:
                yield from template_variables(part)
        case Map():
            for _, part in template.pairs():
                yield from template_variables(part)


def maker(structure: Structure) -> tuple[tuple[str, ...], Callable[..., Value]]:
    """Returns the variables of a structure, and the function that makes its value from theirs."""
    names = tuple(dict.fromkeys(template_variables(structure.template)))
    return names, lambda *values: _filled(structure.template, dict(zip(names, values, strict=True)))


def _filled(template: Value, given: dict[str, Value]) -> Value:
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            return given[name]
        case Record(label="lit", fields=(value,)):
            return value
        case _:
            return with_parts(template, lambda part: _filled(part, given))


def with_parts(pattern: Value, change: Callable[[Value], Value]) -> Value:
    """Returns a pattern, or a template, with each of its direct parts changed; itself if it has none."""
    match pattern:
        case Record(label=label, fields=fields):
            return Record.of(label, tuple(map(change, fields)))
        case tuple():
            return tuple(map(change, pattern))
        case Map():
            return Map.of([(at, change(part)) for at, part in pattern.pairs()])
    return pattern
