"""The replay: three clients, one for each airport of New York, that bring its flights to the daemon.

Each owns its facts durably under its own name and numbers its turns by their place in the year.  When it is
started again it receives the number of its last turn that took effect and goes on after that one, so nothing
is retracted and nothing is repeated; a connection lost on the way is mended by the client library with the
same numbers.  Turns are sent without waiting for the ones before, within a window.

It runs as a program of its own, which the demo starts, and writes one JSON object a line to say
how far it is: ``{"replayed": 4711, "sent": 4000, "at": 22617255, "seconds": 1.2}``, the last one with
the ``epoch`` up to which everything is on the daemon's disk.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from dataspace import Draft, Record, RemoteSpace, Ticket, connect
from examples.flights.flights import MONTHS, ORIGINS, SLOT, Flight, Turn, read, turns

WINDOW: Final = 512
"""Turns of one client that may be on their way to the daemon's disk."""

_REPORT_EVERY: Final = 0.2
"""Seconds between two reports."""


class Report:
    """How far a replay is: changes in all, those of this run, and the flight time come to (minutes)."""

    def __init__(self) -> None:
        self.replayed = 0
        self.sent = 0
        self.at = 0

    def known(self, turns: Sequence[Turn]) -> None:
        """The daemon has these turns from a run before."""
        self.replayed += sum(turn.changes for turn in turns)

    def accepted(self, turn: Turn, epoch: int) -> None:
        """A turn is on the daemon's disk, as this epoch."""
        self.replayed += turn.changes
        self.sent += turn.changes
        self.at = max(self.at, turn.slot * SLOT)


class Pace:
    """Holds turns back so that flight time passes at a speed: hours of flight time a second."""

    def __init__(self, speed: float) -> None:
        self._minutes = speed * 60
        self._began: float | None = None

    async def wait(self, turn: Turn) -> None:
        """Waits until a turn is due; the first turn of all is due at once."""
        after = turn.slot * SLOT / self._minutes
        if self._began is None:
            self._began = trio.current_time() - after
        await trio.sleep_until(self._began + after)


async def replay(
    url: str, flights: Sequence[Flight], report: Report, pace: Pace | None = None, *, delays: bool = False
) -> int:
    """Replays the flights, or what is left of them; the epoch up to which all is on disk.

    With ``delays`` each departure is also a message ``departed(origin, minutes)``, which is not counted.
    """
    async with trio.open_nursery() as nursery:
        for origin in ORIGINS:
            nursery.start_soon(_replay_origin, url, origin, turns(flights, origin), report, pace, delays)
    async with connect(url, name="replay") as space:
        return await space.sync()


async def _replay_origin(
    url: str, origin: str, todo: Sequence[Turn], report: Report, pace: Pace | None, delays: bool
) -> None:
    writer = f"replay-{origin}"
    async with connect(url, name=f"replay {origin}", owner=writer, client=writer) as space:
        done = space.sequence
        report.known(todo[:done])
        on_their_way: deque[tuple[Turn, Ticket]] = deque()
        for turn in todo[done:]:
            if pace is not None:
                await pace.wait(turn)
            on_their_way.append((turn, await space.submit(_draft(space, turn, delays))))
            while on_their_way and (on_their_way[0][1].done or len(on_their_way) >= WINDOW):
                await _settle(on_their_way.popleft(), report)
        for each in on_their_way:
            await _settle(each, report)


async def _settle(sent: tuple[Turn, Ticket], report: Report) -> None:
    """Waits until a turn is on the daemon's disk; raises ``Refused`` if the daemon refused it."""
    turn, ticket = sent
    report.accepted(turn, await ticket.wait())


def _draft(space: RemoteSpace, turn: Turn, delays: bool) -> Draft:
    """The turn as actions; a flight's row in the file is its handle for good."""
    draft = space.draft()
    for flight in turn.departures:
        draft.assert_(flight.record(), handle=flight.row)
    for flight in turn.messages:
        draft.send(flight.record())
    for flight in turn.departures if delays else ():
        assert flight.departed is not None  # it is in the air
        draft.send(Record("departed", flight.origin, flight.departed - flight.scheduled))
    for flight in turn.landings:
        draft.retract(flight.row)
    return draft


async def _run(url: str, flights: Sequence[Flight], pace: Pace | None, delays: bool) -> None:
    report, began = Report(), time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tell, report, began)
        epoch = await replay(url, flights, report, pace, delays=delays)
        nursery.cancel_scope.cancel()
    _say(report, began, epoch=epoch)


async def _tell(report: Report, began: float) -> None:
    while True:
        _say(report, began)
        await trio.sleep(_REPORT_EVERY)


def _say(report: Report, began: float, **more: int) -> None:
    seconds = time.monotonic() - began
    line = {"replayed": report.replayed, "sent": report.sent, "at": report.at, "seconds": seconds, **more}
    print(json.dumps(line), flush=True)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", required=True, help="the daemon's address")
    parser.add_argument("--months", type=int, default=MONTHS, help="only the first so many months")
    parser.add_argument("--file", type=Path, help="another file of flights than the installed one")
    parser.add_argument("--speed", type=float, help="hours of flight time a second (else as fast as it goes)")
    parser.add_argument("--delays", action="store_true", help="send a message for each departure as well")
    said = parser.parse_args()
    pace = Pace(said.speed) if said.speed else None
    trio.run(_run, said.url, read(said.months, said.file), pace, said.delays)


if __name__ == "__main__":
    main()
