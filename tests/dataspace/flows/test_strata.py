"""The source document, "Streaming, Blocking and Stratification", paragraph by paragraph."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from dataspace.flows.flows import Flow
from dataspace.flows.graphs import BlockingCycle, Edge, Graph
from dataspace.flows.operators import Emit, Operator, Port, Ports
from dataspace.rules.engine.program import Program
from index.errors import UsageError


def test_streaming_operators_send_before_the_batch_has_been_consumed() -> None:
    order: list[str] = []

    def batch() -> Iterator[int]:
        for n in range(3):
            order.append(f"in {n}")
            yield n

    flow = Flow()
    flow.source(batch()).map(lambda n: n * 10).filter(lambda n: n != 10).for_each(
        lambda n: order.append(f"out {n}")
    )
    flow.run_tick()
    assert order == ["in 0", "out 0", "in 1", "in 2", "out 20"]


def test_what_streams_is_on_its_way_to_others_before_the_tick_ends() -> None:
    wire, sent_by_then = Wire(), list[int]()

    def batch() -> Iterator[int]:
        for n in range(3):
            sent_by_then.append(len(wire.sent))
            yield n

    flow = Flow()
    flow.source(batch()).map(lambda n: -n).write(wire)
    flow.run_tick()
    assert sent_by_then == [0, 1, 2] and wire.sent == [0, -1, -2]


class Wire:
    """A stream that is written."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def push(self, value: Any) -> None:
        self.sent.append(value)

    def end(self) -> None:
        """Nobody ends it here."""


def test_sort_is_given_nothing_until_the_source_has_finished() -> None:
    order: list[str] = []

    def batch() -> Iterator[int]:
        for n in (2, 0, 1):
            order.append(f"in {n}")
            yield n

    def place(n: int) -> int:
        order.append("sort")
        return n

    flow = Flow()
    flow.source(batch()).sort_by(place).for_each(lambda n: order.append(f"out {n}"))
    flow.run_tick()
    assert order[:3] == ["in 2", "in 0", "in 1"] and order[-3:] == ["out 0", "out 1", "out 2"]


def test_strata_run_one_by_one_in_ascending_order_and_functions_know_theirs() -> None:
    flow, order = Flow(), list[tuple[int, int]]()

    def note(_item: int, _weight: int) -> None:
        order.append((flow.tick, flow.stratum))

    numbers = flow.source([2, 1])
    numbers.inspect(note).sort().inspect(note).sort().each_change(note)
    flow.run_tick()
    assert order == [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2)]
    numbers.put(1)
    assert flow.run_tick() == 2, "the clock has advanced"
    assert order[6:] == [(1, 0), (1, 1), (1, 2)]


class Counting(Operator):
    """Counts how often its stratum has run."""

    inputs: ClassVar[Ports] = (Port(blocking=True),)

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def receiver(self, port: str) -> Emit:
        return self.emit

    def release(self) -> None:
        self.runs += 1


def test_a_stratum_is_scheduled_only_when_something_has_come_to_it() -> None:
    flow, one, other = Flow(), Counting(), Counting()
    left, right = flow.source(), flow.source()
    left.then("counting", one)
    right.sort().then("counting", other)
    right.fold(lambda: 0, lambda n, _: n + 1, lifetime="static").each_change(lambda item, weight: None)
    flow.run_tick()  # in the first, folds say what they begin with
    one.runs = other.runs = 0
    for tick in range(4):
        left.put(tick)
        flow.run_tick()
    assert (one.runs, other.runs) == (4, 0)
    right.put(1)
    flow.run_tick()
    assert other.runs == 1


def test_a_stratum_runs_to_its_fixpoint_before_the_next_begins() -> None:
    flow, seen = unreachability()
    order: list[str] = []
    flow["unique"].inspect(lambda v, _: order.append(f"reached {v}")).for_each(lambda v: None)
    flow["unreached"].for_each(lambda v: order.append(f"unreached {v}"))
    flow["edges"].put_all([("c", "d"), ("b", "c"), ("a", "b"), ("d", "a"), ("y", "z")])
    flow.run_tick()
    assert sorted(order[:4]) == [f"reached {v}" for v in "abcd"], "around the cycle, until nothing moves"
    assert sorted(order[4:]) == ["unreached y", "unreached z"] and sorted(seen) == ["y", "z"]


def test_sort_waits_for_all_the_data_of_the_current_tick_and_no_more() -> None:
    flow, seen = Flow(), list[int]()
    inbound = flow.source()
    inbound.sort().for_each(seen.append)
    inbound.put_all([3, 1, 2])
    flow.run_tick()
    assert seen == [1, 2, 3]
    inbound.put_all([0, 9])
    flow.run_tick()
    assert seen == [1, 2, 3, 0, 9], "ticks are sorted one by one"


