"""The command ``dataspace rule test``: runs rules against given facts, turns and times, without a daemon.

A file has the rules, a line ``---``, and then turns, times and expectations:

    hot($d) <- temp($d, $v), $v > 90.
    ---
    assert temp("a", 95), temp("b", 20)
    expect hot("a"), not hot("b")

The rules run in a space whose clock moves only with ``after`` and ``at``.  Instants between get epochs of
their own, as in a daemon.  RULES.md has the statements.

Always: all statements are read before the first one is carried out; a failed expectation does not end a test.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dataspace.errors import Refused, UsageError
from dataspace.foreign import read_utf8, tame
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.language.arithmetic import micros_of
from dataspace.rules.language.expressions import NUMBER, ExpressionReader
from dataspace.rules.language.hosted import NO_FUNCTIONS, Functions
from dataspace.rules.language.parser import read_rules
from index.patterns.patterns import matcher
from index.patterns.text import unparse
from index.values.values import Map, Record, Value, key, order_key
from server.cli.output import counted, say, write
from server.config.file import functions_of, limits_of

START: Final = 946_684_800_000_000
"""The time at which a test begins, in microseconds: the year 2000."""

MOST_SHOWN: Final = 5
"""Facts that a failed expectation shows."""

MOST_TICKS: Final = 10_000
"""Ticks that ``next`` may ask for after one turn."""

_RULER: Final = re.compile(r"^---+[ \t]*$", re.MULTILINE)
_VERBS: Final = ("assert", "retract", "send")
_STATEMENTS: Final = (*_VERBS, "rules", "at", "after", "expect")


@dataclass(slots=True)
class _Wanted:
    """One expectation: a match of a pattern, none, or exactly these facts."""

    pattern: Value
    absent: bool = False
    sent: bool = False
    exactly: tuple[Value, ...] | None = None

    def __str__(self) -> str:
        how = f"{'not ' if self.absent else ''}{'sent ' if self.sent else ''}{unparse(self.pattern)}"
        return how if self.exactly is None else f"{how} = {unparse(self.exactly)}"


@dataclass(slots=True)
class _Statement:
    """One statement and its line; only what belongs to its kind is set."""

    line: int
    kind: str
    turn: list[tuple[str, Value]] = field(default_factory=list)
    micros: int = 0
    wanted: list[_Wanted] = field(default_factory=list)
    file: str = ""


class _TestReader(ExpressionReader):
    """Reads the statements of a test."""

    __slots__ = ()

    def statements(self) -> Iterator[_Statement]:
        self.blanks()
        while self.ahead():
            yield self._statement()
            self.blanks()

    @property
    def _line(self) -> int:
        return self.text.count("\n", 0, self.position) + 1

    def _statement(self) -> _Statement:
        at, line = self.position, self._line
        kind = next((each for each in _STATEMENTS if self.keyword(each)), "")
        statement = _Statement(line, kind)
        match kind:
            case "rules":
                statement.file = str(self.value())
            case "after":
                self.blanks()
                number = self.take_match(NUMBER)
                if not number:
                    raise self.error("expected how long, such as 10 s")
                statement.micros = self.micros(number, at)
            case "at":
                time = self.value()
                if not isinstance(time, datetime):
                    raise self.error("expected a time, such as @2026-01-01T12:00:00Z", at)
                statement.micros = micros_of(time)
            case "expect":
                statement.wanted = list(self._wanted())
            case "":
                raise self.error(f"expected one of {', '.join(_STATEMENTS)}, found {self.found()}", at)
            case _:
                statement.turn = list(self._turn(kind))
        return statement

    def _turn(self, verb: str) -> Iterator[tuple[str, Value]]:
        while True:
            yield verb, self.value()
            self.blanks()
            if self.accept(","):
                continue
            if not self.keyword("and"):
                return
            at = self.position
            verb = next((each for each in _VERBS if self.keyword(each)), "")
            if not verb:
                raise self.error(f"expected one of {', '.join(_VERBS)} behind and", at)

    def _wanted(self) -> Iterator[_Wanted]:
        while True:
            absent, sent = self.keyword("not"), self.keyword("sent")
            self.blanks()
            at = self.position
            wanted = _Wanted(self.value(), absent, sent)
            try:
                matcher(wanted.pattern)
            except UsageError as error:
                raise self.error(str(error), at) from None
            if self.accept("="):
                facts = self.value()
                if not isinstance(facts, tuple) or absent:
                    raise self.error("expected all facts of a pattern, such as busy(_) = [busy(1)]", at)
                wanted.exactly = facts
            yield wanted
            if not self.accept(","):
                return


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed expectation with its line; the text names the expected and the found facts."""

    line: int
    text: str


