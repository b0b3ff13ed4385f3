"""Streams: values that are pulled through stages that can be put together; STREAMS.md is the guide.

>>> import trio
>>> from relay import streams as s
>>> trio.run(s.pipe(s.values([1, 2, 3]), s.map(lambda n: n * 2), s.collect()).read)
[2, 4, 6]
"""

from relay.streams.checker import Checker, Violation, check
from relay.streams.draining import collect, concat, drain, find, log, on_end, reduce
from relay.streams.maps import filter, filter_not, map, non_unique, through, unique
from relay.streams.marks import Aborted, EndOfStream, Mark, Reason
from relay.streams.pipes import Pipe, PipeStatistics, pipe
from relay.streams.protocol import Stage, Upstream
from relay.streams.sinks import Sink
from relay.streams.sources import Source
from relay.streams.stages import Kind
from relay.streams.takes import batch, flatten, take, window
from relay.streams.throughs import Map, Transform
from relay.streams.values import count, empty, error, from_iterable, infinite, keys, once, values

__all__ = [
    "pipe",
    "Pipe",
    "PipeStatistics",
    "check",
    "Checker",
    "Violation",
    "EndOfStream",
    "Aborted",
    "Mark",
    "Reason",
    "Stage",
    "Upstream",
    "Kind",
    "Source",
    "Transform",
    "Map",
    "Sink",
    "values",
    "keys",
    "count",
    "infinite",
    "once",
    "empty",
    "error",
    "from_iterable",
    "map",
    "filter",
    "filter_not",
    "through",
    "unique",
    "non_unique",
    "take",
    "flatten",
    "window",
    "batch",
    "drain",
    "reduce",
    "collect",
    "concat",
    "find",
    "on_end",
    "log",
]
