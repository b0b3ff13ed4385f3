"""What the routes need of the daemon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.wire.forms import Form
    from server.config.model import Limits
    from server.lane import Lane
    from server.sessions.peer import Peer
    from server.web.inner.link import InnerLink


class Pages(Protocol):
    """The pages of an operator."""

    async def answer(
        self, path: str, headers: Iterable[tuple[str, str]]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Returns the status, the headers and the body that are answered to a GET."""


class Door(Protocol):
    """The daemon, which admits and serves a session for each request."""

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def lane(self) -> Lane:
        """Where background work has its turns."""

    @property
    def pages(self) -> Pages:
        """Metrics and health."""

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for another connection of a peer; empty if there is."""

    def serve(self, link: InnerLink, *, form: Form | None = None) -> Peer:
        """Serves the peer at the other end in a task of its own, which writes packets as its form says."""
