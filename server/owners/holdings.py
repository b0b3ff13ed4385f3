"""Holdings: how much each principal has within its quotas, and what each owner counts for it.

Apart from the accounts, so that the part which every turn passes can be machine code: an account is referred
to weakly, which a class of machine code does not allow.

Always: every charge is given back when its object ends, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from server.config.principals import Quotas

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
    "groups",
    "staged_bytes",
    "identities",
    "waiting_sessions",
    "retained_bytes",
)

Grow: TypeAlias = Callable[[int, int], None]
"""Gets the facts and bytes that something grows by; raises ``Refused`` where there is no room for them."""


class Usage:
    """Counts of the things that a principal has; ``quotas`` is None for the daemon itself, without bounds."""

    __slots__ = ("_used", "grow", "name", "quotas")

    def __init__(self, name: str, quotas: Quotas | None, grow: Grow) -> None:
        self.name: Final = name
        self.quotas = quotas
        self.grow: Final = grow
        """Raises ``Refused`` where the daemon has no memory for so many more facts and bytes."""
        self._used = dict.fromkeys(COUNTED, 0)

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

    def reserve(self, what: str, count: int = 1) -> None:
        """Counts so much more; raises ``Refused``, and counts nothing, beyond the quota."""
        self.check(what, count)
        self._used[what] += count

    def release(self, what: str, count: int = 1) -> None:
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


class AccountTotals:
    """The facts and rules of each owner in one space, counted for the account that wrote to it last."""

    __slots__ = ("_of", "_rules", "writer")

    def __init__(self) -> None:
        self._of: dict[str, tuple[Usage, int, int]] = {}
        self._rules: dict[str, tuple[Usage, int, int]] = {}
        self.writer: Usage | None = None
        """Whose turn is being made."""

    def set_claimed(self, owner: str, account: Usage, facts: int, size: int) -> None:
        """Notes that an owner claims so many facts of so many bytes now; O(1)."""
        holder, before, bytes_before = self._of.get(owner, (account, 0, 0))
        if holder is not account:
            holder.release("facts", before)
            holder.release("facts_bytes", bytes_before)
            before = bytes_before = 0
        used = account._used  # as ``release``, without its calls: each turn comes here
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

    def note_rules(self, owner: str, account: Usage, rules: int, size: int) -> None:
        """Notes that an owner asserts so many rules of so many bytes now; O(1)."""
        before = self._rules.pop(owner, None)
        if before is not None:
            before[0].release("rules", before[1])
            before[0].release("rules_bytes", before[2])
        if rules:
            account.release("rules", -rules)
            account.release("rules_bytes", -size)
            self._rules[owner] = account, rules, size

    def clear(self) -> None:
        """Counts nothing any more, for any account."""
        for owner in [*self._of]:
            self.end(owner)
        for owner, (account, _, _) in [*self._rules.items()]:
            self.note_rules(owner, account, 0, 0)

    def end(self, owner: str) -> None:
        """Notes that an owner claims nothing any more."""
        held = self._of.get(owner)
        if held is not None:
            self.set_claimed(owner, held[0], 0, 0)
            self.note_rules(owner, held[0], 0, 0)
