"""Counts the connections of a daemon, with a hello or without.

Always: a connection is counted from its admission until ``left``, and as a stranger until ``greeted``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.errors import Refused
from server.config.principals import Principal
from server.owners.accounts import Account, Accounts
from server.spaces.sessions import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.config.model import Limits
    from server.sessions.counts import Counts

PATIENCE: Final = 0.25
"""Seconds after which a connection without a hello makes room for another one, where there is none."""

_numbers = itertools.count(1)


class Guest(Protocol):
    """A connection as it is counted: a peer, or a connection of HTTP."""

    @property
    def number(self) -> int:
        """The number of the connection."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def since(self) -> float:
        """The time since which the connection has said nothing, on trio's clock."""

    def dismiss(self, code: str, text: str, url: str = "") -> None:
        """Ends the connection; ``url`` is where to connect instead."""


class Guests:
    """All connections; those of HTTP that carry no session of their own are among them."""

    def __init__(self, accounts: Accounts, counts: Counts, limits: Callable[[], Limits]) -> None:
        """``limits`` returns the limits that hold now."""
        self._accounts = accounts
        self._counts = counts
        self._limits = limits
        self._first_number = 0
        """The number before the first connection's."""
        self._all: dict[int, Guest] = {}
        self.strangers: dict[int, Guest] = {}
        """The connections without a hello by number, in the order in which they came."""
        self.streams = 0
        """Streams that are open, of all connections."""

    def __len__(self) -> int:
        return len(self._all)

    def new_number(self) -> int:
        """Returns the number of the next connection."""
        return self._first_number + next(_numbers)

    def begin_term(self, term: int) -> None:
        """Numbers connections beyond all earlier terms, so that no two sessions have one number."""
        self._first_number = max(self._first_number, term * NUMBERS)

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for a connection of a peer, and counts that; empty if there is."""
        reason = self._refusal(peer)
        self._counts.turned_away += bool(reason)
        return reason

    def _refusal(self, peer: str) -> str:
        """Returns why there is no room for a connection of a peer; empty if there is.

        Among the connections without a hello, a connection whose time is over makes room: of the same
        principal if it has too many, else of the principal with most.
        """
        limits, account = self._limits(), self._accounts.of(Principal.of_peer(peer))
        if (count := len(self)) >= limits.connections:
            return f"{count} connections, the limit is limits.connections={limits.connections}"
        try:
            account.check("strangers")
        except Refused as refusal:
            return "" if self._make_room(account) else refusal.text
        if len(self.strangers) < limits.strangers:
            return ""
        most = max(
            [each.account for each in self.strangers.values()], key=lambda each: each.used("strangers")
        )
        if self._make_room(most):
            return ""
        excess = f"{len(self.strangers)} connections without a hello"
        return f"{excess}, the limit is limits.strangers={limits.strangers}"

    def _make_room(self, account: Account) -> bool:
        """Ends the oldest connection of an account without a hello, if that has had its time."""
        oldest = next((each for each in self.strangers.values() if each.account is account), None)
        if oldest is None or trio.current_time() - oldest.since < PATIENCE:
            return False
        self.greeted(oldest)
        oldest.dismiss("limit", "others wait for the place of this connection, which has sent no hello")
        return True

    def enter(self, guest: Guest) -> None:
        """Counts a connection until ``left``."""
        self._all[guest.number] = guest

    def admit(self, guest: Guest) -> None:
        """Counts a connection as one without a hello, the latest of them."""
        self.strangers[guest.number] = guest
        # Checked by ``refusal`` before, and a connection that the daemon trusts has no bound.
        guest.account.release("strangers", -1)

    def greeted(self, guest: Guest) -> None:
        """Notes that a connection has sent hello, or has lost its place as a stranger."""
        if self.strangers.pop(guest.number, None) is not None:
            guest.account.release("strangers")

    def left(self, guest: Guest) -> None:
        """Notes that a connection has ended."""
        self._all.pop(guest.number, None)
        self.greeted(guest)
