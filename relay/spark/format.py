"""The format ``dataspace``: where Spark's planner gets its readers and writers from.

One class serves batches and streams, in both directions; it reads the options and hands over.  Spark
pickles it by name, so this package must be importable wherever it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dataspace.errors import DataspaceError
from relay.spark.common.errors import NoStream, plainly
from relay.spark.common.options import read_options, sink_options, source_shape, stream_options
from relay.spark.common.schema import inferred
from relay.spark.sink.sink import BatchSink, StreamSink
from relay.spark.source.source import ChangesReader, ChangesStream
from relay.spark.source.spaces import resolved
from relay.spark.tuning.internals import spare_collections


def source_schema(options: Mapping[str, str]) -> StructType:
    """Returns all columns of a source, as its options make them."""
    shape = source_shape(options)
    return inferred(
        shape.pattern,
        include_value=shape.include_value,
        several=shape.several,
        spaces=shape.spaces,
        topic=shape.topic,
        asserted=shape.asserted,
        owned=shape.owned,
    )


class Dataspace(DataSource):
    """``format("dataspace")``."""

    @classmethod
    def name(cls) -> str:
        return "dataspace"

    @plainly
    def schema(self) -> StructType:
        """What the pattern makes; Spark does not ask when the user gave a schema."""
        return source_schema(self.options)

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        return ChangesReader(resolved(read_options(self.options)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            given = stream_options(self.options)
            options = resolved(given)
            return ChangesStream(options, schema, None if options is given else partial(resolved, given))
        except DataspaceError as error:
            return NoStream(error)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        sink = BatchSink(sink_options(self.options), schema, overwrite)
        sink.check_rights()
        spare_collections()
        return sink

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        sink = StreamSink(sink_options(self.options), schema, overwrite)
        sink.check_rights()
        spare_collections()
        return sink
