"""What the demo shows: a line for each event, and below them the board where it can be drawn.

On a terminal with rich the board stays below the lines and changes in place.  Elsewhere there are lines
alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.cli.demo.board import TASKS, Board

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Shown:
    """Where the demo shows something: a line, and the board as it is now."""

    line: Callable[[str], None]
    draw: Callable[[], None]
    is_live: bool = False

    def lines(self, texts: Iterable[str]) -> None:
        """Shows lines of a text that belongs together."""
        for text in texts:
            self.line(f"    {text}")


@contextmanager
def showing(board: Board) -> Iterator[Shown]:
    """Shows a board for as long as the block runs."""
    if not sys.stdout.isatty() or not _has_rich():
        yield Shown(lambda text: print(text, flush=True), lambda: None)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False)
    with Live(drawn(board), console=console, auto_refresh=False) as live:
        yield Shown(console.print, lambda: live.update(drawn(board), refresh=True), is_live=True)


def _has_rich() -> bool:
    from importlib.util import find_spec

    return find_spec("rich") is not None


def drawn(board: Board) -> Table:
    """Returns the board as a table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(caption=f"epoch {board.epoch}; workers: {', '.join(sorted(board.workers)) or 'none'}")
    for name in ("task", "", "state", "worker"):
        table.add_column(name)
    styles = {"done": "green", "in work": "yellow", "waiting": ""}
    for task, what in enumerate(TASKS, 1):
        state, who = board.state(task)
        table.add_row(str(task), what, Text(state, style=styles[state]), who)
    return table
