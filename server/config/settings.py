"""Settings of one word of ``dataspace serve``, by file, environment or command line.

``SETTINGS`` has them all, from the fields of ``Config``.  The command line takes precedence over the
environment (``DATASPACE_SERVE_…``), that over the file, and that over the default; where each came from is
kept, for ``--check``.

Always: a value that cannot be understood is refused with its place, the found value and the allowed values.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataspace.errors import UsageError
from server.config.declaring import PREFIX, Read, Setting
from server.config.model import ALL

CONFIG: Final = f"{PREFIX}CONFIG"

SETTINGS: Final = tuple(sorted(ALL.settings(), key=lambda each: "." in each.name))
"""All settings; those at the top of a file are before its tables."""

BY_NAME: Final = {each.name: each for each in SETTINGS}

DEFAULT: Final = "default"
"""The source of a value that is not stated anywhere."""


@dataclass(frozen=True, slots=True)
class Given:
    """The effective value of a setting, and where it came from."""

    value: object
    source: str


# -- what holds --------------------------------------------------------------------------------------


def settle(
    args: argparse.Namespace, environment: Mapping[str, str], stated: Mapping[str, object], file: Path | None
) -> dict[str, Given]:
    """Returns the effective value of each setting; ``stated`` has the settings of the file, by dotted
    name."""
    _check_environment(environment)
    return {each.name: _settle(each, args, environment, stated, file) for each in SETTINGS}


def _settle(
    setting: Setting,
    args: argparse.Namespace,
    environment: Mapping[str, str],
    stated: Mapping[str, object],
    file: Path | None,
) -> Given:
    value = getattr(args, setting.option, None) if setting.option else None
    if value is not None and value is not False and value != []:
        option = f"--{setting.option.replace('_', '-')}"  # type: ignore[union-attr]  # there is one, as just seen
        return Given(understood(setting.read, value, option), option)
    if setting.variable in environment:
        given = environment[setting.variable]
        return Given(understood(setting.read, given, f"${setting.variable}"), f"${setting.variable}")
    if setting.name in stated:
        assert file is not None  # the values come from it
        read = understood(setting.read, stated[setting.name], f"{file}: {setting.name}")
        return Given(beside(file, read), str(file))
    return Given(setting.usual(), DEFAULT)


def beside(file: Path, value: object) -> object:
    """Returns a path of a file relative to the directory of that file."""
    return file.parent / value if isinstance(value, Path) else value


def understood(read: Read, value: object, where: str) -> object:
    """Returns what a value means; raises ``UsageError`` with its place."""
    try:
        return read(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _check_environment(environment: Mapping[str, str]) -> None:
    known = [CONFIG, *(each.variable for each in SETTINGS)]
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            raise UsageError(f"${name}: {unknown(name, known, 'variable')}")


def unknown(name: str, known: Iterable[str], what: str = "setting") -> str:
    """Returns the message about an unknown name, with the nearest known one."""
    names = list(known)
    near = [each for each in BY_NAME if each.rpartition(".")[2] == name]  # it belongs in another table
    near += difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"no such {what}{hint}, known are {', '.join(names)}"


def config_file(args: argparse.Namespace) -> Path | None:
    """Returns the file to read, named on the command line or in the environment; None if neither names
    one."""
    named = args.config or os.environ.get(CONFIG)
    return Path(named) if named else None
