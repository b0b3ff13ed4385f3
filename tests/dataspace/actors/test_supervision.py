"""Actors that crash come back, with a pause; services run exactly while they are required and can."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.actors.services import Require, service
from dataspace.actors.supervision import Restart, supervise
from dataspace.testing import Room


def test_a_crash_is_followed_by_a_restart_and_too_many_by_a_pause() -> None:
    room = Room()

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
