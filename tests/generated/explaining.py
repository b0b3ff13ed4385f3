"""The search for what explains what was seen of a daemon: a way of the model from segment to segment."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final

from tests.model.daemon import FOREVER, Daemon, Epochs, Lanes, Segment

MOST: Final = 400_000
"""States that a search goes through before it gives up."""


class Unexplained(Exception):
    """The daemon did what the model does not allow."""


def explain(daemon: Daemon, segments: Sequence[Segment]) -> None:
    """Finds a way through all that was seen; raises ``Unexplained`` if there is none.

    It is a search, since a step that nobody sees decides what later ones show.  What supposes that the least
    was lost, and of that what is the furthest, is looked at first.
    """
    rest = [sum(each.size for each in segments[at:]) for at in range(1, len(segments) + 1)]
    ways: list[tuple[int, int, int, Daemon, int, Lanes, Epochs]] = []
    seen, furthest, wrong, number = set[object](), FOREVER, partial(str), count()

    def add(lost: int, one: Daemon, at: int, lanes: Lanes, epochs: Epochs) -> None:
        left = sum(map(len, lanes)) + len(epochs) + rest[at] + len(segments) - at
        heappush(ways, (lost, left, next(number), one, at, lanes, epochs))

    add(0, daemon, 0, segments[0].lanes, segments[0].epochs)
    while ways:
        lost, left, _, one, at, lanes, epochs = heappop(ways)
        state = (at, *map(len, lanes), len(epochs), one.state())
        if state in seen:
            continue
        seen.add(state)
        if left < furthest:
            furthest, wrong = left, partial(one.wrong, segments[at], lanes, epochs)
        if len(seen) > MOST:
            raise Unexplained(f"no cause is found in {MOST} steps: {wrong()}")
        if one.is_through(segments[at], lanes, epochs):
            if at + 1 == len(segments):
                return
            later, further = copy(one), segments[at + 1]
            later.oldest = further.oldest
            add(lost, later, at + 1, further.lanes, (*epochs, *further.epochs))
        for new, new_lanes, new_epochs in one.steps(lanes, epochs, segments[at].time):
            add(lost + (len(new.deaf) > len(one.deaf)), new, at, new_lanes, new_epochs)
    raise Unexplained(wrong())
