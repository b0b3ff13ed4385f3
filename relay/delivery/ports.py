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

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Removes up to ``count`` values of about ``size`` bytes; returns how many, and their wire form.

        The last value may exceed ``size``, so that a large value is sent in the end.  The stream is woken by
        the next value that comes after a call.
        """


def joined(values: Sequence[StreamValue]) -> tuple[int, bytes]:
    """Returns how many values these are, and their wire form."""
    if len(values) == 1:
        return 1, values[0].packed
    return len(values), b"".join([each.packed for each in values])
