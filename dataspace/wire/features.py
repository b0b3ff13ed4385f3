"""Features: what the two sides agree on in hello and welcome, beyond the version.

The client says in ``Hello.features`` what it would like, the daemon in ``Welcome.features`` what it grants;
what a side does not know it leaves out, so that either can be newer than the other.  Times are in
milliseconds on the wire and in seconds here.

Always: nothing is granted that was not asked for; what cannot be read is a ``ProtocolError``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Final, Self

from dataspace.errors import ProtocolError
from index.values.values import Map, Value

MAIN: Final = "main"
"""The dataspace that is meant where none is named."""

SYSTEM: Final = "system"
"""The dataspace in which a daemon says of itself what its topics are, and who uses them."""

EMPTY: Final = Map()

MAX_TEXT: Final = 8192
MAX_PROOF: Final = 64


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client asks for.

    ``heartbeat``: seconds within which each side says something, infinite for none.  ``grace``: seconds that
    the session is kept for after its connection was lost.  ``resume``: number and secret of the session that
    it comes back to.  ``space``: the dataspace that it is about.  ``token``: what shows its rights.
    ``spoken``: whether the daemon lists what it understands.
    ``attempt``: which of the connections this is that a process, known by some bytes of its own, has tried.
    ``reads``, on the wire ``read``: whether the client sends no turns.  ``leader``: whether only a daemon may
    serve it that does not follow another one.  ``topics``: whether the client may have a connection apart for
    topics.  ``here``: whether the client asks about the daemon itself, whatever that leads or follows.
    """

    heartbeat: float = math.inf
    grace: float = 0.0
    resume: tuple[int, bytes] | None = field(default=None, repr=False)
    space: str = MAIN
    token: str = field(default="", repr=False)
    attempt: tuple[int, bytes] | None = None
    spoken: bool = False
    reads: bool = False
    leader: bool = False
    topics: bool = False
    here: bool = False

    @classmethod
    def read(cls, features: Map) -> Self:
        """What a hello asks for."""
        return cls(
            heartbeat=_seconds(features, "heartbeat") or math.inf,
            grace=_seconds(features, "grace"),
            resume=_pair(features, "resume", "a session's number and its secret"),
            space=_text(features, "space", MAIN),
            token=_text(features, "token", ""),
            attempt=_pair(features, "attempt", "a number, and bytes of at most 64"),
            spoken=features.get("spoken") is True,
            reads=features.get("read") is True,
            leader=features.get("leader") is True,
            topics=features.get("topics") is True,
            here=features.get("here") is True,
        )

    def packed(self) -> Map:
        """The features of a hello."""
        wanted: dict[str, Value] = {}
        if self.heartbeat != math.inf:
            wanted["heartbeat"] = _millis(self.heartbeat)
        if self.grace:
            wanted["grace"] = _millis(self.grace)
        if self.resume is not None:
            wanted["resume"] = self.resume
        if self.space != MAIN:
            wanted["space"] = self.space
        if self.token:
            wanted["token"] = self.token
        if self.attempt is not None:
            wanted["attempt"] = self.attempt
        if self.spoken:
            wanted["spoken"] = True
        if self.reads:
            wanted["read"] = True
        if self.leader:
            wanted["leader"] = True
        if self.topics:
            wanted["topics"] = True
        if self.here:
            wanted["here"] = True
        return Map(wanted)


WANTED: Final = frozenset("read" if each.name == "reads" else each.name for each in fields(Wanted))
"""The features that a hello may name."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What the daemon grants: ``secret`` is what to come back with, ``resumed`` says that one did.

    ``spoken`` lists what it understands, empty unless that was asked for; see WIRE.md.  ``follows`` says that
    it applies no turn of this connection, ``topics`` that topics need a connection apart.
    """

    heartbeat: float = math.inf
    grace: float = 0.0
    secret: bytes = b""
    resumed: bool = False
    spoken: Map = EMPTY
    follows: bool = False
    topics: bool = False

    @classmethod
    def read(cls, features: Map) -> Self:
        """What a welcome grants."""
        secret = features.get("secret", b"")
        if secret.__class__ is not bytes:
            raise _wrong("secret", "bytes", secret)
        return cls(
            heartbeat=_seconds(features, "heartbeat") or math.inf,
            grace=_seconds(features, "grace"),
            secret=secret,
            resumed=features.get("resumed") is True,
            spoken=spoken if isinstance(spoken := features.get("spoken"), Map) else EMPTY,
            follows=features.get("follows") is True,
            topics=features.get("topics") is True,
        )

    def packed(self) -> Map:
        """The features of a welcome."""
        granted: dict[str, Value] = {}
        if self.heartbeat != math.inf:
            granted["heartbeat"] = _millis(self.heartbeat)
        if self.secret:
            granted |= {"grace": _millis(self.grace), "secret": self.secret}
        if self.resumed:
            granted["resumed"] = True
        if len(self.spoken):
            granted["spoken"] = self.spoken
        if self.follows:
            granted["follows"] = True
        if self.topics:
            granted["topics"] = True
        return Map(granted)


def _millis(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _seconds(features: Map, name: str) -> float:
    value = features.get(name, 0)
    if value.__class__ is not int or not 0 <= value < 1 << 63:
        raise _wrong(name, "a number of milliseconds", value)
    return value / 1000


def _text(features: Map, name: str, default: str) -> str:
    value = features.get(name, default)
    if value.__class__ is not str or len(value) > MAX_TEXT:
        raise too_long(name)
    return value


def too_long(name: str) -> ProtocolError:
    """Returns the error about a feature that is no text, or too long; its value may be a secret."""
    return ProtocolError("malformed", f"features.{name} must be text of at most {MAX_TEXT} characters")


def _pair(features: Map, name: str, what: str) -> tuple[int, bytes] | None:
    match features.get(name):
        case None:
            return None
        case (int(number), bytes(proof)) if number.__class__ is int and len(proof) <= MAX_PROOF:
            return number, proof
        case value:
            raise _wrong(name, what, value)


def _wrong(name: str, what: str, value: Value) -> ProtocolError:
    return ProtocolError("malformed", f"features.{name} must be {what}, got {value!r:.60}")
