"""Whatever an actor raises, and wherever: it ends that actor, nothing of its turn is seen, the others go on.

A table of all places where code of an actor is called, times all kinds of what can be raised.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from dataspace.actors import Actor, ActorSpace, Engine, Turn, capture, record
from dataspace.actors.engine.handlers import described, leaves
from dataspace.actors.layers import layer
from dataspace.actors.services import Require, service
from dataspace.actors.supervision import Restart, supervise
from dataspace.errors import UsageError
from dataspace.running.actors import Outside, Shell
from dataspace.testing import Room

Go = record("go")
Fact = record("fact", "n")
Poison = record("poison", "what")
Ping = record("ping", "n")


class Own(BaseException):
    """What somebody has made to be caught by nobody."""


class Mute(BaseException):
    """Cannot be told."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


KINDS: dict[str, Callable[[], BaseException]] = {
    "Exception": lambda: ValueError("on purpose"),
    "RecursionError": RecursionError,
    "StopIteration": StopIteration,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(3),
    "own": Own,
    "mute": Mute,
    "Cancelled": lambda: trio.Cancelled._create(),
    "group": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("\ud800")]),
}
ALL = (BaseException,)

Raise = Callable[..., None]
Place = Callable[[Turn, Raise], object]
PLACES: dict[str, Place] = {}


def place(function: Place) -> Place:
    """Takes down a place: a boot function that has ``fail`` called somewhere, sooner or later."""
    PLACES[function.__name__] = function
    return function


def on_go(turn: Turn, script: Callable[[Turn], object]) -> None:
    turn.on_message("go()")(lambda inner: script(inner))


def poisoned(turn: Turn, fail: Raise, *_: object) -> None:
    """Does all kinds of things, which must not be seen, and fails."""
    turn.claim(Poison("claim"))
    turn.send(Poison("message"))
    turn.inside.send(Poison("inside"))
    turn.react(lambda turn: (turn.prevent_inert(), turn.assert_(Poison("endpoint"))))
    turn.spawn(lambda turn: turn.assert_(Poison("child")), initial=[Poison("initial")])
    fail()


@place
def boot(turn: Turn, fail: Raise) -> None:
    poisoned(turn, fail)


@place
def message(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: poisoned(turn, fail))


@place
def asserted(turn: Turn, fail: Raise) -> None:
    turn.on_asserted("fact($n)")(lambda turn, n: poisoned(turn, fail))


@place
def retracted(turn: Turn, fail: Raise) -> None:
    turn.on_retracted("fact($n)")(lambda turn, n: poisoned(turn, fail))


@place
def second_handler_of_an_event(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.send(Poison("first")))
    on_go(turn, lambda turn: poisoned(turn, fail))


@place
def start_script(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.react(lambda turn: turn.on_start(lambda turn: poisoned(turn, fail))))


@place
def stop_action(turn: Turn, fail: Raise) -> None:
    def setup(turn: Turn) -> None:
        turn.on_stop(lambda turn: poisoned(turn, fail))
        on_go(turn, lambda turn: turn.stop())

    turn.react(setup)
    turn.prevent_inert()


@place
def stop_action_of_the_whole_actor(turn: Turn, fail: Raise) -> None:
    turn.on_stop(lambda turn: poisoned(turn, fail))
    on_go(turn, Turn.stop_actor)


@place
def continuation(turn: Turn, fail: Raise) -> None:
    turn.prevent_inert()
    turn.react(lambda turn: turn.stop_when_message("go()", lambda turn: poisoned(turn, fail)))


@place
def continuation_of_react_until(turn: Turn, fail: Raise) -> None:
    turn.prevent_inert()
    turn.react_until("fact($n)", Turn.prevent_inert, lambda turn, n: poisoned(turn, fail))


@place
def field_computation(turn: Turn, fail: Raise) -> None:
    n = turn.field("n", 0)

    def compute() -> None:
        if n.value:
            inner = turn.react(lambda turn: None).turn
            assert isinstance(inner, Turn)
            poisoned(inner, fail)

    turn.derived("d", compute)
    on_go(turn, lambda _: setattr(n, "value", 1))


