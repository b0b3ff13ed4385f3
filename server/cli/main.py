"""The command ``dataspace``: calls the function of each command, and maps errors to exit codes.

Always: exit code 0 after success (an interrupt of something that runs until interrupted is that), 1 when
something was refused or failed, 2 for an invalid command line, 3 when no daemon answered.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from io import TextIOWrapper

import trio

from dataspace.client.connect import alone
from dataspace.errors import DataspaceError, Unreachable, UsageError
from server.cli.parser import parse


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args = parse(list(sys.argv[1:] if argv is None else argv))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(args)
    except BaseExceptionGroup as group:
        return _explain(alone(group))
    except (DataspaceError, KeyboardInterrupt, BrokenPipeError) as error:
        return _explain(error)


def _run(args: argparse.Namespace) -> int:
    if args.command == "serve":
        from server.cli.serve import serve_command  # clients need not load the daemon

        return serve_command(args)
    if args.command == "token":
        from server.cli.token import token  # as above

        return token(args)
    if args.command == "log" and args.verb != "read":
        from server.cli.log import log_command  # as above

        return log_command(args)
    return trio.run(_until_terminated, partial(_verb(args.command), args))


def _verb(command: str) -> Callable[[argparse.Namespace], Awaitable[int]]:
    """Returns the function of a command that connects to a daemon; loaded late, as loading is most of a short
    command."""
    if command == "rule":
        from server.cli.rule import rule

        return rule
    if command == "topic":
        from server.cli.topic import topic

        return topic
    from server.cli import facts as commands

    verbs: dict[str, Callable[[argparse.Namespace], Awaitable[int]]] = {
        "assert": commands.assert_,
        "retract": commands.retract,
        "observe": commands.observe,
        "send": commands.send,
        "log": commands.log,
        "status": commands.status,
        "index": commands.index,
        "owners": commands.owners,
        "actors": commands.actors,
    }
    return verbs[command]


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


def _explain(error: BaseException) -> int:
    """Prints the error, and returns the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return 0
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if not isinstance(error, DataspaceError):
        raise error
    print(f"dataspace: {error}", file=sys.stderr)
    if isinstance(error, Unreachable):
        return 3
    return 2 if isinstance(error, UsageError) else 1


logging.getLogger("dataspace").addHandler(logging.NullHandler())
