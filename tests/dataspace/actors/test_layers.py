"""What passes between a layer and the space outside passes once, and ends with the layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from dataspace.actors.engine.actors import Actor, Facet
from dataspace.actors.engine.records import pattern_of, record
from dataspace.actors.engine.turns import Turn
from dataspace.actors.layers import Inbound, Outbound, Quit, inbound, layer, outbound
from dataspace.testing import Room
from index.patterns.patterns import capture, observe
from index.patterns.text import unparse
from index.values.values import Record, Value, keys

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


def test_what_an_actor_knows_and_what_its_layers_host_are_apart() -> None:
    room = Room()

    def knower(turn: Turn) -> None:
        turn.inside.on_asserted("secret($x)")(lambda turn, x: room.note(f"known {x}"))
        for number in 1, 2:
            layer(turn, resident, number)
        turn.inside.assert_(record("secret", "x")("before"))
        turn.on_message("tell()")(lambda turn: turn.inside.assert_(record("secret", "x")("after")))

    def resident(turn: Turn, number: int) -> None:
        turn.on_asserted("secret($x)")(lambda turn, x: room.note(f"leaked into {number}: {x}"))
        turn.assert_(Outbound(Note(number, "here")))

    actor = room.spawn(knower)
    room.play(lambda turn: turn.send(record("tell")()))
    assert room.transcript().splitlines() == ["known before", "known after"]
    assert len(room.facts()) == 2 and not room.engine.crashes
    room.enter(actor, Turn.stop_actor)
    assert room.facts() == [] and room.engine.statistics().actors == 0


def test_a_crash_of_the_layer_ends_all_that_it_hosts() -> None:
    room = Room(strict=False)

    def inner(turn: Turn) -> None:
        turn.assert_(Outbound(Note(1, "x")))
        turn.on_stop(lambda turn: room.note("inside ended in good order"))

    def host(turn: Turn) -> None:
        layer(turn, inner)
        layer(turn, inner, name="second")
        turn.on_message("fail()")(lambda turn: turn.retract(99))

    room.spawn(host)
    room.run()
    assert room.engine.statistics().actors == 3
    room.play(lambda turn: turn.send(record("fail")()))
    assert room.facts() == [] and room.engine.statistics().actors == 0
    assert room.transcript().splitlines() == ["inside ended in good order"] * 2


def test_a_layer_that_quits_ends_with_its_facet_and_leaves_the_actor_alone() -> None:
    room = Room()

    def host(turn: Turn) -> None:
        turn.assert_(Note(0, "host"))
        turn.react(lambda turn: layer(turn, inner))

    def inner(turn: Turn) -> None:
        turn.assert_(Outbound(Note(1, "x")))
        turn.after(1)(lambda turn: turn.send(Quit()))

    room.spawn(host)
    room.run()
    assert len(room.facts()) == 2
    room.advance(2)
    assert room.facts() == ['note(0, "host")'] and room.engine.statistics().actors == 1


def test_layers_nest_as_deep_as_one_likes() -> None:
    room = Room()
    room.watch(observe(Note(7, capture())))

    def host(turn: Turn, depth: int) -> None:
        layer(turn, host, depth - 1) if depth else innermost(turn)

    def innermost(turn: Turn) -> None:
        turn.on_asserted(inbound("note(7, $text)", 3))(lambda turn, text: room.note(f"in {text}"))
        turn.on_message(inbound("note(7, $text)", 3))(lambda turn, text: room.note(f"heard {text}"))
        turn.on_asserted(inbound("note(7, $text)", 2))(lambda turn, text: room.note(f"halfway {text}"))
        turn.assert_(outbound(Note(8, "out"), 3))
        turn.assert_(outbound(Note(7, "half"), 2))
        turn.after(1)(lambda turn: turn.send(outbound(Note(9, "pulse"), 3)))
        turn.after(2)(lambda turn: turn.send(Outbound(outbound(Quit()))))

    room.watch("note(9, $text)")
    room.spawn(host, 3)
    room.run()
    room.play(lambda turn: turn.send(Note(7, "message")))

    def brief(turn: Turn) -> None:
        turn.assert_(Note(7, "fact"))
        turn.stop_after(0.5)

    room.play(brief)
    assert room.facts() == ['note(7, "fact")', 'note(8, "out")']
    room.advance(1.5)
    told = room.transcript().splitlines()
    assert told[0].startswith("+ Observe(") and "note(7, $)" in told[0]
    assert told[1:] == ["halfway half", "heard message", "in fact", '! note(9, $text) "pulse"']
    room.advance(5)  # the outermost of the layers quits
    assert room.facts() == [] and room.engine.statistics().actors == 0
    assert not room.matches(observe(capture()))


def test_demand_inside_starts_supply_outside_and_its_end_ends_it() -> None:
    room = Room()

    def supply(turn: Turn) -> None:
        @turn.during("Observe(note($n:int, $))")
        def wanted(turn: Turn, n: int, *_: object) -> None:
            room.note(f"supply {n}")
            turn.assert_(Note(n, "made"))
            turn.on_stop(lambda turn: room.note(f"end {n}"))

    def inner(turn: Turn) -> None:
        turn.on_asserted(inbound("note(5, $text)"))(lambda turn, text: room.note(f"got {text}"))
        turn.after(1)(lambda turn: turn.send(Quit()))

    room.spawn(supply)
    room.spawn(lambda turn: layer(turn, inner))
    room.advance(2)
    assert room.transcript().splitlines() == ["supply 5", "got made", "end 5"]


def test_a_firewall_keeps_interest_to_itself_unless_it_is_allowed() -> None:
    for allow, seen in (["note(_, _)"], 0), (["note(_, _)", "Observe(_)"], 1):
        room = Room()

        def inner(turn: Turn) -> None:
            turn.on_asserted(inbound("note($n, _)"))(lambda turn, n: room.note(f"{n}"))  # noqa: B023  # now

        room.spawn(lambda turn: layer(turn, inner, allow=allow))  # noqa: B023  # in this round
        room.play(lambda turn: turn.claim(Note(1, "x")) and turn.prevent_inert())
        assert len(room.matches(observe(capture()))) == seen
        assert room.transcript() == "1"


def test_messages_come_in_once_each_and_in_the_order_in_which_they_were_sent() -> None:
    room = Room()

    def inner(turn: Turn) -> None:
        turn.on_message(inbound("note($n, $text)"))(lambda turn, n, text: room.note(f"{n}{text}"))
        turn.on_message(inbound('note($n, "a")'))(lambda turn, n: room.note(f"{n} for a"))

    def say(turn: Turn) -> None:
        for n, text in (1, "b"), (2, "a"), (1, "b"), (3, "a"):
            turn.send(Note(n, text))

    room.spawn(lambda turn: layer(turn, inner))
    room.run()
    room.play(say)
    assert room.transcript().splitlines() == ["1b", "2a", "1b", "3a", "2 for a", "3 for a"]


def test_interest_inside_in_what_is_no_pattern_harms_nobody() -> None:
    room = Room()

    def inner(turn: Turn) -> None:
        turn.assert_(record("Observe", "p")(Inbound(record("$", "a")(1))))
        turn.on_asserted(inbound("note($n, _)"))(lambda turn, n: room.note(f"{n}"))

    room.spawn(lambda turn: layer(turn, inner))
    room.play(lambda turn: turn.claim(Note(1, "x")) and turn.prevent_inert())
    assert room.transcript() == "1" and not room.engine.crashes


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_sync_inside_comes_after_those_outside_have_heard_and_what_is_there_has_come_in(depth: int) -> None:
    room = Room()

    def host(turn: Turn, below: int) -> None:
        if below:
            layer(turn, host, below - 1)
        else:
            innermost(turn)

    def innermost(turn: Turn) -> None:
        turn.send(outbound(Note(1, "pulse"), depth))
        turn.on_asserted(inbound("note($n, _)", depth))(lambda turn, n: room.note(f"there is {n}"))
        turn.sync(lambda turn: room.note("synced"))
        turn.snapshot(inbound("note($n, _)", depth), lambda turn, rows: room.note(f"{rows}"))

    def ear(turn: Turn) -> None:
        turn.on_message("note($n, _)")(lambda turn, n: room.note(f"heard {n}"))
        turn.assert_(Note(2, "fact"))

    room.spawn(ear)
    room.spawn(host, depth)
    room.run()
    assert room.transcript().splitlines() == ["heard 1", "there is 2", "synced", "[(2,)]"]


def test_a_firewall_forbids_what_it_would_allow() -> None:
    room = Room()

    def inner(turn: Turn) -> None:
        turn.assert_(Outbound(Note(1, "open")))
        turn.assert_(Outbound(Note(2, "secret")))
        turn.send(Outbound(Note(3, "secret")))
        turn.on_asserted(Inbound(Note(capture("n"), capture("text"))))(
            lambda turn, n, text: room.note(f"{n} {text}")
        )

    room.watch("note($n, _)")
    room.spawn(lambda turn: layer(turn, inner, forbid=['note(_, "secret")']))
    room.play(lambda turn: (turn.claim(Note(4, "secret")), turn.prevent_inert()))
    assert room.transcript().splitlines() == ["+ note($n, _) 4", "+ note($n, _) 1", "1 open"]


def test_what_has_come_in_is_a_fact_inside_like_any_other_and_there_once() -> None:
    room = Room()

    def inner(turn: Turn) -> None:
        for each in "note($n, _)", "note(_, $text)", "note(1, _)":
            turn.on_asserted(inbound(each))(lambda turn, *_: None)
        turn.on_asserted("$x:record")(lambda turn, x: room.note(unparse(x)) if x.label == "inbound" else None)

    room.spawn(lambda turn: layer(turn, inner))
    room.play(lambda turn: (turn.claim(Note(1, "whole")), turn.prevent_inert()))
    assert room.transcript() == 'inbound(note(1, "whole"))'


def test_what_nobody_inside_asks_for_does_not_come_in() -> None:
    room = Room()

    def inner(turn: Turn) -> None:
        turn.on_asserted("$x")(lambda turn, x: room.note(unparse(x)))
        turn.observe(inbound("note($n, _)"), added=lambda turn, n: room.note(f"{n}"), quiet=True)

    room.spawn(lambda turn: layer(turn, inner))
    room.play(lambda turn: (turn.claim(Note(1, "whole")), turn.prevent_inert()))
    assert room.transcript() == "Observe($x)"


patterns = st.sampled_from(
    [
        *(
            "note()",
            "note($n)",
            "note($n, $t)",
            "note($n, _)",
            "note(_, $t)",
            "note($n, _, $)",
            "note($x, $x)",
        ),
        *(
            "note(1, $t)",
            "note($n, 0)",
            "note(lit(1), $)",
            "note($n, _:int)",
            "note($n:str)",
            "note(_, _:bool)",
        ),
        *("$", "_:record", "$whole(note($n, _))"),
        *("exact(note($n))", "exact(note($n, _))", "exact(note($, $))"),
    ]
)
fields = st.one_of(st.integers(0, 1), st.booleans(), st.just("text"))
values = st.lists(fields, max_size=3).map(lambda given: Record("note", *given))
steps = st.one_of(st.tuples(st.just("say"), values), st.tuples(st.just("ask"), patterns))


@given(st.lists(patterns, max_size=3, unique=True), st.lists(steps, max_size=10))
def test_interests_inside_hear_exactly_what_they_would_hear_outside(
    asked: list[str], program: list[tuple[str, Record | str]]
) -> None:
    """However they overlap, come and go; each its own captures, each once."""
    heard: dict[str, dict[str, list[tuple[str, object]]]] = {}
    open_now: dict[tuple[str, str], Facet] = {}

    def listen(turn: Turn, where: str, each: str) -> None:
        def hear(sign: str) -> Callable[..., object]:
            def note(turn: Turn, *row: object) -> None:
                if not any(isinstance(part, Record) and part.label != "note" for part in row):
                    heard[where].setdefault(each, []).append((sign, keys(row)))  # type: ignore[arg-type]

            return note

        pattern = inbound(each) if where == "inside" else pattern_of(each)
        turn.observe(pattern, added=hear("+"), message=hear("!"), removed=hear("-"))

    def ask(turn: Turn, where: str, each: str) -> None:
        before = open_now.pop((where, each), None)
        if before is not None:
            turn.stop(before)
        else:
            open_now[where, each] = turn.react(listen, where, each)

    def listener(turn: Turn, where: str) -> None:
        turn.prevent_inert()
        actors[where] = turn.actor
        for each in asked:
            ask(turn, where, each)

    def say(turn: Turn, value: Record) -> None:
        turn.send(value)
        if value in held:
            turn.retract(held.pop(value))
        else:
            held[value] = turn.claim(value)

    def settled() -> dict[str, dict[str, list[tuple[str, object]]]]:
        return {
            where: {each: sorted(lines, key=repr) for each, lines in told.items()}
            for where, told in heard.items()
        }

    room = Room()
    actors: dict[str, Actor] = {}
    held: dict[Value, int] = {}
    heard = {"inside": {}, "outside": {}}
    room.spawn(listener, "outside")
    room.spawn(lambda turn: layer(turn, listener, "inside"))
    player = room.spawn(lambda turn: turn.prevent_inert())
    room.run()
    for what, given_ in program:
        if isinstance(given_, Record):
            room.enter(player, say, given_)
        else:
            for where in "outside", "inside":
                room.enter(actors[where], ask, where, given_)
        assert not room.engine.crashes
        assert settled()["inside"] == settled()["outside"], what
        heard = {"inside": {}, "outside": {}}


def test_actors_inside_have_the_term_of_the_outermost_space() -> None:
    room = Room()
    terms = list[int]()

    def host(turn: Turn) -> None:
        turn.home.term = 7
        layer(turn, inner)

    def inner(turn: Turn) -> None:
        layer(turn, lambda turn: terms.append(turn.term))
        terms.extend([turn.term, turn.inside.term])

    room.spawn(lambda turn: terms.append(turn.term))
    room.spawn(host)
    room.run()
    assert terms == [0, 7, 7, 7]
