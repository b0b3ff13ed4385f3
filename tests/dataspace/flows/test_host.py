"""A flow that is attached to a space takes each turn as a tick, and what it says is in that turn's epoch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from dataspace.flows.flows import Flow
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.kernel.changes import Epoch
from dataspace.kernel.derivation import RULES
from dataspace.kernel.space import Space, Submit
from index.errors import UsageError
from index.patterns.text import parse, unparse
from index.values.values import Record, key


class Room:
    """A space, and somebody who claims facts in it by their text."""

    def __init__(self) -> None:
        self.space = Space("main")
        self.handles: dict[str, int] = {}
        self.next = 1

    def turn(self, *actions: str, submit: Submit | None = None) -> Epoch:
        """``+fact``, ``-fact`` and ``!message``, in one turn."""
        made: list[Any] = []
        for action in actions:
            text = action[1:]
            if action[0] == "+":
                self.handles[text] = self.next
                made.append((ASSERT, self.next, parse(text)))
                self.next += 1
            elif action[0] == "-":
                made.append((RETRACT, self.handles.pop(text)))
            else:
                made.append((SEND, parse(text)))
        return self.space.commit("somebody", made, 0, submit=submit)

    def facts(self) -> set[str]:
        return {unparse(value) for value in self.space.index.values()}

    def settle(self) -> None:
        while self.space.rules.pending:
            self.space.advance(0)


def shown(epoch: Epoch | None) -> str:
    """An epoch as one line."""
    assert epoch is not None
    parts = [("+", epoch.added), ("!", epoch.messages), ("-", epoch.removed)]
    return " ".join([sign + unparse(value) for sign, values in parts for value in values])


def crowds() -> Flow:
    """How many are in each room."""
    flow = Flow()
    here = flow.facts("present($room, $who)")
    counts = here.fold_keyed(lambda: 0, lambda n, _: n + 1, undo=lambda n, _: n - 1, lifetime="static")
    counts.assert_(lambda pair: Record("crowd", *pair))
    return flow


def test_what_a_flow_asserts_is_in_the_epoch_of_its_cause_additions_first() -> None:
    room = Room()
    room.turn('+present("hall", 1)')
    room.space.rules.attach("crowds", crowds())
    assert shown(room.space.advance(0)) == '+crowd("hall", 1)', "it starts from the facts there are"
    assert (
        shown(room.turn('+present("hall", 2)')) == '+present("hall", 2) +crowd("hall", 2) -crowd("hall", 1)'
    )
    epoch = room.turn('-present("hall", 1)', '-present("hall", 2)')
    assert shown(epoch) == '-present("hall", 1) -present("hall", 2) -crowd("hall", 2)'
    assert {claims.owner for claims in epoch.claims} == {"somebody", RULES}


def test_messages_are_heard_in_their_turn_and_sent_in_it() -> None:
    room, flow = Room(), Flow()
    said = flow.messages("say($who, $what)")
    said.sort().enumerate().send(lambda each: Record("heard", each[0], *each[1]))
    said.assert_(lambda each: Record("spoke", each[0]), lifetime="tick")
    room.space.rules.attach("echo", flow)
    epoch = room.turn('!say("b", 1)', '!say("a", 2)')
    assert shown(epoch) == (
        '+spoke("b") +spoke("a") !say("b", 1) !say("a", 2) !heard(0, "a", 2) !heard(1, "b", 1)'
    )
    assert shown(room.turn("+n(1)")) == '+n(1) -spoke("b") -spoke("a")', "for one tick"


def test_captures_are_told_once_as_to_an_observer() -> None:
    room, flow, seen = Room(), Flow(), list[Any]()
    flow.facts("present($room, _)").each_change(lambda item, weight: seen.append((item, weight)))
    room.space.rules.attach("rooms", flow)
    room.turn('+present("hall", 1)', '+present("hall", 2)')
    room.turn('-present("hall", 1)')
    room.turn('-present("hall", 2)')
    assert seen == [(("hall",), 1), (("hall",), -1)]


def test_rules_and_flows_lean_on_each_other_within_one_epoch() -> None:
    room = Room()
    room.turn('+rule("full", "full($room) <- crowd($room, $n), $n >= 2.")')
    room.turn('+rule("visits", "present($room, $who) <- visits($who, $room).")')
    room.space.rules.attach("crowds", crowds())
    room.turn('+present("hall", 1)')
    epoch = room.turn('+visits(2, "hall")')
    assert shown(epoch) == (
        '+visits(2, "hall") +present("hall", 2) +crowd("hall", 2) +full("hall") -crowd("hall", 1)'
    )
    assert shown(room.turn('-visits(2, "hall")')) == (
        '+crowd("hall", 1) -visits(2, "hall") -present("hall", 2) -crowd("hall", 2) -full("hall")'
    )


def test_what_rules_derive_from_a_flow_reaches_the_flow_a_tick_later() -> None:
    room, flow = Room(), Flow()
    flow.facts("step($n:int)").filter(lambda item: item[0] < 3).assert_(lambda item: Record("done", item[0]))
    room.turn('+rule("on", "step($n + 1) <- done($n).")')
    room.space.rules.attach("steps", flow)
    room.turn("+step(0)")
    assert "step(1)" in room.facts() and "done(1)" not in room.facts()
    assert room.space.rules.pending
    room.settle()
    assert {"done(2)", "step(3)"} <= room.facts() and "done(3)" not in room.facts()
    room.turn("-step(0)")
    room.settle()
    assert room.facts() == {'rule("on", "step($n + 1) <- done($n).")'}


def test_a_fact_that_somebody_claims_as_well_stays_when_the_flow_lets_go() -> None:
    room = Room()
    room.space.rules.attach("crowds", crowds())
    room.turn('+present("hall", 1)')
    assert shown(room.turn('+crowd("hall", 1)')) == "", "it is there already"
    assert shown(room.turn('-present("hall", 1)')) == '-present("hall", 1)'
    assert room.facts() == {'crowd("hall", 1)'}
    assert shown(room.turn('-crowd("hall", 1)')) == '-crowd("hall", 1)'


def test_two_flows_may_assert_the_same_fact_and_detaching_takes_a_flows_facts() -> None:
    room = Room()
    room.turn('+present("hall", 1)')
    for name in ("one", "other"):
        room.space.rules.attach(name, crowds())
    with pytest.raises(UsageError, match="a flow named 'one' is attached already"):
        room.space.rules.attach("one", Flow())
    room.settle()
    room.space.rules.detach("one")
    room.settle()
    assert 'crowd("hall", 1)' in room.facts()
    room.space.rules.detach("other")
    assert shown(room.space.advance(0)) == '-crowd("hall", 1)'
    assert not room.space.rules.pending
    with pytest.raises(UsageError, match="no flow named 'other' is attached"):
        room.space.rules.detach("other")


def test_what_a_flow_asserted_before_a_restart_is_its_own_after_it_and_is_not_seen_to_go() -> None:
    room = Room()
    room.space.rules.attach("crowds", crowds())
    room.turn('+present("hall", 1)', '+present("yard", 2)')
    again = Room()
    again.next = room.next
    again.space.restore(room.space.all_claims(), room.space.epoch, room.space.time)
    again.space.rules.attach("crowds", crowds())
    first = again.space.advance(0)
    assert first is not None and first.silent and not first.claims
    assert again.facts() == room.facts() and again.space.claims(RULES) == room.space.claims(RULES)
    told = shown(again.turn('+present("hall", 3)'))
    assert told == '+present("hall", 3) +crowd("hall", 2) -crowd("hall", 1)'


def test_a_flow_that_raises_takes_its_facts_along_and_nobodys_turn() -> None:
    room, flow = Room(), Flow()
    flow.facts("n($n)").map(lambda item: 12 // item[0]).assert_(lambda n: Record("ratio", n))
    room.space.rules.attach("ratios", flow)
    room.turn("+n(3)")
    epoch = room.turn("+n(0)")
    assert shown(epoch).startswith('+n(0) +flow-error("ratios", "ZeroDivisionError: ')
    assert shown(epoch).endswith("-ratio(4)")
    assert shown(room.turn("+n(4)")) == "+n(4)"
    room.space.rules.detach("ratios")
    assert "-flow-error" in shown(room.space.advance(0))


def test_flows_that_cause_ticks_without_end_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataspace.flows.host.MAX_SELF_TICKS", 20)
    room, flow = Room(), Flow()
    flow.facts("n($n)").union(flow["again"], name="u").next_tick(name="again")
    room.space.rules.attach("turning", flow)
    room.turn("+n(1)")
    room.settle()
    assert any("20 ticks in a row were caused by flows alone" in fact for fact in room.facts())


FLOWS: dict[str, Callable[[Flow], Any]] = {
    "join": lambda flow: (
        flow.facts("a($k, $v)")
        .join(flow.facts("b($k, $w)"), lifetime="static")
        .assert_(lambda item: Record("only", item[1][0]))
    ),
    "unlike": lambda flow: (
        flow.facts("a($k, _)")
        .difference(flow.facts("b($k, _)"), lifetime="static")
        .assert_(lambda item: Record("only", item[0]))
    ),
}
RULES_BESIDE = "c($x, $y) <- only($x), a($x, $y). d(count($x)) <- only($x). only($y) <- b(_, $y)."


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["", RULES_BESIDE])
@pytest.mark.parametrize("name", FLOWS)
def test_after_each_turn_a_space_holds_what_one_begun_now_would(name: str, rules: str) -> None:
    for seed in range(8):
        rng, room = random.Random(seed), begun(name, rules)
        held = {key(value) for value in room.space.index.values()}
        for _ in range(30):
            epoch = room.turn(*random_turn(rng, room))
            assert held.isdisjoint(map(key, epoch.added)) and held.issuperset(map(key, epoch.removed))
            held = held.union(map(key, epoch.added)).difference(map(key, epoch.removed))
            assert held == {key(value) for value in room.space.index.values()}, "the epochs add up"
            fresh = begun(name, rules)
            fresh.turn(*[f"+{fact}" for fact in room.handles if not fact.startswith("rule")])
            assert room.facts() == fresh.facts(), (seed, name)
        room.turn(*[f"-{fact}" for fact in room.handles])
        assert room.facts() == set() and not room.space.rules.claims


def begun(name: str, rules: str) -> Room:
    room, flow = Room(), Flow()
    if rules:
        room.turn(f'+rule("beside", "{rules}")')
    FLOWS[name](flow)
    room.space.rules.attach("f", flow)
    return room


def random_turn(rng: random.Random, room: Room) -> list[str]:
    facts = [f"{label}({a}, {b})" for label in "ab" for a in range(3) for b in range(3)]
    return [
        f"-{fact}" if fact in room.handles else f"+{fact}" for fact in rng.sample(facts, rng.randint(1, 3))
    ]


def test_a_window_by_the_time_of_turns_makes_a_turn_when_it_ends() -> None:
    space, flow = Space("main"), Flow()
    made: list[tuple[int, str]] = []
    space.submit_timed = lambda epoch: made.append((epoch.time, shown(epoch)))
    said = flow.messages("say($what)")
    counts = said.window(1).fold(lambda: 0, lambda n, _: n + 1, undo=lambda n, _: n - 1, lifetime="static")
    counts.filter(bool).assert_(lambda n: Record("recent", n))
    tumbling = said.window(2, 2, keep=2, final=True).map(lambda pair: pair[0])
    tumbling.unique(lifetime="static").assert_(lambda start: Record("window", start))
    space.rules.attach("recent", flow)
    space.advance(0)
    for now in (1_000_001, 1_500_000):
        space.commit("somebody", [(SEND, Record("say", "hello"))], now)
    assert space.rules.due == 2_000_000, "a window of two seconds is complete"
    space.commit("somebody", [(SEND, Record("say", "bye"))], 2_500_000)
    assert space.rules.due == 3_500_000
    space.until(9_000_000)
    assert made == [
        (2_000_000, "+window(0)"),
        (2_010_000, "+recent(1) -recent(2)"),
        (2_500_000, "-recent(1)"),
        (3_500_000, "-recent(1)"),
        (4_000_000, "+window(2000000) -window(0)"),
        (6_000_000, "-window(2000000)"),
    ]
    assert space.rules.due > 1 << 60 and not space.rules.pending


def test_after_a_long_pause_the_turns_of_windows_are_few() -> None:
    space, flow = Space("main"), Flow()
    times: list[int] = []
    space.submit_timed = lambda epoch: times.append(epoch.time)
    flow.messages("say($what)").window(1).assert_(lambda what: Record("recent", *what))
    space.rules.attach("recent", flow)
    space.advance(0)
    for number in range(3000):
        space.commit("somebody", [(SEND, Record("say", number))], number * 10_000 + 1)
    before = len(times)
    space.until(10_000_000_000)
    assert before >= 2800
    assert len(times) == before + 1, "what is left leaves together"
    assert not list(space.index.values())


def test_a_turn_that_is_undone_ends_the_windows_with_their_flow() -> None:
    room, flow = Room(), Flow()
    flow.messages("say($what)").window(1).assert_(lambda what: Record("recent", *what))
    room.space.rules.attach("recent", flow)
    room.turn('!say("hello")')

    def refuse(_epoch: Epoch) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        room.turn('!say("again")', submit=refuse)
    room.settle()
    assert room.space.rules.due > 1 << 60
    assert not any(fact.startswith("recent") for fact in room.facts())