def test_a_batch_is_what_is_there_when_the_tick_begins() -> None:
    flow, seen = Flow(), list[int]()
    inbound = flow.source()

    def take(n: int) -> None:
        seen.append(n)
        if n < 3:
            inbound.put(n + 1)

    inbound.for_each(take)
    inbound.put(1)
    flow.run_tick()
    assert seen == [1] and flow.pending
    assert flow.run_available() == 2 and seen == [1, 2, 3]


def test_the_drawn_example_has_a_handoff_in_front_of_sort_and_two_strata() -> None:
    flow = Flow()
    flow.source(name="source_stream").sort(name="sort").for_each(print, name="for_each")
    strata = flow.strata()
    assert strata.number == {"source_stream": 0, "sort": 1, "for_each": 1}
    assert [(edge.source, edge.target) for edge in strata.handoffs] == [("source_stream", "sort")]
    assert flow.mermaid() == "\n".join(
        [
            "flowchart LR",
            '    subgraph s0["stratum 0"]',
            '        n1["source_stream"]',
            "    end",
            '    subgraph s1["stratum 1"]',
            '        n2["sort"]',
            '        n3["for_each"]',
            "    end",
            '    n1 --> h0(["handoff"])',
            "    h0 --x n2",
            "    n2 --> n3",
            "    linkStyle 1 stroke:red",
            "",
        ]
    )


def unreachability() -> tuple[Flow, list[str]]:
    """The graph unreachability example: names are used before they are defined."""
    flow, seen = Flow(), list[str]()
    edges = flow.source(name="edges")
    flow.source(["a"], name="origin").union(flow["onward"], name="reached").unique(name="unique")
    flow["unique"].map(lambda v: (v, None)).join(edges, name="my_join").map(lambda p: p[1][1], name="onward")
    every = edges.flat_map(lambda edge: edge, name="all").unique(name="all_unique")
    every.difference(flow["unique"], name="unreached").for_each(seen.append, name="out")
    return flow, seen


def test_difference_blocks_on_its_negative_input_only() -> None:
    flow, seen = unreachability()
    strata = flow.strata()
    assert (strata.number["unique"], strata.number["unreached"]) == (0, 1)
    blocking = [edge for edge in flow.graph().edges if edge.blocking]
    assert [(edge.source, edge.target, edge.port) for edge in blocking] == [("unique", "unreached", "neg")]
    into = [edge.port for edge in strata.handoffs if edge.target == "unreached"]
    assert sorted(into) == ["neg", "pos"], "as drawn, a handoff in front of each"
    flow["edges"].put_all([("a", "b"), ("b", "c"), ("d", "e")])
    flow.run_tick()
    assert seen == ["d", "e"]


def test_difference_streams_its_positive_input() -> None:
    flow, order = Flow(), list[str]()
    neg = flow.source([2])
    ordered = flow.source([3, 1, 2]).sort().inspect(lambda n, _: order.append(f"in {n}"))
    ordered.difference(neg).for_each(lambda n: order.append(f"out {n}"))
    flow.run_tick()
    assert order == ["in 1", "out 1", "in 2", "in 3", "out 3"]


def test_the_drawn_difference_has_a_handoff_at_each_input_and_a_cross_where_it_blocks() -> None:
    flow = Flow()
    flow.source(name="all").difference(flow.source(name="reached"), name="d").for_each(print, name="out")
    assert flow.mermaid().splitlines()[5:] == [
        '    subgraph s1["stratum 1"]',
        '        n3["d: difference"]',
        '        n4["out: for_each"]',
        "    end",
        '    n1 --> h0(["handoff"])',
        "    h0 -->|pos| n3",
        '    n2 --> h1(["handoff"])',
        "    h1 --x|neg| n3",
        "    n3 --> n4",
        "    linkStyle 3 stroke:red",
    ]


def test_what_difference_has_streamed_it_never_takes_back_within_a_tick() -> None:
    flow, changes = Flow(), list[tuple[int, int]]()
    pos, neg = flow.source(), flow.source()
    pos.difference(neg, lifetime="static").each_change(lambda n, weight: changes.append((n, weight)))
    pos.put_all([1, 2, 4])
    neg.put(4)
    flow.run_tick()
    assert changes == [(1, 1), (2, 1)]
    neg.put(1)
    neg.retract(4)
    flow.run_tick()
    assert changes[2:] == [(1, -1), (4, 1)], "but the next tick may"


def test_cycles_through_blocking_operators_are_forbidden_and_named() -> None:
    flow = Flow()
    flow.source(name="in").union(flow["d"], name="u").map(lambda n: n, name="m")
    flow.source(name="all").difference(flow["m"], name="d")
    with pytest.raises(BlockingCycle, match=r"^d -> u -> m -!-> d: break it with next_tick") as refused:
        flow.run_tick()
    assert refused.value.cycle == ("d", "u", "m")


