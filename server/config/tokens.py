"""Keys: the tokens that this daemon admits, and the rights of each.

Always: without any key the daemon admits every peer; the error about a token is one sentence that reveals
nothing of the keys; a check costs a hash for the token and for each of its caveats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from dataspace.codec import unpack
from dataspace.errors import ProtocolError, UsageError
from dataspace.transport.tokens import Token, name_of
from index.values.values import Map
from server.config.principals import NAME, Principal
from server.config.rights import EVERYTHING, OPEN, Permit, Rights

LEAST: Final = 16
"""Least number of characters of a secret."""


@dataclass(frozen=True, slots=True)
class Key:
    """A secret of the configuration: the name of its bearer, and its rights."""

    name: str
    secret: str = field(repr=False)
    rights: Rights = EVERYTHING
    quota: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """Quotas of its own, by name; they may change without ending its sessions."""

    def __post_init__(self) -> None:
        if len(self.secret) < LEAST:
            raise UsageError(
                f"the secret of token {self.name!r} has {len(self.secret)} characters, at least {LEAST} are"
                " needed: dataspace token new makes one"
            )


class Keys:
    """All keys of a daemon."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_name = {name_of(key.secret): key for key in keys}

    def __len__(self) -> int:
        return len(self._by_name)

    def stands(self, permit: Permit) -> bool:
        """True if these keys would give the bearer of the same token the rights of an earlier permit."""
        return permit.key in self._by_name.values() if self._by_name else permit.key is None

    def admit(self, token: str) -> Permit:
        """Returns what the bearer of a token may do; raises ``ProtocolError("unauthorized")`` for an invalid
        one."""
        if not self._by_name:
            return OPEN
        if not token:
            raise _unauthorized(
                "this daemon requires a token: give --token-file, $DATASPACE_TOKEN or connect(token=…)"
            )
        try:
            shown = Token.read(token)
            key = self._by_name.get(shown.secret_name)
            if key is None or not shown.is_sealed_by(key.secret):
                raise _unauthorized("the token is unknown to this daemon")
            caveats = [(packed, _caveat(packed)) for packed in shown.caveats]
            principal = Principal.of_token(key.name, caveats)
            tables = [key.rights, *(Rights.read(_unnamed(caveat)) for _, caveat in caveats)]
            permit = Permit(key.name, tables, key=key, principal=principal)
        except UsageError as error:
            raise _unauthorized(str(error)) from None
        if permit.until is not None and permit.until <= datetime.now(UTC):
            raise _unauthorized(f"the token expired at {permit.until:%Y-%m-%dT%H:%M:%SZ}")
        return permit


def _caveat(packed: bytes) -> Map:
    try:
        caveat = unpack(packed)
    except ProtocolError:
        caveat = None
    if not isinstance(caveat, Map):
        raise UsageError("a caveat of the token is not valid")
    return caveat


def _unnamed(caveat: Map) -> Map:
    """Returns the rights in a caveat."""
    return Map({name: value for name, value in caveat.pairs() if name != NAME})


def _unauthorized(text: str) -> ProtocolError:
    return ProtocolError("unauthorized", text)
