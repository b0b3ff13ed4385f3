"""The options of ``dataspace demo``; two of them are for its own workers."""

from __future__ import annotations

import argparse


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], _client: argparse.ArgumentParser
) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "demo",
        help="show what a dataspace does, in about twenty seconds",
        description="Three workers take tasks from a board; one is killed in the middle of a task, which goes"
        " back to the board, and the rules say why.",
        epilog="It runs a daemon of its own on a free port, and leaves nothing behind. On a terminal the"
        " board is drawn if rich is installed: pip install 'dataspace-server[terminal]'",
    )
    command.add_argument("--speed", type=_speed, default=1.0, metavar="N", help="N times as fast (default 1)")
    command.add_argument("--worker", help=argparse.SUPPRESS)
    command.add_argument("--daemon", help=argparse.SUPPRESS)


def _speed(text: str) -> float:
    """Returns how many times as fast: more than nothing."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 1000.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed, give a number from 0.01 to 1000")
    return speed
