"""Actors that crash come back, with a pause; services run exactly while they are required and can."""

from __future__ import annotations

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.actors.services import DependsOn, Require, service
from dataspace.actors.supervision import Restart, supervise
from dataspace.testing import Room


def test_a_crash_is_followed_by_a_restart_and_too_many_by_a_pause() -> None:
    room = Room(strict=False)

    def bad(turn: Turn) -> None:
        room.note(f"boot {room.time}")
        raise RuntimeError("no")

    def boot(turn: Turn) -> None:
        supervise(turn, bad, restart=Restart(intensity=2, period=1, pause=5))

    room.spawn(boot)
    room.advance(6)
    assert room.transcript().splitlines() == ["boot 0.0"] * 3 + ["boot 5.0"] * 3


def test_an_orderly_end_is_not_restarted() -> None:
    room = Room()
    room.spawn(lambda turn: supervise(turn, lambda turn: room.note("boot"), name="once"))
    room.advance(100)
    assert room.transcript() == "boot" and room.engine.statistics().actors == 0


def test_a_service_starts_when_required_after_what_it_depends_on_and_stops_when_not() -> None:
    room = Room()

    def boot(turn: Turn, name: str) -> None:
        room.note(f"start {name}")
        turn.on_stop(lambda turn: room.note(f"stop {name}"))
        turn.prevent_inert()

    def offers(turn: Turn) -> None:
        service(turn, "db", boot, "db")
        service(turn, "web", boot, "web", on=("db",))

    room.spawn(offers)
    room.run()
    assert room.transcript() == ""

    def user(turn: Turn) -> None:
        turn.assert_(Require("web"))
        turn.stop_when_message("enough()")

    room.spawn(user)
    room.run()
    assert room.transcript().splitlines() == ["start db", "start web"]
    assert 'state("web", "ready")' in room.facts() and 'state("db", "ready")' in room.facts()
    room.play(lambda turn: turn.send(record("enough")()))
    assert sorted(room.transcript().splitlines()) == ["stop db", "stop web"]
    assert room.facts() == ['depends-on("web", "db")']


def offer(room: Room, turn: Turn) -> None:
    """A service that fails or leaves when it is told to, and one that depends on it."""

    def low(turn: Turn) -> None:
        room.note("low")
        turn.on_message("fail()")(lambda turn: turn.retract(-1))
        turn.on_message("leave()")(lambda turn: turn.stop_actor())

    def high(turn: Turn) -> None:
        room.note("high")
        turn.on_stop(lambda turn: room.note("high stops"))
        turn.prevent_inert()

    service(turn, "low", low, restart=Restart(intensity=1, period=100, pause=30))
    service(turn, "high", high, on=("low",))
    turn.assert_(Require("high"))


def test_a_service_that_pauses_after_crashes_is_not_ready_and_those_that_need_it_wait() -> None:
    room = Room(strict=False)
    room.spawn(lambda turn: offer(room, turn))
    room.run()
    room.play(lambda turn: turn.send(record("fail")()))
    assert room.transcript().splitlines() == ["low", "high", "low"], "one crash is no failure"
    room.play(lambda turn: turn.send(record("fail")()))
    assert 'state("low", "failed")' in room.facts() and 'state("high", "waiting")' in room.facts()
    assert room.transcript() == "high stops"
    room.advance(31)
    assert 'state("low", "ready")' in room.facts() and 'state("high", "ready")' in room.facts()
    assert room.transcript().splitlines() == ["low", "high"]


def test_a_service_that_has_ended_is_complete_which_is_enough_for_those_that_need_it() -> None:
    room = Room()
    room.spawn(lambda turn: offer(room, turn))
    room.run()
    room.play(lambda turn: turn.send(record("leave")()))
    assert 'state("low", "complete")' in room.facts() and 'state("high", "ready")' in room.facts()
    assert room.transcript().splitlines() == ["low", "high"]


def test_a_dependency_that_is_declared_while_a_service_runs_makes_it_wait() -> None:
    room = Room()
    room.spawn(lambda turn: offer(room, turn))
    room.run()

    def more(turn: Turn) -> None:
        turn.assert_(DependsOn("high", "another"))
        turn.stop_when_message("enough()")

    room.play(more)
    assert 'state("high", "waiting")' in room.facts()
    room.play(lambda turn: turn.send(record("enough")()))
    assert 'state("high", "ready")' in room.facts()
    assert room.transcript().splitlines() == ["low", "high", "high stops", "high"]
