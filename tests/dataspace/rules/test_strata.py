"""The source document, "Streaming, Blocking and Stratification", paragraph by paragraph."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dataspace.rules import BlockingCycle, Edge, Flow, Graph, Program
from dataspace.rules.drawing import mermaid
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
    assert mermaid(flow.graph(), strata) == "\n".join(
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


def test_a_monotone_function_only_grows_and_the_report_says_which_rules_are() -> None:
    program = Program()
    program.add("both", "up($x) <- e($x). down($x) <- n($x), not e($x).")
    up, down = program.explainer().monotonicity().split("\n    ")[1:]
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
