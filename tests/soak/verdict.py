"""The verdict of a soak: does anything grow, or become slower, from one part of it to the other?

What is measured is taken at equal distances.  The first half is warm-up, in which caches and pools fill, and
the log until retention begins: memory rose for 19 minutes of a run, and was flat from then on.  The last
quarter is compared with the one before it: by medians, and by lower quartiles where other work of the machine
adds to what is measured.

Always: a figure that rises steadily by more than it may is named, with both medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

FEWEST: Final = 12
"""Samples without which nothing is said of growth."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at the daemon found; bytes, counts, and milliseconds."""

    seconds: float
    resident: int
    descriptors: int
    threads: int
    log: int
    latency: float
    slowest: float


def _bound(share: float, least: float) -> Callable[[float], float]:
    return lambda before: before + max(before * share, least)


MAY_BE: Final[dict[str, Callable[[float], float]]] = {
    "resident": _bound(0.05, 6 << 20),
    "descriptors": _bound(0.0, 8),
    "threads": _bound(0.0, 4),
    "log": _bound(0.25, 4 << 20),
    "latency": _bound(1.0, 20.0),
}
"""What the last quarter may have at most, given what the one before it has."""

TYPICAL: Final[dict[str, float]] = {"latency": 0.25}
"""Which part of the samples is below the one that is compared; half of them for others."""


def drifts(samples: Sequence[Sample]) -> list[str]:
    """Returns what has grown by more than it may, in words; nothing of fewer than ``FEWEST`` samples.

    >>> flat = [Sample(at, 50 << 20, 30, 4, 1 << 20, 2.0, 9.0) for at in range(40)]
    >>> drifts(flat)
    []
    """
    if len(samples) < FEWEST:
        return []
    quarter = len(samples) // 4
    parts = samples[-2 * quarter : -quarter], samples[-quarter:]
    found = []
    for name, may_be in MAY_BE.items():
        below = TYPICAL.get(name, 0.5)
        before, after = [_typical([getattr(each, name) for each in part], below) for part in parts]
        if after > may_be(before):
            found.append(
                f"{name} has grown from {before:.6g} to {after:.6g}; allowed is {may_be(before):.6g}"
            )
    return found


def _typical(values: Sequence[float], below: float) -> float:
    return sorted(values)[int(len(values) * below)]


def table(samples: Sequence[Sample], lines: int = 24) -> str:
    """Returns some of the samples at equal distances, the first and the last included, as a table."""
    shown = samples
    if len(samples) > lines:
        shown = [samples[at * (len(samples) - 1) // (lines - 1)] for at in range(lines)]
    names = [each.name for each in fields(Sample)]
    rows = [names, *[[_text(name, getattr(each, name)) for name in names] for each in shown]]
    widths = [max([len(row[at]) for row in rows]) for at in range(len(names))]
    return "\n".join(
        ["  ".join([cell.rjust(width) for cell, width in zip(row, widths, strict=True)]) for row in rows]
    )


def _text(name: str, value: object) -> str:
    if name in ("resident", "log") and isinstance(value, int):
        return f"{value / (1 << 20):.1f} MiB"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
