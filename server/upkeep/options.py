"""The options of ``dataspace backup``, ``restore`` and ``drain``; the commands themselves load more."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

EPILOG: Final = """\
The daemon may be running: nothing waits for a backup. A directory that is an earlier backup of the same
log is brought up to date. Ctrl-C leaves an earlier backup whole; the same command continues.
A URL such as s3://bucket/ds needs dataspace-server[remote] and fsspec's backend for it; SERVE.md.
"""


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_backup(commands: Commands, _client: argparse.ArgumentParser) -> None:
    """Adds the command."""
    backup = commands.add_parser(
        "backup", help="copy the data of a running or stopped daemon to a directory or a URL", epilog=EPILOG
    )
    backup.add_argument(
        "target",
        metavar="DIR|URL",
        type=_place,
        help="a new directory or an earlier backup, or s3://bucket/ds",
    )
    backup.add_argument(
        "--data",
        metavar="DIR",
        type=_path,
        help="the daemon's directory, on this machine (default ~/.local/state/dataspace)",
    )
    backup.add_argument(
        "--via",
        metavar="DIR",
        type=_path,
        help="with a URL: the backup on this machine that is copied there (default: DATA.backup)",
    )
    backup.add_argument("--rate", metavar="SIZE", help="copy at most SIZE in a second, such as 20MiB")
    backup.add_argument("--quiet", action="store_true", help="show no progress")


def add_restore(commands: Commands, _client: argparse.ArgumentParser) -> None:
    """Adds the command."""
    restore = commands.add_parser(
        "restore",
        help="make a data directory from a backup, of its end or of an earlier moment",
        epilog="Clients find another dataspace there: epochs that they saw after that moment never happened.",
    )
    restore.add_argument("backup", metavar="BACKUP", type=_place, help="directory of the backup, or its URL")
    restore.add_argument("target", metavar="DIR", type=_path, help="a new or empty directory")
    restore.add_argument(
        "--at",
        type=_moment,
        metavar="EPOCH|TIME",
        help="restore the state after this epoch of main, or at this time, such as 2026-11-22T14:05:00Z"
        " (UTC where no offset is given)",
    )
    restore.add_argument("--quiet", action="store_true", help="show no progress")


def add_drain(commands: Commands, client: argparse.ArgumentParser) -> None:
    """Adds the command."""
    drain = commands.add_parser(
        "drain",
        parents=[client],
        help="end a daemon: no new sessions, then the end when all have gone",
        epilog="Needs the right administer. Clients reconnect by themselves.",
    )
    drain.add_argument(
        "--within", default="30s", metavar="TIME", help="end sessions that are left after TIME (default 30s)"
    )
    drain.add_argument(
        "--reason", default="", metavar="TEXT", help="what clients are shown, such as 'back at 14:10'"
    )


def _path(text: str) -> Path:
    """Returns the path in an option; every command reads these options, and few need the module."""
    from pathlib import Path

    return Path(text)


def _place(text: str) -> Path | str:
    """Returns the path in an option that may be a URL; the URL if it is one, but of no file."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _path(text)
    if scheme != "file":
        return text
    from urllib.parse import unquote

    if not rest.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} names no file of this machine; write file:///backup/ds")
    return _path(unquote(rest))


def _moment(text: str) -> int | datetime:
    """Returns an epoch, or a time with its zone."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an epoch nor a time such as 2026-11-22T14:05:00Z"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
