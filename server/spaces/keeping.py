"""Keeping tasks of the daemon: a task that raises is begun again, and its tenants go on.

Most tasks of a daemon work for tenants, as sessions do: an error in one of them must not end the daemon.  A
task that follows another daemon, or takes over from it, leaves memory behind that may be wrong, so after a
defect there the whole role is begun anew, from the log.  ``tests/server/test_fences.py`` lists all tasks.

Always: the end of the log ends the daemon; no other error of a kept task does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from dataspace.errors import Closed
from relay.store.errors import LogFailed
from server.logs import AUDIT
from server.pauses import Pauses

logger = logging.getLogger("dataspace")
audit = logging.getLogger(AUDIT)

PAUSES: Final = (1.0, 60.0, 60.0)
"""Seconds until a task is begun again: twice as many after each error, between the first two; as few as at
first where it has run for longer than the third."""

DAEMON: Final = ""
"""In place of a space, for tasks that work for all of them."""


async def keep(space: str, name: str, task: Callable[..., Awaitable[None]], *args: object) -> None:
    """Runs a task of a space until cancelled, and begins it again after an error.

    Raises what ends the log: ``LogFailed``, ``Closed``.
    """
    pauses = Pauses(*PAUSES)
    while True:
        began = trio.current_time()
        try:
            await task(*args)
            return
        except Exception as error:  # a fence around a task for tenants
            if ends_log(error):
                raise
            pause = pauses.next(lasted=trio.current_time() - began)
            logger.exception("%s: a defect in %s, which begin again in %.0f s", _place(space), name, pause)
            audit_failure(space, name, error)
        await trio.sleep(pause)


def _place(space: str) -> str:
    return f"space {space}" if space else "the daemon"


def ends_log(error: Exception) -> bool:
    """True for an error with which the log of this daemon has ended."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup((LogFailed, Closed)) is not None
    return isinstance(error, LogFailed | Closed)


def audit_failure(space: str, name: str, error: Exception) -> None:
    """Notes in the audit log that a task has failed."""
    fields = {"act": "task-failed", "space": space, "task": name, "text": f"{error!r:.300}"}
    audit.info(
        "task-failed: %r (%s; task %s)",
        *(error, _place(space), name),
        extra={"event": "task-failed", "fields": fields, "about": f"{space}/{name}"},
    )
