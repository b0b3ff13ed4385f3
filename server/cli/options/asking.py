"""The options of the commands that look: get, query and watch; and of the one that prints completions.

Always: loading this costs no more than argparse.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

GET = """\
examples:
  dataspace get 'present($who)'
  dataspace get 'task($id, "open", _)' --table
  dataspace get 'reading($device, $value)' --csv > readings.csv

Each row has what the pattern captures; a pattern without $NAME prints the facts that it matches.
The number of rows and the epoch of the state are printed to standard error.
"""


QUERY = """\
examples:
  dataspace query 'task($id, $who), not done($id), $id > 3' --table
  dataspace query 'load($who, count($id)) <- task($id, $who)'
  dataspace query 'present($who)' --as-of 2026-11-22T09:00:00Z

BODY is the body of a rule: patterns, not, comparisons, arithmetic. It is evaluated once, over the facts of
one epoch; each distinct solution is a row, with a column for each variable. A head before <- names the
columns and may have aggregates (count, sum, avg, min, max, collect, top). To keep what follows up to date,
add it as a rule: dataspace rule add. The facts that the patterns match, at most a million, are fetched and
joined by this command.
"""


SHELL = """\
examples:
  dataspace shell
  echo 'get task($n, $state) --json' | dataspace shell

The command help at the prompt shows what there is. What is asserted without --owner lasts until the shell
ends. From standard input, one command on a line, the first that fails ends it with exit code 1.
"""

COMPLETION = """\
  bash  source <(dataspace completion bash)                 in ~/.bashrc
  zsh   source <(dataspace completion zsh)                  in ~/.zshrc, after compinit
  fish  dataspace completion fish > ~/.config/fish/completions/dataspace.fish
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


def add_query(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command that evaluates the body of a rule once."""
    command = commands.add_parser(
        "query",
        parents=[client],
        help="join facts of one epoch by the body of a rule, print the rows, and end",
        epilog=QUERY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("body", metavar="BODY", help="such as 'task($id, $who), not done($id)'")
    _add_forms(command)


def add_watch(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command that draws live tables."""
    command = commands.add_parser(
        "watch",
        parents=[client],
        help="draw live tables of what matches several patterns",
        epilog="example: dataspace watch 'task($id, $state)' 'worker($name)'. It asserts no interest, and"
        " needs rich: pip install 'dataspace-server[terminal]'",
    )
    command.add_argument("pattern", nargs="+", metavar="PATTERN", help="a table for each")


def add_shell(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the command that reads commands."""
    commands.add_parser(
        "shell",
        parents=[client],
        help="read commands at a prompt, or from standard input, on one connection",
        description="Commands are those of dataspace without its name, and facts need no quotes.",
        epilog=SHELL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_completion(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], _client: argparse.ArgumentParser
) -> None:
    """Adds the command that prints what a shell completes by."""
    command = commands.add_parser(
        "completion",
        help="print a script by which a shell completes commands and options",
        description="The script is loaded once; a Tab runs nothing.",
        epilog=COMPLETION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("shell", choices=["bash", "zsh", "fish"], metavar="SHELL", help="bash, zsh or fish")


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
    command.add_argument(
        "--as-of",
        type=_moment,
        metavar="EPOCH|TIME",
        help="the state at an epoch, or at a time such as 2026-11-22T09:00:00Z, from the log (default: now)",
    )


def _moment(text: str) -> int | datetime:
    """Returns the epoch or the time of an option."""
    from datetime import datetime

    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no epoch and no time, give for example 120 or 2026-11-22T09:00:00Z"
        ) from None
