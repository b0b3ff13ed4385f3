"""Health: does the daemon work, and may clients be sent to it?

A daemon is *healthy* if its loop turns and its logs can be written: restart it if it is not for long. It is
*ready* if it is healthy, has started and does not end: send new clients elsewhere if it is not.

Always: an answer shows that the loop turns; a disk that does not answer is noticed by the write that waits
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.monitoring.state import DaemonState

STUCK_SECONDS: Final = 10.0
"""Seconds that one write to the disk may take before the log counts as not writable."""


def ailments(daemon: DaemonState) -> Iterator[str]:
    """Yields what keeps the daemon from writing its logs, without paths; O(spaces)."""
    for name, writer in daemon.writers:
        if writer.failure is not None:
            yield f"{name} has failed, the daemon's log says why"
        elif writer.full is not None:
            yield f"{name} waits for room on the disk"
        elif writer.writing_since and (spent := perf_counter() - writer.writing_since) > STUCK_SECONDS:
            yield f"{name}: the disk has not answered for {spent:.0f} s"
