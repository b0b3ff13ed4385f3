"""Reading: from a text to rules.

    reach($x, $y) <- edge($x, $y).
    reach($x, $z) <- reach($x, $y), edge($y, $z), not gone($z).
    let crowded = 3.
    hub($x, count($y)) <- edge($x, $y), $x != "nowhere".

Atoms are the patterns of ``index/TEXT.md``, read by the same reader.  Here is what rules add to it: arrows,
``not``, comparisons, arithmetic, aggregates, ``next`` and ``send``, and constants that ``let`` names.
``RULES.md`` has the grammar.

Always: a text gives rules, or a ``ParseError`` that points to the place, in time in proportion to the text.
"""

from __future__ import annotations

import re
from typing import Final

from dataspace.rules.language.expressions import COMPARISON, NUMBER, OPERATOR, ExpressionReader, expression_of
from dataspace.rules.language.functions import FUNCTIONS
from dataspace.rules.language.lowering import check_times
from dataspace.rules.language.safety import UnsafeVariable, check
from dataspace.rules.language.syntax import (
    AGGREGATES,
    SOLUTIONS,
    UNITS,
    Aggregate,
    Atom,
    Comparison,
    Compound,
    Expression,
    Head,
    LastingGroup,
    Literal,
    Now,
    Rule,
    TimedAtom,
    Variable,
    Verb,
)
from index.errors import UsageError
from index.patterns.patterns import skeleton
from index.patterns.text import ParseError, Reader
from index.values.atoms import KEYWORDS
from index.values.scanner import WORD
from index.values.values import Value

MAX_LITERALS: Final = 64
"""Literals in one body; more would make a reader of a rule, and its compiler, work for long."""

_AGGREGATE: Final = re.compile(rf"({'|'.join(AGGREGATES)})\(")
_OR: Final = re.compile(r"or\b|\|\|?|;")
_AND: Final = re.compile(r"(?:and|AND)\b|&&?")
_VERB: Final = re.compile(r"(next|send)\(|(final)\((?=\s*(?:[^\W\d][\w-]*|\"(?:[^\"\\]|\\.)*\")\()")
_NO_HEAD: Final = "expected the head of a rule, such as reach($x, $y)"


MAX_SPAN: Final = 366 * UNITS["d"]

MAX_TEXT: Final = 128 * 1024
"""Characters of one text of rules."""


def read_rules(text: str) -> tuple[Rule, ...]:
    """Returns the rules of a text, each of them safe; raises ``ParseError``, which points to what is wrong.

    >>> [str(rule) for rule in read_rules("hub($x, count($y)) <- edge($x, $y), $x != $y.")]
    ['hub($x, count($y)) <- edge($x, $y), $x != $y.']
    """
    if len(text) > MAX_TEXT:
        raise UsageError(f"a text of {len(text)} characters, limit {MAX_TEXT}")
    reader = _RuleReader(text)
    try:
        return reader.rules()
    except RecursionError:
        raise reader.error("nested too deeply for this interpreter") from None


def read_rule(text: str) -> Rule:
    """Returns the one rule of a text."""
    rules = read_rules(text)
    if len(rules) != 1:
        raise UsageError(f"{len(rules)} rules where one is expected")
    return rules[0]


def read_body(text: str) -> tuple[Literal, ...]:
    """Returns the literals of a body alone; unsafe parts are found where it becomes part of a rule.

    >>> [str(literal) for literal in read_body("edge($x, $y), not gone($x), $x != $y")]
    ['edge($x, $y)', 'not gone($x)', '$x != $y']
    """
    if len(text) > MAX_TEXT:
        raise UsageError(f"a text of {len(text)} characters, limit {MAX_TEXT}")
    reader = _RuleReader(text)
    try:
        return reader.body()
    except RecursionError:
        raise reader.error("nested too deeply for this interpreter") from None


