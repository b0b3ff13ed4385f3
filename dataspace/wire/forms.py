"""Forms: how packets become bytes and bytes packets, where that is not as frames of msgpack.

A session machine cuts what is received into bodies, decodes each, and encodes what is sent.  Over TCP that is
``frames`` and the codec.  Another transport that has messages of its own, or another notation, gives the
machine a form; everything that packets mean stays the machine's.

Always: a form decodes to the values that the codec would, and refuses as much.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from dataspace.errors import ProtocolError
from dataspace.wire.packets import Packet
from index.values.values import Value

Decode: TypeAlias = Callable[[bytes, int, int, bool], Generator[None, None, Value]]
"""Gets a body, the most elements and levels of it, and whether it is the first: yields between two steps."""

Framed: TypeAlias = Callable[[int, int, int, bytes, int], tuple[bytes, int]]
"""Gets stream, first, count, the packed values and how many are left: returns a packet of values as it is
sent, and its cost in credit."""


class BodyCutter(Protocol):
    """Cuts received bytes into bodies, as ``Cutter`` does."""

    limit: int
    refusal: ProtocolError | None

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """Returns the bodies that are whole now, to be consumed before the next chunk is fed."""

    @property
    def held(self) -> int:
        """Bytes of an unfinished body that are kept."""


@dataclass(frozen=True, slots=True)
class Form:
    """How one connection writes and reads packets; without ``decode`` its bodies are msgpack."""

    cutter: BodyCutter
    encode: Callable[[Packet], bytes]
    framed: Framed
    decode: Decode | None = None
