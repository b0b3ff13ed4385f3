"""Reading expressions: numbers, texts and variables, what is calculated from them, and comparisons.

Values are read by the reader of ``index/TEXT.md``; here is what expressions add to it: arithmetic, functions,
``if``, durations, ``now``, and expressions in the places of values.

Always: an expression that is printed reads back as the same one; each level of nesting is counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from dataspace.rules.language.functions import CALENDAR, CHOICE, ELSEWHERE, FUNCTIONS, NEGATIVE, Function
from dataspace.rules.language.hosted import CALL, Functions, called
from dataspace.rules.language.syntax import (
    AGGREGATES,
    FLOOR,
    UNITS,
    Arithmetic,
    Choice,
    Comparison,
    Compound,
    Expression,
    FunctionCall,
    Now,
    Structure,
    Variable,
    is_special,
)
from dataspace.rules.language.zones import check_unit, check_zone
from index.errors import UsageError
from index.patterns.patterns import DISCARD
from index.patterns.text import Reader
from index.values.atoms import KEYWORDS, read_string
from index.values.scanner import WORD
from index.values.values import Map, Record, Value

MAX_NESTING: Final = 32
"""Levels of parentheses in an expression."""

COMPARISON: Final = re.compile(r"<=|>=|==|!=|<(?!-\s)|>|=")
_SUM: Final = re.compile(r"[-+](?=[\s($0-9A-Za-z_\"\[{@])")
_PRODUCT: Final = re.compile(r"//|[*/%]")
OPERATOR: Final = re.compile(rf"{_SUM.pattern}|{_PRODUCT.pattern}")
_MINUS: Final = re.compile(r"-(?!\d|inf\b)")
_CALLED: Final = re.compile(rf"({WORD.pattern})\(")
_QUOTING: Final = ("lit", "exact", "$", "_")
"""Labels of records that are read as they are, also in expressions."""
NUMBER: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d|m|sec|seconds?|minutes?|hours?|days?|weeks?|months?|years?)"
    r"\b(?![(-])"
)
_UNIT_OF: Final = {"m": "min", "s": "s", "h": "h", "d": "d"}


def _way_out(unit: str) -> str:
    """Returns what to write in place of a unit that durations do not have.

    >>> _way_out("sec")
    'write s; units are ms s min h d'
    >>> _way_out("month")
    'windows of a calendar are written floor($t, "1 month", "Europe/Zurich")'
    """
    unit = unit if unit in _UNIT_OF else unit.removesuffix("s")
    calendar = f'windows of a calendar are written floor($t, "1 {unit}", "Europe/Zurich")'
    if unit in ("week", "month", "year"):
        return calendar
    hint = f"write {_UNIT_OF[unit[0]]}; units are {' '.join(UNITS)}"
    return f"{hint}; {calendar}" if unit in ("day", "hour") else hint


class ExpressionReader(Reader):
    """Reads expressions; ``constants`` are words that stand for values.

    ``functions`` are the functions of the host; None takes any name, for texts of another process.
    """

    __slots__ = ("constants", "functions")

    def __init__(self, text: str, functions: Functions | None = None) -> None:
        super().__init__(text)
        self.constants: dict[str, Value] = {}
        self.functions = functions

    def value(self, level: int = 0) -> Value:
        """As the reader of values does, with the constants that have been named."""
        self.blanks()
        word = WORD.match(self.text, self.position)
        if word and word[0] in self.constants and self.text[word.end() : word.end() + 1] != "(":
            self.position = word.end()
            return self.constants[word[0]]
        return super().value(level)

    def comparison(self, level: int) -> Comparison | Expression:
        """Returns a comparison, or the expression that is there without one."""
        left = self.expression(level)
        self.blanks()
        operator = self.take_match(COMPARISON)
        if not operator:
            return left
        return Comparison("=" if operator == "==" else operator, left, self.expression(level))

    def expression(self, level: int) -> Expression:
        left = self._product(level)
        while True:
            self.blanks()
            operator = self.take_match(_SUM)
            if not operator:
                return left
            left = Arithmetic(operator, left, self._product(level))

    def _product(self, level: int) -> Expression:
        left = self._primary(level)
        while True:
            self.blanks()
            operator = self.take_match(_PRODUCT)
            if not operator:
                return left
            left = Arithmetic(operator, left, self._primary(level))

    def _primary(self, level: int) -> Expression:
        if self.accept("("):
            self._refuse_deep(level)
            inner = self.expression(level + 1)
            self.expect(")")
            return inner
        if name := self.hosted():
            return self._hosted_call(name, level)
        if self.keyword("now"):
            return Now()
        self.blanks()
        at = self.position
        if _MINUS.match(self.text, at):
            self._refuse_deep(level)
            self.position += 1
            return FunctionCall(NEGATIVE, (self._primary(level + 1),))
        number = self.take_match(NUMBER)
        if number:
            return Structure(self.seconds(number, at))
        word = _CALLED.match(self.text, at)
        if word and word[1] not in _QUOTING:
            return self._called(word[1], at, level)
        if self.ahead() in ('"', "<", "[", "{"):
            return self._compound(level)
        return expression_of(self.value(level))

    def _refuse_deep(self, level: int) -> None:
        if level > MAX_NESTING:
            raise self.error(f"an expression nested deeper than {MAX_NESTING} levels")

    # -- functions and compounds ----------------------------------------------------------------------

    def _called(self, name: str, at: int, level: int) -> Expression:
        """Reads what a word before a parenthesis begins: a function, or a record."""
        if name in KEYWORDS:
            return expression_of(self.value(level))  # which refuses it
        self.position = at + len(name)
        if name in FUNCTIONS or name == CHOICE:
            self._refuse_deep(level)
        if name == CHOICE:
            return self._choice(at, level)
        if name not in FUNCTIONS:
            self.refuse_foreign(name, at)
            return self._record_of(name, level)
        self.position += 1
        arguments = self._expressions(")", level + 1)
        is_text = [isinstance(each, Structure) and each.template.__class__ is str for each in arguments[1:]]
        if name == FLOOR and is_text == [False]:
            return Arithmetic(FLOOR, *arguments)
        if name in CALENDAR and (name != FLOOR or len(arguments) in (2, 3)):
            self._check_calendar(name, arguments, at)
            return FunctionCall(name, tuple(arguments))
        if not FUNCTIONS[name].takes_count(len(arguments)):
            raise self.error(_arity(FUNCTIONS[name], len(arguments)), at)
        return FunctionCall(name, tuple(arguments))

    def _check_calendar(self, name: str, arguments: Sequence[Expression], at: int) -> None:
        """Raises where the zone of a function of a calendar, or its unit, is no constant that there is."""
        constants = [each.template for each in arguments[1:] if isinstance(each, Structure)]
        count = len(CALENDAR[name].takes)
        if len(arguments) != count or any(each.__class__ is not str for each in constants):
            takes, given = ("a time, a unit", ', "1 month"') if count == 3 else ("a time", "")
            raise self.error(
                f'{name} takes {takes} and a zone, as in {name}($t{given}, "Europe/Zurich") (a record is'
                f' written "{name}"(…))',
                at,
            )
        if len(constants) < count - 1:
            raise self.error(f"{name}: a zone and a unit are texts, or constants that let names", at)
        *units, zone = map(str, constants)
        try:
            for unit in units:
                check_unit(unit)
            check_zone(zone)
        except UsageError as error:
            raise self.error(str(error), at) from None

    def hosted(self) -> str:
        """Returns the name of the function of the host that is called next, or nothing; reads blanks."""
        self.blanks()
        found = CALL.match(self.text, self.position)
        return "" if found is None or found[2] in KEYWORDS or found[2] in self.constants else found[1]

    def _hosted_call(self, name: str, level: int) -> FunctionCall:
        self._refuse_deep(level)
        at = self.position
        try:
            function = called(name, self.functions)
        except UsageError as error:
            raise self.error(str(error), at) from None
        self.position = at + len(name) + 1
        arguments = self._expressions(")", level + 1)
        if not function.takes_count(len(arguments)):
            raise self.error(_arity(function, len(arguments)), at)
        return FunctionCall(name, tuple(arguments), function)

    def _choice(self, at: int, level: int) -> Choice:
        self.position += 1
        condition = self.comparison(level + 1)
        if not isinstance(condition, Comparison):
            condition = Comparison("=", condition, Structure(True))
        branches: list[Expression] = []
        while len(branches) < 2:
            if not self.accept(","):
                raise self.error("if takes a condition and two values, as in if($n > 9, 9, $n)", at)
            branches.append(self.expression(level + 1))
        self.expect(")")
        return Choice(condition, *branches)

    def refuse_foreign(self, name: str, at: int) -> None:
        if name in AGGREGATES:
            raise self.error(
                f"an aggregate stands alone in a head: derive {name}(…) by a rule of its own first, and"
                f' calculate with its field (a record is written "{name}"(…))',
                at,
            )
        known_as = name.lower()
        if known_as != name and (known_as in FUNCTIONS or known_as in AGGREGATES or known_as == CHOICE):
            raise self.error(f'{name}(…) is written {known_as}(…) (a record is written "{name}"(…))', at)
        if name in ELSEWHERE:
            here = ELSEWHERE[name]
            known = [*[each for each in FUNCTIONS if each != NEGATIVE], CHOICE, *sorted(self.functions or ())]
            hint = f"write {here}" if here else f"functions are {' '.join(known)}"
            raise self.error(f'{name} is no function here: {hint} (a record is written "{name}"(…))', at)

    def _compound(self, level: int) -> Expression:
        """Reads a record with a quoted label or any other, a sequence, a map, or a text."""
        at = self.position
        if self.take_here("["):
            self._inside(level)
            return _folded(Compound("sequence", tuple(self._expressions("]", level + 1))))
        if self.take_here("{"):
            return self._map_made(level)
        if self.take_here("<"):
            label = self.value(self._inside(level))
            self.expect(">")
            if self.ahead() != "(":
                raise self.error(f"expected '(' right behind the label, found {self.found()}")
        else:
            label = read_string(self)
        if self.ahead() != "(":
            return Structure(label)
        if label in _QUOTING:
            self.position = at
            return expression_of(self.value(level))
        return self._record_of(label, level)

    def _record_of(self, label: Value, level: int) -> Expression:
        self._inside(level)
        self.position += 1
        return _folded(Compound("record", tuple(self._expressions(")", level + 1)), label))

    def _expressions(self, close: str, level: int) -> list[Expression]:
        found: list[Expression] = []
        while not self.accept(close):
            found.append(self.expression(level))
            if self.expect(",", close) == close:
                break
        return found

    def _map_made(self, level: int) -> Expression:
        inside = self._inside(level)
        parts: list[Expression] = []
        places: list[tuple[Value, int]] = []
        while not self.accept("}"):
            at = self.position
            parts.append(self.expression(inside))
            if isinstance(parts[-1], Structure):
                places.append((parts[-1].template, at))
            self.expect(":")
            parts.append(self.expression(inside))
            if self.expect(",", "}") == "}":
                break
        self._map_of([(at, None) for at, _ in places], [place for _, place in places])
        return _folded(Compound("map", tuple(parts)))

    def micros(self, text: str, at: int) -> int:
        found = NUMBER.match(text)
        assert found is not None  # it has matched before
        number, unit = found[1], found[2]
        if unit not in UNITS:
            raise self.error(f"no unit {unit}: {_way_out(unit)}", at)
        return round(Fraction(number) * UNITS[unit])

    def seconds(self, text: str, at: int) -> int | float:
        """Returns a duration as a number of seconds, whole where it can be."""
        micros = self.micros(text, at)
        return micros // 1_000_000 if micros % 1_000_000 == 0 else micros / 1_000_000

    def keyword(self, word: str) -> bool:
        """True if a word is next that stands alone; then it is read."""
        self.blanks()
        found = WORD.match(self.text, self.position)
        if found is None or found[0] != word or self.text[found.end() : found.end() + 1] == "(":
            return False
        self.position = found.end()
        return True


def _arity(function: Function, count: int) -> str:
    """Returns why a function cannot have so many arguments."""
    name = function.name
    if name in AGGREGATES:
        return (
            f"{name} of one value is an aggregate, which stands alone in a head; as a function it takes two"
        )
    least, most = (len(function.takes) if n < 0 else n for n in (function.least, function.most))
    most = 3 if name == FLOOR else most
    wanted = f"{least}" if least == most else f"{least} to {most}"
    return f"{name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {count}"


def _folded(compound: Compound) -> Expression:
    """Returns the value that a compound is, where nothing has to be calculated for it."""
    templates: list[Value] = []
    for at, part in enumerate(compound.parts):
        is_key = compound.kind == "map" and at % 2 == 0
        if isinstance(part, Structure) and not (is_key and _is_open(part.template)):
            templates.append(part.template)
        elif isinstance(part, Variable) and not is_key:
            templates.append(Record("$", part.name, None, DISCARD))
        else:
            return compound
    return Structure(compound.made(*templates))


def _is_open(template: Value) -> bool:
    """True if a value is one with variables, or parts that are quoted."""
    if is_special(template):
        return True
    match template:
        case Record(fields=parts) | tuple(parts):
            return any(map(_is_open, parts))
        case Map():
            return any(_is_open(each) for pair in template.pairs() for each in pair)
    return False


def expression_of(value: Value) -> Expression:
    """Returns the expression that a value with captures in it stands for."""
    match value:
        case Record(label="$", fields=(str(name), None, sub)) if sub == DISCARD:
            return Variable(name)
        case _:
            return Structure(value)
