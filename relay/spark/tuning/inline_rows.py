"""Inline rows: the class of readers from which Spark takes rows along with a plan.

A Python task costs more than the rows of most micro-batches.  Spark takes rows along with a plan, so that its
tasks find them in memory and start no Python, from one class of readers only: its own private wrapper for
simple readers.  That wrapper has neither read limits nor a latest offset to report, so a reader belongs to
the class only between its plan and the question for rows.  Where a version of Spark has no such class, or is
another than this was written for, every row goes through tasks.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader

from relay.spark.tuning.versions import is_known

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
