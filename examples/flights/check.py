"""The check: are Spark's figures those of a plain computation over the file?

Always: a figure that only one side has is a difference.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from examples.flights.expected import Figures

K = TypeVar("K", bound=Hashable)


class Line(NamedTuple):
    """One figure as both sides have it; None where a side has none."""

    name: str
    expected: int | None
    found: int | None

    @property
    def equal(self) -> bool:
        return self.expected == self.found


def compared(expected: Figures, found: Figures) -> list[Line]:
    """Every figure of either side, beside the other's."""
    return [
        *_beside("flights", expected.flights, found.flights),
        *_beside("most in the air at once", expected.aloft, found.aloft),
        *_beside("cancelled", expected.cancelled, found.cancelled),
        *_beside("diverted", expected.diverted, found.diverted),
        *_beside("in the air at the end", expected.airborne, found.airborne),
    ]


def table(lines: Iterable[Line]) -> str:
    """The comparison as text, a line each, with the differences marked.

    >>> print(table([Line("flights, UA EWR", 3637, 3637), Line("cancelled, LGA", 12, None)]))
                                              expected       Spark
      flights, UA EWR                            3 637       3 637
      cancelled, LGA                                12        none   DIFFERENT
    """
    rows = [f"{'':38}{'expected':>12}{'Spark':>12}"]
    for line in lines:
        mark = "" if line.equal else "   DIFFERENT"
        rows.append(f"  {line.name:36}{spelled(line.expected):>12}{spelled(line.found):>12}{mark}")
    return "\n".join(rows)


def spelled(number: float | None) -> str:
    """A whole number with its thousands set apart.

    >>> spelled(664122.4)
    '664 122'
    """
    return "none" if number is None else f"{number:,.0f}".replace(",", " ")


def _beside(name: str, one: Mapping[K, int], other: Mapping[K, int]) -> list[Line]:
    keys = sorted({*one, *other}, key=_title)
    return [Line(f"{name}, {_title(key)}", one.get(key), other.get(key)) for key in keys]


def _title(key: Hashable) -> str:
    return " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key)
