"""The door of HTTP: admits the connections of one listener, and serves each in a task of its own."""

from __future__ import annotations

from typing import Final

import trio

from dataspace.transport.sockets import Link
from server.config.model import Web
from server.connections.listeners import Listener
from server.sessions.shared import Shared
from server.web.asgi import App
from server.web.connection import HttpConnection, Serve, WebListener
from server.web.problems import turned_away


class WebDoor:
    """What ``accept`` needs for an HTTP listener; its connections run in ``peers``, and ask ``app``."""

    def __init__(
        self, shared: Shared, serve: Serve, listener: Listener, web: Web, app: App, peers: trio.Nursery
    ) -> None:
        """WebSockets go on as connections of ``serve``."""
        scheme = "https" if listener.address.tls else "http"
        server = listener.address.host, listener.address.port
        self._listener: Final = WebListener(shared, web, app, serve, scheme, server)
        self._peers = peers

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for another connection of a peer; empty if there is."""
        return self._listener.shared.refusal(peer)

    def turned_away(self, refusal: str) -> bytes:
        """Returns what is sent to a connection for which there is no room."""
        return turned_away(refusal)

    def serve(self, link: Link) -> HttpConnection:
        """Serves the peer at the other end in a task of its own."""
        shared = self._listener.shared
        connection = HttpConnection(self._listener, link, shared.new_number())
        shared.enter(connection)
        shared.admit(connection)
        self._peers.start_soon(connection.run)
        return connection
