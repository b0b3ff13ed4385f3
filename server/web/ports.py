"""What HTTP connections need of the daemon, and of the door that they came through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from dataspace.wire.forms import Form
    from server.config.model import Limits
    from server.config.tokens import Keys
    from server.config.web import Web
    from server.owners.accounts import Accounts
    from server.sessions.house import Stranger
    from server.web.asgi import App


class WebHouse(Protocol):
    """The daemon as the HTTP listener uses it."""

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def keys(self) -> Keys:
        """The tokens that are valid now."""

    @property
    def accounts(self) -> Accounts:
        """What each principal has."""

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for another connection of a peer; empty if there is."""

    def new_number(self) -> int:
        """Returns the number of the next connection."""

    def admit(self, guest: Stranger) -> None:
        """Counts a guest that has yet to say what it wants."""

    def enter(self, guest: Stranger) -> None:
        """Counts a guest beside the connections of sessions."""

    def greeted(self, guest: Stranger) -> None:
        """Notes that a guest has said what it wants, or has lost its place."""

    def left(self, guest: Stranger) -> None:
        """Notes that a guest has ended."""

    def serve(self, link: Link, *, form: Form | None = None) -> object:
        """Serves a client at the other end of a link in a task of its own."""


class Door(Protocol):
    """The listener that a connection came through."""

    @property
    def house(self) -> WebHouse:
        """The daemon."""

    @property
    def web(self) -> Web:
        """The limits of a connection."""

    @property
    def app(self) -> App:
        """What answers requests."""

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""

    @property
    def server(self) -> tuple[str, int]:
        """The host and the port of the listener."""
