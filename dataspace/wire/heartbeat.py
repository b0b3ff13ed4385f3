"""A heartbeat: when must something be said, and when is a silent peer given up?

A broken line does not say so: a peer that lost its power or its route leaves a connection *half open*, on
which nothing comes and into which one can write for minutes.  So both sides promise to say something at
least every interval, a ``Ping`` if there is nothing else, and a side that hears nothing for two intervals
takes the line as lost.  The arithmetic is apart from both sides' tasks, which own a clock.

Always: a peer that keeps the promise is not given up, however few of its bytes get through at a time (any
byte counts); a peer that is gone is found within two intervals of its last byte.

>>> beat = Heartbeat(10.0, now=100.0)
>>> beat.said(104.0); beat.heard(103.0)
>>> beat.due, beat.lost
(114.0, 123.0)
"""

from __future__ import annotations

import math


class Heartbeat:
    """The beats of one connection; ``interval`` in seconds, infinite where none was agreed on."""

    __slots__ = ("_heard", "_said", "interval")

    def __init__(self, interval: float = math.inf, *, now: float = 0.0) -> None:
        self.interval = interval
        self._said = self._heard = now

    def said(self, now: float) -> None:
        """Something was handed to the kernel."""
        self._said = now

    def heard(self, now: float) -> None:
        """Something came, or we did not listen until now."""
        self._heard = now

    @property
    def due(self) -> float:
        """When to say something."""
        return self._said + self.interval

    @property
    def lost(self) -> float:
        """When to take the line as lost, unless something comes before."""
        return self._heard + 2 * self.interval
