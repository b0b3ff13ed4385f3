"""How fast do actors hear of each other, in one process, through the dataspace?

Closed loops, one event outstanding: each is a handler's turn that brings about the next.  The *floor* is the
index alone with a plain callback, measured in turn in the same run; ``ratio_…`` is ours ÷ floor.

    assert_events_per_s_N   a fact that replaces the one before, with N observing endpoints
    messages_per_s_N        a message that answers the one before, with N observing endpoints
    box_rounds_per_s        rounds of box and client
    spawns_per_s            actors started and ended
    ring_messages_per_s     a message around a ring of 1 000 actors
    bytes_per_facet, bytes_per_actor   memory of one that is idle and has one observation
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable

from bench._figures import command_line, show
from dataspace.actors.engine.actors import ActorSpace
from dataspace.actors.engine.engine import Engine
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from examples.actors import box_and_client
from index.patterns.patterns import capture, skeleton
from index.trie.trie import Index

Item = record("item", "at", "n")


def _time(engine: Engine) -> float:
    gc.collect()
    start = time.process_time()
    engine.run()
    return time.process_time() - start


def _room() -> tuple[Engine, ActorSpace]:
    engine = Engine()
    return engine, engine.home("bench")


def floor(rounds: int) -> float:
    """Messages per second through an index alone."""
    index, heard = Index(), [0]
    index.add_handler(skeleton(Item(0, capture())), lambda _event, row: heard.append(row[0]))  # type: ignore[arg-type]
    start = time.process_time()
    for n in range(rounds):
        index.send(Item(0, n))
    return rounds / (time.process_time() - start)


def messages(endpoints: int, rounds: int) -> float:
    """Messages per second in a closed loop."""
    engine, home = _room()

    def listen(turn: Turn, at: int) -> None:
        @turn.on_message(Item(at, capture()))
        def answer(turn: Turn, n: int) -> None:
            if n < rounds:
                turn.send(Item((at + 1) % endpoints, n + 1))

    def boot(turn: Turn) -> None:
        for at in range(endpoints):
            listen(turn, at)

    engine.spawn(boot, home=home)
    engine.run()
    engine.spawn(lambda turn: turn.send(Item(0, 0)), home=home)
    return rounds / _time(engine)


def assertions(endpoints: int, rounds: int) -> float:
    """Assert events per second in a closed loop; each comes with a retraction."""
    engine, home = _room()
    held: list[int] = []

    def listen(turn: Turn, at: int) -> None:
        @turn.on_asserted(Item(at, capture()))
        def answer(turn: Turn, n: int) -> None:
            if n < rounds:
                turn.retract(held.pop())
                held.append(turn.claim(Item((at + 1) % endpoints, n + 1)))

    def boot(turn: Turn) -> None:
        for at in range(endpoints):
            listen(turn, at)
        turn.later(lambda turn: held.append(turn.claim(Item(0, 0))))

    engine.spawn(boot, home=home)
    engine.run(1)
    return rounds / _time(engine)


def box(rounds: int) -> float:
    """Rounds of box and client per second."""
    engine, home = _room()
    engine.spawn(box_and_client.main, rounds, home=home)
    return rounds / _time(engine)


def spawns(rounds: int) -> float:
    """Actors started and ended per second."""
    engine, home = _room()
    left = [rounds]

    def one(turn: Turn) -> None:
        left[0] -= 1
        if left[0] > 0:
            turn.spawn(one)

    engine.spawn(one, home=home)
    return rounds / _time(engine)


def ring(actors: int, rounds: int) -> float:
    """Messages per second around a ring of actors."""
    engine, home = _room()

    def member(turn: Turn, at: int) -> None:
        @turn.on_message(Item(at, capture()))
        def hand_on(turn: Turn, n: int) -> None:
            if n < rounds:
                turn.send(Item((at + 1) % actors, n + 1))

    for at in range(actors):
        engine.spawn(member, at, home=home)
    engine.run()
    engine.spawn(lambda turn: turn.send(Item(0, 0)), home=home)
    return rounds / _time(engine)


def memory(count: int, build: Callable[[Engine, ActorSpace], None]) -> float:
    """Bytes that each of ``count`` things costs."""
    engine, home = _room()
    gc.collect()
    tracemalloc.start()
    build(engine, home)
    engine.run()
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / count


def _facets(engine: Engine, home: ActorSpace, count: int) -> None:
    def boot(turn: Turn) -> None:
        for at in range(count):
            turn.react(lambda inner, at=at: inner.on_message(Item(at, capture()))(lambda turn, n: None))

    engine.spawn(boot, home=home)


def _actors(engine: Engine, home: ActorSpace, count: int) -> None:
    for at in range(count):
        engine.spawn(
            lambda turn, at=at: turn.on_message(Item(at, capture()))(lambda turn, n: None), home=home
        )


def main() -> None:
    """Measures all and prints it."""
    args = command_line(__doc__).parse_args()
    events, repeats = (500, 1) if args.quick else (30_000, args.rounds)
    measures: dict[str, Callable[[], float]] = {"floor_messages_per_s": lambda: floor(events)}
    for endpoints in 1, 100, 10_000:
        measures[f"assert_events_per_s_{endpoints}"] = lambda n=endpoints: assertions(n, events)  # type: ignore[misc]
        measures[f"messages_per_s_{endpoints}"] = lambda n=endpoints: messages(n, events)  # type: ignore[misc]
    measures["box_rounds_per_s"] = lambda: box(events // 2)
    measures["spawns_per_s"] = lambda: spawns(events // 3)
    measures["ring_messages_per_s"] = lambda: ring(1000, events)
    figures: dict[str, float] = {}
    for _ in range(repeats):
        for name, measure in measures.items():
            figures[name] = max(figures.get(name, 0.0), measure())
    many = 500 if args.quick else 10_000
    figures["bytes_per_facet"] = memory(many, lambda engine, home: _facets(engine, home, many))
    figures["bytes_per_actor"] = memory(many, lambda engine, home: _actors(engine, home, many))
    figures["ratio_messages"] = figures["messages_per_s_1"] / figures["floor_messages_per_s"]
    figures["ratio_messages_10000"] = figures["messages_per_s_10000"] / figures["messages_per_s_1"]
    figures["ratio_asserts_10000"] = figures["assert_events_per_s_10000"] / figures["assert_events_per_s_1"]
    show(figures, as_json=args.json)


if __name__ == "__main__":
    main()