class RuleTest:
    """One test; ``run`` carries it out.  Files that it names are beside its own."""

    def __init__(
        self,
        text: str,
        name: str = "rules",
        folder: Path | None = None,
        functions: Functions = NO_FUNCTIONS,
        limits: SpaceLimits | None = None,
    ) -> None:
        """Reads all of it; ``UsageError`` where it is no test.

        Rules may call the ``functions``, and have the ``limits`` of a space.
        """
        ruler = _RULER.search(text)
        if ruler is None:
            raise UsageError("no line --- between the rules and what is expected of them")
        rules = text[: ruler.start()]
        blank = re.sub(r"[^\n]", " ", text[: ruler.end()])  # so that lines are counted as in the file
        self._statements = list(_TestReader(blank + text[ruler.end() :]).statements())
        self._rules = [(name, rules)] if read_rules(rules, functions) else []
        for statement in self._statements:
            if statement.kind == "rules":
                path = (folder or Path()) / statement.file
                try:
                    found = read_utf8(path)
                except (OSError, UnicodeError) as error:
                    raise UsageError(f"line {statement.line}: rules of {path}: {error}") from None
                read_rules(found, functions)
                self._rules.append((path.stem, found))
        self.failures: list[Failure] = []
        self.expectations = 0
        """How many were looked at."""
        self._space = Space("test", limits=limits)
        self._space.rules.functions = functions
        self._space.submit_timed = self._hear
        self._sent: list[Value] = []
        self._handles: dict[Any, int] = {}
        self._numbered = 0
        self._time = START

    def run(self) -> None:
        """Carries out all statements; ``failures`` has the expectations that failed."""
        self._commit([(ASSERT, self._number(), Record("rule", *each)) for each in self._rules], "rules")
        for statement in self._statements:
            match statement.kind:
                case "after" | "at":
                    later = self._time + statement.micros if statement.kind == "after" else statement.micros
                    if later < self._time and self._handles:
                        raise UsageError(f"line {statement.line}: time does not go back")
                    self._time = later
                    self._sent.clear()
                    self._settle()
                case "expect":
                    self._expect(statement)
                case "rules":
                    pass
                case _:
                    self._turn(statement)

    def _number(self) -> int:
        self._numbered += 1
        return self._numbered

    def _turn(self, statement: _Statement) -> None:
        actions: list[Action] = []
        for verb, value in statement.turn:
            at = key(value)
            if verb == "send":
                actions.append((SEND, value))
            elif verb == "assert":
                if at in self._handles:
                    raise UsageError(f"line {statement.line}: {unparse(value)} is asserted already")
                self._handles[at] = self._number()
                actions.append((ASSERT, self._handles[at], value))
            elif at not in self._handles:
                raise UsageError(f"line {statement.line}: {unparse(value)} is not asserted")
            else:
                actions.append((RETRACT, self._handles.pop(at)))
        self._sent.clear()
        try:
            self._commit(actions, "test")
        except Refused as refusal:
            raise Refused(refusal.code, f"line {statement.line}: {refusal.text}") from None

    def _commit(self, actions: Sequence[Action], owner: str) -> None:
        self._hear(self._space.commit(owner, actions, self._time))
        self._settle()

    def _settle(self) -> None:
        """Runs the turns of rules that are due at this time, and those that ``next`` asks for."""
        for _ in range(MOST_TICKS):
            epoch = self._space.advance(self._time)
            if epoch is not None:
                self._hear(epoch)
            if not self._space.rules.pending:
                return

    def _hear(self, epoch: Epoch) -> None:
        self._sent += epoch.messages

    # -- expectations ---------------------------------------------------------------------------------

    def _expect(self, statement: _Statement) -> None:
        facts = [each for each in self._space.index.values() if _label(each) != "rule"]
        if not any(_label(each.pattern) == "rule-error" for each in statement.wanted):
            for fact in facts:
                if isinstance(fact, Record) and fact.label == "rule-error":
                    name, _, row, reason = fact.fields
                    self._fail(statement, f"{name!s} is suspended: {reason!s}{_with(row)}")
        for wanted in statement.wanted:
            self.expectations += 1
            self._look(statement, wanted, self._sent if wanted.sent else facts)

    def _look(self, statement: _Statement, wanted: _Wanted, among: Sequence[Value]) -> None:
        match = matcher(wanted.pattern)
        found = sorted([each for each in among if match(each) is not None], key=order_key)
        if wanted.exactly is not None:
            there = {key(each): each for each in found}
            asked = {key(each): each for each in wanted.exactly}
            lacking = [each for at, each in asked.items() if at not in there]
            further = [each for at, each in there.items() if at not in asked]
            if lacking or further:
                parts = [f"without {_few(lacking)}"] * bool(lacking) + [f"also {_few(further)}"] * bool(
                    further
                )
                self._fail(statement, f"expected {wanted}, found it {', '.join(parts)}", lacking)
        elif wanted.absent and found:
            self._fail(statement, f"expected {wanted}, found {_few(found)}{self._why(found[0])}")
        elif not wanted.absent and not found:
            alike = sorted([each for each in among if _label(each) == _label(wanted.pattern)], key=order_key)
            what = "message" if wanted.sent else "fact"
            none = (
                f"no {what} {_label(wanted.pattern)!s}(…)" if isinstance(wanted.pattern, Record) else "none"
            )
            why = () if wanted.sent else (wanted.pattern,)
            self._fail(statement, f"expected {wanted}, found {_few(alike) or none}", why)

    def _fail(self, statement: _Statement, text: str, lacking: Sequence[Value] = ()) -> None:
        program = self._space.rules.program
        lines = [text]
        if lacking and program is not None:
            lines += [f"    {line}" for line in program.explainer().why_not(lacking[0]).splitlines()]
        self.failures.append(Failure(statement.line, "\n".join(lines)))

    def _why(self, fact: Value) -> str:
        program = self._space.rules.program
        proof = None if program is None else program.explainer().why(fact)
        return "" if proof is None else "".join([f"\n    {line}" for line in str(proof).splitlines()])


