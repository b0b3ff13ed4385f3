"""Messages: from a partition to its subscribers, from a subscriber to its program, and their form on the
wire.

The first three are the source's; ``Crashed`` is ours, for a producer that vanished with epochs open. A batch
is opaque here: bytes on the wire, anything in a test, so that a filtered batch is never decoded: its items
travel as bytes, packed by the producer's client and unpacked by the subscriber's.  WIRE.md describes the same
arrays for people.

Always: a ``Snapshot`` is the first message of a partition to a subscriber, and there is one;
``message_of(value_of(message)) == message``; a value that is no message is a ``ProtocolError``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from dataspace.errors import ProtocolError
from dataspace.topics.times import Change, Time
from index.values.values import Value

SNAPSHOT: Final = 0
PROGRESS: Final = 1
BATCH: Final = 2
CRASHED: Final = 3

# Steps of a ``Produce`` packet: the first element of each.
SEND: Final = 0
CHANGE: Final = 1
LEAVE: Final = 2
CRASH: Final = 3
FINISH: Final = 5
"""Sends items and changes what is held, as one step (4 is a kind of step in the journal)."""


def value_of(message: Message) -> Value:
    """Returns a message as a value of a stream."""
    match message:
        case Batch(partition, time, items):
            return (BATCH, partition, time, items)  # type: ignore[return-value]  # items are bytes here
        case Progress(partition, changes):
            return (PROGRESS, partition, changes)
        case Snapshot(partition, lower, upper):
            return (SNAPSHOT, partition, lower, upper)
        case Crashed(partition, since, epochs, reason, changes):
            return (CRASHED, partition, since, epochs, reason, changes)


def message_of(value: Value) -> Message:
    """Returns the message in a value of a stream; ``ProtocolError`` if it is none."""
    if value.__class__ is tuple and any(each.__class__ is bool for each in value[:2]):
        raise ProtocolError("malformed", f"no message of a topic: {value!r:.80}")
    match value:
        case (2, int(partition), time, bytes(items)):
            return Batch(partition, _time(time), items, len(items))
        case (1, int(partition), changes):
            return Progress(partition, changes_of(changes))
        case (0, int(partition), lower, upper):
            return Snapshot(partition, _times(lower), _times(upper))
        case (3, int(partition), since, epochs, str(reason), changes):
            return Crashed(partition, _times(since), _times(epochs), reason, changes_of(changes))
        case _:
            raise ProtocolError("malformed", f"no message of a topic: {value!r:.80}")


def changes_of(value: Value) -> tuple[Change, ...]:
    """Returns the changes in an array of pairs, each a time and a count."""
    changes: list[Change] = []
    for pair in value if isinstance(value, tuple) else (None,):
        match pair:
            case (time, int(count)) if count.__class__ is int:
                changes.append((_time(time), count))
            case _:
                raise ProtocolError("malformed", f"no change of a frontier: {pair!r:.80}")
    return tuple(changes)


def _times(value: Value) -> tuple[Time, ...]:
    if value.__class__ is not tuple:
        raise ProtocolError("malformed", f"no times: {value!r:.80}")
    return tuple(map(_time, value))


def _time(value: Value) -> Time:
    if value.__class__ is int or (value.__class__ is tuple and all(each.__class__ is int for each in value)):
        return value  # type: ignore[return-value]  # just checked
    raise ProtocolError("malformed", f"no time: {value!r:.80}")


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
