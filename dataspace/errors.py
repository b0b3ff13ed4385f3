"""Errors of conversations: which side broke it, and can it be mended?

``ProtocolError`` is the peer's fault and ends that session; ``Refused`` means that the peer understood
and said no, and nothing happened; ``Closed`` that this side ended the conversation and ``Broken`` that
the outside did; ``AnotherSpace`` that what was lost is not done again elsewhere; ``Unreachable`` that
nobody was there.  ``ActorCrashed`` carries what code inside an actor raised.  The codes are stable words
that travel on the wire (WIRE.md lists them).
"""

from __future__ import annotations

from index.errors import DataspaceError, InternalError, UsageError

__all__ = [
    "ActorCrashed",
    "AnotherSpace",
    "Broken",
    "Closed",
    "DataspaceError",
    "InternalError",
    "ProtocolError",
    "Refused",
    "Unreachable",
    "UsageError",
]


class _Coded(DataspaceError):
    """An error with a stable word for programs and a sentence for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class ProtocolError(_Coded):
    """The peer broke the protocol; its session ends, and nothing else does."""


class Refused(_Coded):
    """The peer refused a request whole; nothing of it happened, and the session goes on."""


class Closed(DataspaceError):
    """This side has closed the connection or the stream already."""


class Broken(DataspaceError):
    """The connection was lost: the peer went away, or said something that made no sense."""


class AnotherSpace(Broken):
    """The connection was lost before the answer, and the client is now connected to another space.

    Nothing of it happens in the space of now; whether it happened in the one before is not known.
    """


class Unreachable(DataspaceError):
    """Nobody answers at the address; the message says how to start a daemon there."""


class ActorCrashed(DataspaceError):
    """Code inside an actor raised; ``__cause__`` is what it raised."""
