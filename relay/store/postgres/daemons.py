"""Daemons by name: what a store remembers of them beside their leases, and how long spaces had no leader.

A member is one run of a daemon (``members``); what an operator says about a daemon outlives its runs, and so
do the time at which it left and the pause that a hand-over made.  An earlier version knows nothing of these
tables and is not hurt by them, so they come without another format of the store.

    daemons     by name: drained since when, and when it left in order; what its present run says of itself
    handovers   by space: the last term that was given up in order, when its turns ended, and when the turns
                of the next term began

Always: nothing here is needed for safety; what is lost with a failover of the database is asked for again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from psycopg import errors

if TYPE_CHECKING:
    from relay.store.ports import Row
    from relay.store.postgres.members import SpaceTerms

KEPT_SECONDS: Final = 86_400
MOST_GONE: Final = 64
"""For how long, and of how many, the store remembers who has left."""

SAY_SECONDS: Final = 1.0
"""How long a daemon says nothing new: how far it is behind changes each moment."""

_DRAIN: Final = """
INSERT INTO {s}.daemons AS d (name, drained) VALUES (%(name)s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET drained = clock_timestamp() WHERE d.drained IS NULL RETURNING name
"""
_RESUME: Final = """
UPDATE {s}.daemons SET drained = NULL WHERE name = %(name)s AND drained IS NOT NULL RETURNING name
"""
_SAY: Final = """
INSERT INTO {s}.daemons (name, url, version, said) VALUES (%(name)s, %(url)s, %(version)s, %(said)s)
ON CONFLICT (name) DO UPDATE SET
    url = EXCLUDED.url, version = EXCLUDED.version, said = EXCLUDED.said, gone = NULL
"""
_LEFT: Final = """
INSERT INTO {s}.daemons (name, url, version, gone)
VALUES (%(name)s, %(url)s, %(version)s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET
    url = EXCLUDED.url, version = EXCLUDED.version, said = NULL, gone = EXCLUDED.gone
"""
_FORGET: Final = """
DELETE FROM {s}.daemons AS d WHERE drained IS NULL
AND NOT EXISTS (SELECT FROM {s}.members AS m WHERE m.name = d.name)
AND (
    coalesce(gone, '-infinity') < clock_timestamp() - make_interval(secs => %(kept)s)
    OR (SELECT count(*) FROM {s}.daemons AS later WHERE later.gone > d.gone) >= %(most)s
)
"""
_STOPPED: Final = """
INSERT INTO {s}.handovers AS h (space, term, stopped)
VALUES (%(space)s, %(term)s, clock_timestamp() - make_interval(secs => %(ago)s))
ON CONFLICT (space) DO UPDATE SET term = EXCLUDED.term, stopped = EXCLUDED.stopped, served = NULL
WHERE h.term < EXCLUDED.term
"""
_SERVED: Final = """
UPDATE {s}.handovers SET served = clock_timestamp()
WHERE space = %(space)s AND term = %(term)s - 1 AND served IS NULL
"""
NOTES: Final = """
    (SELECT coalesce(json_agg(json_build_array(
        name, url, version, extract(epoch FROM drained)::float8, extract(epoch FROM gone)::float8, said
    ) ORDER BY name), '[]') FROM {s}.daemons),
    (SELECT coalesce(json_agg(json_build_array(
        s.name, h.term, extract(epoch FROM h.served - h.stopped)::float8
    ) ORDER BY s.name), '[]') FROM {s}.handovers AS h JOIN {s}.spaces AS s USING (space))
"""
"""Columns of a ``StoreNoted``, so that a statement about something else answers them too."""


class DaemonNoted(NamedTuple):
    """What a store remembers of a daemon by its name."""

    name: str
    url: str
    version: str
    drained: float | None
    """Since when an operator has it drained, in seconds since 1970; None if it may lead."""
    gone: float | None
    """When it left in order, likewise; None if it has not."""
    said: str | None
    """What its present run said of itself last, as JSON."""


class StoreNoted(NamedTuple):
    """What a store remembers beside members and terms."""

    daemons: Mapping[str, DaemonNoted] = MappingProxyType({})
    """By name."""
    pauses: Mapping[tuple[str, int], float] = MappingProxyType({})
    """By space and the term that began: the seconds in which no turn was possible."""

    @property
    def drained(self) -> frozenset[str]:
        """The name of each daemon that is drained."""
        return frozenset([name for name, each in self.daemons.items() if each.drained is not None])

    @classmethod
    def of(cls, daemons: list[Row], handovers: list[Row]) -> Self:
        """Returns what the columns ``NOTES`` have answered."""
        return cls(
            {row[0]: DaemonNoted(*row) for row in daemons},
            {(name, term + 1): max(0.0, pause) for name, term, pause in handovers if pause is not None},
        )


def lacks(failure: Exception) -> bool:
    """True if a question failed since tables are not there, as only earlier versions have used a store."""
    return isinstance(failure.__cause__, errors.UndefinedTable)


class DaemonNotes:
    """Writes it, over the connection of ``terms``: no commit waits for a standby."""

    def __init__(self, terms: SpaceTerms) -> None:
        self._ask: Final = terms.ask_rows
        self._said_at = 0.0
        """When this daemon said something of itself last, as of ``monotonic``."""
        self._has_left = False
        self._lock: Final = threading.Lock()
        """Held while this daemon says something of itself, or leaves."""

    def drain(self, name: str) -> bool:
        """Drains a daemon until ``resume``; False if it is already."""
        return bool(self._ask(_DRAIN, name=name))

    def resume(self, name: str) -> bool:
        """Has a daemon lead again; False if it was not drained."""
        return bool(self._ask(_RESUME, name=name))

    def is_new(self, noted: DaemonNoted | None, at: float, url: str, said: str) -> bool:
        """True if ``say`` is worth a write: the store had ``noted`` other words, and ``at`` a time, as of
        ``monotonic``, after they were written, which was not just now."""
        if at <= self._said_at or monotonic() - self._said_at <= SAY_SECONDS:
            return False
        return noted is None or noted.gone is not None or (noted.url, noted.said) != (url, said)

    def say(self, name: str, url: str, version: str, said: str) -> None:
        """Notes what a daemon says of itself, as JSON, and that it is here; nothing once it has left."""
        with self._lock:
            if not self._has_left:
                self._ask(_SAY, name=name, url=url, version=version, said=said)
                self._said_at = monotonic()

    def leave(self, name: str, url: str, version: str) -> None:
        """Notes that a daemon has left in order, and forgets those who left long ago."""
        with self._lock:
            self._has_left = True
            self._ask(_LEFT, name=name, url=url, version=version)
        self._ask(_FORGET, kept=KEPT_SECONDS, most=MOST_GONE)

    def stopped(self, space: int, term: int, ago: float) -> None:
        """Notes that turns of a term have ended, so many seconds ago."""
        self._ask(_STOPPED, space=space, term=term, ago=ago)

    def served(self, space: int, term: int) -> None:
        """Notes that turns of a term are possible from now on."""
        self._ask(_SERVED, space=space, term=term)
