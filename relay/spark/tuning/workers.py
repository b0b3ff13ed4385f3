"""Workers: objects that a Python process of Spark keeps are not looked through again after every task.

Spark keeps its Python workers, and has each collect all garbage after every task.  With Spark's own
modules, Arrow and NumPy loaded that is a look at fifty thousand objects and 20 ms of a core, though next to
none is garbage.  A micro-batch into the sink is such a task for its plan, one for each partition and one for
its commit: where batches are small, that is 40 % of all the CPU time they take.  So what a worker has after
its first task with us is put out of the collector's sight (``gc.freeze``), as servers do before they fork.

Always: once for each process, and in Spark's workers only; garbage is collected before.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Final

from relay.spark.tuning.versions import is_known

DAEMON: Final = "pyspark.daemon"
"""The program from which Spark forks its workers, and which collects after each task."""


def spare_collections() -> None:
    """To be called at the end of a task: every object loaded by now stays for the life of the process."""
    if is_worker() and is_known():
        _freeze()


def is_worker() -> bool:
    """Whether this is a process that Spark forked for its tasks."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == DAEMON


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()
