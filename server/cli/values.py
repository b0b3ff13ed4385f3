"""Facts, messages and patterns as a command line has them.

Always: words that the shell seems to have changed, and words whose meaning differs from their look, are named
on standard error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from index.errors import UsageError
from index.patterns.patterns import capture_names
from index.patterns.text import parse, parse_pattern
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
    for number, line in enumerate(sys.stdin, 1):
        if text := content(line):
            yield number, text


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
