"""Reloading: a daemon reads its configuration again when SIGHUP asks it to, and lets go of nobody for that.

A secret that has leaked must be taken back, and a certificate renewed, while everybody else's facts stay.
Those two are taken anew; all else that has changed is named, and waits for a restart.

Always: a configuration that cannot be understood changes nothing; whoever is connected afterwards with a
token has one that would be let in now, and for the same.
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
"""What is taken anew, by its field of ``Config``."""


async def reload_on_hangup(
    daemon: Daemon,
    read: Callable[[], Config],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Has a daemon take what ``read`` gives at each SIGHUP, and says so; until cancelled."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            try:
                said = reload(daemon, read())
            except DataspaceError as error:
                said = f"the configuration is not taken: {error}"
            print(f"dataspace: SIGHUP, {said}", file=sys.stderr, flush=True)


def reload(daemon: Daemon, config: Config) -> str:
    """Takes tokens and certificates anew, and ends whose token is not what it was; what came of it.

    ``UsageError``, and nothing has changed, where a certificate is none.  O(sessions).
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
    """Ends the sessions whose token opens nothing now, or something else; how many."""
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
