"""Streams: values that are pulled through stages that can be put together; STREAMS.md is the guide.

>>> import trio
>>> from relay import streams as s
>>> trio.run(s.pipe(s.values([1, 2, 3]), s.map(lambda n: n * 2), s.collect()).read)
[2, 4, 6]
"""

from dataspace.streams.marks import Aborted, EndOfStream, Mark, Reason
from dataspace.streams.protocol import Stage, Upstream
from dataspace.streams.sources import Source
from dataspace.streams.stages import Kind
from relay.streams.ahead import async_map, buffer, parallelize
from relay.streams.checker import Checker, Violation, check
from relay.streams.draining import collect, concat, drain, find, log, on_end, reduce
from relay.streams.files import file_lines, line_of, to_channel, to_file
from relay.streams.forks import fork_mirror, fork_round_robin
from relay.streams.joins import cat, converge, many, merge
from relay.streams.lends import lend
from relay.streams.limits import limit, rate_limit, sequentialize
from relay.streams.maps import filter, filter_not, map, non_unique, through, unique
from relay.streams.observed import logged, observation
from relay.streams.pipes import Pipe, PipeStatistics, pipe
from relay.streams.sinks import Sink
from relay.streams.takes import batch, flatten, take, window
from relay.streams.throughs import Map, Transform
from relay.streams.values import count, empty, error, from_iterable, infinite, keys, once, values
from relay.streams.waiting import defer, from_async_iterable, from_channel, pair, pushable

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
    "from_async_iterable",
    "from_channel",
    "pushable",
    "pair",
    "defer",
    "file_lines",
    "observation",
    "logged",
    "map",
    "filter",
    "filter_not",
    "through",
    "unique",
    "non_unique",
    "async_map",
    "buffer",
    "parallelize",
    "limit",
    "rate_limit",
    "sequentialize",
    "take",
    "flatten",
    "window",
    "batch",
    "fork_mirror",
    "fork_round_robin",
    "cat",
    "converge",
    "merge",
    "many",
    "lend",
    "drain",
    "reduce",
    "collect",
    "concat",
    "find",
    "on_end",
    "log",
    "to_file",
    "to_channel",
    "line_of",
]
