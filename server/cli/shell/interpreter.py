"""The commands at the prompt: each row of the table that connects to a daemon, on the shell's connection.

Commands of the prompt alone are about observations in the background, and help.

At the prompt facts need no quotes: a blank parts words only outside of brackets and of text.  A word in
single quotes, as it is pasted from a shell, is the text between the quotes.

Always: a command that fails raises a ``DataspaceError``, or ends with an exit code other than 0; the shell
goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Final

from dataspace.errors import UsageError
from server.cli.arguments import CLIENT, Command, options_of
from server.cli.connecting import CommandSpace
from server.cli.output import counted, say
from server.cli.parser import completed, parse
from server.cli.shell.line import LentConnection
from server.cli.table import BY_NAME, ROWS

ALONE: Final = {
    "help": "help [COMMAND]: show what there is, or the options of one command",
    "unobserve": "unobserve [NUMBER]: end one observation in the background, or all of them",
    "exit": "exit: end the shell, as Ctrl-D does; its facts are retracted",
}
"""Commands that only the shell has."""

ALIASES: Final = {"why": ("rule", "why"), "why-not": ("rule", "why-not")}

HERE: Final = """\
Here
  --json, --csv after get and query; --as-of EPOCH or TIME; help COMMAND has every option
  unobserve ends what runs in the background; exit or Ctrl-D the shell; Ctrl-C a command
  Tab completes commands, options and labels in use
