"""Runs: many lives in several processes, some of them twice.

Always: a process lives only a few hundred lives, so that what they leave behind does not gather.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.simulation.life import Outcome, live
from tests.simulation.occurrences import Kind
from tests.simulation.plan import Plan, draw
from tests.simulation.planted import planted
from tests.simulation.scheduling import check_trio

TWICE: Final = 50
"""One of so many lives is lived twice, to see whether it is the same."""

_CHUNK: Final = 5
_CHUNKS: Final = 100

_cpu: Final = time.process_time  # that of this process, whatever the lives take for the time


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a life."""

    seed: int
    wrong: tuple[str, ...]
    digest: str
    events: int
    epochs: int
    seconds: float
    starts: int
    cpu: float
    counts: tuple[tuple[str, int], ...]


def one(plan: Plan, plant: str | None = None, *, keep_trace: bool = False) -> Outcome:
    """Lives one life, perhaps with a mistake in the product."""
    with planted(plant):
        return live(plan, keep_trace=keep_trace)


def kinds(wrong: Iterable[str]) -> frozenset[str]:
    """Returns what kinds of things went wrong.

    >>> sorted(kinds(["order: epoch 3 follows 4", "order: epoch 4 follows 5", "once: turn 1 of x"]))
    ['once', 'order']
    """
    return frozenset(each.partition(":")[0] for each in wrong)


def results(
    seeds: range, processes: int, plant: str | None = None, kind: Kind = Kind.FILES
) -> Iterator[Result]:
    """Lives the lives of some seeds, and yields what came of each, in their order."""
    chunks = ((seeds[at : at + _CHUNK], plant, kind) for at in range(0, len(seeds), _CHUNK))
    if processes == 1:
        for chunk in chunks:
            yield from _some(chunk)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=_CHUNKS) as pool:
        for found in pool.imap(_some, chunks):
            yield from found


def _some(chunk: tuple[range, str | None, Kind]) -> list[Result]:
    seeds, plant, kind = chunk
    check_trio()
    return [_result(draw(seed, kind), plant) for seed in seeds]


def _result(plan: Plan, plant: str | None) -> Result:
    began, seed = _cpu(), plan.seed
    outcome = one(plan, plant)
    cpu = _cpu() - began
    wrong = outcome.wrong
    if seed % TWICE == 0:
        again = one(plan, plant).digest
        if again != outcome.digest:
            wrong = (*wrong, f"replay: another life of the same seed, {again} after {outcome.digest}")
    gc.collect()
    gc.freeze()  # what is left is of the product, and is not looked at again
    return Result(
        seed,
        wrong,
        outcome.digest,
        outcome.events,
        outcome.epochs,
        outcome.seconds,
        outcome.starts,
        cpu,
        outcome.counts,
    )
