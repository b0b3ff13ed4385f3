"""How many single changes a second do flows and rules keep up with, beside computing anew?

Every update is one fact added or retracted in a tick of its own, and what follows from it is taken before
the next.  First through the public API of flows and programs; then through a space, each change a turn of
its own that is checked, numbered and indexed with all that follows (``space_…``).  The baselines are
computed in the same run, from nothing, as a person would who writes them for this one question: the
closure by a search from each node.

    join_updates_per_s             equi-join of 100 000 with 100 000 pairs
    count_updates_per_s            100 000 pairs counted in 1 000 groups
    closure_sparse_updates_per_s   transitive closure, 1 000 nodes and 1 000 edges
    closure_dag_updates_per_s      the same, 2 000 short edges forward
    closure_random_updates_per_s   the same, 2 000 edges anywhere: some 627 000 derived facts
    recompute_…_per_s              the baselines: whole results a second
    bytes_per_derived_fact         memory of the random closure, by tracemalloc, ÷ its derived facts

Windows of rules and flows, and timers, are in ``_windows.py``, aggregates and calendars in
``_aggregates.py``, with their figures.

Updates come in pairs, a retraction and the same fact again, so that every round begins alike.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, Final

from bench._aggregates import measure_aggregates
from bench._figures import command_line, show
from bench._windows import measure_windows
from dataspace.flows.flows import Flow
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine.program import Program
from index.values.values import Record, Value

CLOSURE: Final = "reach($x, $y) <- edge($x, $y). reach($x, $z) <- reach($x, $y), edge($y, $z)."
JOIN: Final = "joined($k, $v, $w) <- left($k, $v), right($k, $w)."
COUNT: Final = "counted($k, count($v)) <- row($k, $v)."
NODES: Final = 1000

Update = Callable[[Value, int], object]
Edges = list[tuple[int, int]]


# -- what is updated ----------------------------------------------------------------------------------


def flow_join(size: int) -> tuple[Update, list[Value]]:
    """A persistent join; its updates are pairs on the left."""
    flow, changes = Flow(), [0]
    left, right = flow.source(), flow.source()

    def count(_item: object, _weight: int) -> None:
        changes[0] += 1

    left.join(right, lifetime="static").each_change(count)
    left.put_all((n, n) for n in range(size))
    right.put_all((n, -n) for n in range(size))
    flow.run_tick()

    def update(item: Value, by: int) -> None:
        left.put(item, by)
        flow.run_tick()

    return update, [(n * 7 % size, n * 7 % size) for n in range(1000)]


def flow_count(size: int) -> tuple[Update, list[Value]]:
    """A persistent count by key."""
    flow = Flow()
    rows = flow.source()
    counted = rows.fold_keyed(lambda: 0, lambda n, _: n + 1, undo=lambda n, _: n - 1, lifetime="static")
    counted.each_change(lambda _item, _weight: None)
    rows.put_all((n % NODES, n) for n in range(size))
    flow.run_tick()

    def update(item: Value, by: int) -> None:
        rows.put(item, by)
        flow.run_tick()

    return update, [(n * 7 % NODES, n * 7 % size) for n in range(1000)]


def program(text: str, facts: Sequence[Value]) -> tuple[Update, list[Value]]:
    """Rules over facts, without a space."""
    made = Program()
    made.add("bench", text)
    made.tick(facts)

    def update(fact: Value, by: int) -> None:
        if by > 0:
            made.tick((fact,))
        else:
            made.tick((), (fact,))

    return update, list(facts)


def space(text: str, facts: Sequence[Value]) -> tuple[Update, list[Value]]:
    """The same rules in a space, as facts among its facts."""
    made = Space("bench", limits=SpaceLimits(derive_work=1 << 40))  # one edge changes most of a closure
    made.commit("rules of the bench", [(ASSERT, 0, Record("rule", "bench", text))], 0)
    under: list[Value] = list(enumerate(facts, start=1))
    for at in range(0, len(facts), 10_000):
        made.commit("bench", [(ASSERT, *each) for each in under[at : at + 10_000]], 0)  # type: ignore[misc]  # pairs

    def update(item: Any, by: int) -> None:
        handle, fact = item
        made.commit("bench", [(ASSERT, handle, fact) if by > 0 else (RETRACT, handle)], 0)

    return update, under


# -- inputs -------------------------------------------------------------------------------------------


def sparse_edges(rng: random.Random) -> Edges:
    return _distinct(1000, lambda: (rng.randrange(NODES), rng.randrange(NODES)))


def random_edges(rng: random.Random) -> Edges:
    return _distinct(2000, lambda: (rng.randrange(NODES), rng.randrange(NODES)))


def dag_edges(rng: random.Random) -> Edges:
    def edge() -> tuple[int, int]:
        start = rng.randrange(NODES - 1)
        return start, min(NODES - 1, start + rng.randint(1, 10))

    return _distinct(2000, edge)


def _distinct(count: int, make: Callable[[], tuple[int, int]]) -> Edges:
    found: dict[tuple[int, int], None] = {}
    while len(found) < count:
        found[make()] = None
    return list(found)


def facts_of(edges: Edges) -> list[Value]:
    return [Record("edge", start, end) for start, end in edges]


# -- measuring ----------------------------------------------------------------------------------------


def rate(update: Update, items: Sequence[Value], seconds: float) -> float:
    """Updates a second: each item goes and comes back, until the time is over."""
    gc.collect()
    done, at, begun = 0, 0, time.process_time()
    while True:
        for _ in range(10):
            item = items[at % len(items)]
            at += 1
            update(item, -1)
            update(item, +1)
        done += 20
        taken = time.process_time() - begun
        if taken >= seconds:
            return done / taken


def anew(compute: Callable[[], object], seconds: float) -> float:
    """Whole computations a second."""
    done, begun = 0, time.process_time()
    while True:
        compute()
        done += 1
        taken = time.process_time() - begun
        if taken >= seconds:
            return done / taken


def closure_by_search(edges: Edges) -> int:
    """How many pairs are connected: a search from each node."""
    onward: dict[int, list[int]] = {}
    for start, end in edges:
        onward.setdefault(start, []).append(end)
    pairs = 0
    for node in onward:
        seen = set(onward[node])
        waiting = list(seen)
        while waiting:
            for there in onward.get(waiting.pop(), ()):
                if there not in seen:
                    seen.add(there)
                    waiting.append(there)
        pairs += len(seen)
    return pairs


def join_anew(size: int) -> int:
    table = {n: -n for n in range(size)}
    return len([(n, n, table[n]) for n in range(size) if n in table])


def count_anew(size: int) -> int:
    counts: dict[int, int] = {}
    for n in range(size):
        counts[n % NODES] = counts.get(n % NODES, 0) + 1
    return len(counts)


def bytes_per_fact(edges: Edges) -> float:
    """What the closure takes in memory, all tables and indexes included, for each derived fact."""
    facts = facts_of(edges)
    gc.collect()
    tracemalloc.start()
    made = Program()
    made.add("bench", CLOSURE)
    count = len(made.tick(facts).added)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / count


def measure(seconds: float, rounds: int, size: int) -> dict[str, float]:
    """All figures; variants take turns, the best of the rounds counts."""
    rng = random.Random(2026)
    graphs = {"sparse": sparse_edges(rng), "dag": dag_edges(rng), "random": random_edges(rng)}
    left: list[Value] = [Record("left", n, n) for n in range(size)]
    right: list[Value] = [Record("right", n, -n) for n in range(size)]
    rows: list[Value] = [Record("row", n % NODES, n) for n in range(size)]
    makers: dict[str, Callable[[], tuple[Update, list[Value]]]] = {
        "join": lambda: flow_join(size),
        "count": lambda: flow_count(size),
        "space_join": lambda: space(JOIN, left + right),
        "space_count": lambda: space(COUNT, rows),
    }
    for name, edges in graphs.items():
        makers[f"closure_{name}"] = lambda edges=edges: program(CLOSURE, facts_of(edges))  # type: ignore[misc]  # a default binds it now
        makers[f"space_closure_{name}"] = lambda edges=edges: space(CLOSURE, facts_of(edges))  # type: ignore[misc]  # as above
    figures: dict[str, float] = {}
    for name, make in makers.items():
        update, items = make()
        random.Random(7).shuffle(items)
        best = max(rate(update, items, seconds) for _ in range(rounds))
        figures[f"{name}_updates_per_s"] = round(best, 1)
        del update, items
        gc.collect()
    for name, edges in graphs.items():
        best = anew(lambda edges=edges: closure_by_search(edges), seconds / 4)  # type: ignore[misc]  # as above
        figures[f"recompute_closure_{name}_per_s"] = round(best, 2)
    figures["recompute_join_per_s"] = round(anew(lambda: join_anew(size), seconds / 4), 2)
    figures["recompute_count_per_s"] = round(anew(lambda: count_anew(size), seconds / 4), 2)
    figures["bytes_per_derived_fact"] = round(bytes_per_fact(graphs["random"]), 1)
    return figures | measure_windows(seconds, rounds, size) | measure_aggregates(seconds, rounds, size)


def main() -> None:
    """Prints the figures."""
    args = command_line(__doc__).parse_args()
    gc.set_threshold(100_000, 50, 100)  # as the daemon does
    seconds, rounds, size = (0.2, 1, 10_000) if args.quick else (2.0, args.rounds, 100_000)
    show(measure(seconds, rounds, size), as_json=args.json)


if __name__ == "__main__":
    main()
