"""A start continues what rules had come to: state kept by next goes on, and nothing is sent twice."""

from __future__ import annotations

import random

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.space import Space
from index.patterns.text import parse, unparse
from index.values.values import Record, Value

PROGRAMS = {
    "what was seen": "next(seen($w)) <- said($w). next(seen($w)) <- seen($w), not forget($w).",
    "what was before": "next(was($x)) <- now($x). changed($x, $y) <- was($x), now($y), $x != $y.",
    "a counter": "next(c($n + 1)) <- c($n), $n < 7. c(0) <- go(). next(c($n)) <- c($n), $n >= 7.",
    "alarms": "send(alarm($x)) <- now($x), $x > 1. send(first($w)) <- seen($w). next(seen($w)) <- said($w). "
    "next(seen($w)) <- seen($w), not forget($w).",
    "both": "seen($w) <- now($w). next(seen($w)) <- seen($w), not forget($w). many(count($w)) <- seen($w).",
    "a delay": "next(a($x)) <- now($x). next(b($x)) <- a($x). next(c($x)) <- b($x).",
}
FACTS = [*[f"now({n})" for n in range(4)], *[f"forget({n})" for n in range(4)], "go()"]
MESSAGES = [f"said({n})" for n in range(4)]


def state(space: Space) -> list[str]:
    return sorted(map(unparse, space.index.values()))


def restarted(space: Space) -> Space:
    """A space that goes on from what a log would hold."""
    again = Space("main")
    again.restore({owner: dict(held.items()) for owner, held in space.all_claims().items()}, space.epoch, 0)
    return again


def turn(rng: random.Random, held: dict[str, int]) -> list[Action]:
    """Some facts that come or go, and a message."""
    actions: list[Action] = []
    for fact in rng.sample(FACTS, rng.randint(0, 2)):
        if fact in held:
            actions.append((RETRACT, held.pop(fact)))
        else:
            held[fact] = rng.getrandbits(40)
            actions.append((ASSERT, held[fact], parse(fact)))
    if rng.random() < 0.4:
        actions.append((SEND, parse(rng.choice(MESSAGES))))
    return actions


def follow(space: Space, actions: list[Action]) -> list[list[str]]:
    """What is sent by a turn, and by those that rules ask for after it."""
    sent = [space.commit("me", actions, 0).messages]
    for _ in range(12):
        if space.rules.pending:
            epoch = space.advance(0)
            assert epoch is not None
            sent.append(epoch.messages)
    assert not space.rules.pending
    return [sorted(map(unparse, each)) for each in sent]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(15))
def test_a_space_that_is_started_again_goes_on_as_if_it_had_not_been(name: str, seed: int) -> None:
    rng, held = random.Random(f"{name}{seed}"), dict[str, int]()
    lasting = Space("main")
    lasting.commit("me", [(ASSERT, 1, Record("rule", name, PROGRAMS[name]))], 0)
    broken = restarted(lasting)
    for _ in range(20):
        if rng.random() < 0.4:
            broken = restarted(broken)
            if rng.random() < 0.5:
                assert broken.advance(0) is None, "the start itself changes nothing"
        actions = turn(rng, held)
        assert follow(broken, actions) == follow(lasting, actions)
        assert state(broken) == state(lasting)
        broken.index.check()


def test_a_start_between_a_tick_and_the_one_that_it_asks_for_loses_none() -> None:
    space = Space("main")
    text = "c(0) <- go(). next(c($n + 1)) <- c($n), $n < 5. next(c($n)) <- c($n), $n >= 5."
    space.commit("me", [(ASSERT, 1, Record("rule", "count", text)), (ASSERT, 2, Record("go"))], 0)
    space.commit("me", [(RETRACT, 2)], 0)
    seen = []
    for _ in range(30):
        space = restarted(space)
        space.advance(0)
        if space.rules.pending:
            space.advance(0)
        seen.append([each for each in state(space) if each.startswith("c(")])
    assert seen[-1] == ["c(5)"]


def test_what_ended_with_its_session_is_still_seen_and_what_became_true_at_the_start_is_sent() -> None:
    space = Space("main")
    text = "next(seen($w)) <- here($w). next(seen($w)) <- seen($w). send(left($w)) <- seen($w), not here($w)."
    space.commit("durable:me", [(ASSERT, 1, Record("rule", "seen", text))], 0)
    space.commit("session:1", [(ASSERT, 1, Record("here", "A"))], 0)
    while space.rules.pending:
        space.advance(0)
    again = restarted(space)
    epoch = again.end(["session:1"], 0)
    messages: list[Value] = []
    while epoch is not None:
        messages += epoch.messages
        epoch = again.advance(0) if again.rules.pending else None
    assert messages == [Record("left", "A")]
    assert 'seen("A")' in state(again)
    assert (restarted(again).advance(0), state(again)) == (None, state(restarted(again)))
