"""Tokens: text that proves what its bearer may do, and that the bearer can narrow without the daemon.

A daemon's configuration names secrets and the rights of each.  Such a secret is a token.  A bearer can add a
*caveat* and pass on the result, which has fewer rights: each caveat is sealed with a key that only the seal
before it gives, so every bearer can add one and none can remove one.  (Birgisson et al., "Macaroons", 2014.)

    ds1.BASE64(pack([name of the secret, [caveat, …], seal]))

Always: comparisons with a secret take constant time; no error repeats a token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dataspace.codec import pack, unpack
from dataspace.errors import ProtocolError, UsageError
from index.values.values import Map

PREFIX: Final = "ds1."
MAX_CAVEATS: Final = 32
_CONTEXT: Final = b"dataspace token 1"


@dataclass(frozen=True, slots=True)
class Token:
    """The parts of a token: the name of its secret, the caveats, and the seal on all of it."""

    secret_name: bytes
    caveats: tuple[bytes, ...]
    seal: bytes

    @classmethod
    def read(cls, text: str) -> Token:
        """Returns the token in a text; raises ``UsageError`` for a damaged narrowed token."""
        if not text.startswith(PREFIX):
            return cls(name_of(text), (), _seal(text.encode(), _CONTEXT))
        try:
            body = base64.urlsafe_b64decode(text.removeprefix(PREFIX) + "==")
            parts = unpack(body)
        except (binascii.Error, ValueError, ProtocolError):
            raise UsageError("the token is damaged") from None
        match parts:
            case (bytes(name), tuple() as caveats, bytes(seal)) if _all_bytes(caveats):
                return cls(name, caveats, seal)
        raise UsageError("the token is damaged")

    def narrowed(self, caveat: Map) -> Token:
        """Returns the token with one caveat more; O(its size)."""
        if len(self.caveats) >= MAX_CAVEATS:
            raise UsageError(f"a token takes at most {MAX_CAVEATS} caveats")
        packed = pack(caveat)
        return Token(self.secret_name, (*self.caveats, packed), _seal(self.seal, packed))

    def text(self) -> str:
        """The text to pass on; only for a token with caveats, since a secret does not follow from its
        seal."""
        body = pack((self.secret_name, self.caveats, self.seal))
        return PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")

    def is_sealed_by(self, secret: str) -> bool:
        """True if the token comes from this secret, and no caveat was removed."""
        seal = _seal(secret.encode(), _CONTEXT)
        for caveat in self.caveats:
            seal = _seal(seal, caveat)
        return len(self.caveats) <= MAX_CAVEATS and hmac.compare_digest(seal, self.seal)

    def __repr__(self) -> str:
        return f"Token({len(self.caveats)} caveats)"


def narrow(token: str, caveat: Map) -> str:
    """Returns a token with those rights of ``token`` that ``caveat`` allows.

    >>> narrower = narrow("a secret of the daemon", Map({"observe": ("present(_)",)}))
    >>> Token.read(narrower).is_sealed_by("a secret of the daemon")
    True
    """
    return Token.read(token).narrowed(caveat).text()


def new_secret() -> str:
    """Returns a new random secret, as text for a configuration."""
    return secrets.token_urlsafe(32)


def name_of(secret: str) -> bytes:
    """Returns the name by which a secret is found, from which the secret cannot be derived."""
    return hashlib.sha256(_CONTEXT + b" name " + secret.encode()).digest()[:16]


def _seal(by: bytes, what: bytes) -> bytes:
    return hmac.digest(by, what, "sha256")


def _all_bytes(parts: Iterable[object]) -> bool:
    return all(part.__class__ is bytes for part in parts)