@place
def block(turn: Turn, fail: Raise) -> None:
    n = turn.field("n", 0)
    turn.dataflow(lambda: poisoned(turn, fail) if n.value else None)
    on_go(turn, lambda _: setattr(n, "value", 1))


@place
def computed_assertion(turn: Turn, fail: Raise) -> None:
    n = turn.field("n", 0)
    turn.assert_(lambda: poisoned(turn, fail) if n.value else None)
    on_go(turn, lambda _: setattr(n, "value", 1))


@place
def condition_of_an_assertion(turn: Turn, fail: Raise) -> None:
    n = turn.field("n", 0)
    turn.assert_(Fact(5), when=lambda: poisoned(turn, fail) if n.value else None)
    on_go(turn, lambda _: setattr(n, "value", 1))


@place
def computed_interest(turn: Turn, fail: Raise) -> None:
    n = turn.field("n", 0)
    turn.on_message(lambda: poisoned(turn, fail) if n.value else "go()")(lambda _: setattr(n, "value", 1))


@place
def comparison_of_a_field(turn: Turn, fail: Raise) -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            poisoned(turn, fail)
            return True

        __hash__ = None  # type: ignore[assignment]

    n = turn.field("n", Odd())
    on_go(turn, lambda _: setattr(n, "value", Odd()))


@place
def rising_edge(turn: Turn, fail: Raise) -> None:
    n = turn.field("n", 0)
    turn.when_true(lambda: n.value, lambda turn: poisoned(turn, fail))
    on_go(turn, lambda _: setattr(n, "value", 1))


@place
def condition_of_a_stop(turn: Turn, fail: Raise) -> None:
    n = turn.field("n", 0)
    turn.stop_when_true(lambda: poisoned(turn, fail) if n.value else False)
    on_go(turn, lambda _: setattr(n, "value", 1))


@place
def hook_before_the_commit(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.before_commit(lambda turn: poisoned(turn, fail)))


@place
def timer(turn: Turn, fail: Raise) -> None:
    turn.after(1)(lambda turn: poisoned(turn, fail))


@place
def timer_that_repeats(turn: Turn, fail: Raise) -> None:
    turn.every(1)(lambda turn: poisoned(turn, fail))


@place
def later(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.later(lambda turn: poisoned(turn, fail)))


@place
def snapshot(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.snapshot("fact($n)", lambda turn, rows: poisoned(turn, fail)))


@place
def exit_hook(turn: Turn, fail: Raise) -> None:
    turn.on_exit(fail)
    on_go(turn, Turn.stop_actor)


@place
def exit_hook_after_a_crash(turn: Turn, fail: Raise) -> None:
    turn.on_exit(fail)
    turn.on_exit(fail)
    on_go(turn, lambda turn: poisoned(turn, fail))


@place
def during(turn: Turn, fail: Raise) -> None:
    turn.during("fact($n)")(lambda turn, n: poisoned(turn, fail))


@place
def stop_of_during(turn: Turn, fail: Raise) -> None:
    turn.during("fact($n)")(lambda turn, n: turn.on_stop(lambda turn: poisoned(turn, fail)))


@place
def handler_of_a_query(turn: Turn, fail: Raise) -> None:
    turn.query_set("n", "fact($n)", added=lambda turn, n: poisoned(turn, fail))


@place
def handler_of_a_query_at_the_end(turn: Turn, fail: Raise) -> None:
    turn.query_value("n", "fact($n)", removed=lambda turn, n: poisoned(turn, fail))


@place
def setup_of_a_facet(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.react(lambda turn: turn.react(lambda turn: poisoned(turn, fail))))


@place
def knowledge_of_its_own(turn: Turn, fail: Raise) -> None:
    turn.inside.on_message("go()")(lambda turn: poisoned(turn, fail))
    on_go(turn, lambda turn: turn.inside.send(Go()))


@place
def told_of_supervision(turn: Turn, fail: Raise) -> None:
    def told(state: str) -> None:
        if state == "ended":
            poisoned(turn, fail)

    supervise(turn, lambda turn: on_go(turn, Turn.stop_actor), on_state=told)


