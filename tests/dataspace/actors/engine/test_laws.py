"""Random programs of actors agree with a simple model: every observer hears exactly the transitions."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from dataspace.actors.engine.actors import Actor
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.testing import Room
from index.patterns.patterns import capture

Fact = record("fact", "x", "y")
Note = record("note", "x")

actions = st.one_of(
    st.tuples(st.just("assert"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("retract"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("send"), st.integers(0, 2), st.just(0)),
)
steps = st.lists(
    st.tuples(
        st.integers(0, 2), st.lists(actions, max_size=5), st.sampled_from(["go on", "go on", "fail", "end"])
    ),
    max_size=12,
)


class _Model:
    """Turns and bags, as simply as can be."""

    def __init__(self) -> None:
        self.claims: list[list[tuple[int, int]]] = [[], [], []]
        self.heard: list[tuple[object, ...]] = []

    def rows(self) -> set[int]:
        return {x for claims in self.claims for x, _ in claims}

    def turn(self, who: int, script: list[tuple[str, int, int]], end: str) -> None:
        before, claims = self.rows(), list(self.claims[who])
        appeared: list[int] = []
        notes: list[int] = []
        for verb, x, y in script:
            if verb == "assert":
                claims.append((x, y))
                appeared.append(x)
            elif verb == "retract" and x < len(claims):
                claims.pop(x)
            elif verb == "send":
                notes.append(x)
        if end == "fail":
            claims, notes = [], []
        self.claims[who] = [] if end == "end" else claims
        after = self.rows()
        self.heard += [("+", x) for x in sorted(after - before)]
        self.heard += [("!", x) for x in notes]
        self.heard += [("-", x) for x in sorted(before - after)]


@given(steps)
def test_observers_hear_the_transitions_of_their_pattern(
    program: list[tuple[int, list[tuple[str, int, int]], str]],
) -> None:
    room = Room(strict=False)
    model = _Model()
    heard: list[tuple[object, ...]] = []

    def ear(turn: Turn) -> None:
        turn.observe(
            Fact.of(x=capture()),
            added=lambda turn, x: heard.append(("+", x)),
            removed=lambda turn, x: heard.append(("-", x)),
        )
        turn.on_message(Note(capture()))(lambda turn, x: heard.append(("!", x)))

    def player(turn: Turn) -> None:
        turn.prevent_inert()

    room.spawn(ear)
    actors: list[Actor] = [room.spawn(player, name=f"player-{n}") for n in range(3)]
    held: list[list[int]] = [[], [], []]
    room.run()

    def play(turn: Turn, who: int, script: list[tuple[str, int, int]], end: str) -> None:
        for verb, x, y in script:
            if verb == "assert":
                held[who].append(turn.claim(Fact(x, y)))
            elif verb == "retract" and x < len(held[who]):
                turn.retract(held[who].pop(x))
            elif verb == "send":
                turn.send(Note(x))
        if end == "fail":
            raise RuntimeError("on purpose")
        if end == "end":
            turn.stop_actor()

    for who, script, end in program:
        start = len(heard)
        mark = len(model.heard)
        room.enter(actors[who], play, who, script, end)
        model.turn(who, script, end)
        signs = [str(sign) for sign, _ in heard[start:]]
        assert signs == sorted(signs, key="+!-".index)
        assert Counter(heard[start:]) == Counter(model.heard[mark:])
        if end != "go on":  # nothing survives its owner
            assert not room.home.space.claims(actors[who].owner)
            actors[who], held[who] = room.spawn(player), []
            room.run()
    room.home.space.index.check()
    facts = {x for x, _ in (row for row in room.matches(Fact(capture(), capture())))}
    assert facts == model.rows()
