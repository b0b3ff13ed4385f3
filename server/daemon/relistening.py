"""Listening anew: a reload opens addresses that are new in the configuration, and closes those that are gone.

Always: what cannot be opened raises an error before anything has changed; connections of an address that is
closed go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dataspace.transport.addresses import parse_listen
from server.config.model import Config
from server.daemon.doors import accept_on, check_extras
from server.sessions.listeners import Listener, context_for, open_listener

if TYPE_CHECKING:
    from server.daemon.daemon import Daemon


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
