"""The door of a listener, as its HTTP connections know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from dataspace.wire.session import Form
    from server.config.model import Web
    from server.sessions.shared import Shared
    from server.web.asgi import App


class Serve(Protocol):
    """Serves the client of a WebSocket."""

    def __call__(self, link: Link, *, form: Form | None = None) -> object:
        """Serves a client at the other end of a link in a task of its own."""


@dataclass(frozen=True, slots=True)
class Door:
    """What the connections of one listener have in common."""

    shared: Shared
    web: Web
    """The limits of a connection."""
    app: App
    """What answers requests."""
    serve: Serve
    scheme: str
    """``http`` or ``https``."""
    server: tuple[str, int]
    """The host and the port of the listener."""
