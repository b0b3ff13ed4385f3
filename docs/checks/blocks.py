"""The blocks of a page that can be run: commands with what they print, and the files that they use.

A block ``console`` is a terminal, which ``title`` names if a page has several: lines after ``$`` are
commands, those after ``>`` go on with one, ``^C`` interrupts what runs, and all others are what is printed.
A block that begins with printed lines goes on with what its terminal still runs.  A block of any other
language with a ``title`` is a file of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

FENCE: Final = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Step:
    """One command (empty: what runs already) and the lines that it prints."""

    command: str
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Block:
    """One block; ``text`` is as in the page."""

    language: str
    title: str
    text: str

    def steps(self) -> list[Step]:
        """Returns the commands of a terminal."""
        steps: list[Step] = []
        for line in self.text.splitlines():
            if line.startswith("$ ") or line == "^C":
                steps.append(Step(line.removeprefix("$ ")))
            elif line.startswith("> ") and steps and not steps[-1].lines:
                steps[-1].command += "\n" + line.removeprefix("> ")
            else:
                if not steps:
                    steps.append(Step(""))
                steps[-1].lines.append(line)
        return steps


def blocks(page: str) -> Iterator[Block]:
    """Yields the blocks of a page."""
    for found in FENCE.finditer(page):
        yield Block(found[1], found[2] or "", found[3])


def replayed(page: str, play: Callable[[Block], str]) -> str:
    """Returns a page in which each block that can be run has the text that ``play`` returns for it."""

    def run(found: re.Match[str]) -> str:
        block = Block(found[1], found[2] or "", found[3])
        text = play(block) if block.language == "console" or block.title else block.text
        return found[0].replace(f"\n{block.text}```", f"\n{text}```")

    return FENCE.sub(run, page)


def written(steps: list[Step]) -> str:
    """Returns the text of a terminal; the reverse of ``Block.steps``."""
    lines = []
    for step in steps:
        if step.command == "^C":
            lines.append("^C")
        elif step.command:
            first, *more = step.command.split("\n")
            lines += [f"$ {first}", *[f"> {each}" for each in more]]
        lines += step.lines
    return "".join([line + "\n" for line in lines])
