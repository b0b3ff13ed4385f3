"""A query's field is in step before other handlers of the same event run, wherever it was declared."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.actors.engine.endpoints import Rank
from dataspace.actors.engine.fields import Field
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from dataspace.testing import Room

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
