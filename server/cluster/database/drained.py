"""Draining a daemon: it hands over all that it leads, and leads nothing until it is resumed.

That is a row of the store, so it may be asked of any daemon, about one that is down as well, and a restart
changes nothing.  A drained daemon follows and serves readers.  It leads only while no other daemon lives, and
hands over again once one is back.

Always: of the living daemons one at least is not drained by a command.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from dataspace.errors import Refused
from index.values.values import Map
from relay.store.postgres.daemons import DaemonNotes
from relay.store.postgres.database import Database
from relay.store.postgres.members import SpaceTerms
from server.cluster.database.cluster_state import SpaceSeen, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relay.store.address import StoreAddress

DRAIN, RESUME = "drain", "resume"


@contextmanager
def asking(address: StoreAddress, name: str) -> Iterator[Callable[[str], Map]]:
    """Lends what returns the role of a daemon, and drains or resumes it, without any daemon."""
    with closing(Database(address)) as database, closing(SpaceTerms(database)) as terms:
        database.check()
        database.prepare()
        yield lambda do: packed(role_of(database, DaemonNotes(terms), name, do))


class DaemonRole(NamedTuple):
    """What a daemon of a store leads, and who leads the other spaces."""

    drained: float | None
    """Since when it is drained, in seconds since 1970; None if it is not."""
    changed: bool
    """True if this was asked for now, and was not so before."""
    led: list[SpaceSeen]
    """The spaces that it leads."""
    others: list[SpaceSeen]
    """The spaces that another living daemon leads, with the pause before its term."""


def role_of(database: Database, notes: DaemonNotes, name: str, do: str) -> DaemonRole:
    """Drains a daemon, or resumes it, and returns its role; any other word changes nothing.

    Raises ``Refused``: ``no-daemon`` for a name that is not known, ``last-daemon`` where no other daemon
    could lead.  Raises ``LogFailed``.
    """
    view = view_of(database)
    known = {each.name for each in view.daemons if each.url} | view.noted.drained
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise Refused("no-daemon", f"no daemon {name!r:.80} uses {database.place}, but {names}")
    changed = False
    if do == RESUME:
        changed = notes.resume(name)
    elif do == DRAIN:
        _check_others(database, name)
        changed = notes.drain(name)
        try:
            _check_others(database, name)  # two may be drained at one moment
        except Refused:
            if changed:
                notes.resume(name)
            raise
    view = view_of(database)
    found = view.noted.daemons.get(name)
    return DaemonRole(
        None if found is None else found.drained,
        changed,
        [each for each in view.spaces if each.left > 0 and each.leader == name],
        [each for each in view.spaces if each.left > 0 and each.leader != name],
    )


def packed(role: DaemonRole) -> Map:
    """Returns a role as the answer to a request."""
    return Map(
        {
            "drained": None if role.drained is None else round(role.drained * 1_000_000),
            "changed": role.changed,
            "leads": tuple([each.space for each in role.led]),
            "leaders": Map({each.space: (each.leader, each.term, each.pause) for each in role.others}),
        }
    )


def _check_others(database: Database, name: str) -> None:
    view = view_of(database)
    if not any(each != name for each in view.candidates):
        living = {each.name for each in view.members if each.left > 0 and each.url}
        still = sorted(living & view.noted.drained - {name})
        resume = f", or resume {', '.join(still)}" if still else ""
        raise Refused(
            "last-daemon", f"no other daemon of {database.place} could lead: start one first{resume}"
        )
