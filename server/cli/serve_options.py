"""What ``dataspace serve`` can be told on its command line; apart from what it does, which loads the daemon.

Always: each option says the same as a setting of the file, and nothing that the file could not say.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    serve = commands.add_parser(
        "serve",
        help="run the daemon in the foreground",
        epilog="What is said here goes before $DATASPACE_SERVE_NAME, and that before the file."
        " SIGINT and SIGTERM end it; SIGHUP has it read tokens and certificates again.",
    )
    serve.add_argument("--config", metavar="FILE", help="read this TOML file (or $DATASPACE_SERVE_CONFIG)")
    serve.add_argument("--check", action="store_true", help="print what holds and who said so; run nothing")
    serve.add_argument("--verbose", action="store_true", help="log every session")
    _add_access(serve.add_argument_group("who reaches it"))
    _add_data(serve.add_argument_group("what it keeps"))
    _add_hosted(serve.add_argument_group("what it runs"))


def _add_access(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--listen",
        metavar="ADDRESS",
        action="append",
        help="tcp:HOST:PORT, tls:HOST:PORT or unix:/PATH; may be given several times; port 0 picks one"
        " (default tcp:127.0.0.1:7377)",
    )
    group.add_argument("--socket-mode", metavar="MODE", help="who may use Unix sockets (default 0600)")
    group.add_argument("--tls-certificate", metavar="FILE", help="what to show at tls: addresses (PEM)")
    group.add_argument("--tls-key", metavar="FILE", help="the key of that, if it is in another file")
    group.add_argument("--tls-client-ca", metavar="FILE", help="let in only whom these have vouched for")
    group.add_argument(
        "--heartbeat",
        metavar="TIME",
        help="the longest silence of a connection before a ping; it is given up after two (default 15s)",
    )
    group.add_argument(
        "--grace",
        metavar="TIME",
        help="the longest that a session may outlive a lost connection (default 5m); 0s allows none",
    )


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data", metavar="DIR", type=Path, help="where the log is kept (default ~/.local/state/dataspace)"
    )
    group.add_argument(
        "--host-space", metavar="NAME", action="append", help="have a dataspace of this name beside main"
    )
    group.add_argument(
        "--accept-damage",
        action="store_true",
        help="go on with a log that lost its end, saying what is missing",
    )
    add_keeping(group)


def _add_hosted(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--rules",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="hold the rules of a file; may be given several times",
    )
    group.add_argument(
        "--without-rules",
        action="store_true",
        help="carry out no rules; they stay facts, so that one that does harm can be retracted",
    )
    group.add_argument(
        "--actor",
        metavar="MODULE:FUNCTION",
        action="append",
        help="host an actor; may be given several times",
    )
    group.add_argument(
        "--flow",
        metavar="MODULE:FUNCTION",
        action="append",
        help="let the turns of main drive the flow that this makes; may be given several times",
    )
    group.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="write every turn of hosted actors to a file, as a mermaid diagram if it ends in .mmd",
    )


def add_keeping(command: argparse._ActionsContainer) -> None:
    """Adds what says how much of the past is kept."""
    command.add_argument(
        "--keep-for", metavar="TIME", help="drop epochs older than this, such as 7d (default: keep)"
    )
    command.add_argument(
        "--keep-bytes", metavar="SIZE", help="drop the oldest beyond this size, such as 10GiB"
    )
    command.add_argument(
        "--keep-unread",
        action="store_true",
        help="drop what every named reader has acknowledged; readers are always waited for, up to 8GiB",
    )
