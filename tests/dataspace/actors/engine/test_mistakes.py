"""Everyday mistakes are errors where they are made, which say what to write."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from functools import partial

import pytest

from dataspace.actors import Turn, capture, record
from dataspace.actors.engine.endpoints import Assertion, PatternWatch
from dataspace.actors.engine.handlers import takes
from dataspace.errors import UsageError
from dataspace.testing import Room
from dataspace.values import literal

Present = record("present", "who")
Pair = record("pair", "a", "b")


def crash_of(script: Callable[[Turn], object]) -> str:
    """What an actor crashes with, at once."""
    room = Room(strict=False)
    room.spawn(script, name="it")
    room.run()
    return str(room.crashes[0].__cause__) if room.crashes else ""


# -- decorators and patterns -------------------------------------------------------------------------

PATTERNED = ["on_asserted", "on_retracted", "on_message", "during", "during_spawn"]


@pytest.mark.parametrize("verb", PATTERNED)
def test_a_decorator_without_a_pattern_says_that_it_needs_one(verb: str) -> None:
    def boot(turn: Turn) -> None:
        @getattr(turn, verb)  # as people write it
        def heard(turn: Turn, who: str) -> None: ...

    assert crash_of(boot).startswith(f'{verb} needs a pattern, as @turn.{verb}("present($who)")')


@pytest.mark.parametrize("verb", ["after", "every"])
def test_a_timer_without_seconds_says_that_it_needs_them(verb: str) -> None:
    def boot(turn: Turn) -> None:
        @getattr(turn, verb)  # as people write it
        def heard(turn: Turn) -> None: ...

    assert crash_of(boot) == f"{verb} needs seconds, as @turn.{verb}(5), but got heard"


@pytest.mark.parametrize("verb", [*PATTERNED, "after", "every"])
def test_a_decorator_above_nothing_is_an_error_of_its_turn(verb: str) -> None:
    given: object = "present($who)" if verb in PATTERNED else 5
    said = f"turn.{verb} installs nothing by itself: write @turn.{verb}(…) above a function"
    assert crash_of(lambda turn: getattr(turn, verb)(given)) == said
    assert "a function is needed" in crash_of(lambda turn: getattr(turn, verb)(given)(None))


@pytest.mark.parametrize("verb", [*PATTERNED, "after"])
def test_an_actor_that_catches_a_refusal_lives(verb: str) -> None:
    def boot(turn: Turn) -> None:
        given: object = "present($who)" if verb in PATTERNED else math.nan
        handler: object = None if verb in PATTERNED else none
        with pytest.raises(UsageError):
            getattr(turn, verb)(given)(handler)

    assert crash_of(boot) == ""


def test_a_pattern_that_is_computed_is_a_function_without_arguments() -> None:
    assert crash_of(lambda turn: turn.observe(lambda: "present($who)", added=lambda turn, who: None)) == ""
    assert "needs a pattern" in crash_of(lambda turn: turn.observe(lambda turn: "present($who)"))


# -- handlers ----------------------------------------------------------------------------------------


def none(turn: Turn) -> None: ...
def one(turn: Turn, who: object) -> None: ...
def two(turn: Turn, a: object, b: object) -> None: ...


class Methods:
    def one(self, turn: Turn, who: object) -> None: ...


def decorate(verb: str, turn: Turn, f: Callable[..., None]) -> None:
    getattr(turn, verb)("present($who)")(f)


INSTALL: dict[str, Callable[[Turn, Callable[..., None]], object]] = {
    **{verb: partial(decorate, verb) for verb in PATTERNED},
    "observe": lambda turn, f: turn.observe(Present(capture()), added=f),
    "stop_when": lambda turn, f: turn.stop_when("present($who)", f),
    "stop_when_retracted": lambda turn, f: turn.stop_when_retracted("present($who)", f),
    "stop_when_message": lambda turn, f: turn.stop_when_message("present($who)", f),
    "react_until": lambda turn, f: turn.react_until("present($who)", none, f),
    "query_set": lambda turn, f: turn.query_set("q", "present($who)", added=f),
    "query_value": lambda turn, f: turn.query_value("q", "present($who)", removed=f),
    "computed": lambda turn, f: turn.observe(lambda: "present($who)", removed=f),
}


def install(how: str, handler: Callable[..., None], turn: Turn) -> None:
    INSTALL[how](turn, handler)


@pytest.mark.parametrize("how", INSTALL)
def test_a_handler_that_cannot_take_the_captures_is_refused_when_it_is_installed(how: str) -> None:
    for wrong in none, two, partial(two, b=1, a=2), lambda: None, Methods.one:
        said = crash_of(partial(install, how, wrong))
        assert "arguments, but gets 2: a turn and one for each of the 1 captures of present($" in said
    for right in (
        one,
        partial(two, b=1),
        Methods().one,
        lambda *row: None,
        lambda turn, who, more=1: None,
        print,
    ):
        assert crash_of(partial(install, how, right)) == ""


def test_a_computed_pattern_is_looked_at_each_time() -> None:
    room = Room(strict=False)

    def boot(turn: Turn) -> None:
        more = turn.field("more", False)
        turn.observe(lambda: "pair($a, $b)" if more.value else "pair($a, _)", added=one)
        turn.on_message("present(_)")(lambda turn: setattr(more, "value", True))

    room.spawn(boot, name="it")
    room.spawn(lambda turn: turn.send(Present(1)))
    room.run()
    assert "one takes 2 arguments, but gets 3" in str(room.crashes[0])


def test_queries_of_maps_need_as_many_captures_as_a_map_does() -> None:
    assert "query_map" in crash_of(lambda turn: turn.query_map("q", "present($who)"))
    assert "query_count" in crash_of(lambda turn: turn.query_count("q", "present(_)"))
    assert crash_of(lambda turn: turn.query_map("q", "pair($a, $b)")) == ""
    assert crash_of(lambda turn: turn.query_count("q", "pair($a, $b)")) == ""


def test_how_many_arguments_a_function_takes() -> None:
    assert takes(one) == (2, 2) and takes(Methods().one) == (2, 2) and takes(partial(one, who=1)) == (1, 1)

    def keyword(turn: Turn, *, who: int = 1) -> None: ...

    class Called:
        def __call__(self, turn: Turn, who: int) -> None: ...

    assert takes(keyword) == (1, 1) and takes(Called()) == (2, 2)
    assert takes(dict.update)[0] <= 2 <= takes(print)[1]


# -- what is said ------------------------------------------------------------------------------------

SAY: dict[str, Callable[[Turn, object], object]] = {
    "assert_": lambda turn, value: turn.assert_(value),
    "assert_ computed": lambda turn, value: turn.assert_(lambda: value),
    "assert_ when": lambda turn, value: turn.assert_(value, when=lambda: True),
    "claim": lambda turn, value: turn.claim(value),
    "send": lambda turn, value: turn.send(value),
    "initial": lambda turn, value: turn.spawn(none, initial=[value]),
}


@pytest.mark.parametrize("verb", SAY)
@pytest.mark.parametrize("text", ['present("Alice")', " present($who) ", "go()", '"a b"(1)'])
def test_text_that_reads_as_a_record_is_refused_unless_it_is_meant(verb: str, text: str) -> None:
    said = crash_of(lambda turn: SAY[verb](turn, text))
    assert "is text, though it reads as a record" in said and "dataspace.values.literal(" in said
    heard = list[object]()

    def boot(turn: Turn) -> None:
        turn.observe(
            "$all", added=lambda _, what: heard.append(what), message=lambda _, what: heard.append(what)
        )
        turn.sync(
            lambda turn: turn.spawn(lambda turn: (turn.prevent_inert(), SAY[verb](turn, literal(text))))
        )

    assert crash_of(boot) == "" and text in heard and type(heard[heard.index(text)]) is str


@pytest.mark.parametrize("verb", SAY)
@pytest.mark.parametrize("text", ["", "Alice", "hello (world)", "see f(1) and g(2)", "f(x)", ")", "[1, 2]"])
def test_other_text_is_a_value_like_any(verb: str, text: str) -> None:
    assert crash_of(lambda turn: SAY[verb](turn, text)) == ""


def test_none_is_a_value_and_a_function_that_gives_none_says_nothing() -> None:
    for verb, said in SAY.items():
        room = Room()
        room.watch("$all")
        room.spawn(lambda turn, said=said: (said(turn, None), turn.prevent_inert()))
        room.run()
        lines = [line for line in room.transcript().splitlines() if line.endswith("null")]
        nothing = verb == "assert_ computed"
        assert not room.crashes and len(lines) == (0 if nothing else 1 if verb != "initial" else 2), verb


def test_an_observation_of_none_is_one_of_null() -> None:
    room = Room()
    room.spawn(lambda turn: turn.on_message(None)(lambda turn: room.note("null")))
    room.run()
    room.spawn(lambda turn: turn.send(None))
    room.run()
    assert room.transcript() == "null"


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize("verb", SAY)
def test_what_is_no_value_is_refused_with_what_to_write(verb: str) -> None:
    assert ".value" in crash_of(lambda turn: SAY[verb](turn, [Colour.RED]))


# -- endpoints and computations from elsewhere -------------------------------------------------------


def test_an_endpoint_is_closed_in_turns_of_its_actor_only_and_once() -> None:
    room = Room(strict=False)
    made: list[Assertion | PatternWatch] = []

    def owner(turn: Turn) -> None:
        made.append(turn.assert_(Present("Alice")))
        made.append(turn.observe("pair(_, _)"))
        made[0].computation = turn.dataflow(lambda: None)
        turn.prevent_inert()

    mine = room.spawn(owner, name="owner")
    other = room.spawn(lambda turn: turn.claim(Present("Bob")) and turn.prevent_inert(), name="other")
    room.run()
    acts: list[Callable[[], object]] = [
        made[0].close,
        made[1].close,
        partial(made[0].set, Present("Carol")),
        partial(made[1].set, Present("Carol")),
        made[0].computation.close,  # type: ignore[union-attr]  # set above
        made[0].computation.run,  # type: ignore[union-attr]  # set above
    ]
    for act in acts:
        with pytest.raises(UsageError, match="this turn is of actor owner, used in no turn"):
            act()

        def elsewhere(turn: Turn, act: Callable[[], object] = act) -> None:
            with pytest.raises(UsageError, match="this turn is of actor owner, used in a turn of other"):
                act()

        room.enter(other, elsewhere)
    assert room.facts() == ['present("Alice")', 'present("Bob")'] and not room.crashes
    room.enter(mine, lambda turn: [each.close() for each in made * 2])
    assert room.facts() == ['present("Bob")'] and not room.crashes
    room.enter(mine, lambda turn: made[0].set(Present("late")))
    assert "an endpoint of facet owner of actor owner has ended" in str(room.crashes[0])


def test_what_ends_its_last_endpoint_is_inert() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        hearing = turn.observe("present($who)", message=lambda turn, who: hearing.close())

    actor = room.spawn(boot)
    room.run()
    room.spawn(lambda turn: turn.send(Present("Alice")))
    room.run()
    assert actor.ended and actor.crash is None


def test_that_it_is_a_crash_names_the_actor() -> None:
    room = Room(strict=False)
    room.spawn(lambda turn: turn.on_message("present($who)")(none), name="it")
    room.run()
    (crash,) = room.crashes
    assert "actor it, facet it, boot: UsageError: none takes 1" in str(crash)
