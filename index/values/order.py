"""The total order of all values.

Records and maps give their own place, by a method ``order``, so that this file needs neither.

Always: two values have the same place exactly if they are the same value.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from index.errors import UsageError
from index.values.refusals import no_value

DEEPEST: Final = 200
"""How deep whatever is read, written or put in order may nest at most, whatever its caller allows."""


def order_key(value: object) -> tuple[object, ...]:
    """Where a value stands in the total order: sort by this.

    Null, bools, NaN, numbers by size (an integer before the equal float, ``-0.0`` before ``0.0``), text,
    bytes, times, sequences, records (label, then fields), maps (entry by entry).  O(size).

    >>> sorted([2, 1.0, 1, None, "a"], key=order_key)
    [None, 1, 1.0, 2, 'a']
    """
    try:
        return order_within(value, DEEPEST)
    except RecursionError:
        raise UsageError("a value is nested too deeply to be put in order") from None


def order_within(value: object, depth: int) -> tuple[object, ...]:
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case int():
            return (3, value, 0)
        case float():
            return (2,) if math.isnan(value) else (3, value, 1, math.copysign(1.0, value))
        case str():
            return (4, value)
        case bytes():
            return (5, value)
        case datetime():
            return (6, value)
        case tuple():
            depth = below(depth)
            return (7, tuple([order_within(each, depth) for each in value]))
        case _:
            order = getattr(value, "order", None)
            if order is None:
                raise no_value(value)
            place: tuple[object, ...] = order(below(depth))
            return place


def below(depth: int) -> int:
    """Returns one level less; raises ``RecursionError`` at none: compiled code does not see its stack end."""
    if depth <= 0:
        raise RecursionError
    return depth - 1
