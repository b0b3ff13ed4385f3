"""The command ``dataspace``: calls the function of each command, and maps errors to exit codes.

Always: exit code 0 after success (an interrupt of something that runs until interrupted is that), 1 when
something was refused or failed, 2 for an invalid command line, 3 when no daemon answered, 4 when something
that was expected does not hold, so that nothing was done.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any, Final

from dataspace.errors import DataspaceError, Unreachable, UsageError
from server.cli.arguments import Command
from server.cli.parser import parse

SHORT: Final = ("cli.once.", "groups.commands.groups:", "archiving.commands.erasing:")
"""What begins the function of a command that ends at once and needs no event loop."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args = parse(list(sys.argv[1:] if argv is None else argv))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(args)
    except BaseExceptionGroup as group:
        from dataspace.loops.lone import alone

        return _explain(alone(group))
    except (DataspaceError, KeyboardInterrupt, OSError) as error:
        return _explain(error)


def _run(args: argparse.Namespace) -> int:
    """Carries out a command, which loads what it needs and no more: loading is most of a short one."""
    if getattr(args, "wait", "0s") != "0s":
        from server.cli.connecting import patient_stores, wait_for_daemon

        (wait_for_daemon if args.row.is_client else patient_stores)(args)
    row: Command = args.row
    gc.disable()  # what a command loads is no garbage, and to look for some is a fifth of a short one's CPU
    try:
        function = row.function(args)
        if row.target(args).startswith(SHORT):
            return int(function(args))
    finally:
        gc.enable()
    return _run_long(function, args)


def _run_long(function: Callable[[argparse.Namespace], Any], args: argparse.Namespace) -> int:
    """Carries out a command that may last, or needs more than a connection."""
    import logging
    from inspect import iscoroutinefunction

    logging.getLogger("dataspace").addHandler(logging.NullHandler())
    if not iscoroutinefunction(function):
        return int(function(args))
    from server.cli.lasting.run import run

    return run(function, args)


def _explain(error: BaseException) -> int:
    """Prints the error, and returns the exit code."""
    from server.cli.output import say  # what a command needs is loaded where it is used

    if isinstance(error, KeyboardInterrupt):
        return 0
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, OSError) and error.filename is not None:  # a path that was given; others are defects
        say(f"dataspace: {error.filename}: {error.strerror}")
        return 1
    if not isinstance(error, DataspaceError):
        raise error
    say(f"dataspace: {error}")
    if isinstance(error, Unreachable):
        return 3
    return 2 if isinstance(error, UsageError) else 1
