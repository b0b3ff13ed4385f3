"""A query's field is in step before other handlers of the same event run, wherever it was declared."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.actors.engine.endpoints import Rank
from dataspace.actors.engine.fields import Field
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.testing import Room
from tests.dataspace.rules.relations.test_work import lines_of

Item = record("item", "n")
Go = record("go")
PATTERNS = ("item($n)", "item(1)", "$x(item(_))", "item(_:int)")


def test_handlers_find_the_field_in_step_though_they_were_there_before_it() -> None:
    room = Room()

    some: Field[tuple[int, ...]]

    def boot(turn: Turn) -> None:
        nonlocal some
        turn.on_asserted("item($n)")(lambda turn, n: room.note(f"+{n} {some.value}"))
        turn.on_message("go()")(lambda turn: room.note(f"! {some.value}"))
        turn.on_retracted("item($n)")(lambda turn, n: room.note(f"-{n} {some.value}"))
        some = turn.query_set("some", "item($n)")

    def change(turn: Turn) -> None:
        turn.retract_matching("item(1)")
        turn.claim(Item(2))
        turn.send(Go())

    room.spawn(boot)
    player = room.spawn(lambda turn: (turn.claim(Item(1)), turn.prevent_inert()))
    room.run()
    room.enter(player, change)
    # A message finds what was asserted with it and what is retracted with it.
    assert room.transcript().splitlines() == ["+1 (1,)", "+2 (1, 2)", "! (1, 2)", "-1 (2,)"]


def test_callbacks_of_one_query_find_the_fields_of_all() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.on_asserted("item($n)")(lambda turn, n: room.note("others"))
        one = turn.query_set("one", "item($n)", added=lambda turn, n: room.note(f"{one.value} {two.value}"))
        two = turn.query_value("two", "item($n)", 0)

    room.spawn(boot)
    room.play(lambda turn: turn.assert_(Item(1)))
    assert room.transcript().splitlines() == ["(1,) 1", "others"]


def test_a_query_that_moves_begins_anew_and_its_callbacks_hear_of_what_is_there() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        kind = turn.field("kind", "item")
        some = turn.query_set(
            "some", lambda: f"{kind.value}($n)", added=lambda turn, n: room.note(f"{n} {some.value}")
        )
        turn.on_message("go()")(lambda turn: setattr(kind, "value", "other"))

    room.spawn(boot)
    room.play(lambda turn: (turn.claim(Item(1)), turn.claim(record("other", "n")(2)), turn.prevent_inert()))
    room.play(lambda turn: turn.send(Go()))
    assert room.transcript().splitlines()[-1] == "2 (2,)"


@given(st.lists(st.sampled_from(list(Rank)), max_size=8))
def test_of_one_event_higher_ranks_come_first(ranks: list[Rank]) -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        for at, rank in enumerate(ranks):

            def tell(turn: Turn, *_: object, at: int = at, rank: Rank = rank) -> None:
                room.note(f"{rank.value} {at}")

            turn.observe(PATTERNS[at % 4], added=tell, message=tell, rank=rank)

    room.spawn(boot)
    room.play(lambda turn: (turn.claim(Item(1)), turn.prevent_inert()))
    heard = room.transcript().splitlines()
    said = [line[0] for line in heard]
    assert said == sorted(said) and sorted(heard) == sorted(f"{rank} {at}" for at, rank in enumerate(ranks))
    room.play(lambda turn: turn.send(Item(1)))
    said = [line[0] for line in room.transcript().splitlines()]
    assert said == sorted(said) and len(said) == len(ranks)


def test_all_matches_at_once_cost_no_square() -> None:
    """As at a start: a value is computed once it is read, or once a turn where something depends on it."""

    def lines(count: int) -> int:
        room = Room()
        room.play(lambda turn: ([turn.claim(Item(n)) for n in range(count)], turn.prevent_inert()))

        def boot(turn: Turn) -> None:
            some, by = turn.query_set("some", "item($n)"), turn.query_map("by", "$x(item($n))")
            turn.assert_(lambda: record("sum", "n")(sum(some.value)))
            turn.assert_(lambda: record("size", "n")(len(by.value)))

        return lines_of(lambda: (room.spawn(boot), room.run()))

    one, two = lines(100), lines(200)
    assert two < 2.3 * one


@given(st.lists(st.tuples(st.sampled_from("+-!r"), st.integers(0, 3)), max_size=30))
def test_a_query_is_what_matches_whenever_it_is_read(steps: list[tuple[str, int]]) -> None:
    """Read in a handler, in a computation, or not for a while; and a computation runs for changes alone."""
    room = Room()
    runs: list[tuple[object, ...]] = []
    there: dict[int, None] = {}

    def boot(turn: Turn) -> None:
        some = turn.query_set("some", "item($n)")
        many = turn.derived("many", lambda: len(some.value) > 1)
        turn.dataflow(lambda: runs.append((some.value, many.value)), "each")
        lazy = turn.query_count("lazy", "item($n)")
        turn.on_message("go()")(lambda turn: room.note(f"{some.value} {len(lazy.value)} {many.value}"))

    room.spawn(boot)
    player = room.spawn(lambda turn: turn.prevent_inert())
    room.run()
    for step, n in steps:
        before = len(runs)
        if step == "+" and n not in there:
            room.enter(player, lambda turn, n=n: turn.claim(Item(n)))
            there[n] = None
            assert len(runs) == before + 1
        elif step == "-" and n in there:
            room.enter(player, lambda turn, n=n: turn.retract_matching(f"item({n})"))
            del there[n]
            assert len(runs) == before + 1
        elif step == "!" and n not in there:  # it comes and goes in one turn
            room.enter(player, lambda turn, n=n: (turn.claim(Item(n)), turn.retract_matching(f"item({n})")))
            assert len(runs) == before
        elif step == "r":
            room.transcript()
            room.enter(player, lambda turn: turn.send(Go()))
            assert room.transcript().splitlines() == [f"{tuple(there)} {len(there)} {len(there) > 1}"]
        assert runs[-1] == (tuple(there), len(there) > 1)
