"""Daemons that write one log in PostgreSQL, as far as tests of the store need them.

    python -m tests.relay.store.postgres.leaders URL

is one in a process of its own, to be killed or stopped.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

from relay.log.log import Log
from relay.store.address import StoreAddress
from relay.store.errors import LogFailed, LogFenced
from relay.store.postgres.database import Database
from relay.store.postgres.fenced import Fence, FencedWriter
from relay.store.postgres.members import Membership, Profile, SpaceTerms, Standing
from relay.store.postgres.tables import PostgresLog
from tests.postgres.servers import patient
from tests.relay.log.histories import append, epoch, flight

LEASE: Final = 600.0


class Leader:
    """A member of the store at an address, which may lead its space."""

    def __init__(self, url: str, name: str = "a", lease: float = LEASE) -> None:
        self.url = url
        self.database = Database(StoreAddress.parse(patient(url)))
        self.database.prepare()
        self.member = Membership(self.database, Profile(name), lease)
        self.member.join()
        self.terms = SpaceTerms(self.database)
        self.space = self.terms.space("main")
        self.writer: FencedWriter | None = None

    def space_of(self, name: str) -> int:
        """Returns the number of a space, which is made if there is none."""
        return self.terms.space(name)

    def standing(self, space: int = 0) -> Standing:
        """Returns the term of a space, its own or another one."""
        return self.terms.standing(space or self.space)

    def take_as(self, seen: Standing, space: int = 0) -> Fence | None:
        """Takes a space over, if its term is the one seen."""
        return self.terms.take_space(space or self.space, seen, self.member.nonce)

    def give_up(self, fence: Fence, wanted: str | None = None) -> None:
        """Ends a term."""
        self.terms.give_up(fence, wanted)

    def take(self) -> Fence | None:
        """Takes the space over, from whichever member leads it."""
        fence = self.take_as(self.standing())
        if fence is not None:
            self._abandon()
            self.writer = FencedWriter(self.database, fence)
        return fence

    def log(self) -> Log:
        """Opens the log to write it."""
        if self.writer is None:
            assert self.take() is not None
        return Log(PostgresLog(self.database, self.space, self.writer))

    def _abandon(self) -> None:
        if self.writer is not None:
            self.writer.abandon()

    def close(self) -> None:
        """Ends all of it; a write that is under way is given up."""
        self._abandon()
        with suppress(LogFailed):
            self.member.close()
            self.terms.close()
        self.database.close()


@contextmanager
def leaders(*urls: str) -> Iterator[tuple[Any, ...]]:
    """Lends daemons at addresses, and a pool of threads for calls that wait."""
    with ThreadPoolExecutor() as pool:
        made = [Leader(url, chr(ord("a") + at)) for at, url in enumerate(urls)]
        try:
            yield (*made, pool)
        finally:
            for each in made:
                each.close()


def write(log: Log, *numbers: int) -> None:
    """Appends epochs, in one segment."""
    append(log, *[epoch(number, flight(number)) for number in numbers])


def numbers(log: Log) -> list[int]:
    """Returns the epochs of a log, and verifies it."""
    log.verify()
    return [each.number for each in log.read(log.oldest - 1)]


def main(url: str) -> None:
    """Takes the space over and writes epochs, until another leads it; says what is accepted."""
    one = Leader(url, "child")
    log = one.log()
    print("leads", flush=True)
    for number in itertools.count(log.next_epoch):
        try:
            write(log, number)
        except LogFenced:
            print("fenced", flush=True)
            break
        print(number, flush=True)
    one.close()


if __name__ == "__main__":
    main(sys.argv[1])
