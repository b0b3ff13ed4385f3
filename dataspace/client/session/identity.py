"""Identities: the name of a client, how long its facts last without it, as asked for in ``connect``, and the
hellos in which a daemon gets to know both.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Final

from dataspace.errors import UsageError
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, SYSTEM, Granted, Wanted


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Name, identity and times of a client: see ``connect``.  ``heartbeat``, ``grace`` and ``lease`` are in
    seconds; with ``reads`` it sends no turns, so that any daemon of the store may serve it; with ``here`` it
    asks about the daemon that it names, and goes to no other one."""

    name: str
    client: str
    owner: str
    space: str
    heartbeat: float
    grace: float
    lease: float
    reads: bool = False
    here: bool = False

    def __post_init__(self) -> None:
        """Raises ``UsageError`` for times that are not valid."""
        if not (_is_time(self.heartbeat) and self.heartbeat > 0):
            raise UsageError(
                f"heartbeat is in seconds, above 0 (math.inf for none), not {self.heartbeat!r:.40}"
            )
        for name in ("grace", "lease"):
            if not (_is_time(seconds := getattr(self, name)) and seconds < math.inf):
                raise UsageError(f"{name} is in seconds, 0 for none, not {seconds!r:.40}")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and value >= 0  # false for nan


class Hellos:
    """The hellos of one client, one for each connection that it tries."""

    def __init__(self, identity: ClientIdentity, token: str) -> None:
        self._identity: Final = identity
        self._token: Final = token
        self._process: Final = os.urandom(8)
        self._attempts = 0
        self._ticket: tuple[int, bytes] | None = None

    def next(self) -> p.Hello:
        """Returns the next hello, with the secret of the session if there is one."""
        who = self._identity
        self._attempts += 1
        wanted = Wanted(
            heartbeat=who.heartbeat,
            grace=who.grace,
            resume=self._ticket,
            space=MAIN if who.space == SYSTEM else who.space,
            token=self._token,
            attempt=(self._attempts, self._process),
            reads=who.reads,
            topics=who.space not in (MAIN, SYSTEM),
            here=who.here,
        )
        return p.Hello(p.VERSION, who.client, who.name, wanted.packed())

    def answered(self, session: int, granted: Granted) -> None:
        """Notes the secret with which to come back to this session; a daemon that keeps none grants none."""
        if granted.secret:
            self._ticket = (session, granted.secret)
