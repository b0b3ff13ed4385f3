"""Accounts: what each principal has now of what all share, within its quotas.

Always: every charge is given back when its object ends, however it ends; an account lives for as long as
something refers to it, so the daemon remembers no account that has nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final
from weakref import WeakValueDictionary

import trio

from index.patterns.skeletons import Skeleton
from server.config.principals import DAEMON, Principal, Quotas
from server.owners.holdings import Grow, Usage
from server.owners.shapes import SHAPES, ObservedShape, Shapes

CONNECTION_BYTES: Final = 32 << 10
"""About what a connection takes beside what waits for it."""

STREAM_BYTES: Final = 4096
"""About what an open stream takes beside its pattern and what waits in it."""

FIRST_DELAY: Final = 0.1
"""Seconds after which the first token that is not valid is refused; each further one takes twice as long."""

FORGIVEN: Final = 60.0
"""Seconds without a wrong token after which the delay is the first one again."""


def _unbounded(_facts: int, _size: int) -> None:
    """Allows all growth."""


class Account(Usage):
    """The holdings of one principal, and the waits for its rates and its wrong tokens."""

    __slots__ = ("__weakref__", "_failed_at", "_failures", "_paces", "_shapes")

    def __init__(self, name: str, quotas: Quotas | None, grow: Grow) -> None:
        super().__init__(name, quotas, grow)
        self._paces = {"turns": -math.inf, "requests": -math.inf}
        self._failures = 0
        self._failed_at = 0.0
        self._shapes = Shapes()

    def everything(self) -> dict[str, int]:
        """Returns how much the principal has of each thing; of shapes, the number of the label with most."""
        most = self._shapes.most
        return {**super().everything(), **({SHAPES: most} if most else {})}

    def take_shape(self, space: str, form: Skeleton) -> ObservedShape:
        """Returns the shape of a pattern that one more stream observes, until ``give_shape``.

        Raises ``Refused``, and counts nothing, beyond the quota of its label.
        """
        most = None if self.quotas is None else self.quotas.shapes
        return self._shapes.share(space, form, most, self.name)

    def give_shape(self, shape: ObservedShape) -> None:
        """Counts a stream less of a shape."""
        self._shapes.release(shape)

    async def pace(self, what: str) -> None:
        """Waits until the principal may have another one of ``turns`` or ``requests``.

        A token bucket that holds one second's turns or requests, written as the time at which it would be
        empty.
        """
        rate = getattr(self.quotas, f"{what}_per_second", 0)
        if not rate:
            return
        now = trio.current_time()
        after = max(self._paces[what], now - 1.0) + 1.0 / rate
        self._paces[what] = after
        if after > now:
            await trio.sleep_until(after)

    async def slow_down(self, most: float) -> None:
        """Waits after a token that is not valid: up to ``most`` seconds, longer after each of them."""
        now = trio.current_time()
        if now - self._failed_at > FORGIVEN:
            self._failures = 0
        self._failures, self._failed_at = self._failures + 1, now
        await trio.sleep(min(most, FIRST_DELAY * 2 ** min(self._failures - 1, 20)))


class Accounts:
    """The accounts of all principals that have something.

    A token of the configuration may have quotas of its own.
    """

    def __init__(
        self, quotas: Quotas, grow: Grow = _unbounded, of_tokens: Mapping[str, Quotas] | None = None
    ) -> None:
        """``of_tokens`` are the quotas of single tokens, by name."""
        self._quotas = quotas
        self._of_tokens = _by_principal(of_tokens or {})
        self._grow = grow
        self._accounts: WeakValueDictionary[tuple[str, ...], Account] = WeakValueDictionary()
        self._daemon = Account(str(DAEMON), None, grow)

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, principal: Principal) -> Account:
        """Returns the account of a principal: of its token of the configuration, or of its address."""
        if principal.kind == "daemon":
            return self._daemon
        at = (principal.kind, *principal.parts[:1])
        account = self._accounts.get(at)
        if account is None:
            name = str(Principal(principal.kind, principal.parts[:1]))
            quotas = self._of_tokens.get(at, self._quotas)
            account = self._accounts[at] = Account(name, quotas, self._grow)
        return account

    def give_quotas(self, of_tokens: Mapping[str, Quotas], quotas: Quotas | None = None) -> None:
        """Replaces the quotas of single tokens, and the quotas of all others; O(accounts).

        Nothing is taken from accounts that have more.
        """
        self._quotas = quotas or self._quotas
        self._of_tokens = _by_principal(of_tokens)
        for at, account in self._accounts.items():
            if account.quotas is not None:
                account.quotas = self._of_tokens.get(at, self._quotas)

    def __iter__(self) -> Iterator[Account]:
        return iter(list(self._accounts.values()))


def _by_principal(of_tokens: Mapping[str, Quotas]) -> dict[tuple[str, ...], Quotas]:
    named = {name: Principal.of_token(name, ()) for name in of_tokens}
    return {(each.kind, *each.parts): of_tokens[name] for name, each in named.items()}
