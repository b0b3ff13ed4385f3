"""The command top: the daemon and its sessions, drawn again and again on a terminal.

Rich, which draws them, is an extra and is loaded here alone.

Always: what clients call themselves cannot control the terminal; the screen is as it was when the command
ends.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

import trio

from dataspace.client.space import RemoteSpace
from dataspace.errors import Refused, UsageError
from dataspace.foreign import tame
from index.values.values import Map
from server.cli.connecting import connect
from server.cli.once.sessions import COLUMNS, Fields, cells, listed, ordered, since_text
from server.cli.output import size_text
from server.config.units import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

AROUND: Final = 12
"""Lines beside the sessions: the summary, the table's header and borders, and the last line."""

LOSSES: Final = {
    "slow_conflated_epochs": "epochs conflated",
    "slow_dropped_changes": "changes dropped",
    "slow_failed_streams": "streams failed",
    "slow_fallen_behind": "fallen behind",
}


async def top(args: argparse.Namespace) -> int:
    """Draws until interrupted, or as often as ``--count`` says."""
    if args.count is None and not sys.stdout.isatty():
        raise UsageError("top draws on a terminal: for a file or a program, use --count, status or sessions")
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        raise UsageError("top needs rich: pip install 'dataspace-server[terminal]'") from None
    console, pause = Console(), duration(args.every)
    async with connect(args) as space:
        glance = Glance()
        if args.count is not None:
            for at in range(args.count):
                if at:
                    await trio.sleep(pause)
                await glance.fetch(space)
                console.print(drawn(glance, args.sort, sys.maxsize))
            return 0
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                await glance.fetch(space)
                live.update(drawn(glance, args.sort, console.size.height - AROUND), refresh=True)
                await trio.sleep(pause)


class Glance:
    """The last view of the daemon, and its difference to the view before."""

    def __init__(self) -> None:
        self.status: Fields = {}
        self.sessions: list[Fields] = []
        self.withheld = ""
        """Why no sessions are shown."""
        self.epochs_per_second = self.rules_share = 0.0

    async def fetch(self, space: RemoteSpace) -> None:
        """Asks the daemon."""
        answer = await space.status()
        try:
            self.sessions = listed(await space.request("sessions", Map()))
        except Refused as refusal:
            self.withheld = refusal.text
        self.update({str(name): value for name, value in answer.pairs()})

    def update(self, status: Fields) -> None:
        """Takes a status, and computes rates since the one before."""
        before, self.status = self.status, status
        spent = (self.number("now") - _number(before, "now")) / 1e6
        if before and spent > 0:
            self.epochs_per_second = (self.number("epoch") - _number(before, "epoch")) / spent
            rules = self.number("rules_milliseconds") - _number(before, "rules_milliseconds")
            self.rules_share = rules / 1000 / spent

    def number(self, name: str) -> float:
        """Returns a count of the status; 0 where it is not shown."""
        return _number(self.status, name)

    def turns_per_second(self) -> float:
        """Returns the turns of all sessions that are shown."""
        return sum([_number(each, "turns_per_second") for each in self.sessions])


def _number(fields: Fields, name: str) -> float:
    value = fields.get(name, 0)
    return value if isinstance(value, int | float) else 0.0


def summary(glance: Glance) -> list[tuple[str, str]]:
    """Returns the lines above the sessions: a word, and its text."""
    number, status = glance.number, glance.status
    lost = [f"{number(name):.0f} {said}" for name, said in LOSSES.items() if number(name)]
    full = ", DISK FULL" if status.get("disk_full") is True else ""
    costliest = f", most by {status['costliest_rule']!s}" if status.get("costliest_rule") else ""
    return [
        (
            "daemon",
            f"{status.get('version')!s}, up {since_text((number('now') - number('started')) / 1e6)}, "
            f"space {status.get('space')!s}{full}",
        ),
        (
            "turns",
            f"{glance.turns_per_second():.1f} turns/s, {glance.epochs_per_second:.1f} epochs/s, "
            f"epoch {number('epoch'):.0f} ({number('durable_epoch'):.0f} on disk)",
        ),
        (
            "clients",
            f"{number('sessions'):.0f} sessions, {number('sessions_waiting'):.0f} suspended, "
            f"{number('streams'):.0f} streams, {number('replays_reading'):.0f} replays reading",
        ),
        (
            "facts",
            f"{number('facts'):.0f} ({size_text(int(number('facts_bytes')))}), "
            f"{number('observers'):.0f} observers of {number('patterns'):.0f} patterns, "
            f"{number('topics'):.0f} topics",
        ),
        (
            "rules",
            f"{number('rules'):.0f} rules, {100 * glance.rules_share:.1f} % of the thread{costliest}, "
            f"{number('rules_suspended'):.0f} suspended",
        ),
        (
            "memory",
            f"{size_text(int(number('memory_accounted_bytes')))} of {size_text(int(number('memory_limit')))} "
            f"accounted, {size_text(int(number('memory_bytes')))} resident, "
            f"{size_text(int(number('waiting_bytes')))} wait for observers, "
            f"{size_text(int(number('disk_bytes')))} on disk",
        ),
        ("slow", ", ".join(lost) or "nothing lost"),
    ]


def drawn(glance: Glance, sort: str, room: int) -> RenderableType:
    """Returns what is drawn, with at most ``room`` sessions."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    above = Table.grid(padding=(0, 2))
    for word, said in summary(glance):
        above.add_row(Text(word, style="bold"), Text(tame(said)))
    table = Table(expand=True, box=None, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        ratio = 1 if name in ("name", "principal", "address") else None  # these give room to the others
        table.add_column(name, overflow="ellipsis", no_wrap=True, ratio=ratio)
    shown = ordered(glance.sessions, sort)[: max(1, room)]
    for each in shown:
        table.add_row(*[Text(cell) for cell in cells(each)])
    left = len(glance.sessions) - len(shown)
    said = glance.withheld or (f"{left} more sessions" if left else "dataspace sessions end ID ends one")
    return Group(above, table, Text(tame(said), style="dim"))
