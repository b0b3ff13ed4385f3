"""An order that is extended is one that the whole graph could have, and refuses what the whole would."""

from __future__ import annotations

import random

import pytest

from dataspace.flows.graphs import components
from dataspace.rules.engine.dependencies import FEW, Blocked, SettlingOrder


def whole(nodes: list[int], edges: list[tuple[int, int, bool]]) -> dict[int, frozenset[int]] | None:
    """Returns the cycle that each node is in, from all edges at once; None if an edge blocks within one."""
    onward: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target, _ in edges:
        onward[source].append(target)
    of = {node: frozenset(members) for members in components(onward) for node in members}
    return None if any(blocks and target in of[source] for source, target, blocks in edges) else of


def agrees(
    order: SettlingOrder[int], edges: list[tuple[int, int, bool]], of: dict[int, frozenset[int]]
) -> None:
    place = {node: at for at, entry in enumerate(order.entries) for node in order.knot(entry)}
    assert place.keys() == of.keys()
    for node, members in of.items():
        assert frozenset(order.knot(node)) == members
        assert order.is_cycle(order.knot(node)[0]) == (
            len(members) > 1 or any(e[:2] == (node, node) for e in edges)
        )
    for source, target, _ in edges:
        assert place[source] < place[target] or target in of[source]


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_the_graph_as_a_whole(seed: int) -> None:
    rng = random.Random(seed)
    order, nodes, edges = SettlingOrder[int](), list[int](), list[tuple[int, int, bool]]()
    refused = 0
    for _ in range(25):
        come = list(
            range(len(nodes), len(nodes) + rng.choice([0, 1, 1, 2, 3, FEW + 1][: 6 if seed % 5 == 0 else 5]))
        )
        there = [*nodes, *come]
        new = [
            (rng.choice(there), rng.choice(there), rng.random() < 0.1)
            for _ in range(rng.randrange(4))
            if there
        ]
        expected = whole(there, [*edges, *new])
        before = (order.entries[:], {node: order.knot(node) for node in nodes})
        try:
            extended = order.extended(come, new)
        except Blocked:
            assert expected is None
            refused += 1
        else:
            assert expected is not None
            was = {node: frozenset(order.knot(node)) for node in nodes}
            loops = {
                node
                for node in nodes
                if (node, node) in [e[:2] for e in new] and not order.is_cycle(order.knot(node)[0])
            }
            assert extended.has_tied == (bool(loops) or any(expected[node] != was[node] for node in nodes))
            agrees(extended, [*edges, *new], expected)
            assert before == (order.entries, {node: order.knot(node) for node in nodes}), "unchanged"
            order, nodes, edges = extended, there, [*edges, *new]


def test_what_comes_in_order_or_against_it_moves_little() -> None:
    for ends in (range(200), range(200, 0, -1)):
        order, moved = SettlingOrder[int](), 0
        known: set[int] = set()
        for at in ends:
            come = [node for node in (at, at + 1) if node not in known]
            order = order.extended(come, [(at, at + 1, False)])
            known.update(come)
            moved += order.moved
        assert order.entries == sorted(order.entries) and moved <= 600