def _with(row: Value) -> str:
    """Returns the variables of a rule that is suspended; nothing if it was suspended for no row."""
    return f", with {unparse(row)}" if isinstance(row, Map) and len(row) else ""


def _label(value: Value) -> Value:
    return value.label if isinstance(value, Record) else None


def _few(facts: Sequence[Value]) -> str:
    shown = ", ".join(map(unparse, facts[:MOST_SHOWN]))
    return shown if len(facts) <= MOST_SHOWN else f"{shown} and {len(facts) - MOST_SHOWN} more"


def test(args: argparse.Namespace) -> int:
    """Runs the tests of some files; prints what failed, and returns 1 then."""
    functions, limits = NO_FUNCTIONS, None
    if args.config is not None:
        functions, limits = functions_of(Path(args.config)), limits_of(Path(args.config))
    failed = False
    for file in args.files:
        path = Path(file)
        try:
            one = RuleTest(read_utf8(path), path.stem, path.parent, functions, limits)
            one.run()
        except (OSError, UnicodeError) as error:
            raise UsageError(f"{file}: {error}") from None
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from None
        except Refused as refusal:
            raise Refused(refusal.code, f"{file}: {refusal.text}") from None
        for failure in one.failures:
            first, *more = f"{file}:{failure.line}: {failure.text}".splitlines()
            write(tame(first))
            for line in more:
                write(tame(line))
        failed = failed or bool(one.failures)
        lost = f", {counted(len(one.failures), 'failure')}" if one.failures else ""
        say(f"{file}: {counted(one.expectations, 'expectation')}{lost}")
    return 1 if failed else 0
