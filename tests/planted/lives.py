"""Simulated lives as a search: ``python -m tests.planted.lives``; some of one daemon, some of several."""

from __future__ import annotations

import gc
import sys
from typing import Final

from tests.generated.searching import options_of, search
from tests.simulation.life import live
from tests.simulation.occurrences import Kind
from tests.simulation.plan import draw
from tests.simulation.scheduling import check_trio

KINDS: Final = (Kind.MEMORY, Kind.FILES, Kind.FOLLOWERS, Kind.MEMORY)


def _failure(seed: int) -> str | None:
    wrong = live(draw(seed, KINDS[seed % len(KINDS)])).wrong
    gc.collect()
    gc.freeze()  # what is left is of the product, and is not looked at again
    return wrong[0] if wrong else None


def main() -> int:
    """Returns 1 if a life goes wrong, else 0."""
    options = options_of("python -m tests.planted.lives", __doc__).parse_args()
    check_trio()
    return int(search(_failure, options.first, options.seconds) is not None)


if __name__ == "__main__":
    sys.exit(main())
