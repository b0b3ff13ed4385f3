"""The options of the commands that look once: get and query.

Always: loading this costs no more than argparse.
"""

from __future__ import annotations

import argparse

GET = """\
examples:
  dataspace get 'present($who)'
  dataspace get 'task($id, "open", _)' --table
  dataspace get 'reading($device, $value)' --csv > readings.csv

Each row has what the pattern captures; a pattern without $NAME prints the facts that it matches.
The number of rows and the epoch of the state are printed to standard error.
"""


def add_get(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command that prints what matches now."""
    command = commands.add_parser(
        "get",
        parents=[client],
        help="print what matches now, and end",
        epilog=GET,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("pattern", metavar="PATTERN", help="such as 'present($who)'")
    _add_forms(command)


def _add_forms(command: argparse.ArgumentParser) -> None:
    forms = command.add_mutually_exclusive_group()
    for form, said in (
        ("json", "print one JSON object per line"),
        ("table", "print a table"),
        ("csv", "print comma-separated values, with a header"),
    ):
        forms.add_argument(
            f"--{form}", dest="form", action="store_const", const=form, default="text", help=said
        )