"""


def _runs_here(row: Command) -> bool:
    return bool(row.run) and row.is_client and row.name != "shell"


NAMES: Final = sorted({*[row.command for row in ROWS if _runs_here(row)], *ALONE, *ALIASES})


class Interpreter:
    """The commands at one prompt."""

    def __init__(self, line: LentConnection, args: argparse.Namespace) -> None:
        self._line = line
        self._args = args
        self._count = 0

    def do(self, text: str) -> int:
        """Carries out a line; returns its exit code, raises ``DataspaceError`` where it fails."""
        name, *rest = words_of(text) or [""]
        if not name:
            return 0
        if name == "help":
            return self._help(rest)
        if name == "unobserve":
            return self._unobserve(rest)
        row, rest = found(name, rest)
        is_background = rest[-1:] == ["&"]
        words, options = parted(rest[:-1] if is_background else rest)
        for option in [each.split("=")[0] for each in options]:
            if option in options_of(CLIENT):
                raise UsageError(f"{option}: this shell is connected; start another one for it")
        if "-" in words:
            raise UsageError(f"{name} - reads the standard input, which the shell does")
        if words and len([each for each in row.arguments if not each.is_option]) == 1 and not _many(row):
            words = [" ".join(words)]  # a command about one text, which may have blanks
        if row.name in ("get", "query") and not {"--json", "--csv", "--table"} & {*options}:
            options = ["--table", *options]
        args = parse([*row.name.split(), *words, *options], self._args)
        function = row.function(args)
        if is_background:
            return self._start(row, function, args, text.strip().removesuffix("&").rstrip())
        if iscoroutinefunction(function):
            return self._line.run(function, args)
        lent: CommandSpace = self._line
        args.lent = lent
        return int(function(args))

    # -- in the background -----------------------------------------------------------------------------

    def _start(
        self,
        row: Command,
        function: Callable[[argparse.Namespace], Awaitable[int]],
        args: argparse.Namespace,
        text: str,
    ) -> int:
        """Starts a command whose lines are shown before the next prompt."""
        if not row.follows:
            follow = [each.name for each in ROWS if each.follows]
            raise UsageError(f"{row.name} does not go on in the background; {', '.join(follow)} do")
        self._count += 1
        say(f"[{self._count}] {text} in the background; unobserve {self._count} ends it")
        self._line.start(self._count, function, args)
        return 0

    def _unobserve(self, words: list[str]) -> int:
        running = self._line.running
        wanted = [int(word) for word in words if word.isdecimal()] if words else list(running)
        if len(wanted) < len(words) or not {*wanted} <= running.keys():
            known = ", ".join(map(str, running)) or "none"
            raise UsageError(f"{' '.join(words)}: no such observation in the background; there is {known}")
        for number in wanted:
            self._line.end(number)
        say(f"ended {counted(len(wanted), 'observation')}")
        return 0

    # -- help and completion ---------------------------------------------------------------------------

    def _help(self, words: list[str]) -> int:
        if not words:
            print(help_text(), end="", flush=True)
        elif words[0] in ALONE:
            print(ALONE[words[0]], flush=True)
        elif words[0] in NAMES:
            parse([*ALIASES.get(words[0], words[:1]), *words[1:2], "--help"], self._args)
        else:
            raise UsageError(_unknown(words[0]))
        return 0

    def complete(self, before: str, text: str, labels: Callable[[], list[str]]) -> list[str]:
        """Returns what may follow in a line: commands, their verbs and options, or labels."""
        words = before.split()
        if not words:
            return [f"{name} " for name in NAMES if name.startswith(text)]
        if words == ["help"]:
            return [name for name in NAMES if name.startswith(text)]
        try:
            row, _ = found(words[0], words[1:])
        except UsageError:
            return []
        if not row.run:
            verbs = [
                each.verb for each in ROWS if each.command == row.name and _runs_here(each) and each.verb
            ]
            return [f"{verb} " for verb in verbs if verb.startswith(text)]
        if text.startswith("-"):
            options = [each for each in options_of(row.arguments) if each.startswith(("--", text))]
            return sorted([f"{each} " for each in options if each.startswith(text)])
        return [f"{label}(" for label in labels() if label.startswith(text)]


def found(name: str, rest: list[str]) -> tuple[Command, list[str]]:
    """Returns the row of a command at the prompt, and the words that follow its name.

    Raises ``UsageError`` for a command that is none, or that does not run here.
    """
    words = completed([*ALIASES.get(name, (name,)), *rest])
    if words[0] not in NAMES:
        raise UsageError(_unknown(name))
    for length in (2, 1):
        row = BY_NAME.get(" ".join(words[:length]))
        if row is not None:
            if row.run and not _runs_here(row):
                raise UsageError(_unknown(row.name))
            return row, words[length:]
    raise UsageError(_unknown(name))


def help_text() -> str:
    """Returns the help of the prompt: each command with an example, in the order in which one learns them."""
    titles: dict[str, list[str]] = {"Look": [], "Change": [], "Understand": []}
    shown: set[str] = set()
    for row in ROWS:
        if row.at_prompt:
            titles[row.at_prompt[0]] += row.at_prompt[1:]
            shown |= {
                each.strip(",") for line in row.at_prompt[1:] for each in line.partition("  ")[0].split()
            }
    lines: list[str] = []
    for title, examples in titles.items():
        lines.append(title)
        for example, _, does in [each.partition("  ") for each in examples]:
            lines.append(f"  {example:<38} {does}")
    lines.append(f"  {', '.join(sorted({*NAMES} - shown - ALONE.keys()))}: see help COMMAND")
    return "\n".join([*lines, HERE])


def _many(row: Command) -> bool:
    """True if a command takes several words of one kind."""
    return any("nargs" in each.settings and each.settings["nargs"] != "?" for each in row.arguments)


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    if name in BY_NAME:
        return f"{name} is a command of its own: dataspace {name}; help shows what there is here"
    near = get_close_matches(name, NAMES, n=1)
    if near:
        return f"{name!r:.40} is no command; did you mean {near[0]}?"
    return f"{name!r:.40} is no command; help shows what there is"


# -- words ---------------------------------------------------------------------------------------------

_OPENING: Final = "([{"
_CLOSING: Final = ")]}"


def words_of(line: str) -> list[str]:
    """Returns the words of a line; the parser of facts refuses brackets or text that are not closed.

    >>> words_of('assert task(1, "a b") "x" --durable me')
    ['assert', 'task(1, "a b")', '"x"', '--durable', 'me']
    >>> words_of("get 'task($n, _)' &")
    ['get', 'task($n, _)', '&']
    """
    words: list[str] = []
    word, depth, at = "", 0, 0
    while at < len(line):
        character = line[at]
        if character == "'" and not word and line.find("'", at + 1) > 0:
            end = line.index("'", at + 1)
            words.append(line[at + 1 : end])
            at = end + 1
            continue
        if character == '"':
            end = _text_end(line, at)
            word += line[at:end]
            at = end
            continue
        if character.isspace() and depth <= 0:
            words += [word] if word else []
            word = ""
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
            word += character
        at += 1
    return [*words, word] if word else words


def _text_end(line: str, at: int) -> int:
    """Returns where the text ends that begins here with a double quote."""
    at += 1
    while at < len(line) and line[at] != '"':
        at += 2 if line[at] == "\\" else 1
    return min(at + 1, len(line))


def parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Returns the words before the first option, and the options.

    >>> parted(["task($n)", "--as-of", "3"])
    (['task($n)'], ['--as-of', '3'])
    """
    at = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    return words[:at], words[at:]
