"""What the table of commands is made of: rows, their arguments, and how the text of an argument is read.

Parsing loads this for every command, so what costs time to load is imported by the function that needs it.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


class Argument(NamedTuple):
    """One option, or one word by its position, with the settings that ``argparse`` has for it.

    Arguments with the same title stand together in the help.  Of arguments with the same ``instead`` one
    may be given, and one must be if that ends with an exclamation mark.
    """

    names: tuple[str, ...]
    settings: dict[str, Any]
    title: str = ""
    instead: str = ""

    @property
    def is_option(self) -> bool:
        """True if the argument has a name on the command line."""
        return self.names[0].startswith("-")

    @property
    def help(self) -> str:
        """The line of help; ``argparse.SUPPRESS`` for an argument that is not shown."""
        return self.settings.get("help", "")  # type: ignore[no-any-return]  # as the functions below set it

    @property
    def takes(self) -> str:
        """What follows the name of an option, as the help shows it; empty for an option without a value."""
        if "action" in self.settings and self.settings["action"] != "append":
            return ""
        return self.settings.get("metavar") or self.names[0].strip("-")

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that are allowed; empty where any text may stand."""
        return tuple(self.settings.get("choices", ()))


def option(spec: str, help: str, **settings: Any) -> Argument:
    """Returns an option with a value: its names and its placeholder, such as ``--durable --owner NAME``."""
    names = tuple([each for each in spec.split() if each.startswith("-")])
    takes = spec.split()[len(names) :]
    return Argument(names, {"metavar": takes[0] if takes else None, "help": help} | settings)


def repeated(spec: str, help: str, **settings: Any) -> Argument:
    """Returns an option that may be given several times."""
    return option(spec, help, action="append", **settings)


def flag(name: str, help: str, **settings: Any) -> Argument:
    """Returns an option without a value."""
    return Argument((name,), {"action": "store_true", "help": help} | settings)


def word(takes: str, help: str = "", *, name: str = "", **settings: Any) -> Argument:
    """Returns a word by its position; it is stored by its ``name``, or by its placeholder in small
    letters."""
    return Argument((name or takes.lower(),), {"metavar": takes, "help": help or None} | settings)


def titled(title: str, *arguments: Argument) -> tuple[Argument, ...]:
    """Returns arguments that stand below a title of their own in the help."""
    return tuple([each._replace(title=title) for each in arguments])


def one_of(*arguments: Argument, required: bool = False) -> tuple[Argument, ...]:
    """Returns options that exclude each other."""
    key = arguments[0].names[0] + ("!" if required else "")
    return tuple([each._replace(instead=key) for each in arguments])


def add_arguments(
    parser: argparse.ArgumentParser, arguments: tuple[Argument, ...], *, demanding: bool = True
) -> None:
    """Adds arguments to a parser, below their titles or to their sets of alternatives.

    Unless ``demanding``, none of a set needs to be given.
    """
    containers: dict[str, argparse._ActionsContainer] = {"": parser}
    for argument in arguments:
        key = argument.title or argument.instead
        if key not in containers and argument.title:
            containers[key] = parser.add_argument_group(argument.title)
        elif key not in containers:
            containers[key] = parser.add_mutually_exclusive_group(required=demanding and key.endswith("!"))
        containers[key].add_argument(*argument.names, **argument.settings)


def options_of(arguments: tuple[Argument, ...]) -> Iterator[str]:
    """Yields each name of the options among arguments."""
    for each in arguments:
        if each.is_option:
            yield from each.names


# -- rows ----------------------------------------------------------------------------------------------

TOP: Final = __package__.rpartition(".")[0]
"""The package below which the modules of the rows are."""


