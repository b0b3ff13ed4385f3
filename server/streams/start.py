"""Where a stream begins: with the state now, or in the log at an epoch.

This file reads the options of an ``Open``, and decides for both kinds of replay which of the two it is, at
which epoch, and from which known state the log is read.

Always: a replay begins at an epoch that the log has and that is on disk, or is refused with the epochs that
are available.
"""

from __future__ import annotations

import time
from typing import Final, TypeVar

from dataspace.errors import Refused, UsageError
from dataspace.kernel.actions import PROGRESS
from dataspace.kernel.changes import Changes
from dataspace.wire.observing import ObserveOptions
from index.values.values import Map
from relay.log.replay import Live, Replay
from server.spaces.space import HostedSpace

Kind = TypeVar("Kind", bound=Replay)

LIVE_FACTS: Final = 100_000
"""Facts that are copied as a base for a replay that begins near the end of the log."""


def read_request(spec: Map) -> ObserveOptions:
    """Returns the request in an ``Open``; raises ``Refused`` with its error."""
    try:
        return ObserveOptions.read(spec)
    except UsageError as error:
        raise Refused("bad-request", str(error)) from None


def beginning(home: HostedSpace, request: ObserveOptions) -> int:
    """Returns the epoch after which a replay begins; raises ``Refused`` if the log does not reach it."""
    log = home.log
    newest = max(home.commits.durable, home.space.epoch)
    after = request.after if request.as_of is None else request.as_of
    if after is None:
        after = home.commits.durable
    wanted = f"epochs after {after} are wanted" if request.as_of is None else f"epoch {after} is wanted"
    if after < log.oldest - 1:
        raise Refused("epoch-gone", f"{wanted}, the oldest held is {log.oldest}")
    if after > newest:
        raise Refused("epoch-ahead", f"{wanted}, the newest is {newest}")
    # A reader of durable epochs never saw a lost one: its number is a place between two others.
    if not request.durable and log.lost(after):
        raise Refused("epoch-lost", f"epoch {after} was never acknowledged and was lost in a crash")
    return after


def begins_now(home: HostedSpace, request: ObserveOptions) -> bool:
    """True if a stream begins with the state now, or has missed nothing of it, and needs no log."""
    if request.live:
        return True
    after = request.after
    if request.columns or after is None or after != home.space.epoch or home.log.lost(after):
        return False
    return request.as_of is None and request.upto is None and not request.durable


async def from_log(home: HostedSpace, request: ObserveOptions, kind: type[Kind]) -> Kind:
    """Returns a replay that stands where a stream begins, once everything up to there is on disk.

    Raises ``Refused`` as ``beginning`` does.
    """
    start = beginning(home, request)
    await home.commits.wait_durable(start)  # the state there is computed from the log
    replay = kind(home.log, request.pattern, start)
    if request.wants_state or not replay.at_hand():
        replay.live = _live_base(home)
    return replay


def _live_base(home: HostedSpace) -> Live | None:
    """Returns a copy of the current state, for a replay that begins near it; None where it is large.

    The facts and the epochs that are not on disk are of one moment: nothing may wait in between.
    """
    space = home.space
    if len(space.index) > LIVE_FACTS:
        return None
    return Live(space.epoch, list(space.index.values()), home.commits.tail(0))


def progress_mark(number: int) -> Changes:
    """Returns a mark: the stream contains every change up to this epoch. Its time is now."""
    return Changes(number, time.time_ns() // 1000, flags=PROGRESS)