def spawned(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.spawn(lambda turn: poisoned(turn, fail)))


def linked(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: turn.spawn_link(lambda turn: poisoned(turn, fail)))


def during_spawn(turn: Turn, fail: Raise) -> None:
    turn.during_spawn("fact($n)")(lambda turn, n: poisoned(turn, fail))


def supervised(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: supervise(turn, poisoned, fail, restart=Restart(1, 1, 1000)))


def in_a_service(turn: Turn, fail: Raise) -> None:
    service(turn, "it", poisoned, fail, restart=Restart(1, 1, 1000))
    turn.assert_(Require("it"))


def in_a_layer(turn: Turn, fail: Raise) -> None:
    on_go(turn, lambda turn: layer(turn, lambda turn: poisoned(turn, fail)))


OTHERS: dict[str, Place] = {
    each.__name__: each for each in (spawned, linked, during_spawn, supervised, in_a_service, in_a_layer)
}
"""Where it is an actor made by the one that boots that ends."""


def check_engine(engine: Engine, home: ActorSpace) -> None:
    """All that holds of an engine between turns."""
    assert engine.running is None and engine.computation is None and engine.turn == 0
    assert engine.actions == [] and engine._effects is None and engine._escaping is None
    assert engine.inhabitants == sum(not actor.daemon for actor in engine.actors.values())
    space = home.space
    space.index.check()
    living = {actor.owner for actor in engine.actors.values()}
    assert {owner for owner in space.owners() if space.claims(owner)} <= living
    for actor in engine.actors.values():
        assert not actor.ended and engine.actors[actor.number] is actor
        facets = [actor.root]
        for facet in facets:
            assert not facet.ended and facet.actor is actor
            assert all(child.parent is facet for child in facet.children)
            facets += facet.children
        assert actor.facets == len(facets)


def life(room: Room, boot: Place, fail: Raise) -> Actor:
    """The actor, and all that may have it fail; others live beside it, before and after it in every event."""
    heard: list[int] = []

    def bystander(turn: Turn) -> None:
        turn.on_message(Ping(capture()))(lambda turn, n: heard.append(n))
        turn.on_asserted("fact($n)")(lambda turn, n: None)
        turn.on_message("go()")(lambda turn: turn.send(Ping(-1)))

    def step(function: Callable[[], object]) -> None:
        while True:
            try:
                function()
                break
            except BaseException as error:  # noqa: BLE001  # beyond a program's fence: it can go on all the same
                assert any(made is error for made in raised) or error.__cause__ in raised
        check_engine(room.engine, room.home)

    raised: list[BaseException] = []

    def raising(*_: object) -> None:
        try:
            fail()
        except BaseException as error:
            raised.append(error)
            raise

    room.watch("poison($what)")
    room.spawn(bystander, name="before")
    actor = room.spawn(boot, raising, name="bad")
    room.spawn(bystander, name="after")
    step(room.run)
    for n, event in enumerate([lambda turn: turn.send(Go()), lambda turn: turn.assert_(Fact(1))]):
        room.spawn(lambda turn, event=event: (event(turn), turn.after(0.1)(lambda turn: turn.stop())))
        step(room.run)
        step(lambda: room.advance(2))
        room.spawn(lambda turn, n=n: turn.send(Ping(n)))
        step(room.run)
    assert raised, "it was never called"
    assert [n for n in heard if n >= 0] == [0, 0, 1, 1]
    assert room.matches("poison($what)") == [] and room.transcript() == ""
    return actor


