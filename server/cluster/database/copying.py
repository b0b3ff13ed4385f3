"""A store as one end of a copy: read as of one moment, or written by a member that leads its spaces; and
as the source of a backup, in many moments."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final

from dataspace.errors import UsageError
from relay.backup.backup import MAIN, BackupSource
from relay.backup.copies import CopyPace, TablesMoment
from relay.backup.copy_home import CopyEnd, staged_file, topics_file
from relay.store.address import StoreAddress
from relay.store.errors import LogFailed
from relay.store.postgres.database import Database, DatabaseMoment
from relay.store.postgres.fenced import Fence, FencedWriter
from relay.store.postgres.members import Membership, Profile, SpaceTerms
from relay.store.postgres.staged import PostgresStaged
from relay.store.postgres.tables import PostgresLog
from relay.store.postgres.topics import PostgresTopics
from server.cluster.database.lease import MemberLease
from server.cluster.database.store import TOPICS

LEASE_SECONDS: Final = 5.0
"""For how long nothing leads a target whose copy was killed."""

NAME: Final = "dataspace log"
"""What the name of a command begins with, among the daemons of a store."""

_LOGS: Final = """
SELECT s.name, s.space FROM {s}.spaces AS s
WHERE EXISTS (SELECT FROM {s}.meta AS m WHERE m.space = s.space) ORDER BY s.name
"""


@contextmanager
def store_source(address: StoreAddress) -> Iterator[CopyEnd]:
    """Lends a store as it is now; later writes of its daemons are not seen."""
    with closing(DatabaseMoment(address)) as database:
        spaces = logs_of(database)
        topics = spaces.pop(TOPICS, None)
        yield CopyEnd(
            str(address),
            list(spaces),
            lambda space: PostgresLog(database, spaces[space]),
            lambda: None if topics is None else PostgresTopics(database, topics),
            lambda space: PostgresStaged(database, spaces[space]),
        )


@contextmanager
def store_backup(address: StoreAddress) -> Iterator[BackupSource]:
    """Lends a store that is backed up while its daemons write it; ``UsageError`` where there is no log."""
    with closing(DatabaseMoment(address)) as database:
        spaces = logs_of(database)
        topics = spaces.pop(TOPICS, None)
        if MAIN not in spaces:
            raise UsageError(f"there is no log of space {MAIN!r} in {address}")

        @contextmanager
        def moment(space: str) -> Iterator[TablesMoment]:
            with database.later():
                yield TablesMoment(PostgresLog(database, spaces[space]))

        def topics_copied(target: Path, pace: CopyPace) -> int:
            if topics is None:
                return 0
            return topics_file(PostgresTopics(database, topics), target, pace)

        yield BackupSource(
            str(address),
            list(spaces),
            lambda space: nullcontext(partial(moment, space)),
            topics_copied,
            lambda space, target, pace: staged_file(
                PostgresStaged(database, spaces[space]), target, pace, f"staged {space}"
            ),
        )


@contextmanager
def store_target(address: StoreAddress, spaces: Sequence[str]) -> Iterator[CopyEnd]:
    """Lends a store to write these spaces, which no daemon may lead before the block ends.

    Raises ``UsageError`` if one leads a space now.
    """
    with closing(Database(address)) as database:
        database.prepare()
        with leading(database, spaces, "copy") as (numbers, fences):

            def writer(space: str) -> FencedWriter:
                return FencedWriter(database, fences[space])

            yield CopyEnd(
                str(address),
                [name for name in logs_of(database) if name != TOPICS],
                lambda space: PostgresLog(database, numbers[space], writer(space)),
                lambda: PostgresTopics(database, numbers[TOPICS], writer(MAIN)),
                lambda space: PostgresStaged(database, numbers[space], writer(space)),
            )


def logs_of(database: Database) -> dict[str, int]:
    """Returns the spaces that have a log in a store, with their numbers; topics are one."""
    return dict(database.rows(_LOGS, {}))


@contextmanager
def leading(
    database: Database, spaces: Sequence[str], what: str
) -> Iterator[tuple[dict[str, int], dict[str, Fence]]]:
    """Leads spaces in place of a daemon; lends the numbers of spaces and topics, and the terms."""
    with ExitStack() as held:
        member = Membership(database, Profile(f"{NAME} {what}, process {os.getpid()}"), LEASE_SECONDS)
        terms = held.enter_context(closing(SpaceTerms(database)))
        lease = MemberLease(member)
        held.callback(lease.end)
        lease.begin()
        numbers = {space: terms.space(space) for space in (*spaces, TOPICS)}
        fences: dict[str, Fence] = {}
        for space in spaces:
            fences[space] = _taken(terms, space, numbers[space], member)
            held.callback(_give_up, terms, fences[space])
        yield numbers, fences


def _taken(terms: SpaceTerms, space: str, number: int, member: Membership) -> Fence:
    while (standing := terms.standing(number)).lives and (standing.name or "").startswith(NAME):
        time.sleep(min(standing.left, 0.2) + 0.01)  # another command, or one that was killed
    fence = None if standing.lives else terms.take_space(number, standing, member.nonce)
    if fence is None:
        leader = standing.name or "another daemon"
        raise UsageError(f"{leader} leads space {space!r} of the target: end the daemons of that store first")
    return fence


def _give_up(terms: SpaceTerms, fence: Fence) -> None:
    with suppress(LogFailed):
        terms.give_up(fence)
