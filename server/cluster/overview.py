"""The members of a store and the leaders of its spaces, as the store has them at one moment.

``dataspace cluster status`` prints them, and each member states them as facts (``membership``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
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


_MEMBERS: Final = """
SELECT name, url, web, version, extract(epoch FROM until - clock_timestamp())::float8,
    encode(config, 'hex')
FROM {s}.members WHERE until > clock_timestamp() - interval '1 day' ORDER BY name, until DESC
"""
_SPACES: Final = """
SELECT s.name, t.term, m.name, m.url,
    coalesce(extract(epoch FROM m.until - clock_timestamp())::float8, -1),
    extract(epoch FROM t.since)::float8, t.leader, t.before, t.why
FROM {s}.spaces AS s JOIN {s}.terms AS t USING (space) LEFT JOIN {s}.members AS m USING (nonce)
WHERE s.name <> '' ORDER BY s.name
"""


def members_of(database: Database) -> list[MemberSeen]:
    """Returns the daemons of a store by name, of one name the latest first; raises as ``rows``."""
    return [MemberSeen(*row) for row in database.rows(_MEMBERS, {})]


def spaces_of(database: Database) -> list[SpaceSeen]:
    """Returns the spaces of a store by name; raises as ``rows``."""
    return [SpaceSeen(*row) for row in database.rows(_SPACES, {})]
