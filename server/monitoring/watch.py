"""What connections report as it happens: refusals, goodbyes, and what took long.

Always: what is reported is rare, so it may cost some microseconds; what is not rare is counted where it
happens, and read from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from server.monitoring.counts import Counts, count

if TYPE_CHECKING:
    from server.config.model import Slow
    from server.config.principals import Principal


class Peer(Protocol):
    """The connection that something is reported of."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def principal(self) -> Principal: ...


class Watch:
    """The reports of all connections of one daemon."""

    def __init__(self, counts: Counts, slow: Slow) -> None:
        self._counts: Final = counts
        self.slow: Final = slow

    def refused(self, peer: Peer, code: str, text: str) -> None:
        """Notes that a turn, a request or a stream was refused."""
        count(self._counts.refused, code)

    def parted(self, peer: Peer, code: str, text: str) -> None:
        """Notes that the daemon ends a connection."""
        if code:
            count(self._counts.goodbyes, code)

    def login_refused(self, peer: Peer, code: str, text: str) -> None:
        """Notes that a hello was refused."""
        if code == "unauthorized":
            self._counts.logins_refused += 1
