"""``dataspace shell``: reads lines and carries them out, at a prompt or from a script.

Always: an error ends a script with exit code 1, and the prompt goes on; Ctrl-C ends a command, Ctrl-D the
shell, and what the shell asserted ends with it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

import trio

from dataspace.client.space import RemoteSpace
from dataspace.errors import Closed, DataspaceError
from dataspace.loops.lone import alone
from dataspace.transport.addresses import default_url
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from server.cli.output import counted, say
from server.cli.shell.interpreter import Interpreter
from server.cli.shell.line import LentConnection
from server.cli.values import content, input_line

ENDS: frozenset[str] = frozenset(["exit", "quit"])

KEPT: Final = 1_000
"""Lines of history that are kept."""

FRESH: Final = 3.0
"""Seconds for which labels that were asked for are shown again."""

_LABEL: Final = re.compile(r"([A-Za-z_][\w-]*)\(")


def shell(args: argparse.Namespace) -> int:
    """Runs the shell until its input ends; returns its exit code."""
    with LentConnection(args) as line:
        interpreter = Interpreter(line, args)
        return _converse(line, interpreter, args) if sys.stdin.isatty() else _play(line, interpreter)


def _play(line: LentConnection, interpreter: Interpreter) -> int:
    """Carries out the lines of the standard input, up to the first that fails."""
    number = 0
    while written := input_line(number := number + 1):
        text = content(written)
        if text in ENDS:
            break
        code = carry_out(interpreter, text)
        _show(line)
        if code:
            say(f"dataspace: line {number} failed, and the rest is not carried out: {text:.80}")
            return 1
    return 0


def _converse(line: LentConnection, interpreter: Interpreter, args: argparse.Namespace) -> int:
    """Reads lines at a prompt, until Ctrl-D."""
    labels = Labels(line)
    prompt = Prompt(lambda before, text: interpreter.complete(before, text, lambda: list(labels.all())))
    prompt.begin()
    say(f"connected to {args.url or default_url()}; help shows what there is, Ctrl-D ends")
    asked = "dataspace> " if args.space == "main" else f"dataspace {args.space}> "
    try:
        while True:
            try:
                _show(line)
                text = content(input(asked))
                if text in ENDS:
                    break
                labels.add_labels(text)
                carry_out(interpreter, text)
            except KeyboardInterrupt:
                print(flush=True)
            except EOFError:
                print(flush=True)
                break
    finally:
        prompt.save()
    if held := line.held():
        say(f"the shell ends, and with it {counted(len(held), 'fact')}")
    return 0


def carry_out(interpreter: Interpreter, text: str) -> int:
    """Carries out a line, and says what is wrong with it; returns its exit code.

    Raises ``Closed`` where there will be no connection any more.
    """
    try:
        return interpreter.do(text)
    except SystemExit as ended:  # by the parser, which has said why
        return int(ended.code or 0)
    except Closed:
        raise
    except DataspaceError as error:
        say(f"dataspace: {error}")
    except BaseExceptionGroup as group:
        only = alone(group)
        if not isinstance(only, DataspaceError):
            raise
        say(f"dataspace: {only}")
    return 1


def _show(line: LentConnection) -> None:
    """Prints what has come since the last prompt."""
    line.settle()
    while line.notices:
        print(line.notices.popleft(), flush=True)


def history_file() -> Path:
    """Returns where the history is kept."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "dataspace-shell" / "history"


class Prompt:
    """Reads lines on a terminal.

    History is in a file of the user, in ``$XDG_STATE_HOME/dataspace-shell`` (``~/.local/state``), which only
    the user can read: facts may be private.

    Always: a Tab waits a second for the daemon at most, and raises nothing.
    """

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

    def add_labels(self, text: str) -> None:
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
