"""Values that a command reads from its standard input as they come, one per line.

Empty lines and lines that begin with ``#`` are skipped.  An error names the number of its line; the lines
before it have been handled.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import trio

from index.values.values import Value
from server.cli.values import content, value_in


async def lines() -> AsyncIterator[tuple[int, str]]:
    """Yields the lines of the standard input as they come, stripped, with their numbers."""
    number = 0
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        number += 1
        if text := content(line):
            yield number, text


async def parsed_lines() -> AsyncIterator[Value]:
    """Yields the values of these lines; raises ``UsageError`` for the first that is none."""
    async for number, text in lines():
        yield value_in(number, text)