class Command(NamedTuple):
    """One command, or one verb of a command, such as ``rule why``.

    A row without ``run`` has verbs in the rows after it; ``otherwise`` is the verb that may be left out.
    """

    name: str
    help: str
    run: str | Callable[[argparse.Namespace], str] = ""
    """``module:function`` below ``server``, or what chooses it by the arguments that were given."""
    arguments: tuple[Argument, ...] = ()
    is_client: bool = True
    """True if the command connects to a daemon: it has the options for that, and runs in the shell."""
    description: str | None = None
    epilog: str | None = None
    check: Callable[[argparse.Namespace], str] | None = None
    """Returns what is wrong with a combination of arguments; empty if nothing is."""
    otherwise: str = ""
    follows: bool = False
    """True if the command goes on with what happens, so that it can run in the background of a shell."""
    at_prompt: tuple[str, ...] = ()
    """Lines of the shell's help: a title, then examples; what an example does stands after two blanks."""

    @property
    def command(self) -> str:
        """The first word of the name."""
        return self.name.partition(" ")[0]

    @property
    def verb(self) -> str:
        """The second word of the name, or an empty text."""
        return self.name.partition(" ")[2]

    def target(self, args: argparse.Namespace) -> str:
        """Returns ``module:function`` for these arguments."""
        return self.run if isinstance(self.run, str) else self.run(args)

    def function(self, args: argparse.Namespace) -> Callable[[argparse.Namespace], Any]:
        """Imports and returns the function, which may be ``async``; it takes the arguments and returns an
        exit code."""
        module, _, name = self.target(args).partition(":")
        return getattr(import_module(f"{TOP}.{module}"), name)  # type: ignore[no-any-return]

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments, those with which a command reaches its daemon among them."""
        return (*CLIENT, *self.arguments) if self.is_client and self.run else self.arguments


# -- arguments of several commands ---------------------------------------------------------------------

JSON_LINES: Final = flag("--json", "print one JSON object per line")
JSON: Final = flag("--json", "print one JSON object")

CLIENT: Final = titled(
    "the daemon",
    option(
        "--url URL",
        "tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH, of one store several with commas ($DATASPACE_URL)",
    ),
    option(
        "--wait TIME", "wait for the daemon to listen, and for a topic to appear, such as 10s", default="0s"
    ),
    option(
        "--space NAME",
        "one of its dataspaces (default main); 'system' describes the daemon itself",
        default="main",
    ),
    option("--token TEXT", "present this token (or $DATASPACE_TOKEN)"),
    option("--token-file FILE", "read the token from FILE (or $DATASPACE_TOKEN_FILE)"),
    option("--tls-ca FILE", "accept certificates signed by FILE (or $DATASPACE_TLS_CA)"),
    option("--tls-certificate FILE", "present this certificate (or $DATASPACE_TLS_CERTIFICATE)"),
    option("--tls-key FILE", "key of the certificate (or $DATASPACE_TLS_KEY)"),
)
"""With these every command reaches its daemon."""


# -- values --------------------------------------------------------------------------------------------


def number(text: str) -> int:
    """Returns a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def count(text: str) -> int:
    """Returns a number of things: at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count, give 1 or more")
    return int(text)


def epoch(text: str, least: int = 1) -> int:
    """Returns the number of an epoch, which is ``least`` at least."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no epoch, give {least} or more")
    return int(text)


def epoch_or_zero(text: str) -> int:
    """Returns the number of an epoch, or 0 for the time before the first one."""
    return epoch(text, least=0)


def moment(text: str) -> int | datetime:
    """Returns an epoch, or a time with its zone: UTC where none is given."""
    from datetime import UTC, datetime

    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an epoch nor a time, give for example 120 or 2026-11-22T09:00:00Z"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def since(text: str) -> datetime:
    """Returns the time so long ago, or a time with its zone: UTC where none is given."""
    from datetime import UTC, datetime, timedelta

    from dataspace.errors import UsageError
    from server.config.units import duration

    with contextlib.suppress(UsageError):
        seconds = duration(text)
        try:
            return datetime.now(UTC) - timedelta(seconds=seconds)
        except OverflowError:
            raise argparse.ArgumentTypeError(
                f"{text!r} ago is before the year 1, give for example 1h"
            ) from None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration nor a time, give for example 1h or 2026-11-22T09:00:00Z"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def beginning(text: str) -> str | int | datetime:
    """Returns where a group begins: ``now``, ``held``, an epoch or a time."""
    return text if text in ("now", "held") else moment(text)


def path(text: str) -> Path:
    """Returns a path."""
    from pathlib import Path

    return Path(text)


def place(text: str) -> Path | str:
    """Returns a path, or the text itself if it is a URL; a URL of a file is a path."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return path(text)
    if scheme != "file":
        return text
    from urllib.parse import unquote

    if not rest.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} names no file of this machine; write file:///backup/ds")
    return path(unquote(rest))


def speed(text: str) -> float:
    """Returns how many times as fast something runs: from 0.01 to 1000."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.01 <= found <= 1000.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed, give a number from 0.01 to 1000")
    return found
