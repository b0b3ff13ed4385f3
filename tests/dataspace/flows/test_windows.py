"""Windows by time emit what follows from the items that are there, in any order, with retractions; each law
is held against a plain computation of every tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dataspace.flows.flows import Flow
from dataspace.flows.fluent import FlowStage
from index.errors import UsageError

Item = tuple[str, int, int]
"""A key, a time in seconds, and a number."""

Tick = list[tuple[Item, int]]


def time(item: Item) -> int:
    return item[1]


class Plain:
    """The items that are there and not late, by definition: all are looked through in each tick."""

    def __init__(self, until: Callable[[int], int], lateness: int) -> None:
        self.until = until
        self.lateness = lateness
        self.items: Counter[Item] = Counter()
        self.watermark = -(10**9)
        self.closed = self.watermark
        self.late = 0

    def tick(self, changes: Tick) -> None:
        self.closed = self.watermark
        for item, by in changes:
            if self.until(time(item)) <= self.closed:
                self.late += 1
                continue
            self.items[item] += by
            if by > 0:
                self.watermark = max(self.watermark, time(item) - self.lateness)


def emitted(
    build: Callable[[FlowStage], FlowStage], ticks: Iterable[Tick]
) -> Iterable[tuple[Counter[Any], Any]]:
    """Yields after each tick what has been emitted so far and not taken back, and the operator."""
    flow, seen = Flow(), Counter[Any]()
    source = flow.source()
    stage = build(source)
    stage.each_change(lambda item, weight: seen.update({item: weight}))
    for tick in ticks:
        for item, by in tick:
            source.put(item, by)
        flow.run_tick()
        yield Counter({item: count for item, count in seen.items() if count}), flow.operator(stage.name)


def some(steps: list[list[tuple[str, int, int, bool]]]) -> list[Tick]:
    """Returns ticks in which only items are taken out that have been put in."""
    there: Counter[Item] = Counter()
    made: list[Tick] = []
    for step in steps:
        tick: Tick = []
        for name, at, number, is_out in step:
            item = name, at, number
            if is_out and not there[item]:
                continue
            by = -1 if is_out else 1
            there[item] += by
            tick.append((item, by))
        made.append(tick)
    return made


CHANGES = st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(0, 1), st.booleans())
TICKS = st.lists(st.lists(CHANGES, max_size=5), max_size=8).map(some)


def present(plain: Plain) -> Iterable[tuple[Item, int]]:
    for item, count in plain.items.items():
        assert count >= 0
        if count:
            yield item, count


@given(TICKS, st.sampled_from([1, 2, 5]), st.sampled_from([0, 1, 3]))
def test_a_sliding_window_has_the_items_of_the_last_seconds(
    ticks: list[Tick], size: int, lateness: int
) -> None:
    plain = Plain(lambda at: at + size, lateness)
    for tick, (seen, operator) in zip(
        ticks, emitted(lambda s: s.window(size, lateness=lateness, at=time), ticks), strict=True
    ):
        plain.tick(tick)
        wanted = {item: count for item, count in present(plain) if time(item) + size > plain.watermark}
        assert (seen, operator.late) == (Counter(wanted), plain.late)
        assert operator.size() == len(wanted)


def windows(at: int, size: int, slide: int) -> list[int]:
    """Returns the beginnings of the windows of a time: all multiples are tried."""
    return [begin for begin in range(-20, 20) if begin % slide == 0 and begin <= at < begin + size]


@given(TICKS, st.sampled_from([(2, 1), (3, 3), (5, 2), (4, 4)]), st.sampled_from([0, 1, 3]), st.booleans())
def test_hopping_windows_have_their_items(
    ticks: list[Tick], shape: tuple[int, int], lateness: int, final: bool
) -> None:
    size, slide = shape
    plain = Plain(lambda at: max(windows(at, size, slide)) + size, lateness)
    closed: Counter[Any] = Counter()
    for tick, (seen, operator) in zip(
        ticks, emitted(lambda s: s.window(size, slide, lateness, at=time, final=final), ticks), strict=True
    ):
        plain.tick(tick)
        wanted: Counter[Any] = Counter()
        for item, count in present(plain):
            for begin in windows(time(item), size, slide):
                if begin + size > plain.watermark:
                    wanted[begin, item] = count
                elif begin + size > plain.closed:
                    closed[begin, item] = count
        assert seen == (closed if final else wanted)
        assert (operator.late, operator.size()) == (plain.late, len(wanted))


def sessions(plain: Plain, gap: int) -> Iterable[tuple[str, int, int, list[Item]]]:
    """Yields the sessions of all keys: two items belong together if a chain of small steps connects them."""
    for name in "ab":
        items = sorted([item for item, n in present(plain) for _ in range(n) if item[0] == name], key=str)
        items.sort(key=lambda item: (time(item), item[2]))
        while items:
            mine = [items[0]]
            for item in items[1:]:
                if any(abs(time(item) - time(other)) < gap for other in mine):
                    mine.append(item)
            items = [item for item in items if item not in mine]
            yield name, time(mine[0]), time(mine[-1]) + gap, mine


@given(TICKS, st.sampled_from([1, 2, 4]), st.sampled_from([0, 1, 3]), st.booleans())
def test_sessions_merge_and_split(ticks: list[Tick], gap: int, lateness: int, final: bool) -> None:
    check_sessions(ticks, gap, lateness, final=final)


def check_sessions(ticks: list[Tick], gap: int, lateness: int, *, final: bool) -> None:
    def build(source: FlowStage) -> FlowStage:
        pairs = source.map(lambda item: (item[0], item))
        return pairs.sessions(gap, at=lambda each: time(each[1]), lateness=lateness, final=final)

    plain = Plain(lambda at: at + gap, lateness)
    closed: Counter[Any] = Counter()
    for tick, (seen, operator) in zip(ticks, emitted(build, ticks), strict=True):
        plain.tick(tick)
        wanted: Counter[Any] = Counter()
        for name, begin, end, items in list(sessions(plain, gap)):
            session = name, (begin, end, tuple(items))
            if end > plain.watermark:
                wanted[session] = 1
            else:
                closed[session] += 1
                for item in items:
                    del plain.items[item]
        assert seen == (closed if final else wanted)
        assert operator.late == plain.late


def test_all_small_histories_of_sessions() -> None:
    items = [("a", at, 0) for at in range(4)]
    for order in product(items, repeat=4):
        for taken in (None, *range(3)):
            ticks: list[Tick] = [[(item, 1)] for item in order]
            if taken is not None:
                ticks[3] = [(order[taken], -1)]
            check_sessions(ticks, 2, 3, final=False)
            check_sessions(ticks, 2, 1, final=True)


def test_an_item_that_joins_two_sessions_takes_both_back_and_its_retraction_splits_them_again() -> None:
    flow, changes = Flow(), list[Any]()
    source = flow.source()
    source.sessions(10, at=lambda pair: pair[1], lateness=100).each_change(
        lambda item, weight: changes.append((item[1], weight))
    )
    for at, by in ((0, 1), (15, 1), (8, 1), (8, -1)):
        changes.clear()
        source.put(("k", at), by)
        flow.run_tick()
        changes.sort(key=str)
        if at == 8:
            both = ((0, 10, (0,)), -by), ((15, 25, (15,)), -by)
            assert changes == sorted([*both, ((0, 25, (0, 8, 15)), by)], key=str)


def test_times_are_shown_as_the_items_have_them() -> None:
    flow, seen = Flow(), list[Any]()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    source = flow.source()
    source.window(60, 60, at=lambda item: item[0], final=True).for_each(seen.append)
    source.put((noon + timedelta(seconds=61.5), "a"))
    flow.run_tick()
    source.put((noon + timedelta(seconds=120), "b"))
    flow.run_tick()
    assert seen == [(noon + timedelta(seconds=60), (noon + timedelta(seconds=61.5), "a"))]


def test_what_makes_no_sense_is_refused() -> None:
    flow = Flow()
    stage = flow.source()
    refused: list[Callable[[], FlowStage]] = [
        lambda: stage.window(5, 1),
        lambda: stage.window(1.5),
        lambda: stage.window(0, at=time),
        lambda: stage.window(2, 3, at=time),
        lambda: stage.window(2, at=time, final=True),
        lambda: stage.window(2, 1, -1, at=time),
        lambda: stage.sessions(0, at=time),
    ]
    for build in refused:
        with pytest.raises(UsageError):
            build()
    stage.window(5, at=time).for_each(print, gone=print)
    stage.retract(("a", 1, 1))
    with pytest.raises(UsageError, match=r"cannot retract .*, which it does not have"):
        flow.run_tick()
