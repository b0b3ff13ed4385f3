"""Streams: values that are pulled through stages, and the stages that can be combined (STREAMS.md).

>>> import trio
>>> from dataspace import streams as s
>>> trio.run(s.pipe(s.values([1, 2, 3]), s.map(lambda n: n * 2), s.collect()).read)
[2, 4, 6]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataspace.faces import face

if TYPE_CHECKING:
    from dataspace.streams.pipes.branches import (
        cat as cat,
        converge as converge,
        fork_mirror as fork_mirror,
        fork_round_robin as fork_round_robin,
        many as many,
        merge as merge,
    )
    from dataspace.streams.pipes.checker import Checker as Checker, Violation as Violation, check as check
    from dataspace.streams.pipes.lending import lend as lend
    from dataspace.streams.pipes.pair import pair as pair
    from dataspace.streams.pipes.pipes import Pipe as Pipe, PipeStatistics as PipeStatistics, pipe as pipe
    from dataspace.streams.sinks import (
        Sink as Sink,
        collect as collect,
        concat as concat,
        drain as drain,
        find as find,
        line_of as line_of,
        log as log,
        on_end as on_end,
        reduce as reduce,
        to_channel as to_channel,
        to_file as to_file,
    )
    from dataspace.streams.sources.pulled import (
        Source as Source,
        count as count,
        empty as empty,
        error as error,
        file_lines as file_lines,
        from_iterable as from_iterable,
        infinite as infinite,
        keys as keys,
        once as once,
        values as values,
    )
    from dataspace.streams.sources.pushed import (
        defer as defer,
        from_async_iterable as from_async_iterable,
        from_channel as from_channel,
        pushable as pushable,
    )
    from dataspace.streams.stages.base import Kind as Kind
    from dataspace.streams.stages.protocol import (
        Aborted as Aborted,
        EndOfStream as EndOfStream,
        Mark as Mark,
        Reason as Reason,
        Stage as Stage,
        Upstream as Upstream,
    )
    from dataspace.streams.throughs.base import MapThrough as MapThrough, Transform as Transform
    from dataspace.streams.throughs.concurrent import (
        async_map as async_map,
        buffer as buffer,
        limit as limit,
        parallelize as parallelize,
        rate_limit as rate_limit,
        sequentialize as sequentialize,
    )
    from dataspace.streams.throughs.maps import (
        filter as filter,
        filter_not as filter_not,
        map as map,
        non_unique as non_unique,
        through as through,
        unique as unique,
    )
    from dataspace.streams.throughs.windows import (
        batch as batch,
        flatten as flatten,
        take as take,
        window as window,
    )
    from relay.observed import logged as logged, observation as observation

__all__, __getattr__ = face(
    __name__,
    {
        "dataspace.streams.stages.protocol": "Aborted EndOfStream Mark Reason Stage Upstream",
        "dataspace.streams.stages.base": "Kind",
        "dataspace.streams.throughs.concurrent": (
            "async_map buffer limit parallelize rate_limit sequentialize"
        ),
        "dataspace.streams.pipes.checker": "Checker Violation check",
        "dataspace.streams.sinks": (
            "Sink collect concat drain find line_of log on_end reduce to_channel to_file"
        ),
        "dataspace.streams.pipes.branches": ("cat converge fork_mirror fork_round_robin many merge"),
        "dataspace.streams.pipes.lending": "lend",
        "dataspace.streams.throughs.maps": "filter filter_not map non_unique through unique",
        "relay.observed": "logged observation",
        "dataspace.streams.pipes.pair": "pair",
        "dataspace.streams.pipes.pipes": "Pipe PipeStatistics pipe",
        "dataspace.streams.throughs.windows": "batch flatten take window",
        "dataspace.streams.throughs.base": "MapThrough Transform",
        "dataspace.streams.sources.pulled": (
            "Source count empty error file_lines from_iterable infinite keys once values"
        ),
        "dataspace.streams.sources.pushed": "defer from_async_iterable from_channel pushable",
    },
)
