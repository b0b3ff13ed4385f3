"""What this room needs from others: the values that wait behind a stream, whatever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dataspace.errors import Refused


class StreamValue(Protocol):
    """One stream value, ready to be sent."""

    @property
    def packed(self) -> bytes:
        """Returns the value in its wire form."""


class Backlog(Protocol):
    """What waits behind one stream: changes of a space, blocks of a log, or messages of a topic."""

    @property
    def failure(self) -> Refused | None:
        """Returns the error that ends the stream; None while it goes on."""

    @property
    def used(self) -> int:
        """Returns the bytes of memory that the values take, about."""

    def __len__(self) -> int:
        """Returns the number of values that wait."""

    def take(self, count: int, size: int) -> Sequence[StreamValue]:
        """Removes and returns up to ``count`` values of about ``size`` bytes in all.

        The last value may exceed ``size``, so that a large value is sent in the end.
        """
