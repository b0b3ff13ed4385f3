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
from difflib import get_close_matches
from typing import Final, NamedTuple

from dataspace.rules.language.declarations import KINDS, Declaration, Declarations, check_rule
from dataspace.rules.language.expressions import NUMBER
from dataspace.rules.language.groups import ungrouped
from dataspace.rules.language.hosted import Functions
from dataspace.rules.language.literals import OR, LiteralReader, count
from dataspace.rules.language.lowering import check_times
from dataspace.rules.language.safety import UnsafeVariable, check
from dataspace.rules.language.syntax import (
    Aggregate,
    Expression,
    Head,
    Literal,
    Rule,
    Verb,
)
from index.errors import UsageError
from index.patterns.text import Reader
from index.values.atoms import KEYWORDS
from index.values.scanner import WORD
from index.values.values import Value

_RELATION: Final = re.compile(rf"(?:strict\s+)?relation\s+{WORD.pattern}\(")
MAX_LITERALS: Final = 64
"""Literals in one body; more would make a reader of a rule, and its compiler, work for long."""

_AND: Final = re.compile(r"(?:and|AND)\b|&&?")
_VERB: Final = re.compile(r"(next|send)\(|(final)\((?=\s*(?:[^\W\d][\w-]*|\"(?:[^\"\\]|\\.)*\")\()")
_TO_HEAD: Final = re.compile(r"[-=]+>")
_OTHER_ARROW: Final = re.compile(r":-|:=|<--+|<=|\|-|if\b")
_OTHER_COMMENT: Final = re.compile(r"--|//|/\*|%")
_LET: Final = re.compile(r"let\s+\$?\w")
"""What other languages write."""
_GIVEN: Final = re.compile(r"\$(?:value|column)-\d+")
"""Variables that a rule was given, and that its text does not have."""
_NO_HEAD: Final = "expected the head of a rule, such as reach($x, $y)"


MAX_TEXT: Final = 128 * 1024
"""Characters of one text of rules."""


def read_rules(text: str, functions: Functions | None = None) -> tuple[Rule, ...]:
    """Returns the rules of a text, each of them safe; raises ``ParseError``, which points to what is wrong.

    ``functions`` are the functions of the host; without them a text may call any name.

    >>> [str(rule) for rule in read_rules("hub($x, count($y)) <- edge($x, $y), $x != $y.")]
    ['hub($x, count($y)) <- edge($x, $y), $x != $y.']
    """
    return read_text(text, functions).rules


class ReadText(NamedTuple):
    """The rules of a text, and the relations that it declares, by label."""

    rules: tuple[Rule, ...]
    declared: Declarations


def read_text(text: str, functions: Functions | None = None) -> ReadText:
    """Returns the rules and declarations of a text; raises as ``read_rules``."""
    if len(text) > MAX_TEXT:
        raise UsageError(f"a text of {len(text)} characters, limit {MAX_TEXT}")
    reader = _RuleReader(text, functions)
    try:
        return reader.whole()
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


