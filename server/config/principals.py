"""Principals: the identity of a connection, whatever it calls itself, and its share of a daemon's limits.

A client chooses its name and its identity, so neither can be what quotas are counted for or what belongs to
somebody.  A principal is what the daemon itself has established: the token that the bearer showed, or, in a
daemon without tokens, the address that it connects from.  Two tokens narrowed from one secret are two
principals: each caveat adds a part, its own ``name`` where it has one, else a hash of the caveat.  So a token
that is renewed with the same name stays the same principal, and nobody can narrow a token into another's.

Always: two connections have equal principals exactly if both have the same text; no text holds a secret.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network
from typing import Final, Literal, cast
from urllib.parse import quote

from dataspace.errors import Refused, UsageError
from index.values.values import Map, Value

NAME: Final = "name"
"""The entry of a caveat that names the principal; it is no right."""

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASHED: Final = 16
"""Bytes of the hash of a caveat without a name."""

MEMBER: Final = "member:"
"""What a token begins with that a daemon shows in place of one, to the daemon that it follows."""

UNNAMED: Final = "#"
"""What a part begins with that is the hash of a caveat; no name has it."""

Kind = Literal["token", "address", "unix", "daemon", "member"]

NAME_BYTES: Final = 1024
"""Bytes of a name, unless the limit is another one."""

IDENTITIES: Final = 65_536
"""Identities without a connection that are remembered unless the limit is another one: 2 KiB each at most."""

PUBLICATION_AMONG_TOKENS: Final = 65_536
"""Actions of a publication where tokens share a daemon: others wait for some 0.1 s, and not for seconds."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a connection: as text ``token:NAME/CAVEAT/…``, ``address:HOST``, ``unix``,
    ``member:NAME`` for a daemon that follows, or ``daemon``.

    >>> str(Principal("token", ("gateway", "sensor-7")))
    'token:gateway/sensor-7'
    """

    kind: Kind
    parts: tuple[str, ...] = ()

    @classmethod
    def of_token(cls, name: str, caveats: Iterable[tuple[bytes, Map]]) -> Principal:
        """Returns the principal of a token of the configuration, narrowed by these caveats, as bytes and as
        read.

        Raises ``UsageError`` for a caveat whose name is not valid.
        """
        return cls("token", (quote(name, safe="@:"), *[_part(*each) for each in caveats]))

    @classmethod
    def of_member(cls, name: str) -> Principal:
        """Returns the principal of a daemon of this name that follows this one."""
        return cls("member", (quote(name, safe="@:"),))

    @classmethod
    def read(cls, text: str) -> Principal:
        """Returns the principal of a text that ``str`` has made.

        >>> [Principal.read(str(each)) == each for each in (DAEMON, Principal("token", ("a", "b")))]
        [True, True]
        """
        kind, colon, rest = text.partition(":")
        parts = rest.split("/") if kind == "token" else [rest]
        return cls(cast("Kind", kind), tuple(parts) if colon else ())

    @classmethod
    def of_peer(cls, peer: str) -> Principal:
        """Returns the principal of a peer without a token, from ``HOST:PORT`` or the name of another
        transport.

        Of IPv6 addresses the first 64 bits count, since every host has all addresses below them.

        >>> [str(Principal.of_peer(each)) for each in ("10.0.0.7:80", "::1:4711", "unix")]
        ['address:10.0.0.7', 'address:::1', 'unix']
        """
        host, colon, _ = peer.rpartition(":")
        return cls("address", (_network(host),)) if colon else cls("unix")

    def covered_by(self, name: str) -> bool:
        """True if this is the principal of a token of the configuration of this name, or one narrowed from
        it."""
        return Principal.of_token(name, ()).covers(self)

    def covers(self, other: Principal) -> bool:
        """True if this is the other principal, or one from whose token the other's was narrowed."""
        return self.kind == other.kind and self.parts == other.parts[: len(self.parts)]

    def __str__(self) -> str:
        return f"{self.kind}:{'/'.join(self.parts)}" if self.parts else self.kind


DAEMON: Final = Principal("daemon")
"""The daemon itself, and the actors that it hosts."""


def _part(packed: bytes, caveat: Map) -> str:
    """Returns the part that a caveat adds: its name, or its hash."""
    name: Value = caveat.get(NAME)
    if name is None:
        return f"{UNNAMED}{hashlib.sha256(packed).hexdigest()[: 2 * _HASHED]}"
    return checked_name(name)


def checked_name(name: Value) -> str:
    """Returns a word that names a bearer; raises ``UsageError`` for an invalid word."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"a name or a stamp is 1 to 64 letters, digits and . _ @ -, not {name!r:.80}")
    return name


def _network(host: str) -> str:
    """Returns an address, or the network of 64 bits of an IPv6 address; other text as it is."""
    try:
        return str(IPv4Address(host))
    except AddressValueError:
        pass
    try:
        address = IPv6Address(host.partition("%")[0])
    except AddressValueError:
        return host
    if address.is_loopback:
        return str(address)
    return str(address.ipv4_mapped or IPv6Network((address, 64), strict=False))


def check_name(what: str, name: str, most: int = NAME_BYTES) -> None:
    """Raises ``Refused`` for a name of more than so many bytes; O(1) for the usual ones."""
    if len(name) * 4 <= most:
        return
    size = len(name.encode(errors="surrogatepass"))
    if size > most:
        raise Refused(
            "limit", f"{what} of {size} bytes, the limit is limits.name_bytes={most}: choose a shorter name"
        )


@dataclass(frozen=True, slots=True)
class Quotas:
    """The share of one principal at a time; in bytes where the name says so, else counts.

    Tokens that were narrowed from one token of the configuration share its quotas.  Rates are for each
    second, and 0 is no bound.

    A limit bounds what a daemon or a space holds in all.  Alone it would let the first bully take all of it,
    so each principal has a quota beside it, a half of the limit or less by
    default.
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
    shapes: int = 256
    """Different shapes of the patterns that the principal observes of one label in one space.

    Values of the label are compared with each shape that they may match.
    """
    leases: int = 16_384
    readers: int = 512
    topics: int = 2048
    groups: int = 500
    """Groups that the principal has made since the start."""
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
