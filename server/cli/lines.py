"""Values that a command reads from its standard input, one per line.

Empty lines and lines that begin with ``#`` are skipped.  An error names the number of its line; the lines
before it have been handled.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence

import trio

from index.errors import UsageError
from index.patterns.text import parse
from index.values.values import Map, Record, Value
from server.cli.output import say


async def lines() -> AsyncIterator[tuple[int, str]]:
    """Yields the lines of the standard input as they come, stripped, with their numbers."""
    number = 0
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        number += 1
        text = line.strip()
        if text and not text.startswith("#"):
            yield number, text


async def parsed_lines() -> AsyncIterator[Value]:
    """Yields the values of these lines; raises ``UsageError`` for the first that is none."""
    async for number, text in lines():
        try:
            value = parse(text)
        except UsageError as error:
            raise UsageError(f"line {number} of the standard input: {error}") from error
        yield value


async def given(texts: Sequence[str]) -> list[Value]:
    """Returns the values of a command line, in which ``-`` stands for those of the standard input.

    Says so on standard error if one looks like a pattern, which nothing here takes it for.
    """
    values: list[Value] = []
    for text in texts:
        if text == "-":
            values += [value async for value in parsed_lines()]
        else:
            value = parse(text)
            if _has_pattern(value):
                say(
                    f"dataspace: {text} is no pattern here: $NAME and _ in it stay as they are, as a part of "
                    "the value"
                )
            values.append(value)
    return values


def _has_pattern(value: Value) -> bool:
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
