"""The parser of the command line, made from the table of commands, and what a wrong command line is told.

Always: a command line is understood as a whole, or refused with exit code 2 and one line, which names the
nearest command or option.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from server.cli.arguments import CLIENT, Command, add_arguments, options_of
from server.cli.table import BY_NAME, DESCRIPTION, EPILOG, ROWS, verbs_of

FEW: Final = 12
"""Choices that are listed where another one was given."""

OTHERWISE: Final = {
    **dict.fromkeys(("list", "ls", "find", "show", "read", "cat"), "get"),
    **dict.fromkeys(("put", "set", "add", "create", "insert", "write"), "assert"),
    **dict.fromkeys(("delete", "del", "rm", "remove", "unset"), "retract"),
    **dict.fromkeys(("start", "run", "server", "daemon"), "serve"),
    **dict.fromkeys(("subscribe", "listen", "tail", "follow"), "observe"),
    **dict.fromkeys(("select", "sql", "join"), "query"),
    **dict.fromkeys(("history", "past"), "log"),
    **dict.fromkeys(("publish", "emit", "message"), "send"),
    **dict.fromkeys(("info", "health", "ping"), "status"),
    "top": "watch",
    **dict.fromkeys(("--metrics", "--health", "--prometheus"), "--admin"),
}
"""What commands and options are called elsewhere."""

_REQUIRED: Final = "the following arguments are required: "
_ONE_OF: Final = re.compile("one of the arguments (.*) is required")
_CHOICE: Final = re.compile(r"argument ([^:]*): invalid choice: '([^']*)' \(choose from (.*)\)")


def parse(words: list[str], lent: argparse.Namespace | None = None) -> argparse.Namespace:
    """Returns the parsed command line; if it is invalid, prints why and ends the process with 2.

    ``row`` of the result is the row of the table.  In a shell, ``lent`` has the shell's own arguments: a
    command takes from them how the daemon is reached, and its facts need no owner.
    """
    program: list[str] | None = None
    if "--" in words:
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    words = completed(words)
    top = parser(words[0] if words and words[0] in BY_NAME else "", lent)
    if words and words[0].startswith("-") and words[0].split("=")[0] in options_of(CLIENT):
        top.error(f"{words[0].split('=')[0]} stands after the command: dataspace COMMAND {words[0]} …")
    args, rest = top.parse_known_args(words)
    row: Command = args.row
    used = _Parser(prog=f"dataspace {row.name}")
    if rest:
        used.error(_unrecognized(row, rest))
    args.program = program
    mistake = _mistake(row, args)
    if mistake:
        used.error(mistake)
    return args


def completed(words: list[str]) -> list[str]:
    """Returns a command line with the verb that may be left out: ``log PATTERN`` is ``log read PATTERN``."""
    row = BY_NAME.get(words[0]) if words else None
    if row is None or not row.otherwise:
        return words
    if {*words[1:2]} & {"-h", "--help", *[each.verb for each in verbs_of(row)]}:
        return words
    return [row.name, row.otherwise, *words[1:]]


def parser(only: str = "", lent: argparse.Namespace | None = None) -> argparse.ArgumentParser:
    """Returns the parser of the whole command line; with ``only``, the parser of one command.

    To make the parsers of all commands takes longer than most commands do.
    """
    top = _Parser(
        prog="dataspace",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    verbs = commands
    for row in ROWS:
        if only not in ("", row.command):
            continue
        subparser = (verbs if row.verb else commands).add_parser(
            row.verb or row.command,
            help=row.help,
            description=row.description,
            epilog=row.epilog,
            formatter_class=(
                argparse.RawDescriptionHelpFormatter if "\n" in (row.epilog or "") else argparse.HelpFormatter
            ),
            allow_abbrev=False,
        )
        subparser.set_defaults(row=row)
        if not row.run:
            verbs = subparser.add_subparsers(dest="verb", metavar="VERB", required=True)
        elif lent is None:
            subparser.set_defaults(lent=None)
            add_arguments(subparser, row.all_arguments)
        else:
            subparser.set_defaults(**{name: getattr(lent, name) for name in LENT})
            add_arguments(subparser, row.arguments, demanding=False)
    return top


LENT: Final = tuple([name.strip("-").replace("-", "_") for name in options_of(CLIENT)])
"""The arguments that say how a daemon is reached."""


class _Version(argparse.Action):
    """Shows the version, for which it looks up what is machine code."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: str | Sequence[Any] | None,
        _option: str | None = None,
    ) -> None:
        from dataspace.version import __version__, compiled_parts, described

        print(f"dataspace {described(__version__, compiled_parts())}")
        parser.exit()


def _mistake(row: Command, args: argparse.Namespace) -> str:
    """Returns what is wrong with a combination of arguments; empty if nothing is."""
    if args.program is not None:
        if row.name != "assert":
            return f"{row.name} takes no program after --"
        if not args.program:
            return "no program after --; name one, such as -- ./backup.sh"
    return row.check(args) if row.check is not None else ""


# -- complaints ----------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, with the nearest command where there is none of a name."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {self._said(message)}\n")

    def _said(self, message: str) -> str:
        """Returns a message of argparse in the words of this command."""
        if message.startswith(_REQUIRED):
            missing = message.removeprefix(_REQUIRED).split(", ")
            are = "is" if len(missing) == 1 else "are"
            return f"{', '.join(missing)} {are} missing; see {self.prog} --help"
        if found := _ONE_OF.match(message):
            return f"{' or '.join(_first_names(found[1]))} is missing; see {self.prog} --help"
        if found := _CHOICE.search(message):
            choices = re.findall(r"'([^']*)'", found[3])
            which = f", which are {', '.join(choices)}" if len(choices) <= FEW else ""
            hint = _near(found[2], choices) or ("" if which else f"; see {self.prog} --help")
            return f"{found[2]!r} is no {found[1].lower()}{which}{hint}"
        text = message.removeprefix("argument ").replace("with argument ", "with ")
        if text.endswith(": expected one argument"):
            (option,) = _first_names(text.removesuffix(": expected one argument"))
            return f"{option} needs a value"
        return text


def _unrecognized(row: Command, words: list[str]) -> str:
    """Returns what words that a command does not take may have been meant for."""
    text = " ".join(words)
    wrong = words[0].split("=")[0]
    see = f"; see dataspace {row.name} --help"
    if not wrong.startswith("-"):
        return f"{text} is too much: what has blanks or parentheses is in quotes{see}"
    text = f"unrecognized arguments: {text}"
    having = [each.name for each in ROWS if wrong in options_of(each.all_arguments)]
    if having:
        return f"{text}; it is an option of dataspace {having[0]}"
    return text + (_near(wrong, ["--help", *options_of(row.all_arguments)]) or see)


def _first_names(options: str) -> list[str]:
    """Returns the name of each option without its other ones, which argparse joins by slashes."""
    return [each.split("/")[0] for each in options.split()]


def _near(wrong: str, known: Iterable[str]) -> str:
    """Returns what may have been meant, as the end of a message; empty if nothing is near."""
    from difflib import get_close_matches  # few command lines are wrong

    known = list(known)
    meant = OTHERWISE.get(wrong, "")
    begun = [each for each in known if wrong.startswith("--") and each.startswith(wrong)]
    near = [meant] if meant in known else begun or get_close_matches(wrong, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
