"""Each operator, over ticks that bring and take back: what it has said is what its inputs now amount to."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dataspace.flows.flows import Flow
from dataspace.flows.fluent import FlowStage
from dataspace.flows.operators import Identity
from index.errors import UsageError

Build = Callable[[FlowStage, FlowStage], FlowStage]
Bag = list[Any]


def by_key(pairs: Bag) -> dict[Any, Bag]:
    groups: dict[Any, Bag] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


STATIC: dict[str, tuple[Build, Callable[[Bag, Bag], Bag]]] = {
    "map": (lambda a, b: a.map(lambda p: p[0]), lambda a, b: [p[0] for p in a]),
    "filter": (lambda a, b: a.filter(lambda p: p[0] > 1), lambda a, b: [p for p in a if p[0] > 1]),
    "filter_map": (
        lambda a, b: a.filter_map(lambda p: p[0] or None),
        lambda a, b: [p[0] for p in a if p[0]],
    ),
    "flat_map": (lambda a, b: a.flat_map(list), lambda a, b: [x for p in a for x in p]),
    "union": (lambda a, b: a.union(b), lambda a, b: a + b),
    "unique": (lambda a, b: a.unique(lifetime="static"), lambda a, b: list(set(a))),
    "persist": (lambda a, b: a.persist(), lambda a, b: list(set(a))),
    "join": (
        lambda a, b: a.join(b, lifetime="static"),
        lambda a, b: [(k, (v, w)) for k, v in a for other, w in b if k == other],
    ),
    "cross_join": (
        lambda a, b: a.cross_join(b, lifetime="static"),
        lambda a, b: [(v, w) for v in a for w in b],
    ),
    "difference": (
        lambda a, b: a.difference(b, lifetime="static"),
        lambda a, b: [v for v in a if v not in b],
    ),
    "anti_join": (
        lambda a, b: a.anti_join(b.map(lambda p: p[1]), lifetime="static"),
        lambda a, b: [p for p in a if p[0] not in [q[1] for q in b]],
    ),
    "fold": (
        lambda a, b: a.fold(lambda: 0, lambda n, p: n + p[1], lifetime="static"),
        lambda a, b: [sum(p[1] for p in a)],
    ),
    "reduce": (
        lambda a, b: a.map(lambda p: p[1]).reduce(max, lifetime="static"),
        lambda a, b: [max(p[1] for p in a)] if a else [],
    ),
    "fold_keyed": (
        lambda a, b: a.fold_keyed(lambda: 0, lambda n, v: n + v, undo=lambda n, v: n - v, lifetime="static"),
        lambda a, b: [(k, sum(vs)) for k, vs in by_key(a).items()],
    ),
    "reduce_keyed": (
        lambda a, b: a.reduce_keyed(min, lifetime="static"),
        lambda a, b: [(k, min(vs)) for k, vs in by_key(a).items()],
    ),
    "inspect": (lambda a, b: a.inspect(lambda item, weight: None), lambda a, b: a),
    "tee": (lambda a, b: a.tee(), lambda a, b: a),
    "demux": (
        lambda a, b: a.demux(lambda p: "odd" if p[0] % 2 else "even", "odd", "even")["odd"],
        lambda a, b: [p for p in a if p[0] % 2],
    ),
    "sort": (lambda a, b: a.sort(), lambda a, b: a),
    "sort_by": (lambda a, b: a.sort_by(lambda p: p[1]), lambda a, b: a),
    "top": (
        lambda a, b: a.top(3, lifetime="static"),
        lambda a, b: sorted(a)[-3:],
    ),
}


@pytest.mark.parametrize("name", STATIC)
def test_what_was_said_adds_up_after_every_tick(name: str) -> None:
    build, expected = STATIC[name]
    for seed in range(8):
        rng, flow = random.Random(seed), Flow()
        left, right = flow.source(), flow.source()
        said: Counter[Any] = Counter()
        build(left, right).each_change(lambda item, weight, said=said: said.update({item: weight}))  # type: ignore[misc]  # a default binds it now
        if name not in ("union", "join", "cross_join", "difference", "anti_join"):
            right.for_each(lambda item: None, gone=lambda item: None)
        held: dict[str, Bag] = {"left": [], "right": []}
        for _ in range(25):
            for _ in range(rng.randint(0, 4)):
                side, source = rng.choice((("left", left), ("right", right)))
                if held[side] and rng.random() < 0.4:
                    source.retract(held[side].pop(rng.randrange(len(held[side]))))
                else:
                    item = (rng.randrange(4), rng.randrange(4))
                    held[side].append(item)
                    source.put(item)
            flow.run_tick()
            assert +said == Counter(expected(held["left"], held["right"])), (seed, name)
            assert not -said, "nothing is taken back that was not said"
        for side, source in ("left", left), ("right", right):
            for item in held[side]:
                source.retract(item)
        flow.run_tick()
        assert flow.statistics().held <= 1, "nothing is held of what is gone"


def test_what_lasts_for_a_tick_knows_nothing_of_the_one_before() -> None:
    flow, seen = Flow(), list[Any]()
    left, right = flow.source(), flow.source()
    left.join(right).for_each(seen.append)
    left.unique().enumerate().for_each(seen.append)
    left.put_all([("k", 1), ("k", 1)])
    flow.run_tick()
    right.put(("k", 2))
    flow.run_tick()
    left.put(("k", 1))
    flow.run_tick()
    assert seen == [(0, ("k", 1)), (0, ("k", 1))]


def test_demux_gives_each_item_to_the_output_that_is_named() -> None:
    flow, odd, even = Flow(), list[int](), list[int]()
    parted = flow.source(range(5)).demux(lambda n: "odd" if n % 2 else "even", "odd", "even")
    parted["odd"].for_each(odd.append)
    parted["even"].for_each(even.append)
    flow.run_tick()
    assert (odd, even) == ([1, 3], [0, 2, 4])


def test_zip_pairs_first_with_first_and_drops_what_is_left_over() -> None:
    flow, seen = Flow(), list[Any]()
    flow.source("abc").zip(flow.source([1, 2])).for_each(seen.append)
    flow.run_tick()
    assert seen == [("a", 1), ("b", 2)]


def test_a_window_keeps_the_last_items_over_ticks() -> None:
    flow, changes = Flow(), list[tuple[int, int]]()
    numbers = flow.source()
    numbers.last(2).each_change(lambda n, weight: changes.append((n, weight)))
    for n in range(4):
        numbers.put(n)
        flow.run_tick()
    assert changes == [(0, 1), (1, 1), (0, -1), (2, 1), (1, -1), (3, 1)]


def test_sort_by_orders_by_what_a_function_says() -> None:
    flow, seen = Flow(), list[str]()
    flow.source(["ccc", "a", "bb"]).sort_by(len).for_each(seen.append)
    flow.run_tick()
    assert seen == ["a", "bb", "ccc"]


def test_values_are_told_apart_strictly() -> None:
    flow, seen = Flow(), list[Any]()
    flow.source([1, True, 1.0, "1", 1]).unique().for_each(seen.append)
    flow.run_tick()
    assert [repr(each) for each in seen] == ["1", "True", "1.0", "'1'"]


CANNOT_TAKE_BACK: dict[str, tuple[Callable[[FlowStage], FlowStage], str]] = {
    "for_each": (lambda a: a.for_each(print), "for_each cannot handle a retraction; give it gone="),
    "enumerate": (lambda a: a.enumerate(), "enumerate cannot retract an item"),
    "zip": (lambda a: a.zip(a), "zip cannot retract an item"),
    "last": (lambda a: a.last(2), "last cannot retract an item"),
    "assert_": (lambda a: a.assert_(lifetime="tick"), "assert_ for one tick cannot retract an item"),
    "top": (lambda a: a.top(2), "top cannot retract 1, which it does not have"),
    "a cycle": (
        lambda a: a.union(a.flow.add("tee", Identity(), name="t"), name="u").to("t"),  # type: ignore[attr-defined]  # it is a flow
        "a retraction reached the cycle through u and t",
    ),
}


@pytest.mark.parametrize("name", CANNOT_TAKE_BACK)
def test_what_cannot_take_back_says_so(name: str) -> None:
    build, complaint = CANNOT_TAKE_BACK[name]
    flow = Flow()
    source = flow.source()
    build(source)
    source.retract(1)
    with pytest.raises(UsageError, match=complaint):
        flow.run_tick()


def test_next_tick_passes_on_what_comes_and_what_goes_a_tick_later() -> None:
    flow, seen = Flow(), list[Any]()
    source = flow.source()
    source.next_tick().each_change(lambda item, weight: seen.append((flow.tick, item, weight)))
    source.put("a")
    flow.run_tick()
    source.retract("a")
    assert flow.run_available() == 2
    assert seen == [(1, "a", 1), (2, "a", -1)]


def test_persist_says_all_again_in_each_tick_if_asked_to() -> None:
    flow, seen = Flow(), list[Any]()
    source = flow.source([1])
    source.persist(replay=True).for_each(lambda n: seen.append((flow.tick, n)))
    flow.run_tick()
    source.put(2)
    flow.run_tick()
    source.retract(1)
    flow.run_tick()
    assert seen == [(0, 1), (1, 1), (1, 2), (2, 2)], "what goes is not shown in the tick in which it goes"
    source.put(3)
    source.retract(3)
    flow.run_tick()
    assert seen[4:] == [(3, 2)]


def test_a_static_fold_whose_step_works_in_place_says_what_has_changed() -> None:
    flow, changes = Flow(), list[Any]()

    def grow(so_far: list[int], n: int) -> list[int]:
        so_far.append(n)
        return so_far

    source = flow.source([1])
    source.fold(list, grow, lifetime="static").each_change(lambda n, weight: changes.append((n, weight)))
    keyed = source.map(lambda n: ("k", n)).fold_keyed(list, grow, lifetime="static")
    keyed.each_change(lambda n, weight: changes.append((n[1], weight)))
    flow.run_tick()
    source.put(2)
    flow.run_tick()
    assert changes[:2] == [([1], 1)] * 2
    assert sorted(changes[2:]) == [([1], -1), ([1], -1), ([1, 2], 1), ([1, 2], 1)]


def test_sort_says_the_net_of_a_tick() -> None:
    flow, best, total, said = Flow(), list[Any](), list[Any](), list[Any]()
    source = flow.source([1])
    ordered = source.sort()
    ordered.each_change(lambda n, weight: said.append((n, weight)))
    ordered.top(2, lifetime="static").each_change(lambda n, weight: best.append((n, weight)))
    ordered.fold(lambda: 0, lambda a, n: a + n, undo=lambda a, n: a - n, lifetime="static").each_change(
        lambda n, weight: total.append((n, weight))
    )
    flow.run_tick()
    source.put(5)
    source.retract(5)
    source.put(3)
    source.retract(1)
    flow.run_tick()
    assert said == [(1, 1), (1, -1), (3, 1)]
    assert best == [(1, 1), (1, -1), (3, 1)] and total == [(1, 1), (1, -1), (3, 1)]


def fail(item: Any) -> Any:
    return 1 // item


STAGES = {
    "map": lambda stage: stage.map(fail, name="culprit"),
    "filter": lambda stage: stage.filter(fail, name="culprit"),
    "flat_map": lambda stage: stage.flat_map(lambda n: [fail(n)], name="culprit"),
    "fold": lambda stage: stage.fold(lambda: 0, lambda a, n: fail(n), name="culprit"),
    "keyed": lambda stage: stage.map(lambda n: (n, n)).fold_keyed(
        lambda: 0, lambda a, n: fail(n), name="culprit"
    ),
    "sort_by": lambda stage: stage.sort_by(fail, name="culprit"),
    "top": lambda stage: stage.top(3, by=fail, name="culprit"),
    "each": lambda stage: stage.map(lambda n: n).for_each(fail, name="culprit"),
    "behind a tick": lambda stage: stage.next_tick().map(fail, name="culprit"),
    "inspect": lambda stage: stage.inspect(lambda n, weight: fail(n), name="culprit"),
}


@pytest.mark.parametrize("kind", STAGES)
def test_what_a_function_raises_names_its_stage(kind: str) -> None:
    flow = Flow()
    stage = STAGES[kind](flow.source([1, 0], name="numbers").map(lambda n: n, name="innocent"))
    if kind != "each":
        stage.for_each(lambda n: None)
    with pytest.raises(ZeroDivisionError) as caught:
        flow.run_available()
    assert caught.value.__notes__ == ["in the stage culprit of a flow"]


def test_top_takes_out_what_is_not_equal_to_itself() -> None:
    flow, changes = Flow(), list[Any]()
    source = flow.source([math.nan, 1.0])
    source.top(2, lifetime="static").each_change(lambda n, weight: changes.append((repr(n), weight)))
    flow.run_tick()
    source.retract(float("nan"))
    flow.run_tick()
    assert sorted(changes[:2]) == [("1.0", 1), ("nan", 1)] and changes[2:] == [("nan", -1)]


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda a: a.top(0), "top of 0 items: 1 or more"),
        (lambda a: a.last(0), "the last 0 items: 1 or more"),
        (lambda a: a.unique(lifetime="day"), "no lifetime 'day', known are 'tick' and 'static'"),
        (lambda a: a.map(print).put(1), "map-2 is a map, items are put into sources"),
        (lambda a: a.flow["nothing"].put(1), "no stage is named 'nothing'"),
    ],
)
def test_what_cannot_be_built_is_refused_where_it_is_written(
    build: Callable[[Any], object], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        build(Flow().source())
