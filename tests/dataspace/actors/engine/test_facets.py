"""Facets end with all that is in them, and what an actor began for them ends too, however they end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.actors.supervision import supervise
from dataspace.testing import Room

Present = record("present", "who")
Go = record("go", "what")
DEEP = 3_000
"""More than calls may nest."""


def nest(turn: Turn, depth: int) -> None:
    """Opens one facet in another, each in a turn of its own as a program would over time."""
    turn.assert_(Present(depth))
    if depth:
        turn.later(lambda turn: turn.react(nest, depth - 1))


def go(room: Room, what: object) -> None:
    room.play(lambda turn: turn.send(Go(what)))


@pytest.mark.slow
@pytest.mark.parametrize("end", [Turn.stop_actor, lambda turn: turn.retract(-1)], ids=["orderly", "crash"])
def test_a_tree_deeper_than_calls_may_nest_ends_whole(end: Callable[[Turn], None]) -> None:
    room = Room(strict=False)
    room.spawn(lambda turn: turn.assert_(Present("other")))
    actor = room.spawn(nest, DEEP)
    room.run()
    assert actor.facets > DEEP
    room.enter(actor, end)
    assert actor.ended and room.facts() == ['present("other")']
    room.home.space.index.check()


def test_children_stop_before_their_parent_each_before_its_own_stop_actions() -> None:
    room = Room()

    def level(turn: Turn, name: str, below: int) -> None:
        turn.on_stop(lambda turn: room.note(name))
        turn.prevent_inert()
        for number in range(below):
            turn.react(level, f"{name}.{number}", below - 1)

    actor = room.spawn(level, "a", 2)
    room.run()
    room.enter(actor, Turn.stop_actor)
    assert room.transcript().splitlines() == ["a.0.0", "a.0", "a.1.0", "a.1", "a"]


def test_what_a_stop_action_opens_in_a_facet_that_ends_ends_with_it() -> None:
    room = Room()

    def outer(turn: Turn) -> None:
        turn.react(inner)
        turn.stop_when_message(Go("stop"))

    def inner(turn: Turn) -> None:
        turn.prevent_inert()
        turn.on_stop(lambda parent: parent.react(after))

    def after(turn: Turn) -> None:
        turn.assert_(Present("after"))
        turn.on_stop(lambda turn: room.note("after has stopped"))

    room.spawn(lambda turn: (turn.prevent_inert(), turn.react(outer)))
    room.run()
    go(room, "stop")
    assert room.facts() == [] and room.transcript() == "after has stopped"
    assert room.engine.statistics().facets == 2


@pytest.mark.slow
def test_stop_actions_that_open_facets_for_ever_crash_the_actor_and_not_the_program() -> None:
    room = Room(strict=False)

    def again(turn: Turn) -> None:
        turn.prevent_inert()
        turn.on_stop(lambda parent: parent.react(again))

    actor = room.spawn(again)
    room.run()
    room.enter(actor, Turn.stop_actor)
    assert actor.crash is not None and "does not end" in str(actor.crash)
    assert room.engine.statistics().actors == 0


def test_continuations_and_stop_actions_run_in_the_parents_context() -> None:
    room = Room()

    def machine(turn: Turn, state: str) -> None:
        turn.assert_(Present(state))
        turn.stop_when_message(Go("next"), lambda parent: parent.react(machine, f"{state}'"))

    def boot(turn: Turn) -> None:
        turn.react(machine, "s")
        turn.prevent_inert()

    actor = room.spawn(boot)
    room.run()
    before = actor.facets
    for _ in range(50):
        go(room, "next")
    assert room.facts() == [f'present("s{50 * chr(39)}")'] and actor.facets == before


def test_ad_hoc_claims_do_not_keep_an_inert_actor() -> None:
    room = Room()
    room.watch("present($who)")

    def boot(turn: Turn) -> None:
        turn.claim(Present("brief"))
        turn.after(1)(lambda turn: None)

    room.spawn(boot)
    room.advance(0.5)
    assert room.engine.statistics().actors == 1
    room.advance(1)
    assert room.engine.statistics().actors == 0
    assert room.transcript().splitlines() == ['+ present($who) "brief"', '- present($who) "brief"']


def test_a_preventer_holds_a_facet_until_it_is_released_and_releasing_twice_is_once() -> None:
    room = Room()
    releases: list[Callable[[], None]] = []

    def boot(turn: Turn) -> None:
        releases.extend([turn.prevent_inert(), turn.prevent_inert()])

    actor = room.spawn(boot)
    room.run()
    for release in releases[0], releases[0]:
        room.enter(actor, lambda turn: release())  # noqa: B023  # entered at once
    assert room.engine.statistics().actors == 1
    room.enter(actor, lambda turn: releases[1]())
    assert room.engine.statistics().actors == 0 and not room.engine.crashes


def test_a_facet_of_during_may_have_nothing_to_do() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.during("present($who)")(
            lambda turn, who: turn.on_stop(lambda turn: room.note(f"{who} has gone"))
        )

    room.spawn(boot)
    room.run()

    def guest(turn: Turn) -> None:
        turn.assert_(Present("a"))
        turn.stop_when_message(Go("a"))

    room.play(guest)
    assert room.transcript() == ""
    go(room, "a")
    assert room.transcript() == "a has gone"


def test_actors_that_were_spawned_during_a_match_end_when_their_parent_crashes() -> None:
    room = Room(strict=False)

    def parent(turn: Turn) -> None:
        turn.during_spawn("present($who)")(child)
        turn.on_message("go($what)")(lambda turn, what: turn.retract(-1))

    def child(turn: Turn, who: str) -> None:
        room.note(f"start {who}")
        turn.on_stop(lambda turn: room.note(f"stop {who}"))

    def demand(turn: Turn) -> None:
        turn.assert_(Present("a"))

    room.spawn(demand)
    room.spawn(lambda turn: supervise(turn, parent))
    room.run()
    go(room, "fail")
    assert room.transcript().splitlines() == ["start a", "stop a", "start a"]
    assert room.engine.statistics().actors == 4


def test_what_is_supervised_ends_when_its_supervisor_crashes() -> None:
    room = Room(strict=False)

    def boss(turn: Turn) -> None:
        supervise(turn, lambda turn: turn.assert_(Present("worker")), name="worker")
        turn.on_message("go($what)")(lambda turn, what: turn.retract(-1))

    room.spawn(boss)
    room.run()
    assert room.facts() == ['present("worker")']
    go(room, "fail")
    assert room.facts() == [] and room.engine.statistics().actors == 0


def test_children_of_a_failed_turn_never_were_however_they_are_bound() -> None:
    room = Room(strict=False)

    def child(turn: Turn) -> None:
        room.note("booted")

    def parent(turn: Turn) -> None:
        turn.spawn(child)
        turn.spawn(child, initial=[Present("child")])
        turn.spawn_link(child)
        supervise(turn, child)
        turn.during_spawn("present($who)")(lambda turn, who: room.note("booted"))
        turn.retract(-1)

    room.spawn(parent)
    room.run()
    assert room.transcript() == "" and room.facts() == []
    assert [made.actor for made in room.trace.records] == ["parent"]
    assert room.engine.statistics().actors == 0
