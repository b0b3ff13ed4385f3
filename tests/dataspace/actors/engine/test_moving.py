"""Interest that depends on a field, wherever it moves, hears and begins exactly what a simple model says."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.testing import Room
from index.patterns.patterns import capture

Item = record("item", "kind", "n")

kinds = st.sampled_from(["a", "b"])
moves = st.one_of(
    st.tuples(st.just("put"), kinds, st.integers(0, 1)),
    st.tuples(st.just("drop"), kinds, st.integers(0, 1)),
    st.tuples(st.just("move"), kinds, st.booleans()),
)


class Model:
    """What is there, what is looked at, and what was begun for it."""

    def __init__(self) -> None:
        self.items: set[tuple[str, int]] = set()
        self.kind = "a"
        self.begun: set[tuple[str, int]] = set()

    def matches(self) -> set[tuple[str, int]]:
        return {item for item in self.items if item[0] == self.kind}

    def turn(self, what: str, kind: str, n: int) -> tuple[set[object], set[object], set[object]]:
        """What facets begin, and end, and what a plain observer is told, in a step."""
        before = self.matches()
        if what == "put":
            self.items.add((kind, n))
        elif what == "drop":
            self.items.discard((kind, n))
        moved = what == "move" and kind != self.kind
        if moved:
            self.kind = kind
        begin = self.matches() - self.begun
        end = self.begun - self.items
        self.begun = (self.begun | begin) & self.items
        told = self.matches() if moved else self.matches() - before
        return {*begin}, {*end}, {*told}


@given(st.lists(moves, max_size=12))
def test_facets_observers_and_queries_follow(program: list[tuple[str, str, int]]) -> None:
    room, model = Room(), Model()
    begun: set[object] = set()
    ended: set[object] = set()
    told: list[object] = []
    known: list[object] = []

    def follower(turn: Turn) -> None:
        kind = turn.field("kind", "a")
        pattern = lambda: Item(kind.value, capture("n"))  # noqa: E731  # as a program would write it
        query = turn.query_set("query", pattern)
        turn.dataflow(lambda: known.append({(kind.value, n) for n in query.value}))

        @turn.during(pattern)
        def facet(turn: Turn, n: int) -> None:
            mine = (kind.value, n)
            assert mine not in begun, "each match has one facet"
            begun.add(mine)
            turn.on_stop(lambda turn: ended.add(mine))

        turn.on_asserted(pattern)(lambda turn, n: told.append((kind.value, n)))

        @turn.on_message("move($kind, $detour)")
        def move(turn: Turn, to: str, detour: bool) -> None:
            if detour:  # the other way first, and back before the turn commits
                other, kind.value = to, "b" if kind.value == "a" else "a"
                turn.before_commit(lambda turn: setattr(kind, "value", other))
            else:
                kind.value = to

    room.spawn(follower)
    player = room.spawn(lambda turn: turn.prevent_inert())
    room.run()

    def play(turn: Turn, what: str, kind: str, n: int) -> None:
        if what == "put" and (kind, n) not in model.items:
            turn.claim(Item(kind, n))
        elif what == "drop":
            turn.retract_matching(Item(kind, n))
        elif what == "move":
            turn.send(record("move", "kind", "detour")(kind, bool(n)))

    for what, kind, n in program:
        detour = what == "move" and bool(n)
        for each in begun, ended, told:
            each.clear()
        room.enter(player, play, what, kind, n)
        begin, end, heard = model.turn(what, kind, n)
        assert not room.crashes
        assert (begun, ended) == (begin, end)
        if not detour:  # a plain observer is told again of what it had left
            assert sorted(told, key=repr) == sorted(heard, key=repr)
        assert (known[-1] if known else set()) == model.matches()
    room.enter(next(iter(room.engine.actors.values())), Turn.stop_actor)
    room.home.space.index.check()
