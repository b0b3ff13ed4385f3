"""Quotas: the share of one principal in the limits of a daemon.

A limit bounds what a daemon or a space holds in all.  Alone it would let the first bully take all of it, so
each principal (``server.config.principals``) has a quota beside it, a half of the limit or less by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataspace.errors import Refused

PUBLICATION_AMONG_TOKENS: Final = 65_536
"""Actions of a publication where tokens share a daemon: others wait for some 0.1 s, and not for seconds."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """The share of one principal at a time; in bytes where the name says so, else counts.

    Tokens that were narrowed from one token of the configuration share its quotas.  Rates are for each
    second, and 0 is no bound.
    """

    connections: int = 2048
    strangers: int = 128
    streams: int = 131_072
    facts: int = 2_000_000
    facts_bytes: int = 2 << 30
    rules: int = 500
    rules_bytes: int = 1 << 20
    patterns_bytes: int = 512 << 20
    """What the patterns of open streams take, each as often as it is observed."""
    leases: int = 16_384
    readers: int = 512
    topics: int = 2048
    staged_bytes: int = 2 << 30
    identities: int = 16_384
    """Identities of one space without a connection: older ones of the principal are forgotten."""
    waiting_sessions: int = 2048
    """Sessions of one space without a connection: further sessions end at once, as without a grace period."""
    retained_bytes: int = 1 << 30
    """What topics in memory may retain, each as much as was requested for it."""
    actions_per_publication: int = 1_000_000
    """A publication is applied as a whole, so that all others wait for it."""
    turns_per_second: int = 0
    requests_per_second: int = 0

    @property
    def has_rates(self) -> bool:
        """True if turns or requests have a rate."""
        return bool(self.turns_per_second or self.requests_per_second)

    def refusal(self, what: str, used: int, principal: str) -> Refused:
        """Returns what to raise where a principal would have ``used`` of something."""
        limit = f"the limit is quota.{what}={getattr(self, what)}"
        return Refused("limit", f"{used} {_SAID.get(what, what)} of {principal}, {limit} of each principal")


_SAID: Final = {
    "strangers": "connections without a hello",
    "facts_bytes": "bytes of facts",
    "rules_bytes": "bytes in rules",
    "patterns_bytes": "bytes of observed patterns",
    "waiting_sessions": "sessions without a connection",
    "staged_bytes": "bytes staged",
    "actions_per_publication": "actions or more in a publication",
    "retained_bytes": "bytes that topics in memory may retain",
}
