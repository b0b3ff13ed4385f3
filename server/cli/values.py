"""Facts, messages and patterns as a command line has them.

Always: words that the shell seems to have changed, and words whose meaning differs from their look, are named
on standard error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dataspace.errors import ExpectationFailed, UsageError
from dataspace.foreign import tame
from dataspace.kernel.expectations import Expectation, absent, exactly, unchanged
from index.patterns.patterns import capture_names
from index.patterns.text import parse, parse_pattern, unparse
from index.values.values import Map, Record, Value
from server.cli.output import say

_EATEN: Final = re.compile(r"\(\s*\)|\[\s*\]|:\s*[,}]|^\s*$")
"""Matches a fact from which the shell removed a ``$NAME`` in double quotes: ``present()``, ``[]``, ``{k:
}``."""


def parsed(text: str) -> Value:
    """Returns the pattern on a command line; says so if the shell seems to have removed a ``$NAME``."""
    if not text.strip():
        raise UsageError("the pattern is empty: write one such as 'present($who)'")
    pattern = parse_pattern(text)
    names = [name for name in capture_names(pattern) if not name.isdigit()]
    for name in sorted({each for each in names if names.count(each) > 1}):
        say(
            f"dataspace: each ${name} in {text} is a capture of its own, and they need not be equal; "
            "dataspace query compares them"
        )
    if _EATEN.search(text) and not capture_names(pattern):
        say(
            f"dataspace: {text} captures nothing: if you wrote $NAME within double quotes, the shell has put "
            "its own variable there; use single quotes"
        )
    return pattern


def given(texts: Sequence[str]) -> list[Value]:
    """Returns the values of a command line; ``-`` stands for the values of the standard input.

    Raises ``UsageError`` for a pattern among the words, since a query was meant.  A fact about a pattern is a
    value like any other, and is taken from the standard input.
    """
    values: list[Value] = []
    for text, value in read(texts):
        if text and has_pattern(value):
            raise UsageError(
                f"{text:.200} is a pattern, and a value has no $NAME or _: get and observe take patterns; "
                "for a fact about a pattern, write it to the standard input and give -"
            )
        values.append(value)
    return values


def read(texts: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """Yields the values of a command line with their texts, which are empty for values of the standard
    input."""
    for text in texts:
        if text == "-":
            for number, line in _lines():
                yield "", value_in(number, line)
        else:
            yield text, parse(text)


def value_in(number: int, text: str) -> Value:
    """Returns the value in a line of the standard input; raises ``UsageError`` with the number of the
    line."""
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"line {number} of the standard input: {error}") from error


def _lines() -> Iterator[tuple[int, str]]:
    """Yields the lines of the standard input to its end, stripped, with their numbers."""
    number = 0
    while line := input_line(number := number + 1):
        if text := content(line):
            yield number, text


def input_line(number: int) -> str:
    """Returns the next line of the standard input, which has this number; empty at the end.

    A mark of UTF-8 before the first line is no part of it.  Raises ``UsageError`` for another encoding.
    """
    try:
        line = sys.stdin.readline()
        if not line.isascii():
            line.encode()  # where the locale has no encoding, Python keeps other bytes as surrogates
    except UnicodeError:
        raise UsageError(_not_utf8(number, "has bytes of UTF-16 or another encoding")) from None
    if number == 1:
        line = line.removeprefix(_MARK)
        if "\0" in line[:_HEAD]:
            raise UsageError(_not_utf8(number, "has NULs, as UTF-16 does"))
    return line


_MARK: Final = "\ufeff"
_HEAD: Final = 64
"""Characters of the first line in which text of UTF-16 has a NUL."""


def _not_utf8(number: int, found: str) -> str:
    return f"line {number} of the standard input: text in UTF-8 is needed, and it {found}; save it as UTF-8"


def content(line: str) -> str:
    """Returns a line of the standard input without blanks around it; empty if it is a comment."""
    text = line.strip()
    return "" if text.startswith("#") else text


def has_pattern(value: Value) -> bool:
    """Whether there is a capture or ``_`` in a value; interests, which are about patterns, have none."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case Record(label="Observe"):
                continue
            case Record(label="$" | "_"):
                return True
            case Record(fields=parts) | (tuple() as parts):
                waiting += parts
            case Map() as mapping:
                waiting += [part for pair in mapping.pairs() for part in pair]
    return False


# -- Options that expect ---------------------------------------------------------------------------
# Always: the daemon judges expectations in the epoch of the change; if one does not hold, nothing
# has happened, the facts found are printed to standard error, and the exit code is
# ``NOT_AS_EXPECTED``.


NOT_AS_EXPECTED: Final = 4
"""The exit code of a command whose expectation does not hold."""


def expectations(args: argparse.Namespace, concerned: Iterable[Value] = ()) -> list[Expectation]:
    """Returns what the options of a command expect; ``concerned`` are patterns of the facts that it changes.

    Raises ``UsageError`` for a pattern that captures where it is only asked whether there is a match.
    """
    expected: list[Expectation] = []
    for text in args.expect or ():
        pattern = parsed(text)
        if capture_names(pattern):
            raise UsageError(
                f"--expect {text:.200}: it is only asked whether there is a match: write _ for $NAME"
            )
        expected.append(exactly(pattern, [()]))
    expected += [absent(_whole(parsed(text))) for text in args.absent or ()]
    since: int | None = getattr(args, "unchanged_since", None)
    if since is not None:
        expected += [unchanged(_whole(pattern), since=since) for pattern in concerned]
    return expected


def check_single(expected: Sequence[Expectation], parts: int) -> None:
    """Raises ``UsageError`` where a command expects something of more than one turn."""
    if expected and parts > 1:
        raise UsageError(f"what is expected holds for one turn, and so many facts need {parts}: give fewer")


def tell(failed: ExpectationFailed, expected: Sequence[Expectation], now: Sequence[Value] = ()) -> int:
    """Prints the expectation that does not hold and the facts found; returns the exit code.

    ``now`` are facts that say more where nothing was found.
    """
    which = expected[failed.number - 1]
    pattern = which.pattern
    if isinstance(pattern, Record) and pattern.label == "$" and pattern.fields[:1] == (None,):
        which = which._replace(pattern=pattern.fields[2])  # as it was written
    found = f"; epoch {failed.epoch} changed it" if failed.epoch else ""
    say(tame(f"dataspace: nothing was done: expected {which}{found}"))
    for row in failed.rows:
        say(tame(f"found {' '.join(map(unparse, row))}") if row else "found a match")
    if failed.count > len(failed.rows):
        say(f"found {failed.count} in all")
    for fact in now:
        say(tame(f"there is {unparse(fact)}"))
    return NOT_AS_EXPECTED


def _whole(pattern: Value) -> Value:
    """Returns a pattern that captures all of a fact where this one captures nothing."""
    return pattern if capture_names(pattern) else Record("$", None, None, pattern)
