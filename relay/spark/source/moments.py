"""Moments: the epochs that a time of day, or a time of a topic, means for one daemon.

A query may begin or end at a time instead of at an epoch.  Times become epochs where a new query begins, or
where a batch read is planned, and not before: a query that goes on from its checkpoint has no use for a time
whose epochs may be gone by then.

Always: the epochs at a time or after it, and the epochs before it, are all epochs, each once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dataspace.errors import Refused, UsageError
from relay.spark.common.connections import DaemonPeer, asked
from relay.spark.common.parsing import Moment
from relay.spark.source import offsets
from relay.spark.source.readings import reading_of

if TYPE_CHECKING:
    from relay.spark.common.frontiers import SourceFrontier
    from relay.spark.common.options import ReadOptions, StreamOptions


def before(
    peer: DaemonPeer,
    options: StreamOptions | ReadOptions,
    at: Moment | tuple[int, ...],
    now: SourceFrontier,
) -> int:
    """Returns the epoch after which those at or after a time begin.

    Raises ``UsageError`` for a time that has not come yet.  Epochs that are gone raise ``DataLoss``, or are
    left out where ``failOnDataLoss`` is false.
    """
    if isinstance(at, Moment):
        return _settled(peer, options, "startingTimestamp", at, at.micros - 1, now)
    reading, bound = reading_of(options.topic), options.connect_timeout
    return asked(peer, bound, lambda link: reading.before(link, at, now.space))


def upto(peer: DaemonPeer, options: ReadOptions, at: Moment | tuple[int, ...], now: SourceFrontier) -> int:
    """Returns the newest epoch at a time or before it; raises as ``before``."""
    if isinstance(at, Moment):
        return _settled(peer, options, "endingTimestamp", at, at.micros, now)
    reading, bound = reading_of(options.topic), options.connect_timeout
    return asked(peer, bound, lambda link: reading.upto(link, at, now.space))


def _settled(
    peer: DaemonPeer,
    options: ReadOptions | StreamOptions,
    name: str,
    at: Moment,
    micros: int,
    now: SourceFrontier,
) -> int:
    _check_come(name, at)
    found = _newest(peer, options.connect_timeout, micros, now)
    if found is None:
        gone = f"{name} {at.said} is gone, the oldest epoch retained is {now.oldest}"
        offsets.tolerate(gone, fail=options.fail_on_loss)
        return now.oldest - 1
    return found


def state_epoch(peer: DaemonPeer, options: ReadOptions, at: Moment, now: SourceFrontier) -> int:
    """Returns the epoch of the state at a time; ``DataLoss`` if that is gone, as no other may stand in."""
    _check_come("asOfTimestamp", at)
    found = _newest(peer, options.connect_timeout, at.micros, now)
    if found is None:
        raise offsets.DataLoss(
            f"asOfTimestamp {at.said} is gone, the oldest state that can be read is the one at epoch "
            f"{now.oldest - 1}"
        )
    return found


def _check_come(name: str, at: Moment) -> None:
    if at.micros > time.time_ns() // 1000:
        raise UsageError(f"{name} {at.said} has not come yet")


def _newest(peer: DaemonPeer, bound: float, micros: int, now: SourceFrontier) -> int | None:
    """Returns the newest epoch that was made at a time or before it; None if that is not retained."""
    try:
        return min(_epoch_at(peer, bound, micros, now), now.epoch)
    except Refused as refusal:
        if refusal.code != "epoch-gone":
            raise
        return None


def _epoch_at(peer: DaemonPeer, bound: float, micros: int, now: SourceFrontier) -> int:
    """Returns the newest epoch of a time, from the daemon or the archive."""
    if peer.url:
        try:
            return asked(peer, bound, lambda link: link.epoch_at(micros))
        except Refused as refusal:
            if refusal.code != "epoch-gone" or not now.archived:
                raise
    from relay.spark.cold.archives import archive_of  # loaded where there is an archive

    cold = archive_of(peer, bound, now.space)
    assert cold is not None  # since something is archived
    archive = cold.archive
    if archive.oldest > 1 and micros < archive.time_of(archive.oldest):
        raise Refused("epoch-gone", f"the archive begins with epoch {archive.oldest}")
    return archive.epoch_at(micros)
