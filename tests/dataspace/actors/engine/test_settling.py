"""A turn comes to its end: in time that is linear in what there is to do, and within stated bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dataspace.actors import Turn, record
from dataspace.actors.engine.settling import ACTIONS, ROUNDS
from dataspace.testing import Room

Go = record("go")


def endless_stop_actions(turn: Turn) -> None:
    """A stop action opens a facet with nothing to do, whose stop action does the same."""
    turn.prevent_inert()

    def empty(turn: Turn) -> None:
        turn.on_stop(lambda parent: parent.react(empty))

    turn.on_message("go()")(lambda turn: turn.react(empty))


def endless_start(turn: Turn) -> None:
    def script(turn: Turn) -> None:
        turn.on_start(script)

    turn.on_message("go()")(script)


def endless_hook(turn: Turn) -> None:
    def hook(turn: Turn) -> None:
        turn.before_commit(hook)

    turn.on_message("go()")(hook)


def endless_states(turn: Turn) -> None:
    turn.prevent_inert()

    def state(other: Callable[[], Callable[[Turn], None]]) -> Callable[[Turn], None]:
        def setup(turn: Turn) -> None:
            turn.prevent_inert()
            turn.stop(then=lambda parent: parent.react(other()))

        return setup

    one, two = state(lambda: two), state(lambda: one)
    turn.on_message("go()")(lambda turn: turn.react(one))


def endless_facets(turn: Turn) -> None:
    """Each script opens two facets whose scripts do the same: their number doubles in each round."""

    def setup(turn: Turn) -> None:
        turn.on_start(lambda turn: (turn.react(setup), turn.react(setup)))

    turn.on_message("go()")(lambda turn: turn.react(setup))


def endless_scripts(turn: Turn) -> None:
    def script(turn: Turn) -> None:
        turn.on_start(script)
        turn.on_start(script)

    turn.on_message("go()")(script)


def endless_edges(turn: Turn) -> None:
    n = turn.field("n", 0)
    turn.when_true(lambda: n.value % 2, lambda turn: setattr(n, "value", n.value + 1))
    turn.when_true(lambda: n.value % 2 == 0, lambda turn: setattr(n, "value", n.value + 1))


def endless_end(turn: Turn) -> None:
    """What stops adds, each time, to what its root is to do when it stops."""

    def again(turn: Turn) -> None:
        turn.on_stop(again)

    root = turn.actor.root.turn
    assert isinstance(root, Turn)
    root.on_stop(again)
    turn.on_message("go()")(Turn.stop_actor)


ENDLESS: dict[Callable[[Turn], None], str] = {
    endless_stop_actions: f"rounds, limit {ROUNDS}",
    endless_start: f"rounds, limit {ROUNDS}",
    endless_hook: f"rounds, limit {ROUNDS}",
    endless_states: f"rounds, limit {ROUNDS}",
    endless_facets: "facets, limit 100000",
    endless_scripts: f"actions, limit {ACTIONS}",
    endless_edges: "does not settle",
    endless_end: f"actions, limit {ACTIONS}",
}


@pytest.mark.slow
@pytest.mark.parametrize("boot", ENDLESS, ids=lambda boot: boot.__name__)
def test_a_turn_that_would_never_end_crashes_its_actor_at_a_stated_bound(
    boot: Callable[[Turn], None],
) -> None:
    room = Room(strict=False)
    room.spawn(boot, name="endless")
    room.spawn(lambda turn: turn.on_message("go()")(lambda turn: room.note("another")))
    room.run()
    room.spawn(lambda turn: turn.send(Go()))
    room.run()
    (crash,) = room.crashes
    assert room.transcript() == "another" and room.home.space.statistics().claims == 1
    said = str(crash)
    assert ENDLESS[boot] in said and said.startswith("actor endless, facet ")
    if ENDLESS[boot].startswith(("rounds", "actions")):
        assert "a turn of actor endless, facet " in str(crash.__cause__)


def test_what_is_long_but_ends_is_no_endless_turn() -> None:
    room = Room()

    def chain(turn: Turn, left: int) -> None:
        if left:
            turn.on_start(lambda turn: chain(turn, left - 1))
        else:
            room.note("done")

    room.spawn(chain, ROUNDS - 10)
    room.run()
    assert room.transcript() == "done" and not room.crashes


def _steps_to_stop(children: int) -> int:
    """How many children the walk of an orderly stop looks at."""
    room, looked = Room(), [0]

    class Counted(dict):  # type: ignore[type-arg]  # of whatever facets
        def __iter__(self):  # type: ignore[no-untyped-def]
            for each in super().__iter__():
                looked[0] += 1
                yield each

        def __reversed__(self):  # type: ignore[no-untyped-def]
            for each in super().__reversed__():
                looked[0] += 1
                yield each

    def boot(turn: Turn) -> None:
        turn.facet.children = Counted()
        for _ in range(children):
            turn.react(lambda turn: (turn.prevent_inert(), turn.on_stop(lambda turn: None)))
            turn.on_stop(lambda turn: None)

    actor = room.spawn(boot)
    room.run()
    room.enter(actor, Turn.stop_actor)
    assert actor.ended and actor.facets == 0 and actor.crash is None
    return looked[0]


def test_a_facet_of_n_children_stops_in_n_steps() -> None:
    assert _steps_to_stop(2000) <= 2 * 2000


@pytest.mark.slow
def test_the_time_that_a_stop_takes_grows_as_the_number_of_children() -> None:
    """In function calls, which do not depend on the machine."""
    import cProfile
    import pstats

    def calls(children: int) -> int:
        room = Room()

        def boot(turn: Turn) -> None:
            for _ in range(children):
                turn.react(lambda turn: turn.prevent_inert())

        actor = room.spawn(boot)
        room.run()
        profile = cProfile.Profile()
        profile.enable()
        room.enter(actor, Turn.stop_actor)
        profile.disable()
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]  # as it has

    few, many = calls(1_000), calls(8_000)
    assert many < 8.5 * few


def test_children_stop_in_the_order_in_which_they_were_opened_before_their_parent() -> None:
    room = Room()

    def node(turn: Turn, name: str, depth: int) -> None:
        turn.prevent_inert()
        turn.on_stop(lambda parent: room.note(name))
        for at in range(2 if depth else 0):
            turn.react(node, f"{name}{at}", depth - 1)

    actor = room.spawn(lambda turn: turn.react(node, "n", 2))
    room.run()
    room.enter(actor, Turn.stop_actor)
    assert room.transcript().split() == ["n00", "n01", "n0", "n10", "n11", "n1", "n"]


def opens_in_a_stop_action(turn: Turn, begun: Callable[[Turn], object]) -> None:
    turn.react(
        lambda turn: (turn.prevent_inert(), turn.on_stop(lambda turn: turn.react(begun))), name="inner"
    )


def opens_under_a_stopping_parent(turn: Turn, begun: Callable[[Turn], object]) -> None:
    turn.on_message("go()")(lambda turn: (turn.stop(), turn.react(begun)))


def opens_in_a_start_script_of_what_stops(turn: Turn, begun: Callable[[Turn], object]) -> None:
    def setup(turn: Turn) -> None:
        turn.on_start(lambda turn: turn.react(begun))
        turn.stop()

    turn.on_message("go()")(lambda turn: turn.react(setup))


def opens_in_a_continuation(turn: Turn, begun: Callable[[Turn], object]) -> None:
    def setup(turn: Turn) -> None:
        turn.prevent_inert()
        turn.on_message("go()")(lambda turn: turn.stop(then=lambda turn: turn.react(begun)))

    turn.react(setup)


def opens_and_stops_at_once(turn: Turn, begun: Callable[[Turn], object]) -> None:
    turn.on_message("go()")(lambda turn: turn.stop(turn.react(begun)))


@pytest.mark.parametrize(
    "boot",
    [
        opens_in_a_stop_action,
        opens_under_a_stopping_parent,
        opens_in_a_start_script_of_what_stops,
        opens_in_a_continuation,
        opens_and_stops_at_once,
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_a_facet_starts_before_it_stops(
    boot: Callable[[Turn, Callable[[Turn], object]], None], *, whole: bool
) -> None:
    room = Room()

    def begun(turn: Turn) -> None:
        room.note("set up")
        turn.on_start(lambda turn: room.note("start"))
        turn.on_stop(lambda turn: room.note("stop"))

    def outer(turn: Turn) -> None:
        turn.prevent_inert()
        boot(turn, begun)

    actor = room.spawn(outer)
    room.run()
    room.spawn(lambda turn: turn.send(Go()))
    room.run()
    if whole:
        room.enter(actor, Turn.stop_actor)
    else:
        room.enter(actor, lambda turn: [turn.stop(each) for each in turn.facet.children])
    assert room.transcript().split("\n") == ["set up", "start", "stop"] and not room.crashes
