"""What users test their actors with does what it says: the room, its clock and its transcripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataspace.actors import Turn, record
from dataspace.errors import ActorCrashed
from dataspace.testing import Room, check

Item = record("item", "n")


def test_nothing_happens_but_within_run_and_advance() -> None:
    room = Room()
    room.watch("item($n)")
    room.spawn(lambda turn: (turn.assert_(Item(1)), turn.after(1)(lambda turn: room.note("later"))))
    assert room.facts() == [] and room.transcript() == ""
    room.run()
    assert room.facts() == ["item(1)"] and room.matches("item($n)") == [(1,)]
    room.advance(0.5)
    assert room.transcript() == "+ item($n) 1"
    room.advance(0.5)
    assert room.transcript() == "later" and room.time == 1.0


def test_the_clock_jumps_from_one_timer_to_the_next() -> None:
    room = Room()

    def boot(turn: Turn) -> None:
        turn.every(3600)(lambda turn: room.note(f"{turn.now:.0f}"))

    room.spawn(boot)
    room.advance(3 * 3600 + 1)
    assert room.transcript().split() == ["3600", "7200", "10800"]


def test_what_it_watches_is_no_interest_that_anybody_sees() -> None:
    room = Room()
    room.watch("item($n)")
    assert room.matches("Observe($p)") == []


@pytest.mark.parametrize("how", ["play", "run", "enter", "advance"])
def test_a_crash_of_whatever_actor_fails_the_test_that_did_not_expect_it(how: str) -> None:
    room = Room()
    room.spawn(lambda turn: turn.on_message("item(_)")(lambda turn: turn.retract(7)), name="bad")
    other = room.spawn(lambda turn: turn.prevent_inert())
    room.run()
    with pytest.raises(ActorCrashed, match=r"actor bad, .*: actor bad has no claim 7") as caught:
        if how == "play":
            room.play(lambda turn: turn.send(Item(1)))
        elif how == "enter":
            room.enter(other, lambda turn: turn.send(Item(1)))
        else:
            room.spawn(lambda turn: turn.send(Item(1)))
            room.run() if how == "run" else room.advance(1)
    assert room.crashes == (caught.value,)
    room.run()  # told once


def test_a_crash_that_is_meant_is_kept() -> None:
    room = Room(strict=False)
    room.spawn(lambda turn: turn.retract(7), name="bad")
    room.run()
    (crash,) = room.crashes
    assert "actor bad" in str(crash)


def test_actors_that_never_rest_are_an_error_and_no_hang() -> None:
    room = Room()

    def restless(turn: Turn) -> None:
        turn.on_message("item(_)")(lambda turn: turn.send(Item(1)))
        turn.sync(lambda turn: turn.send(Item(1)))

    room.spawn(restless)
    with pytest.raises(AssertionError, match="not quiet after 50 turns"):
        room.run(50)


def test_a_transcript_is_held_against_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "transcript.txt"
    monkeypatch.setenv("REWRITE", "1")
    check("as it was", file)
    monkeypatch.delenv("REWRITE")
    check("as it was", file)
    with pytest.raises(AssertionError, match="REWRITE=1 writes it anew"):
        check("otherwise", file)
    assert file.read_text() == "as it was\n"
