"""What happens to a slow observer?  It chooses a ``Policy`` (``dataspace/wire/observing``) with its stream.

What waits for an observer is bounded in any case; the policies differ in what happens at the bound:

- ``wait``: nothing is lost or merged; the log keeps waiting epochs until they are wanted.  Ends with
  ``epoch-gone`` where the log no longer holds them.
- ``conflate``: facts become their net difference over the waiting epochs; messages cannot, and too many
  messages end the stream.  The usual choice, since the state is right at any time.
- ``fail``: the stream ends with ``slow-observer`` and says how much was waiting.
- ``drop``: the oldest epochs go, and a mark ``lost(changes, first, last)`` takes their place.  For readers of
  news rather than state.

Always: memory is bounded by the state plus the limits of one observation; others are not affected.
"""

from __future__ import annotations


class SlowCounts:
    """Counts of what slow observers of a daemon have lost, since its start.

    ``conflated`` epochs that became part of a difference, ``dropped`` changes, ``failed`` observations, and
    how often one has ``fallen_behind`` and is fed from the log.
    """

    __slots__ = ("conflated", "dropped", "failed", "fallen_behind")

    def __init__(self) -> None:
        self.conflated = self.dropped = self.failed = self.fallen_behind = 0
