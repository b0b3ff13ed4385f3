"""The members of a store and the leaders of its spaces, as the store has them at one moment.

``dataspace cluster status`` prints them, and each member states them as facts (``membership``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from uuid import UUID

from relay.store.errors import LogFailed
from relay.store.header import SEAL
from relay.store.levels import FIRST as FIRST_LEVEL
from relay.store.postgres.daemons import NOTES, StoreNoted, lacks
from relay.store.postgres.members import Standing
from relay.store.postgres.schema import LEVEL

if TYPE_CHECKING:
    from relay.store.ports import Row
    from relay.store.postgres.database import Database

FIRST: Final = "first"
"""Why a term began: it is the first one of its space."""

ENDED: Final = "ended"
"""The leader before gave the space back, mostly since it ended in order."""

MOVED: Final = "moved"
"""The leader before handed the space over to this one: an operator, ``prefer`` or the spread wanted it."""

LAPSED: Final = "lapsed"
"""The lease of the leader before had run out: it was killed, stopped or cut off from the database."""

SILENT: Final = "silent"
"""The counter of the leader before stood still for a lease by the clock of the daemon that took the space."""


class MemberSeen(NamedTuple):
    """A daemon that has used a store within the last day."""

    name: str
    url: str
    web: str
    version: str
    left: float
    """For how many seconds its lease lasts; negative since it has run out."""
    settings: str
    """A digest of the settings in which the daemons of a store agree."""
    until: float = 0.0
    """When its lease ends, or ended, in seconds since 1970 by the clock of the database; for one that left in
    order, when that was; 0 if that was long ago."""
    is_left: bool = False
    """True if it left in order."""
    drained: float | None = None
    """Since when it is drained, in seconds since 1970; None if it may lead."""
    clients: int | None = None
    """The connections of clients to it, as it said last; None if it is gone, or of an earlier version."""
    lag: Mapping[str, Sequence[int]] | None = None
    """How far it is behind in each space that it follows, in epochs and milliseconds; likewise."""
    level: int = FIRST_LEVEL
    """The highest level of features that it knows."""


class SpaceSeen(NamedTuple):
    """A space of a store, and the daemon that leads it, or led it last."""

    space: str
    term: int
    leader: str | None
    url: str | None
    left: float
    """As of the leader."""
    since: float
    """When the term began, in seconds since 1970."""
    last: str | None
    """The daemon that began the term, by name; None before the first one."""
    before: str | None
    """The daemon that led before; None if there was none, or its name is not known."""
    why: str | None
    """Why the term began: ``first``, ``ended``, ``moved``, ``lapsed`` or ``silent``."""
    pause: float | None = None
    """The seconds before it in which no turn was possible, where the leader before ended its turns in order;
    None until the term serves."""


_STORE: Final = f"""
    (SELECT coalesce(json_agg(json_build_array(
        name, url, web, version, extract(epoch FROM until - clock_timestamp())::float8,
        encode(config, 'hex'), extract(epoch FROM until)::float8, {LEVEL}
    ) ORDER BY name, number DESC), '[]')
    FROM {{s}}.members AS t WHERE until > clock_timestamp() - interval '1 day'),
    (SELECT coalesce(json_agg(json_build_array(
        s.name, t.term, m.name, m.url, coalesce(extract(epoch FROM m.until - clock_timestamp())::float8, -1),
        extract(epoch FROM t.since)::float8, t.leader, t.before, t.why,
        t.nonce, t.wanted, m.web, m.beat,
        CASE WHEN s.name = '' THEN (
            SELECT encode(h.value, 'hex') FROM {{s}}.meta AS h WHERE h.space = s.space AND h.name = '{SEAL}'
        ) ELSE (SELECT max(c.segment)::text FROM {{s}}.segments AS c WHERE c.space = s.space) END
    ) ORDER BY s.name), '[]')
    FROM {{s}}.spaces AS s JOIN {{s}}.terms AS t USING (space) LEFT JOIN {{s}}.members AS m USING (nonce))
"""
VIEW: Final = f"{_STORE}, {NOTES}"
"""Columns of a ``StoreView``, so that a statement about something else answers them too.