def test_next_tick_breaks_a_cycle() -> None:
    flow, seen = Flow(), list[int]()
    flow.source([0], name="in").union(flow["later"], name="u").filter(lambda n: n < 3).for_each(seen.append)
    flow["u"].map(lambda n: n + 1).filter(lambda n: n < 5).next_tick(name="later")
    assert flow.run_available() == 5
    assert seen == [0, 1, 2]


def test_strata_are_numbered_upwards_from_the_leaves() -> None:
    graph = Graph(dict.fromkeys("abcdef"), [Edge("a", "b"), Edge("b", "c", blocking=True), Edge("a", "d")])
    graph.edges += [
        Edge("c", "e", blocking=True),
        Edge("d", "e"),
        Edge("e", "f"),
        Edge("f", "a", delayed=True),
    ]
    assert graph.strata().number == {"a": 0, "b": 0, "c": 1, "d": 0, "e": 2, "f": 2}


def test_every_stratum_is_above_those_that_it_waits_for_and_no_higher_than_it_must() -> None:
    for seed in range(60):
        rng, graph = random.Random(seed), Graph(dict.fromkeys("abcdefghij"))
        for _ in range(rng.randrange(25)):
            one, other = sorted(rng.sample("abcdefghij", 2))
            graph.edges.append(Edge(one, other, blocking=rng.random() < 0.4))
        number = graph.strata().number
        for name in "abcdefghij":  # sources come first in the alphabet: every edge leads on in it
            into = [number[e.source] + e.blocking for e in graph.edges if e.target == name]
            assert number[name] == max(into, default=0)
        cut = {edge for edge in graph.edges if edge.blocking or number[edge.source] < number[edge.target]}
        assert set(graph.strata().handoffs) == cut


def test_a_blocking_input_anywhere_in_a_cycle_is_found() -> None:
    for seed in range(100):
        rng, graph = random.Random(seed), Graph(dict.fromkeys("abcdef"))
        for _ in range(9):
            one, other = rng.choices("abcdef", k=2)
            graph.edges.append(Edge(one, other, blocking=rng.random() < 0.3))
        looped = [e for e in graph.edges if e.blocking and leads(graph, e.target, e.source, set())]
        if not looped:
            graph.strata()
            continue
        with pytest.raises(BlockingCycle) as refused:
            graph.strata()
        way = refused.value.cycle
        steps = {(edge.source, edge.target) for edge in graph.edges}
        assert all(step in steps for step in zip(way, [*way[1:], way[0]], strict=True)), "a way that there is"
        assert (way[-1], way[0]) in {(e.source, e.target) for e in looped}


def leads(graph: Graph, start: str, end: str, seen: set[str]) -> bool:
    """Whether there is a way."""
    seen.add(start)
    onward = {edge.target for edge in graph.edges if edge.source == start}
    return start == end or any(leads(graph, each, end, seen) for each in onward - seen)


def test_a_monotone_function_only_grows_and_the_report_says_which_rules_are() -> None:
    program = Program()
    program.add("both", "up($x) <- e($x). down($x) <- n($x), not e($x).")
    up, down = program.explainer().description.monotonicity().split("\n    ")[1:]
    assert up.startswith("monotone") and down == "not monotone: waits for all of not e($x)"


def test_wrong_wiring_is_named() -> None:
    flow = Flow()
    flow.source(name="a").map(lambda n: n, name="m")
    flow.connect("a", "m")
    with pytest.raises(UsageError, match="2 stages are connected to map 'm': join them with union first"):
        flow.run_tick()
    flow = Flow()
    flow.source(name="a").to("missing")
    with pytest.raises(UsageError, match="no stage is named 'missing'"):
        flow.run_tick()
    flow = Flow()
    flow.source(name="a").difference(flow["a"], name="d")
    flow.connect("a", "[left]d")
    with pytest.raises(UsageError, match="difference has no input 'left', it has 'pos', 'neg'"):
        flow.run_tick()


def test_a_cycle_that_does_not_end_is_stopped_and_named() -> None:
    flow = Flow(max_looped=100)
    flow.source([0]).union(flow["more"], name="numbers").map(lambda n: n + 1, name="more")
    with pytest.raises(UsageError, match="this cycle does not end"):
        flow.run_tick()
    with pytest.raises(UsageError, match="this flow is broken"):
        flow.run_tick()


def test_a_retraction_in_a_cycle_is_refused_with_the_way_to_do_it() -> None:
    flow = Flow()
    start = flow.source(name="s")
    start.union(flow["loop"], name="u").unique(name="loop")
    start.put(1)
    flow.run_tick()
    start.retract(1)
    with pytest.raises(UsageError, match="write it as rules, which retract correctly"):
        flow.run_tick()
