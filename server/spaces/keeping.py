"""Keeping tasks of a space: a task that raises is begun again, and its tenants go on.

The tasks of a space work for tenants, as sessions do: an error in one of them must not end the daemon.

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

logger = logging.getLogger("dataspace")
audit = logging.getLogger(AUDIT)

PAUSES: Final = (1.0, 60.0)
"""Seconds until a task is begun again: twice as many after each error, between these."""


async def keep(space: str, name: str, task: Callable[..., Awaitable[None]], *args: object) -> None:
    """Runs a task of a space until cancelled, and begins it again after an error.

    Raises what ends the log: ``LogFailed``, ``Closed``.
    """
    pause = PAUSES[0]
    while True:
        try:
            await task(*args)
            return
        except Exception as error:  # a fence around a task for tenants
            if _ends_log(error):
                raise
            logger.exception("space %s: a defect in %s, which begin again in %.0f s", space, name, pause)
            _audit(space, name, error)
        await trio.sleep(pause)
        pause = min(2 * pause, PAUSES[1])


def _ends_log(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return error.subgroup((LogFailed, Closed)) is not None
    return isinstance(error, LogFailed | Closed)


def _audit(space: str, name: str, error: Exception) -> None:
    fields = {"act": "task-failed", "space": space, "task": name, "text": f"{error!r:.300}"}
    audit.info(
        "task-failed: %r (space %s; task %s)",
        *(error, space, name),
        extra={"event": "task-failed", "fields": fields, "about": f"{space}/{name}"},
    )
