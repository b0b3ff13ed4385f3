"""What an index tells whom is written down in ``tests/transcripts/index``, for people who do not read Python.

Each block of a transcript is a comment, commands, a line ``----`` and what came of them:

    observe NAME PATTERN     NAME is told of PATTERN from now on; first what matches already
    cleanup NAME PATTERN     the same, and it is to be told what it still holds when it goes
    ignore NAME              NAME goes
    assert FACT              a copy of FACT comes
    retract FACT             and one goes
    send MESSAGE             MESSAGE passes
    patch                    all of the following at once, one a line:
      +FACT, -FACT, !MESSAGE
    parse TEXT               TEXT is read as a value, pattern TEXT as a pattern
    count                    what the index consists of

``REWRITE=1`` writes what comes of the commands into the files; read them before you commit them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from index.errors import UsageError
from index.patterns.patterns import Skeleton, skeleton
from index.patterns.text import parse, parse_pattern, unparse
from index.trie.trie import Captures, Event, Index
from index.values.values import Value

FILES = sorted((Path(__file__).parent.parent / "transcripts" / "index").glob("*.txt"))


class _Named:
    """A callback that writes down what it is told."""

    def __init__(self, name: str, form: Skeleton, said: list[str]) -> None:
        self.name = name
        self.form = form
        self.said = said

    def __call__(self, event: Event, row: Captures) -> None:
        self.said.append(f"{self.name} {event.value} {' '.join(map(unparse, row))}".rstrip())

    def clean(self, rows: list[Captures]) -> None:
        self.said.extend(f"{self.name} held {' '.join(map(unparse, row))}".rstrip() for row in rows)


class _Stage:
    """An index, and those who watch it."""

    def __init__(self) -> None:
        self.index = Index()
        self.said: list[str] = []
        self.ears: dict[str, _Named] = {}

    def run(self, commands: list[str]) -> list[str]:
        self.said.clear()
        lines = iter(commands)
        for line in lines:
            verb, _, rest = line.partition(" ")
            try:
                self._do(verb, rest, [each.strip() for each in lines] if verb == "patch" else [])
            except UsageError as error:
                self.said.extend(["refused: " + str(error).split("\n")[0], *str(error).split("\n")[1:]])
        return [line.rstrip() for line in self.said]

    def _do(self, verb: str, rest: str, lines: list[str]) -> None:
        match verb:
            case "observe" | "cleanup":
                name, pattern = rest.split(" ", 1)
                ear = _Named(name, skeleton(parse_pattern(pattern)), self.said)
                self.index.add_handler(ear.form, ear, cleanup=ear.clean if verb == "cleanup" else None)
                self.ears[name] = ear
            case "ignore":
                ear = self.ears.pop(rest)
                self.index.remove_handler(ear.form, ear)
            case "assert":
                self.index.add(parse(rest))
            case "retract":
                self.index.remove(parse(rest))
            case "send":
                self.index.send(parse(rest))
            case "patch":
                self._patch(lines)
            case "parse" | "pattern":
                read = parse if verb == "parse" else parse_pattern
                self.said.append(unparse(read(rest.encode().decode("unicode_escape"))))
            case "count":
                counts = self.index.statistics()
                names = ("values", "copies", "nodes", "groups", "leaves", "handlers")
                self.said.append(" ".join(f"{name}={getattr(counts, name)}" for name in names))
            case _:
                raise AssertionError(f"no command: {verb}")

    def _patch(self, lines: list[str]) -> None:
        by_sign: dict[str, list[Value]] = {"+": [], "-": [], "!": []}
        for line in lines:
            by_sign[line[0]].append(parse(line[1:]))
        self.index.patch(by_sign["+"], by_sign["-"], by_sign["!"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_transcript(file: Path) -> None:
    stage, written = _Stage(), []
    for block in file.read_text().strip().split("\n\n"):
        above = block.split("\n----")[0].split("\n")
        commands = [line for line in above if line and not line.startswith("#")]
        written.append("\n".join([*above, "----", *stage.run(commands)]))
        stage.index.check()
    text = "\n\n".join(written) + "\n"
    if os.environ.get("REWRITE"):
        file.write_text(text)
    assert file.read_text() == text


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 3
