"""The role of a space here: it leads, over its own log, or follows the log of another daemon.

All that differs between the two is in one object, which is replaced as a whole.  Who needs what only a leader
has asks for ``HostedSpace.leading``, which a follower refuses with the address of its leader.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

import trio

from dataspace.errors import Refused
from dataspace.kernel.changes import Claims, Epoch
from dataspace.kernel.space import Space
from index.values.values import Value, same
from relay.following.following import FollowedLog, Following
from relay.log.log import Log
from relay.log.notes import Registers
from relay.log.snapshots import RecoveredState
from relay.log.writer import GroupCommit
from relay.store.staging import Staging
from server.config.model import SpaceConfig
from server.owners.turn_numbers import Clients
from server.spaces.visibility import Visibility

logger = logging.getLogger("dataspace")

MOST_LEADER_EPOCHS: Final = 1024
"""How many epochs of a leader are remembered that have not been applied."""


def nobody() -> None:
    """Sends nobody away."""


class FollowerLag(NamedTuple):
    """How far a follower is behind its leader."""

    epochs: int
    seconds: float
    """The age of the oldest epoch that the leader has told of and that is not applied."""


class LeaderEpochs:
    """The newest epochs that a leader has told of, until they are applied; O(1) for each."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._newest = 0

    def add(self, epoch: int, at: float) -> None:
        """Notes the newest epoch of the leader at a time in seconds."""
        if epoch > self._newest:
            self._newest = epoch
            if len(self._waiting) < MOST_LEADER_EPOCHS:  # the oldest decides since when
                self._waiting.append((epoch, at))

    def lag(self, applied: int, at: float) -> FollowerLag:
        """Returns how far a follower is behind that has applied this epoch."""
        while self._waiting and self._waiting[0][0] <= applied:
            self._waiting.popleft()
        if applied >= self._newest:
            return FollowerLag(0, 0.0)
        return FollowerLag(self._newest - applied, at - self._waiting[0][1] if self._waiting else 0.0)


@dataclass(slots=True)
class Leader:
    """The addresses of the daemon that writes the log of a space; empty while it is not known."""

    space: str
    url: str = ""
    web: str = ""
    """Where it serves HTTP, such as ``http://127.0.0.1:7378``."""
    send_away: Callable[[], None] = nobody
    """Ends the connections about the space, which has skipped epochs."""
    here: str | None = None
    """The address of this daemon, once it leads itself."""
    newest: LeaderEpochs = field(default_factory=LeaderEpochs)
    """The newest epochs that it has told of."""
    most_lag: float = float("inf")
    """The seconds of lag beyond which new readers are sent on."""

    def lag(self, applied: int) -> FollowerLag:
        """Returns how far a follower is behind that has applied this epoch."""
        return self.newest.lag(applied, trio.current_time())

    def check_lag(self, applied: int) -> None:
        """Raises ``Refused``, with its address, if a follower with this epoch is too far behind it."""
        if self.url and (lag := self.lag(applied)).seconds > self.most_lag:
            reason = (
                f"space {self.space!r} is {lag.seconds:.1f} s and {lag.epochs} epochs behind here,"
                f" more than follow.most_lag = {self.most_lag:g} s: ask {self.url}"
            )
            raise Refused("behind", reason, self.url)

    def refusal(self) -> Refused:
        """Returns the answer to what only the leader does."""
        if self.here is not None:
            text = f"space {self.space!r} was followed here when this connection began: connect again"
            return Refused("elsewhere", text, self.here)
        if not self.url:
            text = f"space {self.space!r} is followed here, and no daemon that takes its turns is known now"
            return Refused("no-leader", text)
        return Refused("elsewhere", f"space {self.space!r} is followed here: ask {self.url}", self.url)


@dataclass(slots=True, frozen=True)
class Leading:
    """What a space has whose turns are made here."""

    log: Log
    commits: GroupCommit
    clients: Clients
    """The turn numbers of every client."""
    visibility: Visibility
    staging: Staging
    """Batches that wait for their publication."""

    leads: ClassVar[Literal[True]] = True

    @property
    def registers(self) -> Registers:
        """What notes in the log have built up."""
        return self.log.registers


@dataclass(slots=True, frozen=True)
class Followed:
    """What a space has that shows the log of another daemon."""

    log: FollowedLog
    commits: Following
    clients: Clients
    visibility: Visibility

    leads: ClassVar[Literal[False]] = False

    @property
    def registers(self) -> Registers:
        """What notes in the log have built up."""
        return self.commits.state.registers


FilledSpace: TypeAlias = tuple[Space, RecoveredState]
"""A space with the facts of a log, and what else the log holds."""


def filled_from(log: Log | FollowedLog, settings: SpaceConfig) -> FilledSpace:
    """Returns a new space with the state of a log; O(state + later changes)."""
    state = log.recover()
    space = Space(settings.name, limits=settings.limits)
    space.restore(state.owners, state.epoch, state.time)
    return space, state


def follow(
    log: FollowedLog, space: Space, state: RecoveredState, leader: Leader, flush: Callable[[], None]
) -> Following:
    """Returns what applies to a space, which has the state of a log, each epoch that is new there."""
    state.owners = {}

    def jump(later: RecoveredState) -> None:
        leader.send_away()
        space.follow(Epoch(later.epoch, later.time, claims=difference(space, later.owners)))

    logger.info("space %s: follows %d facts from epoch %d", leader.space, len(space.index), state.epoch)
    return Following(log, state, apply=space.follow, flush=flush, refusal=leader.refusal, jump=jump)


def difference(space: Space, owners: Mapping[str, Mapping[int, Value]]) -> list[Claims]:
    """Returns how claims differ from the claims in a space; O(claims of both)."""
    found: list[Claims] = []
    for owner in {*space.owners(), *owners}:
        before, after = space.claims(owner), owners.get(owner, {})
        ended = [handle for handle in before if handle not in after]
        begun = [
            (handle, value)
            for handle, value in after.items()
            if handle not in before or not same(before[handle], value)
        ]
        if begun or ended:
            found.append(Claims(owner, begun, ended))
    return found
