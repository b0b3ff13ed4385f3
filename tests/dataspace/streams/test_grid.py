"""However sources, transformers, requests, ends and overtaking are combined, the protocol is kept.

The grid of the pull-stream papers (sources × ends × transformers × request schedules × overtaking), with
indications, requests after the end, reads of some and peeks beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import pytest
import trio

from dataspace import streams as s
from dataspace.streams.stages.protocol import AnyStage
from tests.dataspace.streams.runs import Failure, Naive, Run, Scripted

REQUESTS: Final = (0, 1, 2, 3, 4)
ENDS: Final = ("", "x", "e", "i", "f", "xx", "xa", "ia", "ea", "xi", "ix", "ef")
SCHEDULES: Final = [
    asks * number + end
    for asks, number, end in product("as", REQUESTS, ENDS)
    if (number or end) and (asks == "a" or number)
] + ["pa", "ppaa", "pppaaa", "papapa", "pax", "ppx", "paxp", "aapp", "spsp", "ppip"]


def _fails_at(number: int) -> Callable[[int], int]:
    def fn(value: int) -> int:
        if value == number:
            raise Failure("stage")
        return value + 10

    return fn


async def _plus_ten(value: int) -> int:
    for _ in range(value % 2):
        await trio.lowlevel.checkpoint()
    return value + 10


async def _fails_late(value: int) -> int:
    await trio.lowlevel.checkpoint()
    if value == 1:
        raise Failure("stage")
    return value


TRANSFORMERS: Final[dict[str, Callable[[], list[AnyStage]]]] = {
    "none": list,
    "map": lambda: [s.map(lambda n: n + 10)],
    "map that fails": lambda: [s.map(_fails_at(1))],
    "naive": lambda: [Naive()],
    "filter": lambda: [s.filter(lambda n: n % 2)],
    "filter of none": lambda: [s.filter_not(lambda n: True)],
    "filter that fails": lambda: [s.filter(_fails_at(0))],
    "through": lambda: [s.through(lambda n: None)],
    "unique": lambda: [s.unique(lambda n: n % 2)],
    "non_unique": lambda: [s.non_unique(lambda n: n % 2)],
    "take 0": lambda: [s.take(0)],
    "take 2": lambda: [s.take(2)],
    "take while": lambda: [s.take(lambda n: n < 1)],
    "take last": lambda: [s.take(lambda n: n < 1, last=True)],
    "flatten": lambda: [s.map(lambda n: [n, n]), s.flatten()],
    "flatten streams": lambda: [s.map(lambda n: s.pipe(s.values([n, n]))), s.flatten()],
    "flatten failing": lambda: [s.map(lambda n: s.pipe(s.error(Failure("inner")))), s.flatten()],
    "window": lambda: [s.window(2)],
    "batch": lambda: [s.batch(2)],
    "async_map": lambda: [s.async_map(_plus_ten)],
    "async_map ahead": lambda: [s.async_map(_plus_ten, width=2)],
    "async_map that fails": lambda: [s.async_map(_fails_late, width=2)],
    "parallelize": lambda: [s.async_map(_plus_ten), s.parallelize(2)],
    "parallelize all": lambda: [s.map(_fails_at(1)), s.parallelize()],
    "buffer": lambda: [s.buffer(2)],
    "limit": lambda: [s.limit(2)],
    "sequentialize": lambda: [Naive(), s.sequentialize()],
    "rate_limit": lambda: [s.rate_limit(2, 0.0001)],
    "several": lambda: [s.map(lambda n: n), s.take(2), s.filter(lambda n: True), s.map(_fails_at(1))],
}


def runs(name: str) -> Iterator[tuple[Scripted, list[AnyStage], str, bool]]:
    for number, end, waits in product((0, 1, 2), (None, Failure("source")), (False, True)):
        for schedule, overtakes in product(SCHEDULES, (False, True)):
            yield Scripted(number, end, waits), TRANSFORMERS[name](), schedule, overtakes


def values_of(run: Run, schedule: str) -> list[Any]:
    """All values in the order of the requests."""
    told: list[Any] = []
    for number, kind, value in sorted(run.answers, key=lambda answer: answer[0]):
        if kind == "value" and schedule[number] in "as":
            told.extend(value if schedule[number] == "s" else [value])
    return told


_alone_known: dict[tuple[str, int, bool], list[Any]] = {}


async def _alone(name: str, source: Scripted) -> list[Any]:
    """What the same source gives to a reader that is alone, asks one by one and to the end."""
    case = (name, source.number, source.failing)
    if case not in _alone_known:
        same = Scripted(source.number, Failure("source") if source.failing else None, False)
        run = Run([same, *TRANSFORMERS[name]()])
        await run.play("a" * 9, overtakes=False)
        _alone_known[case] = values_of(run, "a" * 9)
    return _alone_known[case]


async def _play(name: str, step: int) -> int:
    played = 0
    for source, transformers, schedule, overtakes in list(runs(name))[::step]:
        run = Run([source, *transformers])
        with trio.fail_after(60):
            await run.play(schedule, overtakes=overtakes)
        assert len(run.answers) == len(schedule)
        if name != "batch":  # what is at hand differs
            told = values_of(run, schedule)
            assert told == (await _alone(name, source))[: len(told)]
        assert len(source.closed) <= 1
        if source._end is not None:
            assert len(source.closed) == 1, "what the source holds was not given back"
        played += 1
    return played


def _size() -> int:
    return sum(1 for name in TRANSFORMERS for _ in runs(name))


def test_the_grid_is_as_large_as_it_is_said_to_be() -> None:
    assert _size() >= 20_000


@pytest.mark.slow
@pytest.mark.torture(long=True)
@pytest.mark.parametrize("name", TRANSFORMERS)
async def test_every_run_keeps_the_protocol(name: str) -> None:
    assert await _play(name, 1) > 1_000


@pytest.mark.parametrize("name", TRANSFORMERS)
async def test_a_sample_of_the_runs_keeps_the_protocol(name: str) -> None:
    assert await _play(name, 5) > 200


async def test_the_grid_sees_ends_of_every_kind() -> None:
    """A grid in which nothing happens would prove nothing."""
    seen: set[str] = set()
    for name in TRANSFORMERS:
        for source, transformers, schedule, overtakes in list(runs(name))[::37]:
            run = Run([source, *transformers])
            await run.play(schedule, overtakes=overtakes)
            seen |= set(run.kinds)
    assert seen == {"value", "EndOfStream", "Aborted", "Failure"}


class Broken(s.Source[int]):
    """A source that is wrong on purpose, each time in one way."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self._how = how
        self._number = 0

    async def _fetch(self) -> None:
        self._held.append(0)

    async def read(self, source: Any = None) -> int:
        self._number += 1
        if self._how == "values after the end" and self._number == 1:
            raise s.EndOfStream
        if self._how == "another end":
            raise s.EndOfStream if self._number == 1 else s.Aborted(True)
        if self._how == "the error again and again":
            raise self._same
        if self._how == "out of order" and self._number == 1:
            await trio.testing.wait_all_tasks_blocked()
        return 0

    _same = Failure("again")

    async def abort(self, reason: Any = True, source: Any = None) -> None:
        pass  # and goes on giving values


@pytest.mark.parametrize(
    ("how", "schedule", "rule"),
    [
        ("values after the end", "aa", "rule 4"),
        ("another end", "aa", "rule 5"),
        ("the error again and again", "aa", "rule 5"),
        ("out of order", "aa", "rule 3"),
        ("values after an abort", "xa", "rule 4"),
    ],
)
async def test_the_checker_finds(how: str, schedule: str, rule: str) -> None:
    run = Run([Broken(how)])
    with pytest.RaisesGroup(pytest.RaisesExc(s.Violation, match=rule), flatten_subgroups=True):
        await run.play(schedule, overtakes=True)
