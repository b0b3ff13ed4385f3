"""The options of ``dataspace sessions``, ``dataspace top`` and ``dataspace inspect``."""

from __future__ import annotations

import argparse


def add_sessions(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command ``sessions``."""
    listed = commands.add_parser(
        "sessions",
        parents=[client],
        help="show who is connected and how far behind, or end a session",
        epilog="dataspace sessions end ID ends one; that needs the right administer.",
    )
    listed.add_argument("verb", nargs="?", choices=["list", "end"], default="list", metavar="end")
    listed.add_argument("number", nargs="?", type=int, metavar="ID", help="number of the session to end")
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    listed.add_argument(
        "--sort",
        choices=["session", "turns", "waiting", "lag"],
        default="session",
        help="order of the lines (default session: as they came)",
    )


def add_top(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command ``top``."""
    drawn = commands.add_parser(
        "top", parents=[client], help="draw the daemon and its sessions on a terminal, again and again"
    )
    drawn.add_argument("--every", default="2s", metavar="TIME", help="time between two looks (default 2s)")
    drawn.add_argument("--count", type=_count, metavar="N", help="print N times and end")
    drawn.add_argument(
        "--sort",
        choices=["session", "turns", "waiting", "lag"],
        default="waiting",
        help="order of the sessions, the highest first (default waiting)",
    )


def add_inspect(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command ``inspect``."""
    opened = commands.add_parser(
        "inspect",
        parents=[client],
        help="open the inspector, the daemon's page, in a browser",
        epilog="The daemon must listen for HTTP: dataspace serve --listen http:127.0.0.1:7378."
        " --url takes the address of the page as well, such as http://127.0.0.1:7378.",
    )
    opened.add_argument("--no-open", action="store_true", help="print the address, and open no browser")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of times, give 1 or more")
    return int(text)
