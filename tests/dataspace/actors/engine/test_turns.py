"""A turn happens whole or not at all, and everything an actor has goes with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.errors import UsageError
from dataspace.kernel.changes import Changes
from dataspace.testing import Room
from index.patterns.patterns import capture

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
    room = Room(strict=False)
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
    room = Room(strict=False)
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
    room = Room(strict=False)

    def leak(turn: Turn) -> None:
        while True:
            turn.react(lambda turn: turn.prevent_inert())

    room.spawn(lambda turn: turn.assert_(Present("other")))
    room.spawn(leak)
    room.run()
    assert "limit 100000" in str(room.engine.crashes[-1])
    assert room.facts() == ['present("other")']


def test_what_is_no_pattern_and_an_exit_hook_that_raises_harm_their_actor_only() -> None:
    room = Room(strict=False)

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
    room = Room(strict=False)
    kept: list[Callable[[], object]] = []
    room.spawn(lambda turn: kept.append(turn.prevent_inert()))
    room.run()
    with pytest.raises(UsageError, match="used in no turn"):
        kept[0]()
    room.spawn(lambda turn: kept[0](), name="thief")
    room.run()
    assert "used in a turn of thief" in str(room.engine.crashes[-1])
    assert room.engine.statistics().actors == 1, "it is kept"


@pytest.mark.parametrize("which", ["child", "parent"])
def test_a_link_ends_each_with_a_crash_of_the_other(which: str) -> None:
    room = Room(strict=False)

    def fail(turn: Turn) -> None:
        turn.retract(-1)

    def child(turn: Turn) -> None:
        turn.assert_(Present("child"))
        turn.on_message('say("child")')(fail)

    def parent(turn: Turn) -> None:
        turn.assert_(Present("parent"))
        turn.on_message('say("parent")')(fail)
        turn.react(lambda turn: turn.spawn_link(child))

    room.spawn(parent)
    room.run()
    room.play(lambda turn: turn.send(Say(which)))
    left = ['present("parent")'] if which == "child" else []
    assert room.facts() == left, "a crash of the child ends the facet of the link, and it is not the root"


def test_a_link_keeps_the_parent_and_not_the_child() -> None:
    room = Room()

    def child(turn: Turn) -> None:
        turn.on_stop(lambda turn: room.note("the child has nothing to do"))

    def parent(turn: Turn) -> None:
        turn.spawn_link(child)
        turn.on_stop(lambda turn: room.note("nor has the parent, then"))

    room.play(parent)
    assert room.transcript().splitlines() == ["the child has nothing to do", "nor has the parent, then"]


def test_on_start_runs_when_all_is_set_up_and_before_the_turn_commits() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        @turn.on_start
        def started(turn: Turn) -> None:
            room.note(f"started, {len(turn.facet.endpoints)} endpoint")

        turn.assert_(Present("me"))
        room.note("set up")

    room.watch(Present(capture("who")))
    room.spawn(boot)
    room.run()
    assert room.transcript().splitlines() == ["set up", "started, 1 endpoint", '+ present($who) "me"']


def test_hooks_before_the_commit_go_on_until_all_is_quiet() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        n = turn.field("n", 0)
        turn.assert_(lambda: Present(n.value))

        def again(turn: Turn) -> None:
            room.note(f"hook at {n.value}")
            if n.value < 2:
                n.value += 1
                turn.before_commit(again)

        turn.before_commit(again)

    room.watch(Present(capture("n")))
    room.spawn(boot)
    room.run()
    assert room.transcript().splitlines() == ["hook at 0", "hook at 1", "hook at 2", "+ present($n) 2"]


def test_a_crash_is_heard_as_one_epoch_and_once() -> None:
    room = Room(strict=False)
    epochs: list[tuple[int, int]] = []

    class Ear:
        def offer(self, changes: Changes) -> None:
            epochs.append((len(changes.added), len(changes.removed)))

    def boot(turn: Turn) -> None:
        for n in range(3):
            turn.assert_(Present(n))
            turn.react(lambda turn: turn.assert_(Present(n + 10)))  # noqa: B023  # at once
        turn.claim(Present("adhoc"))
        turn.on_message("say(_)")(lambda turn: turn.retract(-1))

    room.home.space.observe(Present(capture()), Ear())
    room.spawn(boot)
    room.run()
    for _ in range(2):
        room.play(lambda turn: turn.send(Say("fail")))
    assert epochs == [(7, 0), (0, 7)] and len(room.engine.crashes) == 1


def test_events_reach_each_actor_in_the_order_in_which_they_were_caused() -> None:
    room = Room()

    def ear(turn: Turn, name: str) -> None:
        turn.on_message("say($n)")(lambda turn, n: room.note(f"{name}{n}"))

    def mouth(turn: Turn, first: int) -> None:
        for n in range(first, first + 3):
            turn.send(Say(n))

    for name in "a", "b":
        room.spawn(ear, name)
    room.run()
    room.spawn(mouth, 0)
    room.spawn(mouth, 3)
    room.run()
    heard = room.transcript().splitlines()
    assert [each for each in heard if each[0] == "a"] == [f"a{n}" for n in range(6)]
    assert heard[:6] == ["a0", "a1", "a2", "b0", "b1", "b2"], "one turn for each actor and epoch"


def test_knowledge_of_one_actor_has_messages_too() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.inside.on_message("say($x)")(lambda turn, x: room.note(f"realised {x}"))
        turn.on_message("say($x)")(lambda turn, x: room.note(f"heard {x}"))
        turn.sync(lambda turn: turn.inside.send(Say("plan")))

    room.spawn(boot)
    room.run()
    room.play(lambda turn: turn.send(Say("news")))
    assert room.transcript().splitlines() == ["realised plan", "heard news"]


def test_a_hook_runs_though_its_facet_ends_in_that_turn() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.assert_(Present("me"))

        @turn.on_message("say($x)")
        def said(turn: Turn, x: str) -> None:
            turn.before_commit(lambda turn: room.note("checked"))
            turn.stop()

    room.spawn(boot)
    room.run()
    room.play(lambda turn: turn.send(Say("end")))
    assert room.transcript() == "checked" and room.facts() == []


@pytest.mark.parametrize("how", ["handler", "boot", "facet", "script"])
def test_what_a_turn_would_have_to_wait_for_is_refused(how: str) -> None:
    room = Room(strict=False)

    async def work(turn: Turn) -> None:
        room.note("never")

    def steps(turn: Turn) -> Iterator[None]:
        room.note("never")
        yield

    def boot(turn: Turn) -> None:
        given = work if how != "script" else steps
        if how == "handler":
            turn.on_message("say(_)")(given)
        elif how == "boot":
            turn.spawn(given)
        elif how == "facet":
            turn.react(given)
        else:
            turn.on_stop(given)

    room.play(boot)
    assert "is async or yields, but a turn waits for nothing: use turn.task" in str(room.engine.crashes[-1])


def test_a_time_that_is_none_is_refused() -> None:
    room = Room(strict=False)
    room.play(lambda turn: turn.after(math.nan)(lambda turn: None))
    room.play(lambda turn: turn.at_time(datetime(2026, 1, 1))(lambda turn: None))  # on purpose
    room.play(lambda turn: turn.every(0)(lambda turn: None))
    said = [str(crash.__cause__) for crash in room.engine.crashes]
    assert [each.split(",")[0] for each in said] == [
        "a timer after nan seconds: when would that be?",
        "a time with its zone is needed",
        "every 0 seconds",
    ]
