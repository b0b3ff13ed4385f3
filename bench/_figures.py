"""Figures: rounds of a measurement, the best of each figure, printed as a table or as JSON.

Always: the last line with ``--json`` is one object of all figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Mapping


def report(
    description: str | None, measure: Callable[[int, bool], dict[str, float]], *, least: Collection[str] = ()
) -> None:
    """Asks the command line, calls ``measure`` with the number of the round and whether to be quick, prints.

    The best of a figure is the greatest, or the least of those that are named.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="only a look at whether it works")
    parser.add_argument("--json", action="store_true", help="one JSON object in the last line")
    args = parser.parse_args()
    best: dict[str, float] = {}
    for number in range(1 if args.quick else args.rounds):
        for name, value in measure(number, args.quick).items():
            better = min if name in least else max
            best[name] = better(best.get(name, value), value)
    show(best, as_json=args.json)


def show(figures: Mapping[str, float], *, as_json: bool) -> None:
    """Prints figures as a table, and as JSON in the last line if that is asked for."""
    for name, value in figures.items():
        print(f"{name:<28} {value:>14,.2f}" if value < 1000 else f"{name:<28} {value:>14,.0f}")
    if as_json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
