"""Doors: what admits the connections of a listener, and which listeners a reload opens and closes.

Always: nothing of HTTP is loaded by a daemon that listens on no such address; connections of an address that
a reload closes go on.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from dataspace.errors import UsageError
from dataspace.transport.addresses import WEB_EXTRA, parse_listen
from server.config.model import Config
from server.connections.listeners import Listener, accept, context_for, open_listener

if TYPE_CHECKING:
    from server.connections.listeners import Doorkeeper
    from server.daemon.daemon import Daemon

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
        daemon,
        daemon.serve,
        listener,
        daemon.config.web,
        application(daemon, daemon.config.web.origins),
        daemon.peers,
    )


async def accept_on(daemon: Daemon, listener: Listener) -> None:
    """Accepts the peers of a listener until the daemon is drained, or a reload closes the listener."""
    with listener.accepting:
        daemon.draining.accepting.append(listener.accepting)
        await accept(doorkeeper(daemon, listener), listener)


def prepare_listeners(daemon: Daemon, config: Config) -> Callable[[], list[str]]:
    """Opens the addresses that are new; returns a function that takes all, and returns which changed.

    Raises ``CannotListen`` and ``UsageError``, and nothing has happened.
    """
    check_extras(config)
    addresses = [parse_listen(text) for text in config.listen]
    context = context_for(config, addresses)
    left = list(zip(daemon.config.listen, daemon.listeners, strict=True))
    listeners: list[Listener] = []
    opened: list[Listener] = []
    try:
        for said, address in zip(config.listen, addresses, strict=True):
            at = next((at for at, (text, _) in enumerate(left) if text == said), None)
            if at is None:
                opened.append(open_listener(address, context, config.socket_mode))
            listeners.append(opened[-1] if at is None else left.pop(at)[1])
    except BaseException:
        for listener in opened:
            listener.close()
        raise

    def take() -> list[str]:
        for _, listener in left:
            listener.accepting.cancel()
            listener.close()
        for listener in listeners:
            if listener.address.tls:
                listener.context = context
        daemon.listeners = listeners
        for listener in opened:
            daemon.peers.start_soon(accept_on, daemon, listener)
        closed = [f"no longer listening on {listener.name}" for _, listener in left]
        return [*[f"listening on {listener.name}" for listener in opened], *closed]

    return take
