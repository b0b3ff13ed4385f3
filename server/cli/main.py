"""The command ``dataspace``: calls the function of each command, and maps errors to exit codes.

Always: exit code 0 after success (an interrupt of something that runs until interrupted is that), 1 when
something was refused or failed, 2 for an invalid command line, 3 when no daemon answered.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper

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
        from dataspace.client.connect import alone

        return _explain(alone(group))
    except (DataspaceError, KeyboardInterrupt, OSError) as error:
        return _explain(error)


def _run(args: argparse.Namespace) -> int:
    """Carries out a command, which loads what it needs and no more: loading is most of a short one."""
    if getattr(args, "wait", "0s") != "0s":
        from server.upkeep.waiting import wait_for_daemon

        wait_for_daemon(args.url, args.wait)
    gc.disable()  # what a short command loads is no garbage, and to look for some is a fifth of its CPU
    try:
        short = _short(args)
        if short is not None:
            return short(args)
    finally:
        gc.enable()
    return _run_long(args)


def _short(args: argparse.Namespace) -> Callable[[argparse.Namespace], int] | None:
    """Returns the function of a command that ends at once and needs no event loop; None for others."""
    command = args.command
    if command in ("status", "index", "owners", "actors"):
        from server.cli.once import status

        return {
            "status": status.status,
            "index": status.index,
            "owners": status.owners,
            "actors": status.actors,
        }[command]
    if command == "sessions":
        from server.cli.once.sessions import sessions

        return sessions
    if command == "inspect":
        from server.cli.once.inspector import inspect

        return inspect
    if command in ("get", "query"):
        from server.cli.once import get

        return get.get if command == "get" else get.query
    durable = command == "assert" and args.durable
    if durable or command in ("retract", "put") or (command == "send" and args.message != ["-"]):
        from server.cli.once import turns

        return {"send": turns.send, "assert": turns.assert_, "retract": turns.retract, "put": turns.put}[
            command
        ]
    if command == "completion":
        from server.cli.completion import completion

        return completion
    if command == "token":
        from server.cli.token import token

        return token
    return None


def _run_long(args: argparse.Namespace) -> int:
    """Carries out a command that may last, or needs more than a connection."""
    import logging

    logging.getLogger("dataspace").addHandler(logging.NullHandler())
    if args.command == "serve":
        from server.cli.serve import serve_command

        return serve_command(args)
    if args.command in ("backup", "restore"):
        from server.upkeep import copies, remote

        if args.command == "backup":
            return remote.backup(args) if isinstance(args.target, str) else copies.backup(args)
        return remote.restore(args) if isinstance(args.backup, str) else copies.restore(args)
    if args.command == "shell":
        from server.cli.shell.run import shell

        return shell(args)
    if args.command == "log" and args.verb != "read":
        from server.cli.log import log_command

        return log_command(args)
    from server.cli.lasting.run import run

    return run(args)


def _explain(error: BaseException) -> int:
    """Prints the error, and returns the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return 0
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, OSError) and error.filename is not None:  # a path that was given; others are defects
        print(f"dataspace: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    if not isinstance(error, DataspaceError):
        raise error
    print(f"dataspace: {error}", file=sys.stderr)
    if isinstance(error, Unreachable):
        return 3
    return 2 if isinstance(error, UsageError) else 1
