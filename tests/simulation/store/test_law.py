"""The simulated store answers as PostgreSQL does: the same random operations have the same outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from random import Random
from typing import Any, Final

import pytest

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

from relay.store.address import StoreAddress
from relay.store.errors import LogDamaged, LogFailed
from relay.store.postgres.daemons import DaemonNotes
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import FencedWriter
from relay.store.postgres.members import Membership, Profile, SpaceTerms
from relay.store.postgres.staged import PostgresStaged
from relay.store.postgres.tables import PostgresLog
from server.cluster.database.cluster_state import StoreView, view_of
from tests.simulation.members import ADDRESS, stored
from tests.simulation.store.server import Store

pytestmark = pytest.mark.slow

STEPS: Final = 150


def test_random_operations_have_the_same_outcomes(postgres_url: str) -> None:
    for seed in range(4):
        address = StoreAddress.parse(f"{postgres_url}_{seed}")  # another schema, as daemons are by name
        real = list(outcomes(address, seed))
        with stored(Store(time.time)):
            simulated = list(outcomes(ADDRESS, seed))
        for at, (one, other) in enumerate(zip(real, simulated, strict=True)):
            assert other == one, f"seed {seed}, step {at}"
        assert {type(each[1]) for each in real} >= {str, list}, "some raise, some answer"


def outcomes(address: StoreAddress, seed: int) -> Iterator[tuple[str, object]]:
    """Yields the name and the outcome of each operation of a seed."""
    random = Random(seed)
    with closing(Database(address)) as database:
        database.prepare()
        with closing(SpaceTerms(database)) as terms:
            space = terms.space(f"law {seed}")
            leaders: list[Leader] = []
            for _ in range(STEPS):
                if not leaders or random.random() < 0.05:
                    leaders.append(Leader(database, terms, space))
                leader = leaders[-1] if random.random() < 0.9 else random.choice(leaders)
                name = random.choice([*OPERATIONS])
                yield name, outcome(OPERATIONS[name], leader, random)
                standing = terms.standing(space)
                yield "standing", (standing.term, standing.name, standing.wanted, standing.lives)
                yield "view", seen(view_of(database), f"law {seed}")
            for each in leaders:
                each.close()


def seen(view: StoreView, space: str) -> object:
    """Returns what a view has of a space and of all members, but for times and nonces."""
    [found] = [each for each in view.spaces if each.space == space]
    stands = view.standings[space]
    return (
        [(each.name, each.url, each.settings, each.left > 0) for each in view.members],
        (found.term, found.leader, found.last, found.before, found.why, found.left > 0),
        (stands.term, stands.name, stands.wanted, stands.beat, stands.wanted_lives),
        view.written[space],
        (sorted(view.noted.drained), view.candidates),
    )


def outcome(operation: Callable[[Leader, Random], Any], leader: Leader, random: Random) -> object:
    try:
        return [operation(leader, random)]
    except (LogFailed, LogDamaged) as failure:
        leader.open()  # a writer that has failed writes nothing any more
        return type(failure).__name__


class Leader:
    """A member that has taken the space."""

    def __init__(self, database: Database, terms: SpaceTerms, space: int) -> None:
        self._database = database
        self.terms = terms
        self.space = space
        self.member = Membership(database, Profile("leader", "tcp://leader"), 600.0)
        self.member.join()
        fence = terms.take_space(space, terms.standing(space), self.member.nonce, "law")
        assert fence is not None  # as no other one takes it
        self.fence = fence
        self.notes = DaemonNotes(terms)
        self.writer = FencedWriter(database, fence)
        self.open()

    def open(self) -> None:
        """Opens the tables anew."""
        self.writer.close()
        self.writer = FencedWriter(self._database, self.fence)
        self.log = PostgresLog(self._database, self.space, self.writer)
        self.staged = PostgresStaged(self._database, self.space, self.writer)
        self.log.moment()  # its head is what the next segment follows

    def noted(self) -> object:
        """Returns what the store remembers, without times."""
        noted = view_of(self._database).noted
        return (
            [
                (each.name, each.url, each.version, each.drained is None, each.gone is None, each.said)
                for each in noted.daemons.values()
            ],
            [*noted.pauses],
        )

    def close(self) -> None:
        self.writer.close()
        self.member.leave()


def append(leader: Leader, random: Random, *, most: int = 3) -> None:
    ends = leader.log.ends(0)
    first = random.choice((1, 1, 1, 2)) + (ends.newest if ends else 0) - (random.random() < 0.1)
    rows = [
        (at, 10 * at, 10 * at + 9, 3, at, 100 * at, 100 * at + 50, bytes([at % 256]) * 16, bytes(at % 7 * 50))
        for at in range(max(1, first), max(1, first) + random.randint(1, most))
    ]
    leader.log.append(rows, {"reserved": random.randrange(9), "seal": bytes(3)} if most > 1 else {})


def drop(leader: Leader, random: Random) -> None:
    ends = leader.log.ends(0)
    ordinal = random.randint(ends.oldest, ends.newest) if ends else 1
    leader.log.drop_before(ordinal, 10 * ordinal, {"oldest": ordinal})


def fetch(leader: Leader, random: Random) -> object:
    upto = random.choice((None, random.randrange(400)))
    return list(
        leader.log.fetch(random.randrange(1, 30), upto, random.randint(1, 9), random.randrange(1, 900))
    )


def snapshot(leader: Leader, random: Random) -> object:
    log = leader.log
    number = log.begin_snapshot(random.randrange(9), random.randrange(99), 5)
    for chunk in range(random.randrange(3)):
        log.put_chunk(number, chunk, bytes(16), bytes([chunk]) * 9)
    if random.random() < 0.5:
        log.complete_snapshot(number, 2, {"snapshot": bytes([number % 256])})
    return number


def newest(leader: Leader, _random: Random) -> object:
    with leader.log.newest_snapshot() as (head, row, chunks):
        return head, row, list(chunks)


def stage(leader: Leader, random: Random) -> object:
    leader.staged.append(bytes([random.randrange(4)]), random.randrange(9) * 1.5, bytes(random.randrange(5)))
    return list(leader.staged.rows()), leader.staged.counts(), leader.staged.keys(b"\x01", b"\x03")


NAMES: Final = ("leader", "one", "another")

OPERATIONS: Final[dict[str, Callable[[Leader, Random], Any]]] = {
    "append": append,
    "append one": partial(append, most=1),
    "append one again": partial(append, most=1),
    "drop": drop,
    "fetch": fetch,
    "snapshot": snapshot,
    "newest snapshot": newest,
    "drop incomplete": lambda leader, _: leader.log.drop_incomplete_snapshots(),
    "stage": stage,
    "parts": lambda leader, _: leader.staged.parts(b"\x01", b"\x02", b"\x04"),
    "unstage": lambda leader, random: leader.staged.delete([bytes([random.randrange(4)])]),
    "purge": lambda leader, random: leader.staged.purge(random.randrange(12)),
    "start": lambda leader, random: leader.log.begin_start(random.randrange(99), 1, {"clean": 0}),
    "moment": lambda leader, _: leader.log.moment(),
    "by last": lambda leader, random: leader.log.first_by_last(1, 40, random.randrange(400)),
    "by until": lambda leader, random: leader.log.first_by_until(3, 30, random.randrange(4000)),
    "checksum": lambda leader, random: leader.log.checksum_of(random.randrange(30)),
    "bytes": lambda leader, random: leader.log.bytes_between(random.randrange(9), random.randrange(40)),
    "changes": lambda leader, random: leader.log.changes_between(random.randrange(9), random.randrange(40)),
    "portion": lambda leader, random: leader.log.portion(random.randrange(1, 9), 40, random.randrange(900)),
    "counts": lambda leader, _: (leader.log.counts(0), leader.log.size(), leader.log.ends(0)),
    "reader": lambda leader, random: leader.log.put_reader(f"r{random.randrange(3)}", random.randrange(9), 1),
    "no reader": lambda leader, random: leader.log.delete_reader(f"r{random.randrange(3)}"),
    "readers": lambda leader, _: sorted(leader.log.readers()),
    "give up": lambda leader, _: leader.terms.give_up(leader.fence, "other"),
    "want": lambda leader, _: leader.terms.want(leader.space, "another"),
    "renew": lambda leader, _: leader.member.renew() is not None,
    "drain": lambda leader, random: leader.notes.drain(random.choice(NAMES)),
    "resume": lambda leader, random: leader.notes.resume(random.choice(NAMES)),
    "say": lambda leader, random: leader.notes.say(random.choice(NAMES), "tcp://x", "1", "{}"),
    "leave": lambda leader, random: leader.notes.leave(random.choice(NAMES), "tcp://x", "1"),
    "stopped": lambda leader, random: leader.notes.stopped(leader.space, random.randrange(9), 0.5),
    "served": lambda leader, random: leader.notes.served(leader.space, random.randrange(9)),
    "noted": lambda leader, _: leader.noted(),
}
