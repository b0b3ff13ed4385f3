"""What the commands that last have in common: an event loop, an orderly end, lines of standard input.

Lines are read as they come, without empty lines and comments (``#``).  An error names the number of its
line; the lines before it have been handled.

Always: SIGTERM ends a command in good order, as Ctrl-C does.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import trio

from index.values.values import Value
from server.cli.values import content, input_line, value_in


def run(verb: Callable[[argparse.Namespace], Awaitable[int]], args: argparse.Namespace) -> int:
    """Carries out a command on an event loop; returns its exit code."""
    return trio.run(_until_terminated, partial(verb, args))


async def _until_terminated(verb: Callable[[], Awaitable[int]]) -> int:
    """Returns the exit code of a command; SIGTERM ends it in good order, as Ctrl-C does."""
    code = 0
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(wait)
            code = await verb()
            nursery.cancel_scope.cancel()
    return code


async def lines() -> AsyncIterator[tuple[int, str]]:
    """Yields the lines of the standard input as they come, stripped, with their numbers."""
    number = 0
    while line := await trio.to_thread.run_sync(input_line, number := number + 1, abandon_on_cancel=True):
        if text := content(line):
            yield number, text


async def parsed_lines() -> AsyncIterator[Value]:
    """Yields the values of these lines; raises ``UsageError`` for the first that is none."""
    async for number, text in lines():
        yield value_in(number, text)
