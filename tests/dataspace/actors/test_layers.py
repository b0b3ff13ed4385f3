"""What passes between a layer and the space outside passes once, and ends with the layer."""

from __future__ import annotations

from dataspace.actors import Turn, capture, observe, record
from dataspace.actors.layers import Inbound, Outbound, Quit, layer
from dataspace.testing import Room

Note = record("note", "n", "text")


def test_no_echo_and_each_interest_fires_once_with_its_own_captures() -> None:
    room = Room()
    room.watch("note($n, $text)")

    def inner(turn: Turn) -> None:
        both = Inbound(Note(capture("n"), capture("t")))
        turn.on_message(both)(lambda turn, n, t: room.note(f"both {n} {t}"))
        turn.on_message(Inbound(Note.of(n=capture())))(lambda turn, n: room.note(f"one {n}"))
        turn.on_asserted(Inbound(Note.of(n=capture())))(lambda turn, n: room.note(f"fact {n}"))

        @turn.on_message("go()")
        def go(turn: Turn) -> None:
            turn.send(Outbound(Note(1, "pulse")))
            turn.assert_(Outbound(Note(2, "held")))

    room.spawn(lambda turn: layer(turn, inner))
    room.run()

    def enter(turn: Turn) -> None:
        turn.send(record("go")())

    (inside,) = [actor for actor in room.engine.actors.values() if actor.name == "inner"]
    room.enter(inside, enter)
    assert room.transcript().splitlines() == [
        '+ note($n, $text) 2 "held"',
        '! note($n, $text) 1 "pulse"',
        "fact 2",
        "both 1 pulse",
        "one 1",
    ]


def test_quitting_withdraws_everything_outside_and_ends_those_inside() -> None:
    room = Room()

    def inner(turn: Turn) -> None:
        turn.assert_(Outbound(Note(1, "x")))
        turn.on_asserted(Inbound(Note.of(n=capture())))(lambda turn, n: None)
        turn.after(5)(lambda turn: turn.send(Quit()))

    room.spawn(lambda turn: layer(turn, inner))
    room.run()
    assert room.facts() == ['note(1, "x")']
    assert room.matches(observe(capture()))
    room.advance(6)
    assert room.facts() == [] and room.engine.statistics().actors == 0
    assert not room.matches(observe(capture()))


def test_a_firewall_lets_only_what_is_allowed_pass() -> None:
    room = Room()

    def inner(turn: Turn) -> None:
        turn.assert_(Outbound(Note(1, "open")))
        turn.assert_(Outbound(record("secret", "n")(1)))
        turn.on_asserted(Inbound(capture("what")))(lambda turn, what: room.note(f"{what.label}"))

    room.spawn(lambda turn: layer(turn, inner, allow=["note(_, _)"]))
    room.run()
    assert room.facts() == ['note(1, "open")']
    assert room.transcript() == "note"
