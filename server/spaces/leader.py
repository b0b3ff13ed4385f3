"""What a space says that follows: the address of the daemon that takes its turns, and how it skips epochs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import trio

from dataspace.errors import Refused
from dataspace.kernel.changes import Claims, Epoch
from dataspace.kernel.space import Space
from index.values.values import Value, same
from relay.following.following import FollowedLog, Following
from relay.log.log import Log
from relay.log.snapshots import RecoveredState
from server.config.model import SpaceConfig

logger = logging.getLogger("dataspace")


MAX_BEATS: Final = 1024
"""How many epochs of a leader are remembered that have not been applied."""


def nobody() -> None:
    """Sends nobody away."""


class FollowerLag(NamedTuple):
    """How far a follower is behind its leader."""

    epochs: int
    seconds: float
    """The age of the oldest epoch that the leader has told of and that is not applied."""


class Beats:
    """The newest epochs that a leader has told of, until they are applied; O(1) a beat."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._newest = 0

    def add(self, epoch: int, at: float) -> None:
        """Notes the newest epoch of the leader at a time in seconds."""
        if epoch > self._newest:
            self._newest = epoch
            if len(self._waiting) < MAX_BEATS:  # the oldest decides since when
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
    beats: Beats = field(default_factory=Beats)
    """The newest epochs that it has told of."""
    most_lag: float = float("inf")
    """The seconds of lag beyond which new readers are sent on."""

    def lag(self, applied: int) -> FollowerLag:
        """Returns how far a follower is behind that has applied this epoch."""
        return self.beats.lag(applied, trio.current_time())

    def check_lag(self, applied: int) -> None:
        """Raises ``Refused``, with its address, if a follower with this epoch is too far behind it."""
        if self.url and (lag := self.lag(applied)).seconds > self.most_lag:
            said = (
                f"space {self.space!r} is {lag.seconds:.1f} s and {lag.epochs} epochs behind here,"
                f" more than follow.most_lag = {self.most_lag:g} s: ask {self.url}"
            )
            raise Refused("behind", said, self.url)

    def refusal(self) -> Refused:
        """Returns the answer to what only the leader does."""
        if self.here is not None:
            text = f"space {self.space!r} was followed here when this connection began: connect again"
            return Refused("elsewhere", text, self.here)
        if not self.url:
            text = f"space {self.space!r} is followed here, and no daemon that takes its turns is known now"
            return Refused("no-leader", text)
        return Refused("elsewhere", f"space {self.space!r} is followed here: ask {self.url}", self.url)


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


def no_space(name: str, names: Collection[str]) -> Refused:
    """Returns the refusal of a name that no space has; ``names`` are the existing ones."""
    return Refused("no-space", f"no space named {name!r:.80}, there is {', '.join(map(repr, names))}")
