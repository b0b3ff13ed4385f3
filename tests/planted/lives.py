"""Simulated lives as a search: ``python -m tests.planted.lives``; some of one daemon, some of several.

The first ones are those of ``make test`` (``tests/simulation/test_simulation.py``).
"""

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
QUICK: Final = (
    *[(seed, Kind.MEMORY) for seed in range(39, 43)],
    *[(seed, Kind.FOLLOWERS) for seed in range(39, 43)],
    *[(seed, Kind.FILES) for seed in range(39, 52)],
)
"""Lives of the quick form."""


def _failure(seed: int) -> str | None:
    plan = draw(*QUICK[seed]) if seed < len(QUICK) else draw(seed, KINDS[seed % len(KINDS)])
    wrong = live(plan).wrong
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
