"""Frames: what a notebook wants in one call, made of the options that SPARK.md lists.

``frame`` reads a pattern, ``current_state`` folds changes into what holds, ``updates`` writes the result of
a query in ``update`` mode, which Spark refuses for Python sinks, and ``keep`` holds facts up for as long as
a query runs.  Apart from the format, which Spark calls; these are called by people.

Always: nothing here does what options cannot; what ``updates`` writes for a batch, it writes once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from dataspace.errors import UsageError
from relay.spark.common.connections import asked
from relay.spark.common.options import check_names, default_option, read_options, sink_options
from relay.spark.common.schema import CHANGE_TYPE, DAEMON, EPOCH, SEQ, SPACE, selected
from relay.spark.format import source_schema
from relay.spark.sink.sink import query_owner
from relay.spark.source import offsets
from relay.spark.source.source import ChangesReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Option = str | int | float | bool

QUERY_ID: Final = "sql.streaming.queryId"
_NAMELESS: Final = (
    "Spark does not say which query a batch is of (Spark Connect never does): give updates(name=…), a name "
    "that belongs to the query's checkpoint"
)


def frame(
    spark: SparkSession,
    pattern: str,
    *,
    url: str | None = None,
    stream: bool = False,
    schema: str | StructType | None = None,
    columns: Sequence[str] | None = None,
    **options: Option,
) -> DataFrame:
    """Returns the changes of a pattern, or, with ``asOfEpoch``, a state; with ``stream``, as they come.

    With ``columns``, only these are read, in this order; which rows there are does not depend on it.
    Further options are the options of SPARK.md, by their names.  With ``archive``, Spark itself scans what is
    archived where the pattern allows it, and the daemon's part is united with it.
    """
    check_names({"pattern": pattern, **options}, "readStream" if stream else "read")
    given = {**options, "pattern": pattern, **({} if url is None else {"url": url})}
    if columns is not None:
        if schema is not None:
            raise UsageError("schema and columns both say which columns are read: give one of them")
        schema = selected(source_schema({name: _text(value) for name, value in given.items()}), columns)
    if not stream and any(name.lower() == "archive" for name in options):
        scan = _scanned(spark, given, schema)
        if scan is not None:
            return scan
    reader = (spark.readStream if stream else spark.read).format("dataspace").option("pattern", pattern)
    if url is not None or "archive" not in options:
        options = {"url": url or default_option(), **options}
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader if schema is None else reader.schema(schema)).load()


def _scanned(
    spark: SparkSession, options: Mapping[str, Option], schema: str | StructType | None
) -> DataFrame | None:
    """Returns a frame whose archived part Spark scans itself, None where the format is needed for it."""
    from relay.spark.cold.archives import archive_of  # loaded where there is an archive
    from relay.spark.cold.native import native_scan

    texts = {name: _text(value) for name, value in options.items()}
    read = read_options(texts)
    if len(read.peers) != 1 or read.spaces or read.as_of is not None or read.include_value:
        return None
    wanted = source_schema(texts) if schema is None else schema
    if isinstance(wanted, str):
        wanted = cast(StructType, StructType.fromDDL(wanted))
    reader = ChangesReader(read, wanted)
    span, now = reader.span(0)
    upto = min(now.archived, span.upto)
    if span.after >= upto or offsets.missing(span, now.space, now) is not None:
        return None
    cold = archive_of(read.peers[0], read.connect_timeout, now.space)
    assert cold is not None  # since something is archived
    scan = native_scan(spark, cold.archive, reader.columns, span.after, upto)
    if scan is None or span.upto == upto:
        return scan
    rest = {name: value for name, value in options.items() if name.lower() not in _OF_THE_WHOLE}
    tail = spark.read.format("dataspace").options(**rest).schema(reader.schema)
    return scan.union(tail.option("startingEpoch", upto + 1).option("endingEpoch", span.upto).load())


_OF_THE_WHOLE: Final = frozenset(
    ["archive", "archiveidentity", "startingepoch", "endingepoch", "startingtimestamp", "endingtimestamp"]
)
"""Options that the daemon's part of a frame has otherwise."""


def _text(value: Option) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def current_state(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns what holds after all changes: the newest fact of each key, unless it has gone.

    Of a stream it is an aggregation, to be written in ``complete`` or ``update`` mode; a key whose fact has
    gone leaves the result in ``complete`` mode only.  Several daemons, or spaces, have keys of their own.
    """
    from pyspark.sql import functions as F

    if not keys:
        raise UsageError("a state needs keys: the columns that tell facts apart")
    by = [*keys, *[name for name in (DAEMON, SPACE) if name in changes.columns and name not in keys]]
    rest = [F.col(name) for name in changes.columns if name not in by]
    # Within an epoch additions come before removals, but a key that has both was replaced: it is there.
    order = F.struct(EPOCH, F.col(CHANGE_TYPE) == "insert", SEQ)
    facts = changes.where(F.col(CHANGE_TYPE) != "message")
    newest = facts.groupBy(*by).agg(F.max_by(F.struct(*rest), order).alias("newest"))
    return newest.select(*by, "newest.*").where(F.col(CHANGE_TYPE) == "insert").drop(CHANGE_TYPE, SEQ)


def updates(*, url: str | None = None, name: str | None = None, **options: Option) -> Callable[..., None]:
    """Returns a function for ``foreachBatch`` that writes each batch as one turn, once, in any output mode.

    Options are the options of a batch write, usually ``template``, ``keyColumns`` and ``writer``.  A batch is
    known by the query's id; Spark Connect does not tell it, so that there ``name`` stands for it and must
    change with the checkpoint.
    """
    if name is None and is_remote():
        raise UsageError(_NAMELESS)

    check_names(options, "write")

    def write(batch: DataFrame, number: int) -> None:
        application = name or _running_query(batch)
        writer = batch.write.format("dataspace").mode("append").option("url", url or default_option())
        for option, value in options.items():
            writer = writer.option(option, value)
        writer.option("txnAppId", application).option("txnVersion", number).save()

    return write


def keep(
    query: StreamingQuery, *, url: str | None = None, lease: str = "60s", **options: str
) -> threading.Thread:
    """Keeps up the facts of a query with ``owner=query`` while it runs, and ends them when it ends.

    The thread renews the query's lease, so that a query without news keeps its facts; if this program dies,
    they go when the lease runs out.  All as in the query's options, a token for instance.
    """
    given = {"label": "kept", "owner": "query", "lease": lease, "url": url or default_option(), **options}
    read = sink_options(given)
    owner = query_owner(read, str(query.id))
    bound = read.connect_timeout

    def run() -> None:
        while query.isActive:
            asked(read.peer, bound, lambda link: link.lease(owner))
            with contextlib.suppress(StreamingQueryException):  # how it ended is not asked here
                query.awaitTermination(max(1, int((read.lease or 60.0) / 3)))
        asked(read.peer, bound, lambda link: link.lease(owner, keep=False))

    thread = threading.Thread(target=run, name=f"lease of query {query.id}", daemon=True)
    thread.start()
    return thread


def _running_query(batch: DataFrame) -> str:
    """The id of the query whose ``foreachBatch`` this is."""
    context = getattr(batch.sparkSession, "_jsc", None) and batch.sparkSession.sparkContext
    query = context and context.getLocalProperty(QUERY_ID)
    if not query:
        raise UsageError(_NAMELESS)
    return str(query)
