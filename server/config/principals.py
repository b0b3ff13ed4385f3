"""Principals: the identity of a connection, whatever it calls itself.

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
from typing import Final, Literal
from urllib.parse import quote

from dataspace.errors import UsageError
from index.values.values import Map, Value

NAME: Final = "name"
"""The entry of a caveat that names the principal; it is no right."""

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASHED: Final = 16
"""Bytes of the hash of a caveat without a name."""

UNNAMED: Final = "#"
"""What a part begins with that is the hash of a caveat; no name has it."""

Kind = Literal["token", "address", "unix", "daemon"]


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a connection: as text ``token:NAME/CAVEAT/…``, ``address:HOST``, ``unix`` or
    ``daemon``.

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
    def of_peer(cls, peer: str) -> Principal:
        """Returns the principal of a peer without a token, from ``HOST:PORT`` or the name of another
        transport.

        Of IPv6 addresses the first 64 bits count, since every host has all addresses below them.

        >>> [str(Principal.of_peer(each)) for each in ("10.0.0.7:80", "::1:4711", "unix")]
        ['address:10.0.0.7', 'address:::1', 'unix']
        """
        host, colon, _ = peer.rpartition(":")
        return cls("address", (_network(host),)) if colon else cls("unix")

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
