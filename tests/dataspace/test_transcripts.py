"""What a space does is written down in ``tests/transcripts``, for people who do not read Python.

Each block of a transcript is a comment, commands, a line ``----`` and what came of them:

    observe NAME PATTERN      NAME is told of PATTERN from now on; first the state
    ignore NAME               and no more
    turn OWNER                a turn of OWNER, of the actions that follow, one a line:
      +HANDLE FACT              assert
      -HANDLE                   retract
      =OLD NEW FACT             replace
      !MESSAGE                  send
    end OWNER                 OWNER is gone
    attach FLOW               the turns drive a flow of ``tests.server.hosting.flowing`` from now on
    detach FLOW               and no more
    advance                   the turn that rules and flows ask for

``REWRITE=1`` writes what comes of the commands into the files; read them before you commit them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.changes import Changes
from dataspace.kernel.interests import Interest
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from index.patterns.text import parse, parse_pattern, unparse
from tests.server.hosting import flowing

FILES = sorted((Path(__file__).parent.parent / "transcripts").glob("*.txt"))


class _Named:
    """An observer that writes down what it is told."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name = name
        self.said = said

    def offer(self, changes: Changes) -> None:
        for kind, rows in (("+", changes.added), ("!", changes.messages), ("-", changes.removed)):
            for row in rows:
                captures = " ".join(map(unparse, row))
                self.said.append(f"{self.name} {kind} {captures}".rstrip())


class _Stage:
    """A space, and the people of a transcript."""

    def __init__(self) -> None:
        self.space = Space("main", limits=SpaceLimits(actions_per_turn=6, facts_per_owner=4))
        self.said: list[str] = []
        self.observers: dict[str, tuple[Interest, _Named]] = {}
        self.now = 0

    def run(self, commands: list[str]) -> list[str]:
        self.said.clear()
        lines = iter(commands)
        for line in lines:
            verb, _, rest = line.partition(" ")
            if verb == "turn":
                self._turn(rest, [action.strip() for action in lines])
            elif verb == "end":
                self._outcome(self.space.end([rest], self._tick()))
            elif verb == "observe":
                self._observe(*rest.split(" ", 1))
            elif verb == "attach":
                self.space.rules.attach(rest, getattr(flowing, rest)())
            elif verb == "detach":
                self.space.rules.detach(rest)
            elif verb == "advance":
                self._outcome(self.space.advance(self._tick()))
            elif verb == "ignore":
                self.space.ignore(*self.observers.pop(rest))
            else:
                raise AssertionError(f"no command: {line}")
        return list(self.said)

    def _tick(self) -> int:
        self.now += 1_000_000
        return self.now

    def _observe(self, name: str, pattern: str) -> None:
        observer, form = _Named(name, self.said), parse_pattern(pattern)
        observer.offer(Changes(self.space.epoch, 0, self.space.matches(form)))
        self.observers[name] = (self.space.observe(form, observer), observer)

    def _turn(self, owner: str, actions: list[str]) -> None:
        try:
            self._outcome(self.space.commit(owner, [_action(each) for each in actions], self._tick()))
        except Refused as refusal:
            self.said.append(f"refused: {refusal}")

    def _outcome(self, epoch: object) -> None:
        number = getattr(epoch, "number", None)
        silent = epoch is None or getattr(epoch, "silent", False)
        self.said.insert(0, "no epoch" if silent else f"epoch {number}")


def _action(text: str) -> Action:
    verb, rest = text[0], text[1:]
    if verb == "!":
        return (SEND, parse(rest))
    if verb == "-":
        return (RETRACT, int(rest))
    if verb == "=":
        old, new, fact = rest.split(" ", 2)
        return (REPLACE, int(old), int(new), parse(fact))
    handle, fact = rest.split(" ", 1)
    return (ASSERT, int(handle), parse(fact))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_transcript(file: Path) -> None:
    stage, written = _Stage(), []
    for block in file.read_text().strip().split("\n\n"):
        above = block.split("\n----")[0].split("\n")
        commands = [line for line in above if line and not line.startswith("#")]
        written.append("\n".join([*above, "----", *stage.run(commands)]))
        stage.space.index.check()
    text = "\n\n".join(written) + "\n"
    if os.environ.get("REWRITE"):
        file.write_text(text)
    assert file.read_text() == text
