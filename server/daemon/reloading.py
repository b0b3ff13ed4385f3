"""Reloading: at a SIGHUP the daemon reads its configuration again, and keeps its connections.

A leaked token can be revoked, and a certificate renewed, while the facts of other clients stay.  These two
are applied at once; other changed settings are named, and need a restart.

Always: an invalid configuration changes nothing; a session that goes on has a token that is valid now, for
the same rights.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import DataspaceError
from server.config.model import Config
from server.config.tokens import Keys
from server.sessions.listeners import context_for

if TYPE_CHECKING:
    from server.daemon.daemon import Daemon

TAKEN: Final = frozenset(["keys", "tls"])
"""The fields of ``Config`` that are applied at once."""


async def reload_on_hangup(
    daemon: Daemon,
    read: Callable[[], Config],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Applies what ``read`` returns at each SIGHUP, and prints what came of it; until cancelled."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            try:
                said = reload(daemon, read())
            except DataspaceError as error:
                said = f"the configuration is not taken: {error}"
            print(f"dataspace: SIGHUP, {said}", file=sys.stderr, flush=True)


def reload(daemon: Daemon, config: Config) -> str:
    """Applies tokens and certificates, and ends sessions without a valid token; returns what came of it.

    Raises ``UsageError`` for an unusable certificate, and nothing has changed.  O(sessions).
    """
    context = context_for(config, [listener.address for listener in daemon.listeners])
    for listener in daemon.listeners:
        if listener.address.tls:
            listener.context = context
    later = [each.name for each in fields(Config) if _differs(each.name, daemon.config, config)]
    daemon.keys = Keys(config.keys)
    daemon.config = replace(daemon.config, keys=config.keys, tls=config.tls)
    ended = _expel(daemon)
    told = f"the configuration is read again: {len(daemon.keys)} tokens, {ended} sessions ended"
    return f"{told}; these have changed and need a restart: {', '.join(later)}" if later else told


def _differs(name: str, before: Config, now: Config) -> bool:
    return name not in TAKEN and getattr(before, name) != getattr(now, name)


def _expel(daemon: Daemon) -> int:
    """Ends the sessions whose token is not valid now, or has other rights; returns how many."""
    keys = daemon.keys
    connected = [
        each
        for each in daemon.connections.values()
        if each.state is not None and not each.trusted and not keys.stands(each.permit)
    ]
    for each in connected:
        each.dismiss("unauthorized", "the token is not good any more, or not for the same")
    waiting = [home.sessions.end_waiting(keys.stands) for home in daemon.spaces.values()]
    daemon.flush()
    return len(connected) + sum(waiting)
