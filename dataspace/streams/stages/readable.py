"""Readable stages: is it a stream, has it a source, and does it fit on Python's stack?

Streams that read streams ask here where they are made, so that a mistake is found there and not by a reader.

Always: a stage that does not say what it is is taken at its shape.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from dataspace.errors import UsageError
from dataspace.streams.stages.base import Kind

FRAMES: Final = 4
"""Frames of Python's stack that an abort or an indication takes in one stage at the most."""

JOIN_FRAMES: Final = 9
"""The same for a source that reads another stream."""

SPARE: Final = 200
"""Frames of Python's recursion limit that are left for what reads a pipe and what its stages call."""

READABLE: Final = ("read", "peek", "abort", "abort_nowait")


def check_stream(stream: Any, where: str) -> None:
    """Raises ``UsageError`` for what cannot be read as it stands: no stream, or stages without a source."""
    missing = [name for name in READABLE if not hasattr(stream, name)]
    if missing:
        raise UsageError(
            f"{where} reads streams, and {stream!r:.80} is none: it has no {missing[0]}; "
            "of an iterable, values(…) makes a stream"
        )
    if lacks_source(stream):
        raise UsageError(f"{where} reads streams that have a source, and {stream.description} has none")


def lacks_source(stage: Any) -> bool:
    """True if a stage needs another before it; a stage that does not say is taken for a source."""
    kind = getattr(stage, "kind", Kind.SOURCE)
    return kind is Kind.THROUGH or (kind is Kind.SINK and not getattr(stage, "whole", False))


def frames_of(stream: Any) -> int:
    """How deep Python's stack gets at the most while a stream is read, peeked or aborted.

    A stage of this package states it in ``frames``; for another, the same depth is assumed.
    """
    frames = getattr(stream, "frames", FRAMES)
    return frames if isinstance(frames, int) else FRAMES


def check_depth(frames: int, what: str) -> None:
    """Raises ``UsageError`` where streams within streams would not fit on Python's stack."""
    deepest = sys.getrecursionlimit() - SPARE
    if frames > deepest:
        raise UsageError(
            f"{what} would take {frames} frames of Python's stack, and {deepest} fit below its limit: "
            "make one stage of several"
        )


def deeper(streams: Iterable[Any], where: str) -> int:
    """The ``frames`` of a source that reads other streams; ``UsageError`` where they are too many."""
    frames = JOIN_FRAMES + max(map(frames_of, streams), default=0)
    check_depth(frames, f"{where} of streams within streams")
    return frames


def check_streams(streams: Iterable[Any], where: str) -> None:
    """``check_stream`` for each of several streams; no stream may come twice."""
    seen: set[int] = set()
    for stream in streams:
        check_stream(stream, where)
        if id(stream) in seen:
            raise UsageError(
                f"{where} was given the same stream twice: {stream!r:.80}; fork_mirror makes two of one"
            )
        seen.add(id(stream))
