"""Forms: the messages of topics as values of the wire, and back.

A batch's items travel as bytes, packed by the producer's client and unpacked by the subscriber's, so that
a batch that is filtered is never decoded.  WIRE.md describes the same arrays for people.

Always: ``message_of(value_of(message)) == message``; anything that is no message is a ``ProtocolError``.
"""

from __future__ import annotations

from typing import Final

from dataspace.errors import ProtocolError
from dataspace.topics.frontiers import Change
from dataspace.topics.messages import Batch, Crashed, Message, Progress, Snapshot
from dataspace.topics.times import Time
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
    for each in value if isinstance(value, tuple) else (None,):
        match each:
            case (time, int(count)) if count.__class__ is int:
                changes.append((_time(time), count))
            case _:
                raise ProtocolError("malformed", f"no change of a frontier: {each!r:.80}")
    return tuple(changes)


def _times(value: Value) -> tuple[Time, ...]:
    if value.__class__ is not tuple:
        raise ProtocolError("malformed", f"no times: {value!r:.80}")
    return tuple(map(_time, value))


def _time(value: Value) -> Time:
    if value.__class__ is int or (value.__class__ is tuple and all(each.__class__ is int for each in value)):
        return value  # type: ignore[return-value]  # just checked
    raise ProtocolError("malformed", f"no time: {value!r:.80}")
