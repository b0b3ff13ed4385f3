"""The members of a store and the leaders of its spaces, as the store has them at one moment.

``dataspace cluster status`` prints them, and each member states them as facts (``membership``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from relay.store.levels import FIRST as FIRST_LEVEL
from relay.store.postgres.schema import LEVEL

if TYPE_CHECKING:
    from relay.store.postgres.daemons import StoreNoted
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
    order, when that was."""
    is_left: bool = False
    """True if it left in order."""
    drained: float | None = None
    """Since when it is drained, in seconds since 1970; None if it may lead."""
    connections: int | None = None
    """Its connections, as it said last; None if it is gone, or of an earlier version."""
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


_MEMBERS: Final = f"""
SELECT name, url, web, version, extract(epoch FROM until - clock_timestamp())::float8,
    encode(config, 'hex'), extract(epoch FROM until)::float8, {LEVEL}
FROM {{s}}.members AS t WHERE until > clock_timestamp() - interval '1 day' ORDER BY name, number DESC
"""
_SPACES: Final = """
SELECT s.name, t.term, m.name, m.url,
    coalesce(extract(epoch FROM m.until - clock_timestamp())::float8, -1),
    extract(epoch FROM t.since)::float8, t.leader, t.before, t.why
FROM {s}.spaces AS s JOIN {s}.terms AS t USING (space) LEFT JOIN {s}.members AS m USING (nonce)
WHERE s.name <> '' ORDER BY s.name
"""


def members_of(database: Database) -> list[MemberSeen]:
    """Returns each run of a daemon of a store, by name, of one name the latest first; raises as ``rows``."""
    return [MemberSeen(*row)._replace(level=level) for *row, level in database.rows(_MEMBERS, {})]


def latest_of(members: Sequence[MemberSeen]) -> list[MemberSeen]:
    """Returns the runs that are daemons now, and of each name without any the latest run, which is gone.

    ``members`` are as ``members_of`` returns them.  A run whose lease lasts is gone if a later run has its
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


def spaces_of(database: Database, noted: StoreNoted) -> list[SpaceSeen]:
    """Returns the spaces of a store by name, with their pauses as they are noted; raises as ``rows``."""
    found = [SpaceSeen(*row) for row in database.rows(_SPACES, {})]
    return [each._replace(pause=noted.pauses.get((each.space, each.term))) for each in found]


def with_notes(latest: Sequence[MemberSeen], noted: StoreNoted) -> list[MemberSeen]:
    """Returns the daemons, as of ``latest_of``, with what is noted of them, and those that left in order."""
    found: list[MemberSeen] = []
    for each in latest:
        row = noted.daemons.get(each.name)
        if row is not None:
            said = json.loads(row.said) if row.said and each.left > 0 and row.url == each.url else {}
            each = each._replace(
                drained=row.drained, connections=said.get("connections"), lag=said.get("lag")
            )
        found.append(each)
    names = {each.name for each in latest}
    for name, row in noted.daemons.items():
        if name not in names and (row.gone is not None or row.drained is not None):
            seen = MemberSeen(name, row.url, "", row.version, -1.0, "", row.gone or 0.0, row.gone is not None)
            found.append(seen._replace(drained=row.drained))
    return found