@pytest.mark.parametrize("fence", [ALL, (Exception,)], ids=["daemon", "program"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", [*PLACES, *OTHERS])
def test_what_is_raised_anywhere_ends_its_actor_only(
    where: str, kind: str, fence: tuple[type[BaseException], ...]
) -> None:
    room = Room(strict=False)
    room.engine.fence = fence

    def fail() -> None:
        raise KINDS[kind]()

    actor = life(room, PLACES.get(where) or OTHERS[where], fail)
    assert room.crashes and all(crash.__cause__ is not None for crash in room.crashes)
    if where in PLACES:
        assert actor.ended and actor.root.ended and not room.home.space.claims(actor.owner)
        assert (actor.crash is None) == (where == "exit_hook")


def test_a_turn_that_was_cut_leaves_nothing_to_the_next_one_of_another_actor() -> None:
    room = Room(strict=False)

    def cut(turn: Turn) -> None:
        turn.claim(Poison("of the one"))
        raise KeyboardInterrupt

    room.spawn(cut, name="cut")
    room.spawn(lambda turn: turn.claim(Fact(1)) and turn.prevent_inert(), name="next")
    with pytest.raises(KeyboardInterrupt):
        room.run()
    room.run()
    assert room.facts() == ["fact(1)"] and [str(crash) for crash in room.crashes] == [
        "actor cut, facet cut, boot: KeyboardInterrupt: "
    ]


def test_all_exit_hooks_run_and_what_is_beyond_the_fence_comes_out_once() -> None:
    room, ran = Room(strict=False), list[str]()

    def boot(turn: Turn) -> None:
        def leave(_: object) -> None:
            ran.append("leaves")
            raise SystemExit

        turn.on_exit(leave)
        turn.on_exit(leave)
        turn.on_exit(lambda _: ran.append("third"))
        raise GeneratorExit

    room.spawn(boot)
    with pytest.raises(GeneratorExit):
        room.run()
    assert ran == ["leaves", "leaves", "third"] and len(room.crashes) == 3
    room.run()
    check_engine(room.engine, room.home)


def test_no_turn_runs_within_another_nor_within_an_exit_hook() -> None:
    room, errors = Room(strict=False), list[str]()

    def run(*_: object) -> None:
        for function in room.engine.run, room.engine.step:
            with pytest.raises(UsageError, match="the engine runs already") as caught:
                function()
            errors.append(str(caught.value))

    def nests(turn: Turn) -> None:
        turn.on_exit(run)
        turn.claim(Fact(1))
        run()
        raise ValueError("nothing of it was committed")

    room.spawn(nests, name="nests")
    room.spawn(lambda turn: turn.prevent_inert(), name="other")
    room.run()
    assert room.facts() == [] and len(errors) == 4
    assert "a turn of nests cannot run others" in errors[0] and "the end of an actor" in errors[2]


# -- linked tasks ------------------------------------------------------------------------------------


async def _body(_: Outside, fail: Raise) -> None:
    fail()


async def _after_a_while(_: Outside, fail: Raise) -> None:
    await trio.lowlevel.checkpoint()
    fail()


async def _finally(outside: Outside, fail: Raise) -> None:
    outside.external(Turn.stop)
    try:
        await trio.sleep_forever()
    finally:
        fail()


async def _finally_after_a_crash(outside: Outside, fail: Raise) -> None:
    outside.external(lambda turn: turn.retract(77))
    try:
        await trio.sleep_forever()
    finally:
        fail()


async def _finally_after_the_end(outside: Outside, fail: Raise) -> None:
    outside.external(Turn.stop_actor)
    try:
        await trio.sleep_forever()
    finally:
        fail()


async def _task_of_a_task(_: Outside, fail: Raise) -> None:
    async def inner() -> None:
        fail()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(inner)


async def _task_of_a_task_that_is_cancelled(outside: Outside, fail: Raise) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_finally, outside, fail)
        nursery.start_soon(trio.sleep_forever)


TASKS = {
    function.__name__.strip("_"): function
    for function in (
        _body,
        _after_a_while,
        _finally,
        _finally_after_a_crash,
        _finally_after_the_end,
        _task_of_a_task,
        _task_of_a_task_that_is_cancelled,
    )
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", TASKS)
async def test_what_a_linked_task_raises_ends_its_actor_only_and_is_told(where: str, kind: str) -> None:
    shell = Shell()
    engine, raised = shell.engine, list[BaseException]()
    engine.fence = ALL
    home = engine.home("main")
    heard: list[int] = []

    def fail() -> None:
        raised.append(KINDS[kind]())
        raise raised[-1]

    def bad(turn: Turn) -> None:
        turn.react(lambda turn: turn.task(TASKS[where], fail))
        turn.prevent_inert()
        turn.assert_(Fact(1))

    def bystander(turn: Turn) -> None:
        turn.on_retracted("fact($n)")(lambda turn, n: heard.append(n))
        turn.stop_when_message("go()")

    engine.spawn(bystander, home=home)  # first: a slice may end, and the task fail, before the second boots
    actor = engine.spawn(bad, home=home, name="bad")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shell.run)
        await trio.testing.wait_all_tasks_blocked()
        check_engine(engine, home)
        if kind == "Cancelled" and where not in ("body", "after_a_while"):
            nursery.cancel_scope.cancel()  # what is cancelled, by a nursery of its own, may say so: no crash
            return
        assert raised and actor.ended and heard == [1]
        engine.spawn(lambda turn: turn.send(Go()), home=home)
        with trio.fail_after(60):
            await shell.ended.wait()
    told = [leaf for crash in engine.crashes for leaf in leaves(crash.__cause__ or crash)]
    told += [leaf.__cause__ for leaf in told if leaf.__cause__ is not None]  # a StopIteration's
    assert kind == "Cancelled" or all(any(leaf is each for each in told) for leaf in leaves(raised[0]))


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_linked_task_raises_while_the_program_is_cancelled_is_told_and_goes_no_further(
    kind: str,
) -> None:
    shell = Shell()
    shell.engine.fence = ALL

    def fail() -> None:
        raise KINDS[kind]()

    async def clean_up(_: Outside) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                fail()

    shell.engine.spawn(lambda turn: turn.task(clean_up), home=shell.engine.home("main"))
    with trio.move_on_after(0.05) as scope:
        await shell.run(forever=True)
    assert scope.cancelled_caught and shell.engine.crashed == (kind != "Cancelled")


async def test_a_ctrl_c_in_a_program_ends_it_after_its_turn_was_undone() -> None:
    """As when the signal comes while a handler runs: what trio raises is raised there."""
    shell = Shell()
    home = shell.engine.home("main")

    def boot(turn: Turn) -> None:
        turn.claim(Poison("claim"))
        raise KeyboardInterrupt

    actor = shell.engine.spawn(boot, home=home)
    shell.engine.spawn(lambda turn: turn.prevent_inert(), home=home)
    with pytest.raises(BaseExceptionGroup) as caught:
        await shell.run()
    assert [type(leaf) for leaf in leaves(caught.value)] == [KeyboardInterrupt]
    assert actor.ended and home.space.matches(Poison(capture())) == []
    check_engine(shell.engine, home)


def test_what_cannot_be_told_is_told_by_its_class_and_as_text_that_can_be_written() -> None:
    class Meta(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise KeyboardInterrupt

    class Odd(BaseException, metaclass=Meta):
        pass

    assert described(Mute()) == "Mute, whose text raises KeyboardInterrupt"
    assert described(Odd("x")) == "Odd: x" and described(ValueError("\ud800")) == "ValueError: \\ud800"


@pytest.mark.parametrize("name", [7, b"x", "\ud800"])
def test_what_is_no_text_is_no_name(name: object) -> None:
    room = Room(strict=False)

    def refused(function: Callable[[], object]) -> None:
        with pytest.raises(UsageError):
            function()

    def boot(turn: Turn) -> None:
        for function in (
            lambda: turn.react(lambda turn: None, name=name),  # type: ignore[arg-type]
            lambda: turn.spawn(lambda turn: None, name=name),  # type: ignore[arg-type]
            lambda: turn.field(name, 0),  # type: ignore[arg-type]
            lambda: turn.derived(name, lambda: 0),  # type: ignore[arg-type]
            lambda: turn.dataflow(lambda: 0, name=name),  # type: ignore[arg-type]
            lambda: turn.actor.engine.home(name),  # type: ignore[arg-type]
        ):
            refused(function)
        room.note("all refused")

    room.spawn(boot)
    room.run()
    assert room.transcript() == "all refused"
