"""Doors: what admits the connections of a listener, by its kind.

Always: nothing of HTTP is loaded by a daemon that listens on no such address.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from dataspace.errors import UsageError
from dataspace.transport.addresses import WEB_EXTRA, parse_listen
from server.config.model import Config
from server.sessions.listeners import accept

if TYPE_CHECKING:
    from server.daemon.daemon import Daemon
    from server.sessions.listeners import Listener
    from server.sessions.ports import Doorkeeper

EXTRA: Final = WEB_EXTRA
"""What an HTTP listener needs beside the daemon."""


def check_extras(config: Config) -> None:
    """Raises ``UsageError`` if there is an address for HTTP and not what it needs."""
    if not any(parse_listen(each).web for each in config.listen):
        return
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"an address for http needs {', '.join(missing)}: pip install 'dataspace-server[web]'"
        )


def doorkeeper(daemon: Daemon, listener: Listener) -> Doorkeeper:
    """Returns what admits and serves the connections of a listener."""
    if not listener.address.web:
        return daemon
    from server.web.door import WebDoor
    from server.web.routes.app import application

    return WebDoor(
        daemon, listener, daemon.config.web, application(daemon, daemon.config.web.origins), daemon.peers
    )


async def accept_on(daemon: Daemon, listener: Listener) -> None:
    """Accepts the peers of a listener until the daemon is drained, or a reload closes the listener."""
    with listener.accepting:
        daemon.draining.accepting.append(listener.accepting)
        await accept(doorkeeper(daemon, listener), listener)
