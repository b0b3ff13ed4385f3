"""Internals of PySpark: its private class of readers, its workers, and whether this was written for its
version.

This folder leans on names that PySpark does not promise: a private class, the program from which
workers are forked, the place of an archive.  With another version those names may be there and mean something
else, which would show as a wrong result rather than as an error.  So all of it calls ``is_known`` first.

Always: with another version everything works as without tuning; each process logs that once.
"""

from __future__ import annotations

import gc
import logging
import sys
from functools import cache
from typing import Final

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

KNOWN: Final = ("4.2.", "4.3.")
"""What the versions begin with for which this folder was written and tested."""

log: Final = logging.getLogger("dataspace.spark")


def is_known(version: str | None = None) -> bool:
    """True if the tuning was written for PySpark's internals of this version.

    >>> [is_known(version) for version in ("4.1.4", "4.2.1", "4.3.0", "4.30.1", "4.4.0")]
    [False, True, True, False, False]
    """
    if version is not None:
        return version.startswith(KNOWN)
    return _is_known_here()


@cache
def _is_known_here() -> bool:
    known = is_known(pyspark.__version__)
    if not known:
        log.info(
            "PySpark %s is not one of %s, for which relay/spark/tuning was written: it is off",
            pyspark.__version__,
            written_for(),
        )
    return known


def written_for() -> str:
    """Returns the versions as people write them."""
    return ", ".join(f"{each}x" for each in KNOWN)


# -- inline rows -----------------------------------------------------------------------------------
#
# A Python task costs more than the rows of most micro-batches. Spark takes rows along with a plan, so that
# its tasks find them in memory and start no Python, from one class of readers only: its own private wrapper
# for simple readers. That wrapper has neither read limits nor a latest offset to report, so a reader belongs
# to the class only between its plan and the question for rows. Where a version of Spark has no such class, or
# is another than this was written for, every row goes through tasks.


try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as Wrapper
except ImportError:  # private, so another version may do without
    Wrapper = None  # type: ignore[assignment,misc]  # `supported` is asked before it is used


def supported() -> bool:
    """True if this version of Spark takes rows along with a plan, and the code here was written for it."""
    return Wrapper is not None and is_known()


def carrier(reader: type[DataSourceStreamReader]) -> type[DataSourceStreamReader]:
    """Returns a class of readers whose ``getCache`` Spark calls; ``reader`` where Spark has no wrapper."""
    if not supported():
        return reader
    return type(f"Carrying{reader.__name__}", (reader, Wrapper), {})


# -- workers ---------------------------------------------------------------------------------------
#
# Spark keeps its Python workers, and has each collect all garbage after every task. With Spark's own modules,
# Arrow and NumPy loaded that is a look at fifty thousand objects and 20 ms of a core, though next to none is
# garbage. A micro-batch into the sink is such a task for its plan, one for each partition and one for its
# commit: where batches are small, that is 40 % of all the CPU time they take. So what a worker has after its
# first task with us is put out of the collector's sight (``gc.freeze``), as servers do before they fork: once
# for each process, in Spark's workers only, after a collection.


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
