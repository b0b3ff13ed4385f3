"""Tries one seed after the other until something fails, or the time is over, and says so in one line of JSON.

This is what all generated tests have in common, so that ``tests/planted`` can run any of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable


def options_of(program: str, description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of a search."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU after which no further one is tried")
    return parser


def search(
    fails: Callable[[int], str | None],
    first: int,
    seconds: float,
    cpu: Callable[[], float] = time.process_time,
) -> int | None:
    """Returns the seed that fails; None if the CPU of ``seconds`` is over before.

    Prints how many there were, in how many seconds of CPU, the last seed, and what ``fails`` says of it.
    """
    seed, said, begun = first, None, cpu()
    while said is None and cpu() - begun < seconds:
        said, seed = fails(seed), seed + 1
    taken = round(cpu() - begun, 2)
    line = {"programs": seed - first, "seconds": taken, "seed": seed - 1, "said": said}
    print(json.dumps(line), flush=True)
    return None if said is None else seed - 1
