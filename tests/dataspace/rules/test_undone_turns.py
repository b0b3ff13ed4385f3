"""A turn that the log does not take is undone in rules and flows as well: what they hold stands as before."""

from __future__ import annotations

import pytest

from dataspace.kernel.changes import Epoch
from tests.dataspace.flows.test_host import Room, crowds, shown


def _refuse(_: Epoch) -> None:
    raise OSError("no room")


def _fail(room: Room, *changes: str) -> None:
    """A turn of the room of which the epoch is not taken."""
    with pytest.raises(OSError, match="no room"):
        room.turn(*changes, submit=_refuse)
    room.space.index.check()


def test_what_rules_derive_stands_as_before_and_follows_the_next_turn() -> None:
    room = Room()
    room.turn('+rule("both", "both($x) <- a($x), b($x). many(count($x)) <- a($x).")')
    room.turn("+a(1)", "+b(1)", "+a(2)")
    before = dict(room.space.rules.claims)
    _fail(room, "+b(2)")
    _fail(room, '+rule("more", "more($x) <- b($x).")', "+b(3)")
    assert room.space.rules.claims == before
    assert shown(room.turn("+b(3)")) == "+b(3)"
    assert shown(room.turn("+a(3)")) == "+a(3) +both(3) +many(3) -many(2)"


def test_a_first_rule_that_is_not_taken_leaves_no_rules() -> None:
    room = Room()
    room.turn("+a(1)")
    _fail(room, '+rule("same", "same($x) <- a($x).")')
    assert (room.space.rules.awake, room.space.rules.claimed) == (False, 0)
    assert shown(room.turn("+a(2)")) == "+a(2)"


def test_a_flow_that_saw_what_did_not_happen_ends_and_says_so() -> None:
    room = Room()
    room.turn('+rule("full", "full($room) <- crowd($room, $n), $n >= 2.")')
    room.space.rules.attach("crowds", crowds())
    room.turn('+present("hall", 1)', '+present("hall", 2)')
    before = dict(room.space.rules.claims)
    _fail(room, '+present("hall", 3)', '+present("yard", 1)')
    assert room.space.rules.claims == before
    said = shown(room.turn("+n(1)"))
    assert 'flow-error("crowds", "a turn that it saw was undone")' in said
    assert '-crowd("hall", 2)' in said and '-full("hall")' in said
    assert shown(room.turn("+n(2)")) == "+n(2)"
    room.space.rules.detach("crowds")
    assert shown(room.space.advance(0)) == '-flow-error("crowds", "a turn that it saw was undone")'
