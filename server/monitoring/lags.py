"""Lags: how far behind are the named readers of each space, such as Spark's queries?

A Python source of Spark cannot put this into the query's progress, so the daemon says it: as facts
``reader(name, space, epoch, changes, seconds)`` in the space ``system``, and as metrics.

Always: a reader that the log knows has one fact, at most ``PAUSE`` seconds old; a lag is computed again only
if its reader or the log has moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from dataspace.errors import Refused
from index.values.values import Record
from relay.store.errors import LogDamaged
from server.spaces.space import HostedSpace
from server.system import SystemSpace

PAUSE: Final = 2.0
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """How many changes a reader has not acknowledged, and for how many seconds the oldest of them waits."""

    name: str
    epoch: int
    changes: int = 0
    since: int = 0
    """Microseconds since 1970 at which the oldest unread epoch was made; 0 if there is none."""

    @property
    def seconds(self) -> float:
        return max(0.0, time.time() - self.since / 1e6) if self.since else 0.0


@dataclass(slots=True)
class _Look:
    durable: int = -1
    lags: dict[str, ReaderLag] = field(default_factory=dict)


class ReaderLags:
    """The lags of all named readers of a daemon."""

    def __init__(self, system: SystemSpace) -> None:
        self._system = system
        self._looks: dict[str, _Look] = {}
        self._stated: dict[Record, int] = {}

    def of(self, space: str) -> Sequence[ReaderLag]:
        """Returns the lags of the readers of a space, as they were found last."""
        look = self._looks.get(space)
        return [] if look is None else list(look.lags.values())

    async def run(self, spaces: Callable[[], Iterable[HostedSpace]]) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await trio.sleep(PAUSE)
            await self.measure(list(spaces()))

    async def measure(self, spaces: Sequence[HostedSpace]) -> None:
        """Looks at all readers; O(segments behind each that moved), in a thread."""
        looks: dict[str, _Look] = {}
        for hosted in spaces:
            if hosted.leads and len(hosted.leading.log.readers):
                before = self._looks.get(hosted.name, _Look())
                looks[hosted.name] = await trio.to_thread.run_sync(_looked, hosted, before)
        self._looks = looks
        facts = {
            Record("reader", each.name, space, each.epoch, each.changes, int(each.seconds))
            for space, look in looks.items()
            for each in look.lags.values()
        }
        self._system.replace(self._stated, facts)


def _looked(hosted: HostedSpace, before: _Look) -> _Look:
    log, durable = hosted.leading.log, hosted.commits.durable
    found = _Look(durable)
    for reader in log.readers:
        known = before.lags.get(reader.name)
        if known is None or known.epoch != reader.epoch or before.durable != durable:
            try:
                known = ReaderLag(reader.name, reader.epoch, *log.behind(reader.epoch))
            except (Refused, LogDamaged):  # its epochs were deleted just now, or cannot be read
                known = ReaderLag(reader.name, reader.epoch)
        found.lags[reader.name] = known
    return found
