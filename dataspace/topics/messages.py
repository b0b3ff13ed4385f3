"""Messages: what a partition tells its subscribers, and what a subscriber tells its program.

The first three are the source's; ``Crashed`` is ours, for a producer that vanished with epochs open. A batch
is opaque here: bytes on the wire, anything in a test, so that a filtered batch is never decoded.

Always: a ``Snapshot`` is the first message of a partition to a subscriber, and there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from dataspace.topics.frontiers import Change
from dataspace.topics.times import Time


class EpochState(Enum):
    """Where an epoch stands, as seen by the publisher."""

    LATENT = "latent"
    """Nothing of it has been sent."""
    ACTIVE = "active"
    """Something has been sent, and more may come."""
    COMPLETED = "completed"
    """Nothing more of it can come."""
    CRASHED = "crashed"
    """A producer that could have sent more of it has vanished: items may be missing."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Both frontiers of a partition as a subscriber joins."""

    partition: int
    lower: tuple[Time, ...]
    upper: tuple[Time, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How the lower frontier of a partition changed."""

    partition: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some of the items of one epoch."""

    partition: int
    time: Time
    items: object
    size: int = field(default=0, compare=False, repr=False)
    """Bytes of the items as they were sent."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """A producer that held ``since`` has disappeared; of the active ``epochs`` something may be missing.

    ``changes`` concern the lower frontier, which no longer waits for it.
    """

    partition: int
    since: tuple[Time, ...]
    epochs: tuple[Time, ...]
    reason: str
    changes: tuple[Change, ...]


Message: TypeAlias = Snapshot | Progress | Batch | Crashed


@dataclass(frozen=True, slots=True)
class Frontier:
    """No time that is not at or after one of these will be delivered any more; empty at the end."""

    times: tuple[Time, ...]


@dataclass(frozen=True, slots=True)
class Crash:
    """Event for the program: a producer has disappeared, and these epochs may be incomplete."""

    partition: int
    since: tuple[Time, ...]
    epochs: tuple[Time, ...]
    reason: str


Event: TypeAlias = Batch | Frontier | Crash