class _RuleReader(LiteralReader):
    __slots__ = ()

    def whole(self) -> ReadText:
        found: list[tuple[Rule, int]] = []
        declared: dict[str, Declaration] = {}
        self.blanks()
        while self.ahead():
            at = self.position
            if self.keyword("let"):
                self._let()
            elif _RELATION.match(self.text, at):
                one = self._declaration()
                if one.label in declared:
                    raise self.error(f"{one.label} is declared twice", at)
                declared[one.label] = one
            else:
                found.append((self._rule(at), at))
            self.blanks()
        for rule, at in found if declared else ():
            try:
                check_rule(rule, declared)
            except UsageError as error:
                raise self.error(str(error), at) from None
        return ReadText(tuple([rule for rule, _ in found]), declared)

    def _declaration(self) -> Declaration:
        strict = self.keyword("strict")
        self.keyword("relation")
        self.blanks()
        label = self.take_match(WORD)
        self.expect("(")
        fields: dict[str, str] = {}
        while not self.accept(")"):
            self.blanks()
            at = self.position
            name = self.take_match(WORD)
            if not name or name in fields:
                raise self.error("expected the name of a field, such as celsius: number", at)
            self.expect(":")
            self.blanks()
            at = self.position
            of_class = self.take_match(WORD)
            if of_class not in KINDS:
                near = get_close_matches(of_class, KINDS, 1, 0.5)
                hint = f": did you mean {near[0]}?" if near else ""
                raise self.error(f"no class {of_class!r}, which are {' '.join(KINDS)}{hint}", at)
            fields[name] = of_class
            if self.expect(",", ")") == ")":
                break
        self.expect(".")
        return Declaration(label, tuple(fields.items()), strict)

    def body(self) -> tuple[Literal, ...]:
        """Reads literals to the end of the text, which may have a point."""
        found: list[Literal] = []
        while True:
            self.blanks()
            if self.ahead() in ("", ".", ","):
                raise self.error(f"expected what is asked for, such as edge($x, $y), found {self.found()}")
            found.append(self.literal())
            self.blanks()
            if not self.ahead() or not self._goes_on():
                break
        self.blanks()
        if self.ahead():
            raise self.error(f"expected the end, found {self.found()}")
        if (number := count(found)) > MAX_LITERALS:
            raise self.error(f"{number} literals in one body, limit {MAX_LITERALS}", 0)
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
        self.blanks()
        begin = self.position
        span = self.take_match(NUMBER)
        self.constants[name] = self.seconds(span, begin) if span else self.value()
        self.expect(".")

    def _rule(self, at: int) -> Rule:
        head = self._head()
        self._check_arrow()
        body: list[Literal] = []
        if self.expect("<-", ".") == "<-":
            body.append(self._needed("<-"))
            while self._goes_on():
                body.append(self._needed(","))
        if (number := count(body)) > MAX_LITERALS:
            raise self.error(f"{number} literals in one rule, limit {MAX_LITERALS}", at)
        rule = Rule(head, tuple(body))
        try:
            for part in ungrouped(rule):
                check_times(part)
                check(part)
        except UnsafeVariable as error:
            found = re.compile(rf"\${re.escape(error.name)}(?![\w-])").search(self.text, at, self.position)
            reason = _GIVEN.sub("…", str(error)) if not _GIVEN.search(self.text) else str(error)
            if error.name in self.constants:
                reason = f"${error.name} is a variable, and let names a constant: write {error.name}"
            raise self.error(reason, found.start() if found else at) from None
        except UsageError as error:
            raise self.error(str(error), at) from None
        return rule

    def _check_arrow(self) -> None:
        """Raises for an arrow of another language between a head and its body."""
        self.blanks()
        if found := _TO_HEAD.match(self.text, self.position):
            raise self.error(f"the head comes first: fact($x) <- body($x), and no {found[0]}")
        if found := _OTHER_ARROW.match(self.text, self.position):
            raise self.error(f"between a head and its body stands <-, and not {found[0]}")

    def _needed(self, behind: str) -> Literal:
        """Returns the literal that must stand behind ``<-`` or a comma."""
        self.blanks()
        if _LET.match(self.text, self.position):
            raise self.error(
                "let names a constant, before the rules: let limit = 12.; in a rule write $y = $x + 1"
            )
        self._check_comment()
        if self.ahead() in ("", ".", ","):
            reason = (
                f"expected what the rule needs behind '{behind}', such as edge($x, $y), found {self.found()}"
            )
            raise self.error(reason)
        return self.literal()

    def _goes_on(self) -> bool:
        """True if another literal follows."""
        self.blanks()
        self._check_comment()
        if OR.match(self.text, self.position):
            raise self.error("alternatives stand in parentheses: (old($x) or ill($x), poor($x))")
        if _AND.match(self.text, self.position):
            raise self.error("there is no and: a comma stands between what must hold together")
        return self.expect(",", ".") == ","

    # -- heads ----------------------------------------------------------------------------------------

    def _check_comment(self) -> None:
        if found := _OTHER_COMMENT.match(self.text, self.position):
            raise self.error(f"a comment begins with #, and not with {found[0]}")

    def _head(self) -> Head:
        self.blanks()
        self._check_comment()
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
        while not self.accept(")"):
            arguments.append(self.argument())
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
