"""The prompt: lines with history, and what Tab completes.

History is in a file of the user, in ``$XDG_STATE_HOME/dataspace-shell`` (``~/.local/state``), which only the
user can read: facts may be private.

Always: a Tab waits a second for the daemon at most, and raises nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

import trio

from dataspace.client.space import RemoteSpace
from dataspace.errors import DataspaceError
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from server.cli.shell.line import LentConnection

KEPT: Final = 1_000
"""Lines of history that are kept."""

FRESH: Final = 3.0
"""Seconds for which labels that were asked for are shown again."""

_LABEL: Final = re.compile(r"([A-Za-z_][\w-]*)\(")


def history_file() -> Path:
    """Returns where the history is kept."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "dataspace-shell" / "history"


class Prompt:
    """Reads lines on a terminal."""

    def __init__(self, complete: Callable[[str, str], list[str]]) -> None:
        self._complete = complete
        self._found: list[str] = []
        self._readline = _readline()

    def begin(self) -> None:
        """Loads the history, and has Tab complete."""
        readline = self._readline
        if readline is None:
            return
        file = history_file()
        try:
            readline.read_history_file(file)
        except OSError:
            pass  # there is none yet
        readline.set_history_length(KEPT)
        readline.set_completer_delims(" \t\n,([{")
        readline.set_completer(self._next)
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def save(self) -> None:
        """Stores the history."""
        if self._readline is None:
            return
        file = history_file()
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch(mode=0o600)
            self._readline.write_history_file(file)
        except OSError:
            pass  # a home that cannot be written to is no reason to fail at the end

    def _next(self, text: str, state: int) -> str | None:
        if not state and self._readline is not None:
            before = self._readline.get_line_buffer()[: self._readline.get_begidx()]
            self._found = self._complete(before, text)
        return self._found[state] if state < len(self._found) else None


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # a Python without it, where lines cannot be edited
        return None
    return readline


class Labels:
    """The labels in use, as the daemon says and as were written here."""

    def __init__(self, line: LentConnection) -> None:
        self._line = line
        self._known: dict[str, None] = {}
        self._until = 0.0

    def note(self, text: str) -> None:
        """Notes the labels in a line that was written here."""
        self._known |= dict.fromkeys(_LABEL.findall(text))

    def all(self) -> Iterable[str]:
        """Returns the labels, in order."""
        if time.monotonic() >= self._until:
            try:
                self._known |= self._line.call(_labels)
            except DataspaceError:
                pass  # a Tab is no place for errors
            self._until = time.monotonic() + FRESH
        return sorted(self._known)


async def _labels(space: RemoteSpace) -> dict[str, None]:
    """Returns labels of facts, as far as this token may see them, and of patterns that are observed."""
    found: dict[str, None] = {}
    with trio.move_on_after(1.0):
        try:
            claims = await space.request("owners", Map({"pattern": capture(), "most": 1_000}))
            found |= dict.fromkeys(_labels_of(claims))
        except DataspaceError:
            pass  # it needs the right to inspect
        drawn = await space.request("index", Map({"form": "text", "most": 200}))
        found |= dict.fromkeys(_LABEL.findall(str(drawn)))
    return found


def _labels_of(claims: Value) -> Iterable[str]:
    assert isinstance(claims, tuple)  # by WIRE.md
    for claim in claims:
        fact = claim["fact"] if isinstance(claim, Map) else None
        if isinstance(fact, Record) and isinstance(fact.label, str) and fact.label != "Observe":
            yield fact.label
