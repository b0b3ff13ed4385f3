"""Figures: rounds of a measurement, the best of each figure, printed as a table or as JSON.

Always: the last line with ``--json`` is one object of all figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection


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
    for name, value in best.items():
        print(f"{name:<28} {value:>14,.2f}" if value < 1000 else f"{name:<28} {value:>14,.0f}")
    if args.json:
        print(json.dumps(best))
