"""Errors of conversations: which side broke it, and can it be mended?

``ProtocolError`` is the peer's fault and ends that session; ``Refused`` means that the peer understood and
refused, and nothing happened, ``ExpectationFailed`` that a turn found another state than it expects;
``Closed`` that this side ended the conversation and ``Broken`` that the outside did; ``AnotherSpace`` that
lost turns are not done again elsewhere; ``LockLost`` that a lock ended while it was held; ``Unreachable``
that no daemon answered; ``SeveralRows`` that a key of a live map has no single row.  ``ActorCrashed`` carries
what code inside an actor raised.  The codes are stable words that travel on the wire (WIRE.md lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from index.errors import DataspaceError, InternalError, UsageError

if TYPE_CHECKING:
    from index.values.values import Map, Value  # what has errors need not load values: --help does not

__all__ = [
    "ActorCrashed",
    "AnotherSpace",
    "Broken",
    "Closed",
    "DataspaceError",
    "ExpectationFailed",
    "InternalError",
    "LockLost",
    "ProtocolError",
    "Refused",
    "SeveralRows",
    "Unreachable",
    "UsageError",
]


class _Coded(DataspaceError):
    """An error with a stable word for programs and a sentence for people."""

    def __init__(self, code: str, text: str, url: str = "") -> None:
        super().__init__(*(code, text, url) if url else (code, text))
        self.code = code
        self.text = text
        self.url = url
        """The address to ask instead; empty if there is none."""

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class ProtocolError(_Coded):
    """The peer broke the protocol; its session ends, and nothing else does."""


class Refused(_Coded):
    """The peer refused a request whole; nothing of it happened, and the session goes on."""


class ExpectationFailed(Refused):
    """The turn did not happen: something that it expected does not hold.

    ``number`` is the number of the failed expectation, from 1 on; ``rows`` are the first captures that were
    found instead, ``count`` how many there are; ``epoch`` is the epoch that changed the facts of
    ``unchanged``, else 0.
    """

    def __init__(self, code: str, text: str, found: Map) -> None:
        super().__init__(code, text)
        self.args = (code, text, found)
        self.found = found

    @property
    def number(self) -> int:
        """Which of the expectations it is."""
        return _count(self.found.get("expectation"))

    @property
    def rows(self) -> list[tuple[Value, ...]]:
        """The first captures that were found."""
        rows = self.found.get("rows")
        return [row for row in rows if isinstance(row, tuple)] if isinstance(rows, tuple) else []

    @property
    def count(self) -> int:
        """How many there are."""
        return _count(self.found.get("count"))

    @property
    def epoch(self) -> int:
        """The epoch of the change."""
        return _count(self.found.get("epoch"))


class DeliveryLost(Refused):
    """A delivery of a group is not this client's (any more): its item is done, or out to another member.

    ``lost`` are these items, each as epoch and position.  Nothing has happened of a turn that said they are
    done.
    """

    def __init__(self, code: str, text: str, found: Map) -> None:
        super().__init__(code, text)
        self.args = (code, text, found)
        self.found = found

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The items that were lost."""
        lost = self.found.get("lost")
        found = [each for each in lost if isinstance(each, tuple)] if isinstance(lost, tuple) else []
        return [(_count(epoch), _count(position)) for epoch, position in found]


def refusal_of(code: str, text: str, found: Map, url: str = "") -> Refused:
    """Returns the refusal that a packet states; ``found`` is empty unless an expectation does not hold, or a
    delivery is lost."""
    if code == "not-yours":
        return DeliveryLost(code, text, found)
    return ExpectationFailed(code, text, found) if found else Refused(code, text, url)


def _count(value: Value) -> int:
    return value if isinstance(value, int) else 0


class LockLost(DataspaceError):
    """A lock, or an election, was lost while it was held: nothing more may be done in its name."""


class SeveralRows(UsageError):
    """A key of a live map has more than one row, and the map was made without ``many``."""


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
    """Code inside an actor raised; ``__cause__`` is the exception."""
