"""A turn happens whole or not at all, and everything an actor has goes with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dataspace.actors import Turn, capture, record
from dataspace.errors import UsageError
from dataspace.testing import Room

Present = record("present", "who")
Say = record("say", "what")


def test_handlers_hear_what_appears_passes_and_goes() -> None:
    room = Room()

    def ear(turn: Turn) -> None:
        @turn.on_asserted(Present(capture("who")))
        def joined(turn: Turn, who: str) -> None:
            room.note(f"{who} joined")

        @turn.on_message("say($what)")
        def said(turn: Turn, what: str) -> None:
            room.note(f"heard {what}")

        @turn.on_retracted(Present(capture("who")))
        def left(turn: Turn, who: str) -> None:
            room.note(f"{who} left")

    def guest(turn: Turn) -> None:
        turn.assert_(Present("Alice"))
        turn.send(Say("hello"))
        turn.stop_when_message('say("go")')

    room.spawn(ear)
    room.spawn(guest)
    room.run()
    room.play(lambda turn: turn.send(Say("go")))
    assert room.transcript().splitlines() == ["Alice joined", "heard hello", "heard go", "Alice left"]


def test_a_failed_turn_leaves_no_trace_and_the_crash_says_where() -> None:
    room = Room()
    room.watch(Present(capture()))
    room.watch("say($)")

    def child(turn: Turn) -> None:
        room.note("child booted")

    def bad(turn: Turn) -> None:
        turn.assert_(Present("held"))

        @turn.on_message('say("fail")')
        def fail(turn: Turn) -> None:
            turn.assert_(Present("never"))
            turn.send(Say("never"))
            turn.spawn(child)
            raise RuntimeError("broken")

        turn.on_stop(lambda turn: room.note("orderly"))
        turn.on_exit(lambda crash: room.note(f"exit {crash is not None}"))

    room.spawn(bad)
    room.play(lambda turn: turn.send(Say("fail")))
    assert room.transcript().splitlines() == [
        '+ present($) "held"',
        '! say($) "fail"',
        '- present($) "held"',
        "exit True",
    ]
    (crash,) = room.engine.crashes
    assert isinstance(crash.__cause__, RuntimeError)
    assert "actor bad" in str(crash) and "epoch" in str(crash)
    room.home.space.index.check()
    assert room.home.space.statistics().claims == 0


def test_all_matching_handlers_run_and_then_stops_continuations_and_retractions() -> None:
    room = Room()
    room.watch(Present(capture()))

    def boot(turn: Turn) -> None:
        turn.assert_(Present("outer"))

        def inner(turn: Turn) -> None:
            turn.assert_(Present("inner"))
            turn.on_stop(lambda turn: room.note("stop inner"))

        turn.react(inner)
        turn.on_stop(lambda turn: room.note("stop outer"))
        turn.stop_when_message("say($x)", lambda parent, x: room.note(f"then 1 {x}"))
        turn.stop_when_message("say($x)", lambda parent, x: parent.react(after))

    def after(turn: Turn) -> None:
        room.note("then 2")
        turn.assert_(Present("after"))

    room.spawn(boot)
    room.run()
    room.transcript()
    room.play(lambda turn: turn.send(Say("go")))
    assert room.transcript().splitlines() == [
        "stop inner",
        "stop outer",
        "then 1 go",
        "then 2",
        '+ present($) "after"',
        '- present($) "inner"',
        '- present($) "outer"',
    ]
    assert room.facts() == ['present("after")']


def test_initial_facts_hand_responsibility_over_without_a_blink() -> None:
    room = Room()
    room.watch(Present(capture()))

    def heir(turn: Turn) -> None:
        turn.assert_(Present("duty"))

    def first(turn: Turn) -> None:
        turn.assert_(Present("duty"))

        @turn.on_message('say("hand")')
        def hand(turn: Turn) -> None:
            turn.spawn(heir, initial=[Present("duty"), Present("passing")])
            turn.stop()

    room.spawn(first)
    room.play(lambda turn: turn.send(Say("hand")))
    assert room.transcript().splitlines() == [
        '+ present($) "duty"',
        '+ present($) "passing"',
        '- present($) "passing"',
    ]


def test_a_link_ends_each_with_the_other() -> None:
    for which in ("child", "parent"):
        room = Room()

        def child(turn: Turn) -> None:
            turn.assert_(Present("child"))
            turn.stop_when_message('say("child")')

        def parent(turn: Turn) -> None:
            turn.assert_(Present("parent"))
            turn.spawn_link(child)  # called within this round
            turn.stop_when_message('say("parent")')

        room.spawn(parent)
        room.run()
        assert len(room.facts()) == 2
        room.play(lambda turn: turn.send(Say(which)))  # noqa: B023  # as above
        assert room.facts() == [] and room.engine.statistics().actors == 0


def test_what_is_used_in_the_wrong_place_says_so() -> None:
    room = Room()
    kept: list[Turn] = []

    def boot(turn: Turn) -> None:
        kept.append(turn)
        turn.assert_(Present("x"))

    room.spawn(boot)
    room.run()
    with pytest.raises(UsageError, match="used in no turn"):
        kept[0].send(Say("x"))
    room.spawn(lambda turn: kept[0].send(Say("x")), name="thief")
    room.run()
    assert "used in a turn of thief" in str(room.engine.crashes[-1])
    room.spawn(lambda turn: turn.retract(7), name="lost")
    room.run()
    assert "has no claim 7" in str(room.engine.crashes[-1])


def test_ad_hoc_claims_outlive_their_facet_and_end_with_the_actor() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.stop_when_message('say("end")')
        inner = turn.react(lambda turn: (turn.claim(Present("adhoc")), turn.prevent_inert()))

        @turn.on_message('say("inner")')
        def stop_inner(turn: Turn) -> None:
            turn.stop(inner)

    room.spawn(boot)
    room.play(lambda turn: turn.send(Say("inner")))
    assert room.facts() == ['present("adhoc")']
    room.play(lambda turn: turn.send(Say("end")))
    assert room.facts() == [] and room.engine.statistics().inhabitants == 0


def test_a_timer_belongs_to_its_facet_and_does_not_end_it() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.assert_(Present("x"))
        turn.after(5)(lambda turn: room.note(f"after {turn.now}"))
        turn.every(2)(lambda turn: room.note(f"every {turn.now}"))
        turn.stop_after(7)

    room.spawn(boot)
    room.advance(6)
    assert room.facts() == ['present("x")']
    room.advance(10)
    assert room.transcript().splitlines() == ["every 2.0", "every 4.0", "after 5.0", "every 6.0"]
    assert room.facts() == []


def test_sync_comes_after_what_was_sent_and_snapshot_sees_this_turn() -> None:
    room = Room()

    def ear(turn: Turn) -> None:
        turn.on_message("say($x)")(lambda turn, x: room.note(f"heard {x}"))

    def boot(turn: Turn) -> None:
        turn.assert_(Present("me"))
        turn.send(Say("one"))
        turn.sync(lambda turn: room.note("synced"))
        turn.snapshot("present($w)", lambda turn, rows: room.note(f"seen {rows}"))

    room.spawn(ear)
    room.run()
    room.play(boot)
    assert room.transcript().splitlines() == ["heard one", "synced", "seen [('me',)]"]


def test_a_leak_of_facets_ends_the_actor_that_leaks_and_no_other() -> None:
    room = Room()

    def leak(turn: Turn) -> None:
        while True:
            turn.react(lambda turn: turn.prevent_inert())

    room.spawn(lambda turn: turn.assert_(Present("other")))
    room.spawn(leak)
    room.run()
    assert "limit 100000" in str(room.engine.crashes[-1])
    assert room.facts() == ['present("other")']


def test_what_is_no_pattern_and_an_exit_hook_that_raises_harm_their_actor_only() -> None:
    room = Room()

    def bad_pattern(turn: Turn) -> None:
        turn.on_message(record("$", "a")(1))(lambda turn: None)

    def bad_hook(turn: Turn) -> None:
        def hook(crash: object) -> None:
            raise RuntimeError("in a hook")

        turn.on_exit(hook)

    room.spawn(lambda turn: turn.assert_(Present("other")))
    room.spawn(bad_pattern)
    room.spawn(bad_hook)
    room.run()
    first, second = room.engine.crashes
    assert "a capture has" in str(first) and "exit hook: RuntimeError: in a hook" in str(second)
    assert room.facts() == ['present("other")'] and room.engine.statistics().actors == 1


def test_a_preventer_is_released_in_a_turn_of_its_actor_only() -> None:
    room = Room()
    kept: list[Callable[[], object]] = []
    room.spawn(lambda turn: kept.append(turn.prevent_inert()))
    room.run()
    with pytest.raises(UsageError, match="used in no turn"):
        kept[0]()
    room.spawn(lambda turn: kept[0](), name="thief")
    room.run()
    assert "used in a turn of thief" in str(room.engine.crashes[-1])
    assert room.engine.statistics().actors == 1, "it is kept"
