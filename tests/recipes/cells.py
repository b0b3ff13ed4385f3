"""Runs the cells of a notebook as IPython does: ``cells.py NOTEBOOK COMMANDS``.

Each line of COMMANDS, a pipe with a name, is the number of a cell, which is run in a task of its own, in the
names of those before, or ``interrupt``, which cancels the cell that runs.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from pathlib import Path
from types import CodeType
from typing import IO


async def run(code: CodeType, names: dict[str, object]) -> None:
    """Runs one cell."""
    made = eval(code, names)
    if made is not None:
        await made


async def main(cells: list[CodeType], commands: IO[str]) -> None:
    """Runs cells as commanded, until there are no further commands."""
    names: dict[str, object] = {"__name__": "__main__"}
    running: asyncio.Task[None] | None = None
    while line := (await asyncio.to_thread(commands.readline)).strip():
        if line == "interrupt":
            assert running is not None  # else there is nothing to interrupt
            running.cancel()
            await asyncio.wait([running])
            print("interrupted", flush=True)
        else:
            running = asyncio.create_task(run(cells[int(line) - 1], names), name=line)
            running.add_done_callback(_tell)


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.result()
        print("ran", task.get_name(), flush=True)


def read(notebook: Path) -> list[CodeType]:
    """Returns the cells of a notebook."""
    texts = re.split(r"^# %% .*$", notebook.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    flag = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return [compile(text, f"cell {n}", "exec", flag) for n, text in enumerate(texts, 1)]


if __name__ == "__main__":
    with Path(sys.argv[2]).open(encoding="utf-8") as file:
        asyncio.run(main(read(Path(sys.argv[1])), file))
