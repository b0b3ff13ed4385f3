"""Each operator blocks exactly where it is not monotone ("Determining whether an operator should block").

What an operator says of a sequence is a sequence.  One that is monotone says of more what it has said of
less, and then more: so it can speak at once.  One that is not would have to take something back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from dataspace.flows.flows import Flow
from dataspace.flows.fluent import FlowStage
from dataspace.flows.graphs import BlockingCycle

Build = Callable[[FlowStage, FlowStage], FlowStage]
"""From the input that is looked at, and another one that is there before it."""

STREAMS: dict[str, Build] = {
    "map": lambda a, b: a.map(lambda p: p[0]),
    "filter": lambda a, b: a.filter(lambda p: p[1] > 1),
    "filter_map": lambda a, b: a.filter_map(lambda p: p[1] or None),
    "flat_map": lambda a, b: a.flat_map(list),
    "inspect": lambda a, b: a.inspect(lambda item, weight: None),
    "tee": lambda a, b: a.tee(),
    "union": lambda a, b: b.union(a),
    "demux": lambda a, b: a.demux(lambda p: "odd" if p[1] % 2 else "even", "odd", "even")["odd"],
    "enumerate": lambda a, b: a.enumerate(),
    "unique": lambda a, b: a.unique(),
    "persist": lambda a, b: a.persist(),
    "join": lambda a, b: a.join(b),
    "cross_join": lambda a, b: a.cross_join(b),
    "zip": lambda a, b: a.zip(b),
    "pos of difference": lambda a, b: a.difference(b),
    "pos of anti_join": lambda a, b: a.anti_join(b.map(lambda p: p[0])),
}

BLOCKS: dict[str, Build] = {
    "sort": lambda a, b: a.sort(),
    "sort_by": lambda a, b: a.sort_by(lambda p: p[1]),
    "top": lambda a, b: a.top(2),
    "last": lambda a, b: a.last(2),
    "fold": lambda a, b: a.fold(lambda: 0, lambda n, p: n + p[1]),
    "reduce": lambda a, b: a.map(lambda p: p[1]).reduce(lambda n, m: n + m),
    "fold_keyed": lambda a, b: a.fold_keyed(lambda: 0, lambda n, v: n + v),
    "reduce_keyed": lambda a, b: a.reduce_keyed(lambda n, m: n + m),
    "neg of difference": lambda a, b: b.difference(a),
    "neg of anti_join": lambda a, b: b.anti_join(a.map(lambda p: p[0])),
}

OTHER = [(0, 1), (2, 2), (1, 0)]


def said_of(build: Build, items: Iterable[Any], said: list[Any]) -> list[Any]:
    """What an operator says in one tick."""
    flow = Flow()
    other = flow.source(OTHER)
    build(flow.source(items), other).for_each(said.append)
    flow["source-1"].for_each(lambda item: None)
    flow.run_tick()
    return said


def pairs(rng: random.Random) -> list[Any]:
    return [(rng.randrange(4), rng.randrange(4)) for _ in range(rng.randrange(1, 8))]


@pytest.mark.parametrize("name", STREAMS)
def test_what_is_monotone_says_of_more_what_it_said_of_less_and_then_more(name: str) -> None:
    for seed in range(30):
        items = pairs(random.Random(seed))
        whole = said_of(STREAMS[name], items, [])
        for some in range(len(items)):
            less = said_of(STREAMS[name], items[:some], [])
            assert whole[: len(less)] == less


@pytest.mark.parametrize("name", [each for each in STREAMS if not each.startswith("pos")])
def test_what_is_monotone_has_spoken_before_the_next_item_is_read(name: str) -> None:
    build, said, items = STREAMS[name], list[Any](), [(0, 3), (2, 1), (1, 1), (2, 1)]

    def checked() -> Iterator[Any]:
        for at, item in enumerate(items):
            assert said == said_of(build, items[:at], [])
            yield item

    assert said_of(build, checked(), said)


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_not_monotone_would_have_to_take_something_back(name: str) -> None:
    for seed in range(300):
        items = pairs(random.Random(seed))
        less, more = said_of(BLOCKS[name], items[:-1], []), said_of(BLOCKS[name], items, [])
        if more[: len(less)] != less:
            return
    raise AssertionError("it could stream")


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_not_monotone_is_silent_until_the_last_item_was_read(name: str) -> None:
    said: list[Any] = []

    def checked() -> Iterator[Any]:
        for item in [(0, 3), (2, 1), (1, 1)]:
            assert said == []
            yield item
            assert said == []

    said_of(BLOCKS[name], checked(), said)


@pytest.mark.parametrize("name", [*STREAMS, *BLOCKS])
def test_a_stratum_ends_at_each_input_that_blocks_and_at_no_other(name: str) -> None:
    flow = Flow()
    build = STREAMS.get(name) or BLOCKS[name]
    stage = build(flow.source(name="a"), flow.source(name="b"))
    blocks = name in BLOCKS or name.startswith("pos")  # of difference: it is the other input that blocks
    flow[stage.name].for_each(print) if not stage.output else stage.for_each(print)
    assert flow.strata().number[stage.name] == int(blocks)
    handed = [edge.port for edge in flow.strata().handoffs if edge.blocking]
    assert len(handed) == int(blocks)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_cycle_through_an_input_that_blocks_is_refused_and_next_tick_breaks_it(name: str) -> None:
    def looped(back: Callable[[Flow], FlowStage]) -> Flow:
        flow = Flow()
        start = flow.source(name="start").union(back(flow), name="begin")
        BLOCKS[name](start, flow.source(name="b")).map(lambda item: (0, 1), name="end")
        return flow

    flow = looped(lambda flow: flow["end"])
    with pytest.raises(BlockingCycle, match="break it with next_tick") as refused:
        flow.strata()
    assert {"begin", "end"} < set(refused.value.cycle)
    assert looped(lambda flow: flow["end"].next_tick()).strata().count == 2


def test_monotone_flows_need_no_coordination_and_others_do() -> None:
    """The positive direction of CALM: whatever the order and the batches, only correct things are said."""
    items = [("left", (n % 3, n)) for n in range(6)] + [("right", (n % 2, -n)) for n in range(4)]
    joined = [replica(items, seed, lambda a, b: a.join(b, lifetime="static")) for seed in range(20)]
    assert all(said == joined[0][-1] for *_, said in joined), "in the end all have said the same"
    assert all(said <= joined[0][-1] for replicas in joined for said in replicas), "and nothing else before"
    alone = [replica(items, seed, without) for seed in range(20)]
    assert any(not said <= replicas[-1] for replicas in alone for said in replicas), "some take things back"
    assert all(said == alone[0][-1] for *_, said in alone)


def without(a: FlowStage, b: FlowStage) -> FlowStage:
    return a.anti_join(b.map(lambda p: p[0]), lifetime="static")


def replica(items: list[Any], seed: int, build: Build) -> list[set[Any]]:
    """What one has said after each tick, who gets the items in an order and in batches of its own."""
    rng, flow, said, after = random.Random(seed), Flow(), set[Any](), list[set[Any]]()
    sources = {"left": flow.source(), "right": flow.source()}
    build(sources["left"], sources["right"]).for_each(said.add, gone=said.discard)
    for side, item in rng.sample(items, len(items)):
        sources[side].put(item)
        if rng.random() < 0.5:
            flow.run_tick()
            after.append(set(said))
    flow.run_tick()
    return [*after, set(said)]
