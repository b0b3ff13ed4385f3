"""Trimming: the task that deletes epochs past retention while the log is written.

It looks every few seconds, deletes what may go in portions between which turns are written, and requests a
snapshot where only an old one prevents a deletion and the space is worth it.

Always: a full disk does not end it; without a reason to trim it does nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import trio

from relay.log.log import Log
from relay.log.retention import Retention, Trimmed
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed

logger = logging.getLogger("dataspace")

SECONDS: Final = 5.0
"""How often it looks."""

WORTH_BYTES: Final = 1 << 20
"""Bytes that a new snapshot must free, at least; in a small file a quarter of it is enough."""


async def retain(
    log: Log, commits: GroupCommit, wanted: Callable[[], Retention], *, every: float = SECONDS
) -> None:
    """Trims the log to what is wanted by then, until cancelled.

    Raises ``LogFailed`` if the disk fails; a full disk is tried again.
    """
    while True:
        await trio.sleep(every)
        if not (retention := wanted()).endless:
            await _trim(log, commits, retention)


async def _trim(log: Log, commits: GroupCommit, retention: Retention) -> None:
    oldest = log.oldest
    while True:
        try:
            trimmed = await trio.to_thread.run_sync(log.trim, retention, time.time_ns() // 1000)
        except LogFailed as failure:
            if not failure.full:
                raise
            return
        if not trimmed.more:
            break
    if log.oldest > oldest:
        logger.info("epochs before %d are deleted", log.oldest)
    if await trio.to_thread.run_sync(_is_worth_a_snapshot, log, trimmed):
        commits.snapshot_soon()


def _is_worth_a_snapshot(log: Log, trimmed: Trimmed) -> bool:
    return trimmed.held_back > min(WORTH_BYTES, log.used() // 4)
