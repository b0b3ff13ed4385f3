"""Beginning anew: what a daemon does after a defect where it follows another one, or takes over from it.

The turns of other clients are applied there, in memory that may be half changed after a defect.  So the
daemon ends its role and begins it again, in the same process: it reads the log, follows, and leads if it is
its turn.  Its clients are sent away and come back, as where a leader steps down.

Always: no defect in following or in a take-over ends the daemon; the disk, the store and the end of the log
still do what they did.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from dataspace.errors import Closed, DataspaceError
from relay.store.errors import LogDamaged, LogFailed
from server.home import SteppedDown
from server.spaces.keeping import DAEMON, audit_failure

logger = logging.getLogger("dataspace")


class RoleFailed(DataspaceError):
    """A defect where this daemon follows another one, or takes over from it: its role begins anew."""


async def fence_role(name: str, task: Callable[..., Awaitable[None]], *args: object) -> None:
    """Runs a task that follows another daemon, or takes over from it.

    Raises ``RoleFailed`` after a defect, and passes on what disk, store and other daemons are up to:
    ``LogFailed``, ``LogDamaged``, ``Closed``, ``SteppedDown``, ``OSError``.
    """
    try:
        await task(*args)
    except* (LogFailed, LogDamaged, Closed, SteppedDown, OSError):
        raise
    except* Exception as errors:  # a fence: what was applied so far may be half of it
        logger.exception("a defect in %s: this daemon begins anew, from its log", name)
        audit_failure(DAEMON, name, errors)
        raise RoleFailed(f"a defect in {name}: {errors.exceptions[0]!r:.300}") from errors
