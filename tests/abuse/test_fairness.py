"""One client's work makes no other wait: the innocent's round trip stays short under each load.

What a round trip may cost is ``HELD``, in time of the daemon's loop; sizes are those of the report under
``make torture``, and smaller otherwise, but in each the load is many times what a round trip may wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from dataspace.wire.session import encode
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from tests.abuse.lines import Client
from tests.abuse.sizes import LARGE, report
from tests.abuse.stage import HELD, Stage

pytestmark = [pytest.mark.slow, pytest.mark.torture]

PLENTY: Final = 1 << 60
MIB: Final = 1 << 20


def _history(stage: Stage, epochs: int, identity: str = "") -> None:
    """Makes a past of so many epochs."""
    writer = stage.client("writer", identity=identity)
    for begin in range(0, epochs, 500):
        turns = [p.Turn(n + 1, "main", "", ((SEND, Record("said", n)),)) for n in range(begin, begin + 500)]
        writer.send(b"".join(map(encode, turns)))
        writer.settle()
        writer.heard.clear()
    writer.close()


def _fill(client: Client, count: int, *, owner: str = "") -> None:
    """Asserts so many facts, in as few turns as allowed."""
    for begin in range(0, count, 10_000):
        numbers = range(begin, min(begin + 10_000, count))
        client.turn(*[(ASSERT, n, Record("mass", client.who, n)) for n in numbers], owner=owner)


def test_replays_take_turns(tmp_path: Path) -> None:
    """40 clients come back at once, and each wants all epochs."""
    with Stage(tmp_path) as stage:
        _history(stage, 17_000 if LARGE else 3_000)
        replays = stage.clients("comeback", 40 if LARGE else 16)
        for each in replays:
            each.deaf = True
            each.say(p.Open(1, Map({"pattern": capture("x"), "after": 0, "quiet": True}), PLENTY, PLENTY))
        for _ in range(100):
            stage.trip(replays)
        report("replays at once", stage, "values")
        assert stage.trips.worst < HELD


def test_a_frame_of_empty_maps_costs_as_many_elements_as_it_makes_work(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        attacker = stage.client("mapper")
        for sequence in range(1, 11 if LARGE else 4):
            value = [Map()] * 250_000
            frame = pack((2, sequence, "main", "", ((SEND, value),)))
            attacker.send(len(frame).to_bytes(4, "big") + frame)
            for _ in range(20):
                stage.trip([attacker])
            if attacker.over:
                attacker = stage.client("mapper")
        report("frames of empty maps", stage, "limit or accepted")
        assert stage.trips.worst < HELD


def test_observers_of_everything_do_not_tell_each_other_one_by_one(tmp_path: Path) -> None:
    """Each interest is a fact that all other observers of everything are told."""
    with Stage(tmp_path) as stage:
        count = 2_000 if LARGE else 300
        attackers = stage.clients("gossip", 10)
        for number in range(count):
            attacker = attackers[number % len(attackers)]
            attacker.deaf = True
            attacker.say(p.Open(number + 1, Map({"pattern": capture(f"x{number}")}), PLENTY, PLENTY))
        for _ in range(100):
            stage.trip(attackers)
        report("observers of everything", stage, "values")
        assert stage.trips.worst < (2 if LARGE else 1) * HELD  # each turn of the innocent is told to all
        assert stage.grown() < 200 * MIB


def _published(client: Client, sequence: int, keys: Sequence[Value]) -> None:
    """Requests that what is staged under some keys is published."""
    arguments = {"keys": tuple(keys), "owner": "bulk", "client": "bulk", "sequence": sequence}
    client.say(p.Request(sequence, "publish", Map(arguments)))


def test_a_publication_is_as_large_as_the_operator_lets_others_wait(tmp_path: Path) -> None:
    """What is staged is read in slices, but a turn is applied as a whole: its size has a limit."""
    with Stage(tmp_path, settings="[limits]\nactions_per_publication = 20000\n") as stage:
        attacker, count = stage.client("bulk"), 50 if LARGE else 5
        for at in range(count):
            numbers = tuple(range(at * 20_000, (at + 1) * 20_000))
            rows = pack(("assert", "bulk", (numbers,), len(numbers)))
            attacker.request("stage", key=("bulk", str(at)), rows=rows)
        everything = 1 << 20
        _published(attacker, everything, [("bulk", str(at)) for at in range(count)])
        stage.trips_until([(attacker, everything)])
        answer = attacker.answer(everything)
        assert isinstance(answer, p.Denied) and answer.code == "limit"
        for at in range(count):
            _published(attacker, at + 1, [("bulk", str(at))])
            stage.trips_until([(attacker, at + 1)], least=2)
        report("publications", stage, answer.code)
        assert stage.trips.worst < HELD


def test_what_takes_the_place_of_facts_is_found_before_others_wait(tmp_path: Path) -> None:
    """To plan a keyed publication takes longer than to apply it; that is done in the lane."""
    with Stage(tmp_path) as stage:
        attacker, count = stage.client("bulk"), 20_000
        by = Record("bulk", capture("k"), Record("_"))
        for sequence in range(1, 12 if LARGE else 4):
            rows = pack(("assert", "bulk", (tuple(range(count)), (sequence,) * count), count))
            attacker.request("stage", key=("bulk", str(sequence)), rows=rows)
            arguments = {"keys": (("bulk", str(sequence)),), "owner": "bulk", "client": "bulk", "by": by}
            attacker.say(p.Request(sequence, "publish", Map({**arguments, "sequence": sequence})))
            stage.trips_until([(attacker, sequence)], least=2)
            assert isinstance(attacker.answer(sequence), p.Answer)
        report("keyed publications", stage, "answers")
        assert stage.trips.worst < HELD


QUESTIONS: Final[dict[str, Map]] = {
    "status": Map(),
    "index": Map({"form": "text", "most": 1_000}),
    "frontier": Map({"after": 0}),
    "within": Map({"after": 0, "upto": 1 << 40, "changes": 1 << 40}),
    "rules": Map({"ask": "why-not", "about": Record("pair", capture("x"), capture("y"))}),
}


@pytest.mark.parametrize("verb", sorted(QUESTIONS))
def test_questions_cost_the_asker(tmp_path: Path, verb: str) -> None:
    with Stage(tmp_path) as stage:
        attacker = stage.client("curious")
        _history(stage, 2_000)
        _fill(attacker, 20_000)
        rule = Record("rule", "pairs", "pair($x, $y) <- mass($w, $x), mass($w, $y), mass($x, $y).")
        attacker.turn((ASSERT, 1 << 20, rule))
        count = 1_000 if LARGE else 200
        attacker.send(b"".join(encode(p.Request(n, verb, QUESTIONS[verb])) for n in range(1, count + 1)))
        stage.trips_until([(attacker, count)])
        report(f"questions: {verb}", stage, "answers")
        assert stage.trips.worst < HELD


def test_old_turns_cost_the_asker(tmp_path: Path) -> None:
    """Turns that were applied long ago are looked up in the log, which takes long, for the asker alone."""
    with Stage(tmp_path) as stage:
        count = 17_000 if LARGE else 6_000
        _history(stage, count, identity="forgetful")
        attacker = stage.client("forgetful", identity="forgetful")
        attacker.send(b"".join(encode(p.Turn(n, "main", "", ())) for n in range(1, 1_001)))
        stage.trips_until([(attacker, 1)])
        report("old turns", stage, "accepted")
        assert stage.trips.worst < HELD


def test_facts_that_go_with_their_session_go_in_slices(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        attackers = stage.clients("mass", 10 if LARGE else 2)
        for each in attackers:
            _fill(each, 100_000)
        for each in attackers:
            each.close(reset=True)
        for _ in range(100):
            stage.trip()
        report("facts that go at once", stage, "retracted")
        assert stage.trips.worst < HELD


def test_patterns_come_and_go_in_slices(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        attackers = stage.clients("many", 26 if LARGE else 3)
        for each in attackers:
            opens = [
                p.Open(n, Map({"pattern": Record("p", each.who, n, capture("x"))}), 0, 0)
                for n in range(1, 4001)
            ]
            each.deaf = True
            each.send(b"".join(map(encode, opens)))
            stage.trip(attackers)
        for _ in range(50):
            stage.trip(attackers)
        for each in attackers:
            each.close()
        for _ in range(100):
            stage.trip()
        report("patterns that come and go", stage, "streams")
        assert stage.trips.worst < HELD


def test_the_first_observer_of_many_facts_lets_others_go_on(tmp_path: Path) -> None:
    """Each of these patterns needs a look at all facts, which are filed in steps for it."""
    with Stage(tmp_path) as stage:
        attackers = stage.clients("mass", 8 if LARGE else 2)
        for each in attackers:
            _fill(each, 50_000)
        x, any_ = capture("x"), Record("_")
        shapes = (Record("mass", x, any_), Record("mass", x, 7), Record("mass", x, Record("q", x)))
        for pattern in (*shapes, *shapes):  # the second time they are known
            for each in attackers[:2]:
                each.open({"pattern": pattern, "quiet": True})
                stage.trip(attackers)
            for _ in range(20):
                stage.trip(attackers)
        report("first observers", stage, "values")
        assert stage.trips.worst < HELD


RULES: Final = {
    "a product": ("pair($x, $y, $z) <- mass($a, $x), mass($b, $y), mass($c, $z).", 1_000),
    "a counter": ("count($n) <- start($n). count($m) <- count($n), $m = $n + 1.", 0),
    "a value that doubles": ('grown($x) <- start($n), $x = "a". grown($y) <- grown($x), $y = $x + $x.', 0),
}


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_that_runs_away_is_ended_before_others_wait(tmp_path: Path, name: str) -> None:
    text, facts = RULES[name]
    with Stage(tmp_path) as stage:
        attacker = stage.client("reckless")
        if facts:
            _fill(attacker, facts)
        attacker.turn((ASSERT, 1 << 20, Record("start", 0)))
        for number in range(20 if LARGE else 2):
            attacker.sequence += 1
            actions = ((ASSERT, (1 << 20) + 1 + number, Record("rule", f"bad-{number}", text)),)
            attacker.say(p.Turn(attacker.sequence, "main", "", actions))
            stage.trips_until([(attacker, attacker.sequence)], least=10)
        report(f"rules: {name}", stage, "suspended or refused")
        assert stage.trips.worst < HELD
