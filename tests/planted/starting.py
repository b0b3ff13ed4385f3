"""A daemon with the defect that ``$PLANTED`` names, or with none: ``python -m tests.planted.starting serve``.

Each execution of the changed place adds a byte to the file ``$PLANTED_COUNT``, up to ``MOST``, which a daemon
that is killed leaves behind.

Logs look every ``$TRIMS_EVERY`` seconds for what they need not keep, if that is set, and the keeper of an
archive for what its process is to do.  A leader gives a space away every ``$SPREADS_EVERY`` seconds.
"""

from __future__ import annotations

import os
import runpy
import sys
from functools import partial
from importlib import import_module
from typing import Any, Final

from tests.planted.defects import DEFECTS
from tests.planted.planting import Planted, plant

MOST: Final = 10_000


class _Counted(Planted):
    """Counts in a file."""

    def count(self) -> None:
        """Notes that the changed place is executed."""
        self.executed += 1
        if self.executed <= MOST:
            with open(os.environ["PLANTED_COUNT"], "ab") as file:
                file.write(b".")


if __name__ == "__main__":
    if name := os.environ.get("PLANTED"):
        plant(DEFECTS[name], _Counted)
    if every := os.environ.get("TRIMS_EVERY"):
        spaces: Any = import_module("server.spaces.space")
        spaces.retain = partial(spaces.retain, every=float(every))
        journal: Any = import_module("relay.journal.writer")
        journal.TRIM_SECONDS = float(every)
        keeper: Any = import_module("server.archiving.keeper")
        keeper.LOOK_SECONDS = float(every)
    if every := os.environ.get("SPREADS_EVERY"):
        store: Any = import_module("server.cluster.database.store")
        store.SPREAD_SECONDS = float(every)
    sys.argv[0] = "dataspace"
    runpy.run_module("dataspace", run_name="__main__", alter_sys=True)
