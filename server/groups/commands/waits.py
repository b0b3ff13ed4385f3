"""The waits of a job after its failed attempts, as options of commands have them."""

from __future__ import annotations

from server.config.units import duration


def waits(text: str) -> float | tuple[float, ...]:
    """Returns the seconds in one time, or in several.

    >>> waits("1.5s"), waits("1s,2m")
    (1.5, (1.0, 120.0))
    """
    times = tuple([duration(each) for each in text.split(",")])
    return times if "," in text else times[0]