class _RuleReader(ExpressionReader):
    __slots__ = ()

    def rules(self) -> tuple[Rule, ...]:
        found: list[Rule] = []
        self.blanks()
        while self.ahead():
            at = self.position
            if self.keyword("let"):
                self._let()
            else:
                found.append(self._rule(at))
            self.blanks()
        return tuple(found)

    def body(self) -> tuple[Literal, ...]:
        """Reads literals to the end of the text, which may have a point."""
        found: list[Literal] = []
        while True:
            self.blanks()
            if self.ahead() in ("", ".", ","):
                raise self.error(f"expected what is asked for, such as edge($x, $y), found {self.found()}")
            found.append(self._literal())
            self.blanks()
            if not self.ahead() or not self._goes_on():
                break
        self.blanks()
        if self.ahead():
            raise self.error(f"expected the end, found {self.found()}")
        if len(found) > MAX_LITERALS:
            raise self.error(f"{len(found)} literals in one body, limit {MAX_LITERALS}", 0)
        return tuple(found)

    def _let(self) -> None:
        self.blanks()
        at = self.position
        name = self.take_match(WORD)
        if not name or name in KEYWORDS or name in ("_", "not", "let"):
            raise self.error("expected the name of a constant", at)
        if name in self.constants:
            raise self.error(f"{name} has been named already", at)
        if name == "now":
            raise self.error("now is the present time, and no name of a constant", at)
        self.expect("=")
        self.constants[name] = self.value()
        self.expect(".")

    def _rule(self, at: int) -> Rule:
        head = self._head()
        body: list[Literal] = []
        if self.expect("<-", ".") == "<-":
            body.append(self._needed("<-"))
            while self._goes_on():
                body.append(self._needed(","))
        if len(body) > MAX_LITERALS:
            raise self.error(f"{len(body)} literals in one rule, limit {MAX_LITERALS}", at)
        rule = Rule(head, tuple(body))
        try:
            check_times(rule)
            check(rule)
        except UnsafeVariable as error:
            found = re.compile(rf"\${re.escape(error.name)}(?![\w-])").search(self.text, at, self.position)
            raise self.error(str(error), found.start() if found else at) from None
        except UsageError as error:
            raise self.error(str(error), at) from None
        return rule

    def _needed(self, behind: str) -> Literal:
        """Returns the literal that must stand behind ``<-`` or a comma."""
        self.blanks()
        if self.ahead() in ("", ".", ","):
            said = (
                f"expected what the rule needs behind '{behind}', such as edge($x, $y), found {self.found()}"
            )
            raise self.error(said)
        return self._literal()

    def _goes_on(self) -> bool:
        """True if another literal follows."""
        self.blanks()
        if _OR.match(self.text, self.position):
            raise self.error("there is no or: write a rule for each case, with the same head")
        if _AND.match(self.text, self.position):
            raise self.error("there is no and: a comma stands between what must hold together")
        return self.expect(",", ".") == ","

    # -- heads ----------------------------------------------------------------------------------------

    def _head(self) -> Head:
        self.blanks()
        found = _VERB.match(self.text, self.position)
        if found is None:
            return self._plain_head(Verb.ASSERT)
        self.position = found.end()
        head = self._plain_head(Verb(found[1] or found[2]))
        self.expect(")")
        return head

    def _plain_head(self, verb: Verb) -> Head:
        label = self._label()
        arguments: list[Expression | Aggregate] = []
        while not self.take(")"):
            arguments.append(self._argument())
            if self.expect(",", ")") == ")":
                break
        return Head(label, tuple(arguments), verb)

    def _label(self) -> Value:
        """Reads the label of a head and its parenthesis: a word, a string, or any value in ``<…>``."""
        self.blanks()
        at = self.position
        label: Value
        if self.text.startswith("<-", at):
            raise self.error(f"{_NO_HEAD}, before '<-'", at)
        if self.take_here("<"):
            label = super().value(1)
            self.expect(">")
        elif self.ahead() == '"':
            close = re.compile(r'"(?:[^"\\]|\\.)*"').match(self.text, at)
            inner = Reader(close[0] if close else '"')
            label = inner.value()
            self.position += inner.position
        else:
            label = self.take_match(WORD)
            if not label or label in KEYWORDS or label == "_":
                raise self.error(_NO_HEAD, at)
        if not self.take_here("("):
            raise self.error(f"expected '(' right behind the label of a head, found {self.found()}")
        return label

    def _argument(self) -> Expression | Aggregate:
        self.blanks()
        found = _AGGREGATE.match(self.text, self.position)
        if found is None:
            return self.expression(0)
        start = self.position
        self.position = found.end()
        n = 0
        if found[1] == "top":
            at = self.position
            given = self.value()
            if given.__class__ is not int or not 1 <= given <= 10_000:
                raise self.error("top takes a number from 1 to 10000, then what to take the largest of", at)
            n = given
            self.expect(",")
        self.blanks()
        if found[1] == "count" and self.take(")"):
            return self._alone(Aggregate("count", SOLUTIONS), start)
        if self.ahead() == ")":
            raise self.error(f"{found[1]}() of what? name a variable of the body, such as {found[1]}($x)")
        inner = _AGGREGATE.match(self.text, self.position)
        if inner and inner[1] not in FUNCTIONS:
            raise self.error(f"an aggregate of an aggregate: derive {inner[1]}(…) by another rule first")
        distinct = self._distinct()
        of = self.expression(0)
        if found[1] in FUNCTIONS and self.take(","):
            self.position = start
            return self.expression(0)  # of several values it is a function
        self.expect(")")
        return self._alone(Aggregate(found[1], of, n, distinct), start)

    def _distinct(self) -> bool:
        """True if the word ``distinct`` stands before what an aggregate takes; then it is read."""
        at = self.position
        if not self.keyword("distinct"):
            return False
        self.blanks()
        if self.ahead() not in (")", ","):
            return True
        self.position = at  # a constant of that name
        return False

    def _alone(self, aggregate: Aggregate, at: int) -> Aggregate:
        """Returns an aggregate with which nothing is calculated."""
        self.blanks()
        if OPERATOR.match(self.text, self.position):
            self.refuse_foreign(aggregate.name, at)
        return aggregate

    # -- bodies ---------------------------------------------------------------------------------------

    def _literal(self) -> Literal:
        if self.keyword("not"):
            at = self.position
            return self._timed(Atom(self._pattern(at, self.value()), negated=True), at)
        self.blanks()
        at = self.position
        if self.ahead() == "!":
            raise self.error("a negation is written not, as in not closed($x)")
        if self.ahead() == "(" and self._is_group():
            return self._group()
        pattern = self._pattern_alone()
        if pattern is not None:
            return self._timed(Atom(pattern), at)
        comparison = self.comparison(0)
        if isinstance(comparison, Comparison):
            return comparison
        raise self.error("an expression alone says nothing: compare it with something", at)

    def _pattern_alone(self) -> Value:
        """Returns the next pattern; None, and reads nothing, if an expression is next."""
        at = self.position
        if self.ahead() in "-(":
            return None
        try:
            value = self.value()
        except ParseError as error:
            self._refuse_pattern(error, at)
            return None
        self.blanks()
        here = self.text, self.position
        if COMPARISON.match(*here) or OPERATOR.match(*here) or NUMBER.match(self.text, at):
            self.position = at
            return None
        return self._pattern(at, value)

    def _refuse_pattern(self, error: ParseError, at: int) -> None:
        """Raises what is wrong with a text that is no pattern, unless it is a comparison."""
        self.position = at
        try:
            found = self.comparison(0)
        except ParseError as other:
            raise (other if other.position > error.position else error) from None
        self.position = at
        if isinstance(found, Compound):
            raise self.error(
                "a fact is asked for by a pattern, without calculations: write a variable there, and"
                " compare it"
            )
        if not isinstance(found, (Comparison, Now)):
            raise error

    def _timed(self, atom: Atom, start: int) -> Atom | TimedAtom:
        """Returns an atom with the times that follow it."""
        name, within = None, None
        if self.keyword("at"):
            self.blanks()
            at = self.position
            found = expression_of(self.value())
            if not isinstance(found, Variable):
                raise self.error("at gives a variable the time: write at $t, and compare $t", at)
            if atom.negated:
                raise self.error("not with at: no fact, no time; leave it out", start)
            name = found.name
        if self.keyword("within"):
            within = self._duration("within")
        if self.keyword("for"):
            raise self.error(f"for stands behind a group in parentheses: ({atom}) for 30 s", start)
        return (
            atom if name is None and within is None else TimedAtom(atom.pattern, atom.negated, name, within)
        )

    def _is_group(self) -> bool:
        """True if a parenthesis holds literals, and not a part of an expression; reads nothing."""
        at = self.position
        self.take("(")
        try:
            if self.keyword("not"):
                return True
            self.expression(1)
            self.blanks()
            return not self.take(")") or self.keyword("for")
        finally:
            self.position = at

    def _group(self) -> LastingGroup:
        at = self.position
        self.take("(")
        found: list[Atom | Comparison] = []
        while True:
            start = self.position
            literal = self._literal()
            if not isinstance(literal, Atom | Comparison):
                raise self.error(f"time within time: derive {literal} by a rule of its own", start)
            found.append(literal)
            if self.expect(",", ")") == ")":
                break
        if not self.keyword("for"):
            raise self.error("a group in parentheses says for how long: (…) for 30 s", at)
        return LastingGroup(tuple(found), self._duration("for"))

    def _duration(self, behind: str) -> int:
        """Reads a duration, or a constant with a number of seconds; returns microseconds."""
        self.blanks()
        at = self.position
        number = self.take_match(NUMBER)
        if number:
            micros = self.micros(number, at)
        else:
            given = self.value()
            if given.__class__ not in (int, float):
                raise self.error(f"expected a duration behind {behind}, such as 60 s", at)
            if NUMBER.match(self.text, at) is None and self.text[at : at + 1].isdigit():
                raise self.error(f"a duration needs a unit, one of {' '.join(UNITS)}: {behind} {given} s", at)
            micros = round(given * 1_000_000)
        if not 0 < micros <= MAX_SPAN:
            raise self.error("a duration is more than nothing and at most 366 d", at)
        return micros

    def _pattern(self, at: int, pattern: Value) -> Value:
        try:
            skeleton(pattern)
        except UsageError as error:
            raise self.error(str(error), at) from None
        return pattern
