"""A slice of turns ends by the clock, also within a turn; nothing of that is seen before it has committed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from dataspace.actors.engine.actors import Actor, Call, Handler
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.errors import ActorCrashed
from dataspace.testing import Room

In, Out, Say = record("in", "n"), record("out", "n"), record("say", "n")


class CostlyRoom(Room):
    """A room in which code takes time: ``work`` moves the clock on."""

    def work(self, seconds: float) -> None:
        self.time += seconds

    def slices(self, seconds: float = 0.002) -> list[float]:
        """Runs until all is quiet, in slices; returns when each of them ended."""
        ends = [self.time]
        while not self.engine.is_idle:
            self.engine.run(seconds=seconds)
            ends.append(self.time)
        return ends


def _facts(room: Room, count: int) -> None:
    room.spawn(lambda turn: [turn.assert_(In(n)) for n in range(count)] and turn.prevent_inert())


@pytest.mark.parametrize("cost", [0.0001, 0.0015, 0.1, 0.3, 0.7])
def test_others_wait_for_a_single_handler_whatever_it_costs(cost: float) -> None:
    room = CostlyRoom()

    def busy(turn: Turn) -> None:
        turn.on_message("say($n)")(lambda turn, n: room.work(cost))

        @turn.during("in($n)")
        def each(turn: Turn, n: int) -> None:
            room.work(cost)
            turn.on_stop(lambda turn: room.work(cost))

        turn.stop_when_message("stop()")

    room.spawn(busy)
    room.run()
    began = room.time
    _facts(room, 30)  # thirty matches in one turn
    for n in range(30):
        room.spawn(lambda turn, n=n: turn.send(Say(n)))
    ends = room.slices()
    room.spawn(lambda turn: turn.send(record("stop")()))
    ends += room.slices()
    assert room.time - began == pytest.approx(90 * cost)
    assert max(after - before for before, after in pairwise(ends)) <= max(cost, 0.002) + cost


def test_an_interrupted_turn_commits_as_one_epoch_what_it_has_seen() -> None:
    room = CostlyRoom()

    def mirror(turn: Turn) -> None:
        @turn.during("in($n)")
        def each(turn: Turn, n: int) -> None:
            room.work(0.01)
            turn.assert_(Out(n))

    room.spawn(mirror)
    _facts(room, 50)
    room.watch("out($n)")
    seen: list[tuple[int, int]] = []
    while not room.engine.is_idle:
        room.engine.run(seconds=0.002)
        room.home.space.act("a client", [], 0)  # others have turns meanwhile
        seen.append((room.home.space.epoch, len(room.matches("out($n)"))))
    assert {count for _, count in seen} == {0, 50} and len(seen) > 40
    assert room.engine.statistics().turns == 3


def test_a_turn_whose_actor_falls_while_it_is_interrupted_is_undone() -> None:
    room = CostlyRoom(strict=False)
    closed: list[str] = []

    def mirror(turn: Turn) -> None:
        def other(turn: Turn) -> None:
            turn.on_asserted("other()")(lambda turn: None)

        inner = turn.react(other)

        @turn.on_asserted("in($n)")
        def came(turn: Turn, n: int) -> None:
            room.work(0.01)
            turn.assert_(Out(n))
            turn.stop(inner)
            turn.spawn(lambda turn: closed.append("booted"))

    actor = room.spawn(mirror)
    _facts(room, 5)
    room.engine.run(2)
    room.engine.run(seconds=0.02)
    assert room.engine.parts == 1 and not room.engine.is_idle and room.engine.running is None
    room.engine.fell(actor, "linked task", ActorCrashed("the task fell"))
    room.run()
    assert room.facts() == [f"in({n})" for n in range(5)] and closed == []
    assert room.engine.statistics().waiting == 0 and len(room.home.space.interests) == 0


@given(st.lists(st.sampled_from(["in", "out", "say", "stop"]), max_size=12), st.integers(1, 5))
def test_slices_change_nothing_but_when(steps: list[str], costs: int) -> None:
    """The same program in slices and at once: the same facts, transcript, turns and crashes."""

    def play(sliced: bool) -> tuple[object, ...]:
        room = CostlyRoom(strict=False)
        room.watch("out($n)")

        def actor(turn: Turn) -> None:
            total = turn.field("total", 0)
            turn.assert_(lambda: record("total", "n")(total.value))

            def each(turn: Turn, n: int) -> None:
                room.work(0.001 * costs)
                turn.assert_(Out(n))
                total.value += n
                turn.on_stop(lambda turn: room.work(0.001))
                if n == 7:
                    raise RuntimeError("seven")

            turn.during("in($n)")(each)
            turn.on_message("say($n)")(lambda turn, n: turn.send(Out(n)))

        room.spawn(actor, name="it")
        driver: list[int] = []

        def drive(turn: Turn, step: str) -> None:
            at = len(driver)
            if step == "in":
                driver.extend(turn.claim(In(at + more)) for more in range(3))
            elif step == "out" and driver:
                turn.retract(driver.pop())
            elif step == "say":
                for n in range(4):
                    turn.send(Say(n))
            elif step == "stop":
                while driver:
                    turn.retract(driver.pop())

        script = room.spawn(lambda turn: turn.prevent_inert())
        room.run()
        for step in steps:
            if sliced:
                room.engine.enqueue(_entry(script, drive, step))
                room.slices()
            else:
                room.enter(script, drive, step)
        stats = room.engine.statistics()
        return room.facts(), room.transcript(), stats.turns, stats.crashes, room.home.space.epoch

    assert play(sliced=True) == play(sliced=False)


def _entry(script: Actor, function: Handler, step: str) -> Call:
    return Call(script.root, "entry", function, step)
