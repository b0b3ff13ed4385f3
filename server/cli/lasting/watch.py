"""The command watch: live tables of several patterns, on a terminal.

Rich, which draws them, is an extra and is loaded here alone.

Always: each table is the state of one epoch of its pattern; what facts hold cannot control the terminal; the
screen is as it was when the command ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from dataspace.client.epochs.tables import places_of
from dataspace.client.session.events import ConnectionEvent
from dataspace.client.space import RemoteSpace
from dataspace.errors import UsageError
from dataspace.foreign import tame
from dataspace.kernel.changes import EpochChanges
from index.patterns.patterns import capture_names
from index.patterns.text import unparse
from index.values.values import Record, Value, keys
from server.cli.connecting import connect
from server.cli.lasting.facts import wait_unread
from server.cli.output import counted, note, write
from server.cli.values import parsed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from dataspace.client.live import LiveMap

PAUSE: Final = 0.1
"""Seconds between two drawings: more often is not seen."""

AROUND: Final = 6
"""Lines of a table beside its rows: title, caption, borders and header."""


ENDING: Final = "Ctrl-C ends"

NOTHING: Final = "nothing"
"""Printed for a key without rows."""

THERE: Final = "there"
"""Printed for a row that is all key."""


class LiveTable:
    """What matches one pattern now: each row once, with how many facts give it."""

    def __init__(self, text: str) -> None:
        self.text = text
        pattern = parsed(text)
        names = capture_names(pattern)
        self.pattern: Value = pattern if names else Record("$", None, None, pattern)
        self.names = names or ("fact",)
        self.epoch = 0
        self.messages = 0
        self._rows: dict[Hashable, tuple[tuple[Value, ...], int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, changes: EpochChanges) -> None:
        """Takes the changes of an epoch."""
        for row in changes.added:
            self._count(row, +1)
        for row in changes.removed:
            self._count(row, -1)
        self.messages += len(changes.messages)
        self.epoch = changes.number

    def _count(self, row: tuple[Value, ...], more: int) -> None:
        at = keys(row)
        known = self._rows.get(at)
        count = more + (known[1] if known else 0)
        if count:
            self._rows[at] = (row, count)
        else:
            self._rows.pop(at, None)

    def rows(self) -> list[tuple[Value, ...]]:
        """Returns the rows, the newest last."""
        return [row for row, _ in self._rows.values()]

    def table(self, most: int) -> Table:
        """Returns the table, with the newest ``most`` rows."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(tame(self.text)), caption=Text(self._caption(most)), expand=True)
        for name in self.names:
            table.add_column(Text(tame(name)), overflow="ellipsis", no_wrap=True)
        rows = self.rows()
        for row in rows[max(0, len(rows) - most) :]:
            table.add_row(*[Text(tame(_cell(value))) for value in row])
        return table

    def _caption(self, most: int) -> str:
        shown = f", the newest {most} shown" if len(self) > most else ""
        sent = f", {counted(self.messages, 'message')}" if self.messages else ""
        return f"{counted(len(self), 'row')}{shown}{sent}, epoch {self.epoch}"


class BoardByKey(LiveTable):
    """The same by key: a key whose row is replaced keeps its line."""

    def __init__(self, text: str, by: Sequence[str]) -> None:
        super().__init__(text)
        places_of(by, capture_names(self.pattern))  # before anything is drawn
        self.by: Final = by
        self._live: LiveMap[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows())

    def rows(self) -> list[tuple[Value, ...]]:
        """Returns the rows in the order in which their keys appeared."""
        return [] if self._live is None else [tuple(row) for rows in self._live.values() for row in rows]

    def follow(self, live: LiveMap[Any]) -> None:
        """Shows this map from now on, as it is when it is drawn."""
        self._live = live
        self.epoch = live.epoch


def drawn(boards: Sequence[LiveTable], height: int, status: str) -> RenderableType:
    """Returns all tables for a terminal of so many lines, and a line below them."""
    from rich.console import Group
    from rich.text import Text

    room = max(1, (height - 1) // len(boards) - AROUND)
    return Group(*[board.table(room) for board in boards], Text(tame(status), style="dim"))


async def watch(args: argparse.Namespace) -> int:
    """Draws tables until interrupted; with a key and without a terminal, prints changes."""
    by = args.by.split(",") if args.by else None
    if not sys.stdout.isatty():
        if by is not None:
            return await _print_changes(args, by)
        raise UsageError("watch draws on a terminal: for a file or a program, use --by, get or observe")
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        raise UsageError("watch needs rich: pip install 'dataspace-server[terminal]'") from None
    screen = Screen([LiveTable(text) if by is None else BoardByKey(text, by) for text in args.pattern])
    console = Console()
    async with connect(args) as space, trio.open_nursery() as nursery:
        space.on_connection = screen.connection
        for board in screen.boards:
            nursery.start_soon(_follow, space, board, screen)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            size = console.size
            while True:
                if screen.is_changed or console.size != size:
                    screen.is_changed, size = False, console.size
                    live.update(drawn(screen.boards, size.height, screen.status), refresh=True)
                await trio.sleep(PAUSE)


class Screen:
    """All tables, a line below them, and whether they have changed since they were drawn."""

    def __init__(self, boards: Sequence[LiveTable]) -> None:
        self.boards = boards
        self.status = ENDING
        self.is_changed = True

    def connection(self, event: ConnectionEvent) -> None:
        """Shows an event of the connection."""
        self.status = f"connection {event}; {ENDING}"
        self.is_changed = True


async def _follow(space: RemoteSpace, board: LiveTable, screen: Screen) -> None:
    if isinstance(board, BoardByKey):
        async with space.live(board.pattern, by=board.by, many=True, quiet=True) as rows:
            while True:
                board.follow(rows)
                screen.is_changed = True
                await rows.changed()
    async with space.observe(board.pattern, quiet=True) as observation:
        async for epoch in observation.epochs():
            board.take(epoch)
            screen.is_changed = True


async def _print_changes(args: argparse.Namespace, by: Sequence[str]) -> int:
    """Prints the rows of now, then each change of a key; a key without rows has `nothing`."""
    if len(args.pattern) > 1:
        raise UsageError("without a terminal, watch --by prints the changes of one pattern")
    (text,) = args.pattern
    pattern = parsed(text)
    places = places_of(by, capture_names(pattern))
    rest = [at for at in range(len(capture_names(pattern))) if at not in places]

    def shown(rows: Sequence[tuple[Value, ...]] | None) -> str:
        if not rows:
            return NOTHING
        return " & ".join(", ".join(unparse(row[at]) for at in rest) or THERE for row in rows)

    def key_of(key: tuple[Value, ...]) -> str:
        return ", ".join(map(unparse, key))

    async with connect(args) as space:
        async with space.live(pattern, by=by, many=True, quiet=True) as rows:
            note(f"watching {text} by {', '.join(by)}: {len(rows)} now, Ctrl-C ends")
            for key, held in rows.items():
                write(f"{key_of(key)} {shown(held)}")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_unread, nursery.cancel_scope)
                async for key, old, new in rows:
                    write(f"{key_of(key)} {shown(old)} -> {shown(new)}")
                nursery.cancel_scope.cancel()
    return 0


def _cell(value: Value) -> str:
    return value if isinstance(value, str) else unparse(value)
