"""Epochs: what one committed turn did, as a plain record.

The kernel makes one for each turn that had an effect; the log stores it, observers and readers of the
log are told from it.  It is apart from both because neither may know the other.

Always: ``added`` and ``removed`` are net (a value is in at most one of them, and changed its presence),
in the order in which the turn made them; the order within an epoch is additions, messages, removals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from index.values import Value


class Claims(NamedTuple):
    """What a turn changed of one owner's handles: claims begun, then claims ended."""

    owner: str
    asserted: Sequence[tuple[int, Value]] = ()
    retracted: Sequence[int] = ()


class Epoch(NamedTuple):
    """One committed turn.

    ``number`` ascends, with gaps where a crash lost unacknowledged epochs; ``time`` is in microseconds
    since 1970 UTC and never goes back.  A *silent* entry changed claims but no fact (somebody else
    holds the same one): it repeats the number of the epoch before it and is shown to no observer.
    ``client`` and ``sequence`` name the sender's turn, so that it is never applied twice.
    """

    number: int
    time: int
    added: Sequence[Value] = ()
    messages: Sequence[Value] = ()
    removed: Sequence[Value] = ()
    claims: Sequence[Claims] = ()
    client: str | None = None
    sequence: int = 0
    silent: bool = False
