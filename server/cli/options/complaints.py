"""What a command line is refused with: one line that says what is wrong, and what may have been meant.

Always: the exit code is 2, and nothing else is printed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

REQUIRED: Final = "the following arguments are required: "
ONE_OF: Final = re.compile("one of the arguments (.*) is required")

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
}
"""What commands are called elsewhere."""


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, with the nearest command or option where there is none of a name."""

    def whole(self) -> argparse.ArgumentParser:
        """Returns the parser of the whole command line, where this one may be of one command."""
        return self

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {self._said(message)}\n")

    def _said(self, message: str) -> str:
        """Returns the words of argparse as those of this command."""
        if message.startswith(REQUIRED):
            missing = message.removeprefix(REQUIRED).split(", ")
            are = "is" if len(missing) == 1 else "are"
            return f"{', '.join(missing)} {are} missing; see {self.prog} --help"
        if found := ONE_OF.match(message):
            return f"{' or '.join(_first_names(found[1]))} is missing; see {self.prog} --help"
        if found := re.search(r"argument ([^:]*): invalid choice: '([^']*)' \(choose from (.*)\)", message):
            choices = re.findall(r"'([^']*)'", found[3])
            which = f", which are {', '.join(choices)}" if len(choices) <= FEW else ""
            hint = _near(found[2], choices) or ("" if which else f"; see {self.prog} --help")
            return f"{found[2]!r} is no {found[1].lower()}{which}{hint}"
        if message.startswith("unrecognized arguments: "):
            return self._unrecognized(message.removeprefix("unrecognized arguments: "))
        said = message.removeprefix("argument ").replace("with argument ", "with ")
        if said.endswith(": expected one argument"):
            (option,) = _first_names(said.removesuffix(": expected one argument"))
            return f"{option} needs a value"
        return said

    def _unrecognized(self, words: str) -> str:
        wrong = words.split()[0].split("=")[0]
        if not wrong.startswith("-"):
            return f"{words} is too much: what has blanks or parentheses is in quotes; see {self.prog} --help"
        everything = list(_parsers(self.whole()))
        having = [each.prog for each in everything if wrong in each._option_string_actions]
        said = f"unrecognized arguments: {words}"
        if having:
            return f"{said}; it is an option of {having[0]}"
        known = [option for each in everything for option in each._option_string_actions]
        return said + (_near(wrong, known) or f"; see {self.prog} --help")


def _first_names(options: str) -> list[str]:
    """Returns the name of each option without its other ones, which argparse joins by slashes."""
    return [each.split("/")[0] for each in options.split()]


def _near(wrong: str, known: Sequence[str]) -> str:
    """Returns what may have been meant, as the end of a message; empty if nothing is near."""
    from difflib import get_close_matches  # few command lines are wrong

    meant = OTHERWISE.get(wrong, "")
    near = [meant] if meant in known else get_close_matches(wrong, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _parsers(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields the parser that was used, and those of its commands."""
    yield top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _parsers(inner)
