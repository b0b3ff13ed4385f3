"""What does a value cost on its way through streams, beside what else Python has for that?

    pipeline_values_per_s   numbers through source → three maps → sink, each stage apart (``fuse=False``)
    pipeline_single_per_s   the same, read one by one by ``async for`` instead of by the sink
    pipeline_fused_per_s    the same with the sink, the maps fused into one stage, as ``pipe`` does by itself
    channels_values_per_s   a task for each stage and a trio memory channel (of 64) between each two
    generators_values_per_s plain asynchronous generators, one for each stage
    aiostream_values_per_s  aiostream's operators, in asyncio, if it is installed (else null)
    pipeline_ratio_channels the first ÷ channels, measured in turn in the same round
    tcp_…, stalled_…        the same protocol over TCP; README.md says what each is

All run in one process and wait for nothing, so seconds are of CPU time: a busy machine shows less.
The stages are those that the checker watches in tests/dataspace/streams/test_grid.py; before measuring, one
short run is made with a checker at every interface (``checked=True``), and every variant's sum is compared.
Each question is one function that returns figures, so that others can stand beside it.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from operator import add
from pathlib import Path
from typing import Any, Final, cast

import trio

HERE: Final = Path(__file__).resolve().parent
sys.path[:] = [
    at for at in sys.path if Path(at).resolve() != HERE
]  # where the benchmark of the index would be taken for it

from bench import _streams_tcp as tcp  # noqa: E402
from bench._figures import command_line, show  # noqa: E402
from dataspace import streams as s  # noqa: E402

STAGES: Final = 3
BUFFER: Final = 64

Variant = Callable[[int], Awaitable[int]]


def step(value: int) -> int:
    """What each map does: little, so that the stages are what is measured."""
    return value + 1


# -- the variants -------------------------------------------------------------------------------------


def _maps() -> list[Any]:
    return [s.map(step) for _ in range(STAGES)]


async def sink(number: int) -> int:
    """Source, maps and sink; every stage apart."""
    whole = s.pipe(s.values(range(number)), *_maps(), s.reduce(add, 0), fuse=False)
    return cast(int, await whole.read())


async def single(number: int) -> int:
    """One value for each read."""
    total = 0
    async with s.pipe(s.values(range(number)), *_maps(), fuse=False) as stream:
        async for value in stream:
            total += value
    return total


async def fused(number: int) -> int:
    """As ``pipe`` does it by itself."""
    return cast(int, await s.pipe(s.values(range(number)), *_maps(), s.reduce(add, 0)).read())


async def channels(number: int) -> int:
    """A task for each stage, a memory channel between each two."""

    async def produce(out: trio.MemorySendChannel[int]) -> None:
        async with out:
            for value in range(number):
                await out.send(value)

    async def apply(source: trio.MemoryReceiveChannel[int], out: trio.MemorySendChannel[int]) -> None:
        async with source, out:
            async for value in source:
                await out.send(step(value))

    total = 0
    async with trio.open_nursery() as nursery:
        out, source = trio.open_memory_channel[int](BUFFER)
        nursery.start_soon(produce, out)
        for _ in range(STAGES):
            out, following = trio.open_memory_channel[int](BUFFER)
            nursery.start_soon(apply, source, out)
            source = following
        async with source:
            async for value in source:
                total += value
    return total


async def generators(number: int) -> int:
    """Asynchronous generators."""

    async def produce() -> AsyncIterator[int]:
        for value in range(number):
            yield value

    async def apply(source: AsyncIterator[int]) -> AsyncIterator[int]:
        async for value in source:
            yield step(value)

    total = 0
    stream: AsyncIterator[int] = produce()
    for _ in range(STAGES):
        stream = apply(stream)
    async for value in stream:
        total += value
    return total


async def aiostream(number: int) -> int:
    """The operators of aiostream."""
    operators: Any = import_module("aiostream").stream
    stream: Any = operators.iterate(range(number))
    for _ in range(STAGES):
        stream = operators.map(stream, step)
    result: int = await operators.reduce(stream, add, 0)
    return result


# -- measuring ----------------------------------------------------------------------------------------


def rate(variant: Variant, number: int) -> float:
    """Values per second of CPU time of one run, which waits for nothing; with its result checked."""
    run: Any = asyncio.run if variant is aiostream else None
    start = time.process_time()
    total = run(variant(number)) if run else trio.run(variant, number)
    seconds = time.process_time() - start
    expected = number * (number - 1) // 2 + STAGES * number
    if total != expected:
        raise SystemExit(f"{variant.__name__}: the sum is {total}, it should be {expected}")
    return number / seconds


async def check(number: int) -> None:
    """A run with a checker at each interface: raises ``Violation`` where the protocol is broken."""
    stages = [s.values(range(number)), *_maps(), s.reduce(add, 0)]
    await s.pipe(*stages, checked=True).read()


def pipeline(number: int, rounds: int) -> dict[str, float | None]:
    """The variants in turn, the best of the rounds for each."""
    trio.run(check, 1_000)
    variants: dict[str, tuple[Variant, int]] = {
        "pipeline_values_per_s": (sink, number),
        "pipeline_single_per_s": (single, number),
        "pipeline_fused_per_s": (fused, number),
        "channels_values_per_s": (channels, max(1, number // 10)),
        "generators_values_per_s": (generators, number),
    }
    if find_spec("aiostream"):
        variants["aiostream_values_per_s"] = (aiostream, max(1, number // 10))
    best: dict[str, float | None] = {"aiostream_values_per_s": None}
    ratio = 0.0
    for _ in range(rounds):
        rates = {name: rate(variant, size) for name, (variant, size) in variants.items()}
        ratio = max(ratio, rates["pipeline_values_per_s"] / rates["channels_values_per_s"])
        for name, found in rates.items():
            best[name] = max(found, best.get(name) or 0.0)
    return {**best, "pipeline_ratio_channels": ratio}


def over_tcp(number: int, rounds: int) -> dict[str, float | None]:
    """The same protocol as frames: the real client and daemon, beside a forwarder of frames."""
    told = tcp.measure(rounds, min(1.0, number / NUMBER))
    return {name: None if math.isnan(value) else value for name, value in told.items()}


NUMBER: Final = 300_000
QUESTIONS: Final = (pipeline, over_tcp)


def main() -> None:
    """Asks every question and prints the figures."""
    parser = command_line(__doc__, rounds=5)
    parser.add_argument("--only", choices=[question.__name__ for question in QUESTIONS])
    options = parser.parse_args()
    number, rounds = (5_000, 1) if options.quick else (NUMBER, options.rounds)
    figures: dict[str, float | None] = {}
    for question in QUESTIONS:
        if options.only not in (None, question.__name__):
            continue
        figures |= question(number, rounds)
    show(figures, as_json=options.json)


if __name__ == "__main__":
    main()