Topics are the space without a name: the seal of their header differs after each write, as the newest segment
of a log does.
"""


class StoreView(NamedTuple):
    """The members and spaces of a store, as of a moment."""

    at: float
    """When it was asked for, as of ``monotonic``."""
    members: list[MemberSeen]
    """Each run of a daemon, by name, of one name the latest first."""
    spaces: list[SpaceSeen]
    """The spaces by name."""
    standings: dict[str, Standing]
    """Who leads each space, by its name."""
    written: dict[str, str | None]
    """By space a text that differs once more was written; topics are the space without a name."""
    noted: StoreNoted
    """What is remembered beside that."""

    @classmethod
    def of(cls, at: float, members: Sequence[Row], spaces: Sequence[Row], *notes: list[Row]) -> Self:
        """Returns the view that the columns ``VIEW`` have answered."""
        noted = StoreNoted.of(*notes) if notes else StoreNoted()
        seen = [MemberSeen(*row)._replace(level=level) for *row, level in members]
        pauses = [noted.pauses.get((row[0], row[1])) for row in spaces]
        found = {
            row[0]: SpaceSeen(*row[:9])._replace(pause=pause)
            for row, pause in zip(spaces, pauses, strict=True)
        }
        lives = {each.name for each in seen if each.left > 0 and each.url} - noted.drained
        standings = {}
        for name, *_, nonce, wanted, web, beat, _ in spaces:
            _, term, leader, url, left, *_ = found[name]
            led_by = None if nonce is None else UUID(nonce)
            standings[name] = Standing(term, led_by, wanted, leader, url, web, beat, left, wanted in lives)
        named = [found[name] for name in sorted(filter(None, found))]
        return cls(at, seen, named, standings, {row[0]: row[-1] for row in spaces}, noted)

    def aged(self, seconds: float) -> Self:
        """Returns it with leases that last so much shorter."""
        return self._replace(
            members=[each._replace(left=each.left - seconds) for each in self.members],
            spaces=[each._replace(left=each.left - seconds) for each in self.spaces],
            standings={
                name: each._replace(left=each.left - seconds) for name, each in self.standings.items()
            },
        )

    @property
    def daemons(self) -> list[MemberSeen]:
        """The daemons by name, also those that are gone."""
        return _with_notes(latest_of(self.members), self.noted)

    @property
    def candidates(self) -> list[str]:
        """The name of each member whose lease lasts, which serves clients already, and is not drained."""
        drained = self.noted.drained
        return [each.name for each in self.members if each.left > 0 and each.url and each.name not in drained]


def view_of(database: Database) -> StoreView:
    """Returns the members and spaces of a store; raises as ``rows``."""
    at = monotonic()
    try:
        return StoreView.of(at, *database.rows(f"SELECT {VIEW}", {})[0])
    except LogFailed as failure:
        if not lacks(failure):
            raise
    return StoreView.of(at, *database.rows(f"SELECT {_STORE}", {})[0])


def latest_of(members: Sequence[MemberSeen]) -> list[MemberSeen]:
    """Returns the runs that are daemons now, and of each name without any the latest run, which is gone.

    ``members`` are those of a ``StoreView``.  A run whose lease lasts is gone if a later run has its
    name and its URL: the daemon was killed and started again.  Commands, which have no URL, are no daemons.
    """
    found: list[MemberSeen] = []
    for each in members:
        same_name = [other for other in found if other.name == each.name]
        if each.url and (not same_name or (each.left > 0 and each.url not in [a.url for a in same_name])):
            found.append(each)
    return [each for each in found if each.left > 0 or not _lives(each.name, found)]


def _lives(name: str, members: Sequence[MemberSeen]) -> bool:
    return any(each.name == name and each.left > 0 for each in members)


def _with_notes(latest: Sequence[MemberSeen], noted: StoreNoted) -> list[MemberSeen]:
    """Returns the daemons, as of ``latest_of``, with what is noted of them, and those that left in order."""
    found: list[MemberSeen] = []
    for each in latest:
        row = noted.daemons.get(each.name)
        if row is not None:
            said = json.loads(row.said) if row.said and each.left > 0 and row.url == each.url else {}
            each = each._replace(drained=row.drained, clients=said.get("clients"), lag=said.get("lag"))
        found.append(each)
    names = {each.name for each in latest}
    for name, row in noted.daemons.items():
        if name not in names and (row.gone is not None or row.drained is not None):
            seen = MemberSeen(name, row.url, "", row.version, -1.0, "", row.gone or 0.0, row.gone is not None)
            found.append(seen._replace(drained=row.drained))
    return found
