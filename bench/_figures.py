"""Figures: rounds of a measurement, the best of each figure, printed as a table or as JSON.

Always: the last line with ``--json`` is one object of all figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Mapping


def command_line(
    description: str | None, *, rounds: int = 3, quick: str = "only a look at whether it works"
) -> argparse.ArgumentParser:
    """Returns a parser of what every bench is asked: ``--json``, ``--quick``, ``--rounds``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one flat JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--rounds", type=int, default=rounds, help="the best of so many counts")
    return parser


def report(
    description: str | None,
    measure: Callable[[int, bool], dict[str, float]],
    *,
    least: Collection[str] = (),
    ratios: Callable[[dict[str, float]], dict[str, float]] = dict,
) -> None:
    """Asks the command line, calls ``measure`` with the number of the round and whether to be quick, prints.

    The best of a figure is the greatest, or the least of those that are named; ``ratios`` makes further ones
    of these.
    """
    args = command_line(description).parse_args()
    best: dict[str, float] = {}
    for number in range(1 if args.quick else args.rounds):
        for name, value in measure(number, args.quick).items():
            better = min if name in least else max
            best[name] = better(best.get(name, value), value)
    show(best | ratios(best), as_json=args.json)


def show(figures: Mapping[str, float | None], *, as_json: bool, note: str = "") -> None:
    """Prints figures as a table with a note below, and as JSON in the last line if that is asked for.

    A figure that is None was not measured: what it measures is not to be had here.
    """
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        print(f"{name:<{width}} {_shown(value):>14}")
    if note:
        print(note)
    if as_json:
        print(
            json.dumps({name: value if value is None else round(value, 4) for name, value in figures.items()})
        )


def _shown(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"
