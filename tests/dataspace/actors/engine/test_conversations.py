"""What other implementations of the model were found to do, each named here, does not happen in this one."""

from __future__ import annotations

import pytest

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.errors import UsageError
from dataspace.testing import Room
from index.patterns.patterns import capture

Item = record("item", "n")
Set = record("set", "n")


def put(room: Room, n: int) -> None:
    room.play(lambda turn: turn.send(Set(n)))


def brief(turn: Turn) -> None:
    """Something that is for a moment."""
    turn.assert_(Item(1))
    turn.stop_after(1)


def test_retracting_what_is_not_there_is_an_error_and_tells_nobody() -> None:
    room = Room(strict=False)
    room.watch("item($n)")

    def twice(turn: Turn) -> None:
        claim = turn.claim(Item(1))
        turn.retract(claim)
        turn.retract(claim)

    room.spawn(twice)
    room.run()
    assert "has no claim" in str(room.engine.crashes[-1]) and room.transcript() == ""


@pytest.mark.parametrize("how", ["later", "sync", "snapshot", "after"])
def test_what_was_deferred_does_not_run_once_its_facet_has_ended(how: str) -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.prevent_inert()
        turn.react(short)

    def short(turn: Turn) -> None:
        if how == "snapshot":
            turn.snapshot("item($n)", lambda turn, rows: room.note("ran"))
        elif how == "after":
            turn.after(0.0)(lambda turn: room.note("ran"))
        else:
            getattr(turn, how)(lambda turn: room.note("ran"))
        turn.stop()

    room.spawn(boot)
    room.advance(1)
    assert room.transcript() == "" and not room.engine.crashes


def test_a_timer_does_not_end_the_facet_that_armed_it() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.assert_(Item(1))
        turn.after(1)(lambda turn: room.note("fired"))

    room.spawn(boot)
    room.advance(5)
    assert room.transcript() == "fired" and room.facts() == ["item(1)"]


