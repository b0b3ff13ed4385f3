"""A store, read beside the daemons that use it: its logs, and who leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from math import inf
from time import monotonic, sleep
from typing import Final, NamedTuple

from dataspace.errors import Unreachable, UsageError
from relay.journal.reader import JournalReader
from relay.log.reader import LogReader
from relay.space_registers import space_registers
from relay.store.address import StoreAddress
from relay.store.errors import LogAway
from relay.store.levels import LATEST
from relay.store.ports import TopicTables
from relay.store.postgres.database import Database
from relay.store.postgres.durability import SETTINGS, Durability
from relay.store.postgres.members import SpaceTerms
from relay.store.postgres.schema import JOINS_WAIT, RAISE, STATED
from relay.store.postgres.tables import PostgresLog
from relay.store.postgres.topics import PostgresTopics
from server.cluster.database.cluster_state import MOVED, MemberSeen, SpaceSeen, view_of
from server.cluster.database.store import TOPICS

ROLE_SECONDS: Final = 2.0
"""Seconds in which a daemon that takes another role, for which it joins anew, is a member again."""

PAUSE_SECONDS: Final = 2.0
"""Seconds for which a move waits for the pause, which not every end of a leader writes."""

UPGRADE_SECONDS: Final = 10.0
"""Seconds for which an upgrade is tried while other transactions are in its way."""

LOOK_SECONDS: Final = 0.05
"""How often a move looks who leads."""


@contextmanager
def reading(address: StoreAddress, space: str) -> Iterator[tuple[LogReader, Callable[[], JournalReader]]]:
    """Lends the log of a space of a store, and what opens its topics; changes nothing.

    Raises ``UsageError`` for a space that is not there, and ``LogFailed`` if the store cannot be read.
    """
    with _opened(address) as database:
        spaces = dict(database.rows("SELECT name, space FROM {s}.spaces", {}))
        if space not in spaces:
            names = ", ".join(sorted(filter(None, spaces)))
            raise UsageError(f"there is no log of space {space!r} in {address}, but of {names or 'none'}")
        yield (
            LogReader.over(PostgresLog(database, spaces[space]), registers=space_registers),
            lambda: JournalReader(PostgresTopics(database, spaces[TOPICS])),
        )


@contextmanager
def reading_topics(address: StoreAddress) -> Iterator[TopicTables | None]:
    """Lends the tables of the durable topics of a store, None if it has none; changes nothing."""
    with _opened(address) as database:
        spaces = dict(database.rows("SELECT name, space FROM {s}.spaces", {}))
        yield PostgresTopics(database, spaces[TOPICS]) if TOPICS in spaces else None


@contextmanager
def _opened(address: StoreAddress) -> Iterator[Database]:
    with closing(Database(address)) as database:
        database.check()
        yield database


class StoreSeen(NamedTuple):
    """What a store says of its daemons, and promises of acknowledged turns."""

    members: list[MemberSeen]
    """Each run of a daemon, and commands."""
    daemons: list[MemberSeen]
    """The daemons by name, also those that are gone."""
    spaces: list[SpaceSeen]
    level: int
    """The level of features in force."""
    durability: Durability
    connections: dict[str, int]
    """How many connections to the database each daemon has, by name, as far as the role may see."""
    allowed: int
    """How many the database allows all its users together."""


_CONNECTIONS: Final = """
SELECT application_name, count(*)::int FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'dataspace %%' AND pid <> pg_backend_pid()
GROUP BY 1 ORDER BY 1
"""
_ALLOWED: Final = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
"""


def move(address: StoreAddress, space: str, daemon: str, *, patience: float) -> SpaceSeen:
    """Moves a space to another daemon, and returns the space once that leads it.

    Raises ``UsageError`` for a space or a daemon that is not there, ``Unreachable`` if it takes too long.
    """
    until = monotonic() + ROLE_SECONDS
    while True:
        store = seen(address)
        living = {each.name: each for each in store.daemons if each.left > 0 and each.url}
        if daemon in living:
            if living[daemon].drained is not None:
                raise UsageError(f"{daemon} is drained, and leads nothing before `cluster resume {daemon}`")
            break
        if monotonic() > until:
            names = ", ".join(sorted(living)) or "none"
            raise UsageError(f"no daemon {daemon!r} uses {address}, but {names}")
        sleep(LOOK_SECONDS)
    if space not in [each.space for each in store.spaces]:
        names = ", ".join([each.space for each in store.spaces])
        raise UsageError(f"there is no space {space!r} in {address}, but {names or 'none'}")
    until, wished, led = monotonic() + patience, -1, inf
    with closing(Database(address)) as database, closing(SpaceTerms(database)) as terms:
        number = terms.space(space)
        while True:
            [found] = [each for each in seen(address).spaces if each.space == space]
            if found.leader == daemon and found.left > 0:
                # A daemon of an earlier version does not say when it serves.
                says = living[daemon].lag is not None and found.before is not None and found.why == MOVED
                led = min(led, monotonic())
                if found.pause is not None or not says or monotonic() > led + PAUSE_SECONDS:
                    return found
            elif found.term != wished:  # a space that is just free forgets the wish
                terms.want(number, daemon)
                wished = found.term
            if led == inf and monotonic() > until:
                leader = found.leader if found.left > 0 else "no daemon"
                raise Unreachable(f"{leader} leads space {space} after {patience:g} s, not {daemon}")
            sleep(LOOK_SECONDS)


def upgrade(address: StoreAddress) -> int:
    """Raises the level of a store to the latest one that this program knows, and returns it; never lowers it.

    Raises ``UsageError`` while a daemon lives that knows less.
    """
    with closing(Database(address)) as database:
        database.prepare()
        until = monotonic() + UPGRADE_SECONDS
        while True:
            try:
                _upgrade(database)
            except LogAway:  # also where it waits for another transaction, and renewals behind it
                if monotonic() > until:
                    raise
            else:
                return LATEST
            sleep(LOOK_SECONDS)


def _upgrade(database: Database) -> None:
    with database.translated("upgrade"), database.connect(writes=True) as connection:
        with connection.transaction():
            # A daemon joins before this, and is seen, or finds the new level.
            connection.execute(database.statement(JOINS_WAIT))
            for each in view_of(database).members:
                if each.left > 0 and each.level < LATEST:
                    raise UsageError(
                        f"{each.name} at {each.url or 'no address'} knows features up to level"
                        f" {each.level}, this program up to level {LATEST}: upgrade that daemon first"
                    )
            connection.execute(database.statement(RAISE))


def seen(address: StoreAddress) -> StoreSeen:
    """Returns the state of a store; ``LogFailed`` if it cannot be read."""
    with _opened(address) as database:
        view = view_of(database)
        return StoreSeen(
            view.members,
            view.daemons,
            view.spaces,
            database.rows(STATED, {})[0][1],
            Durability(*database.rows(f"SELECT {SETTINGS}", {})[0]),
            {name.partition(" ")[2]: held for name, held in database.rows(_CONNECTIONS, {})},
            database.rows(_ALLOWED, {})[0][0],
        )
