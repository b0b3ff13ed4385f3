"""Accounts: what each principal has now of what all share, within its quotas.

Always: every charge is given back when its object ends, however it ends; an account lives for as long as
something refers to it, so the daemon remembers no account that has nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import trio

from server.config.principals import DAEMON, Principal, Quotas

CONNECTION_BYTES: Final = 32 << 10
"""About what a connection takes beside what waits for it."""

STREAM_BYTES: Final = 4096
"""About what an open stream takes beside its pattern and what waits in it."""

COUNTED: Final = (
    "connections",
    "strangers",
    "streams",
    "facts",
    "facts_bytes",
    "rules",
    "rules_bytes",
    "patterns_bytes",
    "leases",
    "readers",
    "topics",
    "staged_bytes",
    "identities",
    "waiting_sessions",
    "retained_bytes",
)
FIRST_DELAY: Final = 0.1
"""Seconds after which the first token that is not valid is refused; each further one takes twice as long."""

FORGIVEN: Final = 60.0
"""Seconds without a wrong token after which the delay is the first one again."""


Grow: TypeAlias = Callable[[int, int], None]
"""Gets the facts and bytes that something grows by; raises ``Refused`` where there is no room for them."""


def _unbounded(_facts: int, _size: int) -> None:
    """Allows all growth."""


class Account:
    """The holdings of one principal; ``quotas`` is None for the daemon itself, which has no bounds."""

    __slots__ = (
        "__weakref__",
        "_failed_at",
        "_failures",
        "_paces",
        "_used",
        "grow",
        "name",
        "quotas",
    )

    def __init__(self, name: str, quotas: Quotas | None, grow: Grow) -> None:
        self.name: Final = name
        self.quotas = quotas
        self.grow: Final = grow
        """Raises ``Refused`` where the daemon has no memory for so many more facts and bytes."""
        self._used = dict.fromkeys(COUNTED, 0)
        self._paces = {"turns": -math.inf, "requests": -math.inf}
        self._failures = 0
        self._failed_at = 0.0

    @property
    def is_paced(self) -> bool:
        """True if there is a rate for turns or requests."""
        return self.quotas is not None and self.quotas.has_rates

    def used(self, what: str) -> int:
        """Returns how much of something the principal has."""
        return self._used[what]

    def everything(self) -> dict[str, int]:
        """Returns how much the principal has of each thing that it has."""
        return {what: used for what, used in self._used.items() if used}

    def check(self, what: str, count: int = 1) -> None:
        """Raises ``Refused`` if the principal may not have so much more of something."""
        used = self._used[what] + count
        if self.quotas is not None and used > getattr(self.quotas, what):
            raise self.quotas.refusal(what, used, self.name)

    def take(self, what: str, count: int = 1) -> None:
        """Counts so much more; raises ``Refused``, and counts nothing, beyond the quota."""
        self.check(what, count)
        self._used[what] += count

    def give(self, what: str, count: int = 1) -> None:
        """Counts so much less."""
        self._used[what] -= count

    def admit(self, facts: int, size: int) -> None:
        """Raises ``Refused`` if so many more facts of so many bytes are beyond a quota, or the memory."""
        used, quotas = self._used, self.quotas
        if quotas is not None:
            if used["facts"] + facts > quotas.facts:
                raise quotas.refusal("facts", used["facts"] + facts, self.name)
            if used["facts_bytes"] + size > quotas.facts_bytes:
                raise quotas.refusal("facts_bytes", used["facts_bytes"] + size, self.name)
        self.grow(facts, size)

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


class Holdings:
    """The facts and rules of each owner in one space, counted for the account that wrote to it last."""

    __slots__ = ("_of", "_rules", "writer")

    def __init__(self) -> None:
        self._of: dict[str, tuple[Account, int, int]] = {}
        self._rules: dict[str, tuple[Account, int, int]] = {}
        self.writer: Account | None = None
        """Whose turn is being made."""

    def note(self, owner: str, account: Account, facts: int, size: int) -> None:
        """Notes that an owner claims so many facts of so many bytes now; O(1)."""
        holder, before, bytes_before = self._of.get(owner, (account, 0, 0))
        if holder is not account:
            holder.give("facts", before)
            holder.give("facts_bytes", bytes_before)
            before = bytes_before = 0
        used = account._used  # as ``give``, without its calls: each turn comes here
        used["facts"] += facts - before
        used["facts_bytes"] += size - bytes_before
        if facts:
            self._of[owner] = (account, facts, size)
        else:
            self._of.pop(owner, None)

    def admit_rules(self, owner: str, rules: int, size: int) -> None:
        """Raises ``Refused`` if an owner would have so many rules of so many bytes, beyond the quota of the
        writer."""
        account = self.writer
        if account is not None:
            holder, before, bytes_before = self._rules.get(owner, (account, 0, 0))
            if holder is not account:
                before = bytes_before = 0
            for what, more in (("rules", rules - before), ("rules_bytes", size - bytes_before)):
                if more > 0:
                    account.check(what, more)

    def note_rules(self, owner: str, account: Account, rules: int, size: int) -> None:
        """Notes that an owner asserts so many rules of so many bytes now; O(1)."""
        before = self._rules.pop(owner, None)
        if before is not None:
            before[0].give("rules", before[1])
            before[0].give("rules_bytes", before[2])
        if rules:
            account.give("rules", -rules)
            account.give("rules_bytes", -size)
            self._rules[owner] = account, rules, size

    def end(self, owner: str) -> None:
        """Notes that an owner claims nothing any more."""
        held = self._of.get(owner)
        if held is not None:
            self.note(owner, held[0], 0, 0)
            self.note_rules(owner, held[0], 0, 0)