def test_a_computed_fact_that_is_equal_is_not_published_again() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        n = turn.field("n", 0)
        turn.assert_(lambda: Item(n.value // 10))
        turn.on_message("set($n)")(lambda turn, value: setattr(n, "value", value))

    room.spawn(boot)
    room.run()
    for n in 1, 2, 11, 12:
        put(room, n)
    said = [action for made in room.trace.records if made.actor == "boot" for action in made.actions]
    assert [action for action in said if "item" in action] == ["+ item(0)", "~ item(1)"]


def test_two_events_of_one_turn_reach_all_that_match_and_not_only_the_first() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        for name in "a", "b":
            turn.stop_when_message("set(_)", lambda turn, name=name: room.note(name))
        turn.on_message("set($n)")(lambda turn, n: room.note(f"c{n}"))

    room.spawn(boot)
    room.run()
    put(room, 1)
    assert sorted(room.transcript().splitlines()) == ["a", "b", "c1"]


def test_replacing_a_fact_does_not_blink_for_whom_the_difference_is_nothing() -> None:
    room = Room()
    room.watch("item(_)")

    def boot(turn: Turn) -> None:
        claim = turn.claim(Item(3))

        @turn.on_message("set($n)")
        def replace(turn: Turn, n: int) -> None:
            turn.retract(claim)
            turn.claim(Item(n))

    room.spawn(boot)
    room.run()
    put(room, 4)
    assert room.transcript() == "+ item(_)"


def test_captures_come_outer_before_inner() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        @turn.on_asserted(record("pair", "a", "b")(capture("p", None, Item(capture("n"))), capture("q")))
        def pair(turn: Turn, *row: object) -> None:
            room.note(" ".join(map(str, row)))

    room.spawn(boot)
    room.play(lambda turn: turn.assert_(record("pair", "a", "b")(Item(1), 2)))
    assert room.transcript() == f"{Item(1)} 1 2"


def test_a_block_runs_once_at_its_beginning_and_does_not_read_for_facets_that_it_opens() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        n, m = turn.field("n", 0), turn.field("m", 0)

        def open_one(turn: Turn) -> None:
            turn.prevent_inert()
            room.note(f"opened {n.value} {m.value}")

        @turn.dataflow
        def block() -> None:
            room.note(f"block {n.value}")
            turn.react(open_one)

        turn.on_message("set($n)")(lambda turn, value: setattr(m, "value", value))

    room.spawn(boot)
    room.run()
    put(room, 5)
    assert room.transcript().splitlines() == ["block 0", "opened 0 0"]


def test_a_cycle_of_derived_fields_and_a_write_to_one_are_named() -> None:
    room = Room(strict=False)

    def circle(turn: Turn) -> None:
        cell = turn.field("cell", 0)
        names: list[object] = []
        first = turn.derived("first", lambda: cell.value + (names[0].value if names else 0))  # type: ignore[attr-defined]
        names.append(turn.derived("second", lambda: first.value))
        turn.on_message("set($n)")(lambda turn, value: setattr(cell, "value", value))

    def write(turn: Turn) -> None:
        turn.derived("fixed", lambda: 1).value = 2

    room.spawn(circle)
    room.spawn(write)
    room.run()
    assert "fixed is derived and cannot be written" in str(room.engine.crashes[-1])
    put(room, 1)
    assert "is derived from itself" in str(room.engine.crashes[-1])


def test_interest_in_interest_starts_supply() -> None:
    room = Room()

    def supply(turn: Turn) -> None:
        turn.during("Observe(item($n:int))")(lambda turn, n: turn.assert_(Item(n)))

    def demand(turn: Turn) -> None:
        turn.stop_when(Item(5), lambda turn: room.note("supplied"))

    room.spawn(supply)
    room.play(demand)
    assert room.transcript() == "supplied" and room.facts() == []


def test_the_same_pattern_twice_is_told_twice_and_announced_once() -> None:
    room = Room()
    room.watch("Observe(item($))")

    def boot(turn: Turn) -> None:
        for name in "a", "b":
            turn.react(listen, name)

    def listen(turn: Turn, name: str) -> None:
        turn.on_asserted("item($n)")(lambda turn, n: room.note(f"{name}{n}"))

    room.spawn(boot)
    room.play(lambda turn: turn.assert_(Item(1)))
    assert sorted(room.transcript().splitlines())[-2:] == ["a1", "b1"]


def test_a_hook_before_the_commit_may_fail_the_turn() -> None:
    room = Room(strict=False)
    room.watch("item($n)")

    def boot(turn: Turn) -> None:
        n = turn.field("n", 0)
        turn.assert_(lambda: Item(n.value))

        @turn.on_message("set($n)")
        def change(turn: Turn, value: int) -> None:
            n.value = value
            turn.before_commit(check)

        def check(turn: Turn) -> None:
            if n.value < 0:
                raise UsageError("below zero")
            room.note(f"checked {n.value}")

    room.spawn(boot)
    room.run()
    put(room, 2)
    put(room, -1)
    assert room.transcript().splitlines() == [
        "+ item($n) 0", "checked 2", "+ item($n) 2", "- item($n) 0", "- item($n) 2",
    ]  # fmt: skip


def test_waiting_ends_by_what_is_waited_for_or_by_time_whichever_is_first() -> None:
    room = Room()

    def waits(turn: Turn, name: str, what: int) -> None:
        def setup(turn: Turn) -> None:
            turn.on_stop(lambda turn: room.note(f"{name} waits no more"))
            turn.stop_after(5, lambda turn: room.note(f"{name} was too late"))

        turn.react_until(Set(what), setup)
        turn.react(lambda inner: inner.stop_when(Item(what), lambda turn: room.note(f"{name} has it")))

    room.spawn(waits, "one", 1)
    room.spawn(waits, "two", 2)
    room.run()
    room.play(brief)
    room.advance(10)
    assert room.transcript().splitlines() == [
        "one has it", "one waits no more", "one was too late", "two waits no more", "two was too late",
    ]  # fmt: skip


def test_queries_tell_of_what_comes_and_goes() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        def told(sign: str) -> object:
            return lambda turn, *row: room.note(f"{sign}{row} {some.value}")

        some = turn.query_set("some", "item($n)", added=told("+"), removed=told("-"))  # type: ignore[arg-type]

    room.spawn(boot)
    room.run()
    room.play(brief)
    room.advance(2)
    assert room.transcript().splitlines() == ["+(1,) (1,)", "-(1,) ()"]


def test_claims_can_be_withdrawn_by_pattern() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.prevent_inert()
        for n in range(4):
            turn.claim(Item(n))
        turn.claim(Set(1))
        room.note(str(turn.retract_matching("item(_)")))

    room.play(boot)
    assert room.transcript() == "4" and room.facts() == ["set(1)"]


@pytest.mark.parametrize("matches", [1, 3])
@pytest.mark.parametrize("there", [True, False])
def test_a_facet_until_a_match_ends_exactly_once_however_many_there_are(matches: int, there: bool) -> None:
    room = Room()

    def many(turn: Turn) -> None:
        for n in range(matches):
            turn.assert_(Item(n))
        turn.send(Item(9))

    def waits(turn: Turn) -> None:
        def setup(turn: Turn) -> None:
            turn.on_stop(lambda turn: room.note("ended"))

        turn.prevent_inert()
        turn.react_until("item($n)", setup, lambda turn, n: room.note(f"then {n}"))

    for boot in (many, waits) if there else (waits, many):
        room.spawn(boot)
    room.run()
    room.play(many)
    room.advance(10)
    assert sorted(room.transcript().splitlines()) == ["ended", "then 0"]
    assert not room.engine.crashes
