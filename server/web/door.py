"""The door of HTTP: admits the connections of one listener, and serves each in a task of its own."""

from __future__ import annotations

from typing import Final

import trio

from dataspace.transport.sockets import Link
from server.config.web import Web
from server.sessions.listeners import Listener
from server.web.asgi import App
from server.web.connection import HttpConnection
from server.web.ports import WebHouse
from server.web.problems import turned_away


class WebDoor:
    """What ``accept`` needs for an HTTP listener; its connections run in ``peers``, and ask ``app``."""

    def __init__(self, house: WebHouse, listener: Listener, web: Web, app: App, peers: trio.Nursery) -> None:
        self.house: Final = house
        self.web: Final = web
        self.app: Final = app
        self.scheme: Final = "https" if listener.address.tls else "http"
        self.server: Final = listener.address.host, listener.address.port
        self._peers = peers

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for another connection of a peer; empty if there is."""
        return self.house.refusal(peer)

    def turned_away(self, refusal: str) -> bytes:
        """Returns what is sent to a connection for which there is no room."""
        return turned_away(refusal)

    def serve(self, link: Link) -> HttpConnection:
        """Serves the peer at the other end in a task of its own."""
        connection = HttpConnection(self, link, self.house.new_number())
        self.house.enter(connection)
        self.house.admit(connection)
        self._peers.start_soon(connection.run)
        return connection
