"""What the versions of PySpark differ in: the only file that asks which one this is.

| | 4.0 | 4.1 | 4.2, 4.3 |
| --- | --- | --- | --- |
| limits of a batch, ``latestOffset(start, limit)``, ``reportLatestOffset`` | no | no | yes |
| ``availableNow`` asks the source where it ends (else Spark asks once, for one batch) | no | no | yes |
| writers of streams that take Arrow batches | by two base classes | yes | yes |
| where the checkpoint manager of local files is | ``streaming`` | ``streaming.checkpointing`` | the same |

Always: what a version lacks is refused by name where its option is read (``check_limits``); nothing that is
asked for is left out without a word.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema

from dataspace.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "ADMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "check_limits",
    "checkpoint_manager",
]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1, which call none of this

    class ReadLimit: ...  # type: ignore[no-redef]  # a stand-in

    class ReadAllAvailable(ReadLimit): ...  # type: ignore[no-redef]  # a stand-in

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]  # a stand-in
        def __init__(self, max_rows: int) -> None: ...

    class SupportsTriggerAvailableNow: ...  # type: ignore[no-redef]  # a stand-in


ADMITS: Final = ReadLimit.__module__ != __name__
"""Whether Spark passes limits to a Python source, and the start with them."""

if hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:  # 4.0, whose worker hands Arrow batches to whatever is a writer of batches
    # The two commit with other arguments, and Spark asks a stream's writer for the first form.
    class StreamArrowWriter(  # type: ignore[no-redef,misc]  # the other branch, and that
        DataSourceStreamWriter, DataSourceArrowWriter
    ):
        """A writer of streams that is given Arrow batches."""


_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the columns as Spark itself writes them, with times in UTC."""
    return to_arrow_schema(schema, **_UTC)


def check_limits(given: Iterable[str]) -> None:
    """Raises ``UsageError`` for options that bound a micro-batch where Spark knows no bounds.

    With ``processingTime`` they could be kept.  But with ``availableNow`` these versions ask once how far to
    read, so a bounded answer would end the query with data unread; and a source cannot tell the two apart.
    """
    for name in given if not ADMITS else ():
        raise UsageError(
            f"option {name} needs PySpark 4.2: {pyspark.__version__} has no limits for Python sources"
        )


def checkpoint_manager() -> str:
    """Returns Spark's class that writes checkpoints as plain files."""
    folder = "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
    return f"org.apache.spark.sql.execution.streaming.{folder}FileSystemBasedCheckpointFileManager"
