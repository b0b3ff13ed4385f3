"""What depends on fields is in step when a turn commits, and runs no more often than it must."""

from __future__ import annotations

import pytest

from dataspace.actors.engine.fields import Field
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.testing import Room
from index.patterns.patterns import capture

Item = record("item", "kind", "n")
Count = record("count", "n")


def test_a_computation_runs_once_at_creation_and_once_per_turn_that_changed_what_it_read() -> None:
    room = Room()
    runs: list[int] = []

    def boot(turn: Turn) -> None:
        one, two = turn.field("one", 0), turn.field("two", 0)
        turn.dataflow(lambda: runs.append(one.value + two.value))

        @turn.on_message("set($a, $b)")
        def put(turn: Turn, a: int, b: int) -> None:
            one.value, two.value = a, b

    room.spawn(boot)
    room.run()
    assert runs == [0]
    for a, b in (1, 2), (1, 2), (1, 3):
        room.play(lambda turn: turn.send(record("set", "a", "b")(a, b)))  # noqa: B023  # played at once
    assert runs == [0, 3, 4]


def test_derived_fields_are_never_stale_and_stop_what_does_not_change() -> None:
    room = Room()
    seen: list[object] = []

    def boot(turn: Turn) -> None:
        n = turn.field("n", 1)
        half = turn.derived("half", lambda: n.value // 2)
        twice = turn.derived("twice", lambda: half.value * 2)
        turn.dataflow(lambda: seen.append(twice.value))

        @turn.on_message("set($x)")
        def put(turn: Turn, x: int) -> None:
            n.value = x
            seen.append(("read", twice.value))

    room.spawn(boot)
    for x in (2, 3, 4):
        room.play(lambda turn: turn.send(record("set", "x")(x)))  # noqa: B023  # played at once
    assert seen == [0, ("read", 2), 2, ("read", 2), ("read", 4), 4]


def test_a_cycle_is_named() -> None:
    room = Room(strict=False)

    def boot(turn: Turn) -> None:
        a = turn.field("a", 0)

        def grow() -> None:
            a.value += 1

        turn.dataflow(grow)

        @turn.on_message("go()")
        def go(turn: Turn) -> None:
            a.value = -1

    room.spawn(boot)
    room.play(lambda turn: turn.send(record("go")()))
    assert "grow -> a -> grow" in str(room.engine.crashes[-1])


def test_a_cycle_through_several_computations_and_a_derived_field_is_named_whole() -> None:
    room = Room(strict=False)

    def boot(turn: Turn) -> None:
        a, b, other = turn.field("a", 0), turn.field("b", 0), turn.field("other", 0)
        twice = turn.derived("twice", lambda: b.value * 2)

        def first() -> None:
            b.value = a.value + other.value

        def second() -> None:
            a.value = twice.value + 1

        turn.dataflow(first)
        turn.dataflow(second)

    room.play(boot)
    said = str(room.engine.crashes[-1])
    assert "does not settle: first -> b -> twice -> second -> a -> first, 100 times" in said or (
        "does not settle: second -> a -> first -> b -> twice -> second, 100 times" in said
    )


def test_an_assertion_that_depends_on_a_field_does_not_blink() -> None:
    room = Room()
    room.watch("count(_)")
    room.watch("count($n)")

    def boot(turn: Turn) -> None:
        n = turn.field("n", 0)
        turn.assert_(lambda: Count(n.value), when=lambda: n.value < 2)
        turn.on_message("go()")(lambda turn: setattr(n, "value", n.value + 1))

    room.spawn(boot)
    for _ in range(2):
        room.play(lambda turn: turn.send(record("go")()))
    assert room.transcript().splitlines() == [
        "+ count(_)",
        "+ count($n) 0",
        "+ count($n) 1",
        "- count($n) 0",
        "- count(_)",
        "- count($n) 1",
    ]


def test_moved_interest_is_told_what_is_there_though_another_overlaps() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        kind = turn.field("kind", "a")
        turn.on_asserted("item(_, $n)")(lambda turn, n: None)
        turn.on_asserted(lambda: Item(kind.value, capture("n")))(
            lambda turn, n: room.note(f"{kind.value}{n}")
        )
        turn.on_message("go()")(lambda turn: setattr(kind, "value", "b"))

    room.spawn(lambda turn: [turn.assert_(Item(*each)) for each in (("a", 1), ("b", 2), ("b", 3))])
    room.spawn(boot)
    room.play(lambda turn: turn.send(record("go")()))
    assert sorted(room.transcript().splitlines()) == ["a1", "b2", "b3"]


def test_during_ends_by_the_values_it_began_with() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        kind = turn.field("kind", "a")

        @turn.during(lambda: Item(kind.value, capture("n")))
        def item(turn: Turn, n: int) -> None:
            room.note(f"begin {n}")
            turn.on_stop(lambda turn: room.note(f"end {n}"))

        turn.on_message("go()")(lambda turn: setattr(kind, "value", "b"))

    def holder(turn: Turn) -> None:
        turn.assert_(Item("a", 1))
        turn.stop_when_message("drop()")

    room.spawn(boot)
    room.spawn(holder)
    room.run()
    room.play(lambda turn: turn.send(record("go")()))
    assert room.transcript() == "begin 1"
    room.play(lambda turn: turn.send(record("drop")()))
    assert room.transcript() == "end 1"
    assert room.home.space.statistics().observers == 2  # the new pattern and go(); the old one is let go
    room.home.space.index.check()


def test_demand_that_vanished_before_the_boot_still_starts_and_stops_the_child() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        @turn.during_spawn("item($k, $n)")
        def child(turn: Turn, kind: str, n: int) -> None:
            room.note(f"start {n}")
            turn.on_stop(lambda turn: room.note(f"stop {n}"))

    def spike(turn: Turn) -> None:
        claim = turn.claim(Item("a", 1))
        turn.later(lambda turn: turn.retract(claim))

    room.spawn(boot)
    room.run()
    room.play(spike)
    assert room.transcript().splitlines() == ["start 1", "stop 1"]
    assert room.engine.statistics().actors == 1


def test_queries_follow_and_fields_stay_in_their_scope() -> None:
    room = Room(strict=False)
    fields: list[Field[int]] = []

    def boot(turn: Turn) -> None:
        mine = turn.field("mine", 1)
        fields.append(mine)
        some = turn.query_set("some", "item($k, $n)")
        count = turn.query_count("count", "item($k, $n)")
        by = turn.query_map("by", "item($k, $n)")
        last = turn.query_value("last", "item(_, $n)", 0)
        turn.dataflow(lambda: room.note(f"{some.value} {dict(count.value)} {dict(by.value)} {last.value}"))

    room.spawn(boot, name="owner")
    room.run()

    def claim(turn: Turn) -> None:
        turn.claim(Item("a", 1))
        turn.claim(Item("a", 2))
        turn.prevent_inert()

    room.play(claim)
    assert room.transcript().splitlines() == [
        "() {} {} 0",
        "(('a', 1), ('a', 2)) {'a': 2} {'a': 2} 2",
    ]
    room.spawn(lambda turn: fields[0].value, name="thief")
    room.run()
    assert "belongs to actor owner, used in a turn of thief" in str(room.engine.crashes[-1])


def test_a_rising_edge_fires_at_the_start_too_and_again() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        n = turn.field("n", 1)
        turn.when_true(lambda: n.value > 0, lambda turn: room.note(f"rise {n.value}"))
        turn.on_message("set($x)")(lambda turn, x: setattr(n, "value", x))

    room.spawn(boot)
    for x in (2, 0, 3):
        room.play(lambda turn: turn.send(record("set", "x")(x)))  # noqa: B023  # played at once
    assert room.transcript().splitlines() == ["rise 1", "rise 3"]


def test_knowledge_of_one_actor_is_seen_by_no_other() -> None:
    room = Room()
    room.watch("secret($x)")

    def boot(turn: Turn) -> None:
        turn.inside.on_asserted("secret($x)")(lambda turn, x: room.note(f"know {x}"))
        turn.inside.assert_(record("secret", "x")(1))

    room.play(boot)
    assert room.transcript() == "know 1"


def test_a_facet_is_not_begun_twice_though_the_pattern_leaves_and_comes_back() -> None:
    for in_one_turn in (False, True):
        room = Room()

        def boot(turn: Turn) -> None:
            kind = turn.field("kind", "a")

            @turn.during(lambda: Item(kind.value, capture("n")))
            def item(turn: Turn, n: int) -> None:
                room.note(f"begin {n}")  # noqa: B023  # in this round
                turn.on_stop(lambda turn: room.note(f"end {n}"))  # noqa: B023  # as above

            @turn.on_message("set($kind)")
            def put(turn: Turn, to: str) -> None:
                kind.value = to

            @turn.on_message("there-and-back()")
            def move(turn: Turn) -> None:
                kind.value = "b"
                turn.before_commit(lambda turn: setattr(kind, "value", "a"))  # repaired in between

        actor = room.spawn(boot)
        holder = room.spawn(lambda turn: (turn.claim(Item("a", 1)), turn.prevent_inert()))
        room.run()
        if in_one_turn:
            room.play(lambda turn: turn.send(record("there-and-back")()))
            room.enter(holder, lambda turn: turn.claim(Item("a", 2)))
        else:
            room.play(lambda turn: turn.send(record("set", "kind")("b")))
            room.enter(holder, lambda turn: turn.claim(Item("a", 2)))  # while nobody asks
            assert room.transcript() == "begin 1"
            room.play(lambda turn: turn.send(record("set", "kind")("a")))
            room.note("begin 1")
        assert sorted(room.transcript().splitlines()) == ["begin 1", "begin 2"]
        room.enter(holder, lambda turn: turn.retract_matching("item(_, _)"))
        assert room.transcript().splitlines() == ["end 1", "end 2"]
        room.enter(actor, Turn.stop_actor)
        room.enter(holder, Turn.stop_actor)
        assert room.home.space.statistics().observers == 0 and not room.engine.crashes
        room.home.space.index.check()


@pytest.mark.parametrize(
    "what", ["an assertion", "an observation", "a conversation", "a computation", "a derived field"]
)
def test_what_a_computation_would_make_again_and_again_is_refused(what: str) -> None:
    room = Room(strict=False)

    def boot(turn: Turn) -> None:
        n = turn.field("n", 0)

        def block() -> None:
            room.note(f"{n.value}")
            if what == "an assertion":
                turn.assert_(Count(n.value))
            elif what == "an observation":
                turn.on_asserted("item(_, _)")(lambda turn: None)
            elif what == "a conversation":
                turn.during("item(_, _)")(lambda turn: None)
            elif what == "a computation":
                turn.when_true(lambda: n.value > 0, lambda turn: None)
            else:
                turn.derived("twice", lambda: n.value * 2)

        turn.dataflow(block)

    room.play(boot)
    assert f"{what} made in block, which runs again whenever a field changes" in str(room.engine.crashes[-1])


def test_a_computation_may_send_and_open_facets() -> None:
    room = Room()
    room.watch("count($n)")

    def boot(turn: Turn) -> None:
        n = turn.field("n", 1)
        open_now = turn.field("open", (turn.react(lambda turn: turn.prevent_inert()),))

        @turn.dataflow
        def block() -> None:
            turn.send(Count(n.value))
            turn.react(lambda turn: turn.assert_(Count(-n.value)))

        assert len(open_now.value) == 1

    room.play(boot)
    assert room.transcript().splitlines() == ["+ count($n) -1", "! count($n) 1"]


def test_a_field_is_used_within_its_facet_only() -> None:
    room = Room(strict=False)
    inner: list[Field[int]] = []

    def boot(turn: Turn) -> None:
        mine = turn.field("mine", 1)

        def below(turn: Turn) -> None:
            inner.append(turn.field("below", mine.value))  # of those around it: yes
            turn.prevent_inert()

        turn.react(below)
        turn.on_message("go()")(lambda turn: inner[0].value)

    room.spawn(boot)
    room.play(lambda turn: turn.send(record("go")()))
    assert "field below belongs to facet" in str(room.engine.crashes[-1])
    assert "used outside of it" in str(room.engine.crashes[-1])


def test_an_assertion_of_nothing_is_none() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        n = turn.field("n", 0)
        turn.assert_(lambda: Count(n.value) if n.value else None)
        turn.on_message("go()")(lambda turn: setattr(n, "value", 1 - n.value))

    room.spawn(boot)
    room.run()
    for expected in ["count(1)"], [], ["count(1)"]:
        room.play(lambda turn: turn.send(record("go")()))
        assert room.facts() == expected


def test_a_query_has_its_default_while_nothing_matches() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        last = turn.query_value("last", "item(_, $n)", "none")
        turn.dataflow(lambda: room.note(str(last.value)))

    room.spawn(boot)
    player = room.spawn(lambda turn: (turn.claim(Item("a", 1)), turn.prevent_inert()))
    room.run()
    room.enter(player, Turn.stop_actor)
    assert room.transcript().splitlines() == ["none", "1", "none"]
