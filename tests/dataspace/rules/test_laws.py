"""Whatever came and went before, what rules derive is what follows from the facts that are there now."""

from __future__ import annotations

import itertools
import os
import random

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.space import Space
from dataspace.rules.engine.engine import ComponentEngine
from dataspace.rules.engine.pool import EnginePool
from dataspace.rules.engine.program import Program
from dataspace.rules.language.hosted import host_function
from dataspace.rules.language.parser import read_rules
from dataspace.rules.relations.budgets import Bounds
from index.values.values import Record, Value, key
from tests.model.rules import follow

PROGRAMS = {
    "left": "r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), e($y, $z).",
    "right": "r($x, $y) <- e($x, $y). r($x, $z) <- e($x, $y), r($y, $z).",
    "non-linear": "r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), r($y, $z).",
    "mutual": """
        odd($x, $y) <- e($x, $y). odd($x, $z) <- even($x, $y), e($y, $z).
        even($x, $z) <- odd($x, $y), e($y, $z).
    """,
    "same generation": "s($x, $x) <- n($x). s($x, $y) <- e($a, $x), s($a, $b), e($b, $y).",
    "cut": "r($x, $y) <- e($x, $y), not gone($x). r($x, $z) <- r($x, $y), e($y, $z), not gone($y).",
    "unreached": """
        r($x) <- n($x), $x = 0. r($y) <- r($x), e($x, $y). far($x) <- n($x), not r($x).
        lonely($x) <- far($x), not e($x, _), not e(_, $x).
    """,
    "aggregates": """
        d($x, count($y)) <- e($x, $y). t(sum($n), avg($n), min($n), max($n)) <- d(_, $n).
        most(top(2, $n), collect($x)) <- d($x, $n). w(count($x)) <- e($x, _).
    """,
    "maybe": """
        a($x, count($y), sum($y), collect($y)) <- n($x), maybe e($x, $y:int).
        b($x, sum($y), max($z) else -1, count($w), min($w) else "none")
            <- e($x:int, $y:int), maybe e($y, $z), maybe (e($x, $w), not gone($w)).
        c(count($y), count(distinct $x)) <- n(0), maybe e($x, $y), not gone(0).
        d($n, count($m), top(2, $m)) <- a(_, $n, _, _), maybe (a($m, $n, $z, _), $z > 1 or gone($n), $m = 7).
    """,
    "deviation": """
        a($x, stddev($y), stddev(distinct $y * 0.1)) <- e($x, $y:int).
        b($x, stddev($y) else 0) <- n($x), e(_, $y:int), $y > $x.
        c(stddev($s) else -1, count($s)) <- n(1), maybe (a(_, $s, _) or b(_, $s)).
        d($x) <- n($x), stddev($y) of (e($x, $y:int)) > 1.
    """,
    "percentile": """
        a($x, percentile($y, 95), percentile(distinct $y, 50)) <- e($x, $y).
        b(percentile($z, 40), percentile($z, 33.3)) <- e($x, $y), e($y, $z).
        c($n, percentile($x, 50) else "none") <- n($n), maybe (a($x, $n, _), not gone($x)).
    """,
    "first and last": """
        a($x, first($y, $z), last($y, $z), count()) <- e($x, $y), e($y, $z).
        b($n, last($x, $k) else "none") <- n($n), maybe (a($n, $x, _, $k), not gone($x)).
        c(last($x, $y), first([$x], [$y, $x])) <- e($x, $y), not gone($y).
    """,
    "distinct": """
        a($x, count(), count(distinct $y % 2)) <- e($x:int, $y:int).
        b(count(distinct $n), count()) <- a(_, $n, _). z(count()) <- n($x), not e($x, _).
        c(sum(distinct $y), avg(distinct $y), count($y)) <- e(_, $y:int).
        d($n, collect(distinct $k), top(2, distinct $k), max(distinct $k)) <- a(_, $n, $k), e($n, _).
    """,
    "either": """
        a($x) <- n($x), (e($x, 1) or e(1, $x), not gone($x) or $x >= 4).
        b($x, count()) <- (e($x, $y), $y > 1 or e($y, $x)), n($y).
        c($x) <- (a($x) or b($x, _)), not e($x, $x).
        r($x, $y) <- (e($x, $y) or r($x, $z), e($z, $y)). d(count()) <- (n($x) or gone($x)), $x != 2.
    """,
    "not both": """
        a($x) <- n($x), not (e($x, $y), gone($y)).
        b($x) <- n($x), not (e($x, $y), $y > $x, not (a($y), gone($x))).
        c($x, $y) <- e($x, $y), not (a($x) or e($y, $z), n($z)). z($x) <- n($x), not (a(_), not (b(_))).
    """,
    "counts in bodies": """
        a($x, $n) <- n($x), count($y) of (e($x, $y)) = $n. b($x) <- n($x), count() of (e($x, _)) >= 2.
        c($x, $n, $m) <- count() of (e($x, $y), not gone($y)) = $n, max($y) of (e($y, $x)) = $m.
        d($x) <- n($x), 1 < count() of (e($y, $z), $y >= $x). f($n) <- sum($x) of (n($x) or gone($x)) = $n.
        g($x) <- a($x, $n), count(distinct $m) of (a($y, $m), $y != $x) = $n.
    """,
    "groups in groups": """
        a($x) <- n($x), (e($x, $y), not (e($y, _), not gone($y)) or count() of (e($x, _) or gone($x)) = 2).
        b($x, $n) <- (n($x), $n = count() of (e($x, $y), (gone($y) or $y < $x)) or gone($x), $n = 0).
    """,
    "members": """
        l($x, [$y, 1, $y, [$x]], {$y: $x, "k": [$y, 4]}) <- e($x:int, $y:int).
        a($x, $y) <- l($x, $l, _), $y in $l.
        b($x, $y, count()) <- l(_, _, $m), $x: $y in $m.
        c($y) <- n($y), l($x, $l, _), $y in $l, not a($y, $x).
        d($x, $z) <- l($x, _, $m), $k: $l in $m, $k = "k", $z in $l, $z > $x.
        p(count($v)) <- l(_, $l, _), $v in $l, n($v).
        t($x) <- n($x), $x in [0, 1, 1, "a"].
        s($x, $y) <- n($x), ($y in [$x, $x + 1], n($y) or e($x, $y), $y in [0]).
    """,
    "hubs": """
        r($x, $y) <- e($x, $y). r($x, $z) <- r($x, $y), e($y, $z).
        d($x, count($y)) <- r($x, $y). hub($x) <- d($x, $n), $n >= 3, not gone($x).
        only($x) <- n($x), not hub($x).
    """,
    "constants": """
        r($x) <- e(0, $x). r($y) <- r($x), e($x, $y), $y != 2. p($x, 7) <- r($x).
        q($x) <- p($x, 7), e($x, 1). self($x) <- e($x, $x). two() <- e(0, 1), e(1, 0).
    """,
    "wildcards": """
        s($x) <- e($x, _). s($x) <- s($y), e($y, $x). any() <- e(_, _).
        end($y) <- e(_, $y), not s($y).
    """,
    "arithmetic": """
        c($x, 0) <- n($x), $x < 2. c($x, $n + 1) <- c($y, $n), e($y, $x:int), $n < 4.
        far($x, max($n)) <- c($x, $n).
        pair($x, $y, $z) <- e($x:int, $y:int), $z = $x * 10 + $y, $z % 3 != 0.
    """,
    "functions": """
        t($x, text($x), [min($x, $y), max($x, $y, 2)]) <- e($x:int, $y:int).
        l($x, {$t: len($t + "a")}) <- t($x, $t, _), if($x < 3, starts($t, "1"), contains("34", $t)) = true.
        m(-$x, count($l)) <- t($x, _, $l), not l($x, _). k(max(-$x)) <- m($x, $n), round($n / 2) = 1.
    """,
    "hosted": """
        t($x, host.pair($x, $y)) <- e($x:int, $y:int), host.far($x, $y) = true.
        l($z) <- t($x, $l), $z in $l, host.next($z) > $x.
        m(count($l), host.next(2)) <- t(_, $l), not l($z), n($z).
        c($x) <- n($x). c(host.next($x)) <- c($x), $x < 7, not gone($x).
    """,
    "structure": """
        p($x, point($x, [$y])) <- e($x, $y). q($y) <- p(_, point(_, [$y])).
        r($v) <- p($v(0), _). u($f) <- $f(e(1, _)). k($x) <- exact(e($x, _)).
    """,
    "claimed too": "e($x, $z) <- e($x, $y), e($y, $z). d($x, count($y)) <- e($x, $y).",
    "overlap": """
        p($x, $y) <- e($x, $y). p($x, $y, 1) <- e($y, $x). q($x) <- p($x, $y), n($y).
        q($x) <- p($x, _, 1), not p(_, $x).
    """,
    "self negation": """
        a($x) <- e($x, $y), not e($y, $x). b($x) <- e($x, $x), not a($x).
        z($x) <- n($x), not n($x).
    """,
    "triangles": "t($x, $y, $z) <- e($x, $y), e($y, $z), e($z, $x). c(count($x)) <- t($x, _, _).",
    "through a part": "r($x, $y) <- e($x, $y). r($x, $y) <- r($x, _), r(_, $y), n($x).",
    "doubly": """
        a($x) <- n($x). a($x) <- b($x). b($x) <- a($x), n($x). b($x) <- c($x). c($x) <- b($x).
        c($x) <- e($x, _).
    """,
}
HOSTED = {
    "host.pair": host_function("host.pair", lambda a, b: [a, b], ["int", "int"], "seq"),
    "host.far": host_function("host.far", lambda a, b: abs(a - b) > 1, ["int", "int"], "bool"),
    "host.next": host_function("host.next", lambda n: n + 1, ["number"], "number"),
}
NODES = 5
LONG = int(os.environ.get("TORTURE_ROUNDS", "0"))


def universe() -> list[Value]:
    facts: list[Value] = [Record("e", a, b) for a in range(NODES) for b in range(NODES)]
    facts += [Record("n", a) for a in range(NODES)] + [Record("gone", a) for a in range(NODES)]
    facts += [
        Record("e", 0, 1, 2),
        Record("e", 1, True),
        Record("e", 1.0, 2),
        Record("r", 1, 2),
        Record("p", 1, 2, 3),
    ]
    return facts


def check(program: Program, text: str, claimed: dict[object, Value], told: dict[object, Value]) -> None:
    everything = follow(read_rules(text, HOSTED), claimed.values())
    derived = {key(value): value for value in program.derived()}
    assert set(told) == set(derived), "the changes add up to the state"
    assert set(claimed) | set(derived) == set(everything)


def changes(
    rng: random.Random, facts: list[Value], claimed: dict[object, Value], most: int
) -> tuple[list[Value], list[Value]]:
    """A random turn: what appears and what vanishes."""
    added, removed = [], []
    for fact in rng.sample(facts, rng.randint(1, most)):
        if key(fact) in claimed:
            del claimed[key(fact)]
            removed.append(fact)
        elif len(claimed) < 14 or rng.random() < 0.2:
            claimed[key(fact)] = fact
            added.append(fact)
    return added, removed


def live(name: str, seed: int, ticks: int) -> None:
    rng = random.Random(f"{name}:{seed}")
    facts, text = universe(), PROGRAMS[name]
    program = Program(functions=HOSTED)
    claimed: dict[object, Value] = {}
    told: dict[object, Value] = {}
    program.add(name, text)
    for _ in range(ticks):
        derived = program.tick(*changes(rng, facts, claimed, 1 if rng.random() < 0.7 else 6))
        for value in derived.added:
            assert key(value) not in told
            told[key(value)] = value
        for value in derived.removed:
            del told[key(value)]
        check(program, text, claimed, told)
    assert [entry.error for entry in program.entries.values()] == [""]
    program.tick((), list(claimed.values()))
    assert program.derived() == []
    assert program.size() == 0, "when nothing is claimed no table has an entry"
    relations = [each for engine in program.components for each in engine.dependencies.relations()]
    assert not any(each.states for each in relations), "and nothing is kept for later"


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("name", PROGRAMS)
def test_derived_is_what_follows_after_every_tick(name: str) -> None:
    for seed in range(3 if LONG else 1):  # beside the drawn programs
        live(name, seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_ticks_that_are_computed_anew_say_what_others_would(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[bool] = []
    much_taken_from = EnginePool.much_taken_from

    def taken(pool: EnginePool, added: list[Value], removed: list[Value]) -> dict[ComponentEngine, None]:
        found = much_taken_from(pool, added, removed)
        decided.append(bool(found))
        return found

    monkeypatch.setattr("dataspace.rules.engine.pool.RECOMPUTE_FROM", 0)
    monkeypatch.setattr("dataspace.rules.engine.pool.RECOMPUTE_SHARE", 0.06)
    monkeypatch.setattr("dataspace.rules.engine.program.RECOMPUTE_LEAST", 0)
    monkeypatch.setattr(EnginePool, "much_taken_from", taken)
    live(name, 4, 30)
    assert 3 < sum(decided) < len(decided), "some were, and some were not"


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.skipif(not LONG, reason="make torture: some minutes")
def test_the_same_in_twenty_thousand_ticks() -> None:
    ticks = 0
    for seed in range(3, 3 + max(LONG, -(-20_000 // (60 * len(PROGRAMS))))):
        for name in PROGRAMS:
            live(name, seed, 60)
            ticks += 60
    print(f"{ticks} ticks of {len(PROGRAMS)} programs, each equal to recomputation from nothing")
    assert ticks >= 20_000


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_do_not_matter_and_an_undone_tick_leaves_no_trace(name: str) -> None:
    rng, facts = random.Random(name), universe()
    one, other, claimed = Program(functions=HOSTED), Program(functions=HOSTED), dict[object, Value]()
    one.add(name, PROGRAMS[name])
    other.add(name, PROGRAMS[name])
    for _ in range(30):
        added, removed = changes(rng, facts, claimed, 5)
        one.tick(added, removed)
        for fact in rng.sample(added, len(added)):
            other.tick([fact])
        for fact in removed:
            other.tick((), [fact])
        assert set(map(key, one.derived())) == set(map(key, other.derived()))
        before, size, engines = one.derived(), one.size(), one.statistics().engines
        further = [fact for fact in rng.sample(facts, 3) if key(fact) not in claimed]
        gone = rng.sample(list(claimed.values()), min(2, len(claimed)))
        there, back = one.tick(further, gone), one.tick(gone, further)
        assert {*map(key, there.added)} == {*map(key, back.removed)}
        assert {*map(key, there.removed)} == {*map(key, back.added)}
        assert set(map(key, one.derived())) == set(map(key, before))
        assert one.size() == size or one.statistics().engines > engines


@pytest.mark.slow
def test_rules_that_come_and_go_say_what_they_would_have_said_from_the_start() -> None:
    rng, facts = random.Random(5), universe()
    texts = [
        text for name, text in PROGRAMS.items() if name in ("left", "aggregates", "wildcards", "structure")
    ]
    program, claimed, told = Program(functions=HOSTED), dict[object, Value](), dict[object, Value]()
    active: list[str] = []
    for _ in range(150):
        text = rng.choice(texts)
        if rng.random() < 0.2:
            derived = program.remove("r", text) if text in active else program.add("r", text)
            (active.remove if text in active else active.append)(text)
        else:
            derived = program.tick(*changes(rng, facts, claimed, 2))
        told.update((key(value), value) for value in derived.added)
        for value in derived.removed:
            del told[key(value)]
        assert not any(entry.error for entry in program.entries.values())
        check(program, " ".join(active), claimed, told)


@pytest.mark.slow
@pytest.mark.torture
def test_a_rule_that_raises_is_suspended_with_its_row_and_no_other_result_changes() -> None:
    text = PROGRAMS["left"]
    bad = "ratio($x, 12 / $y) <- e($x, $y). far($x) <- ratio($x, $r), $r > 3."
    for seed in range(30 if LONG else 12):
        rng = random.Random(seed)
        facts: list[Value] = [Record("e", a, b) for a in range(NODES) for b in range(NODES)]
        program, claimed, told = Program(functions=HOSTED), dict[object, Value](), dict[object, Value]()
        program.add("good", text)
        program.add("bad", bad)
        entry, failures = program.entries["bad", bad], 0
        for _ in range(40):
            failed = bool(entry.error)
            derived = program.tick(*changes(rng, facts, claimed, 2))
            entry = program.entries["bad", bad]  # another one if it has been resumed
            told.update((key(value), value) for value in derived.added)
            for value in derived.removed:
                del told[key(value)]
            check(program, text if entry.error else text + bad, claimed, told)
            if entry.error and not failed:
                assert "ZeroDivisionError" in entry.error
                assert entry.row["y"] == 0 and key(Record("e", entry.row["x"], 0)) in claimed
                failures += 1
        assert failures


def test_a_rule_that_runs_away_is_suspended_and_the_others_go_on() -> None:
    program = Program(bounds=Bounds(500))
    runaway = "n($x + 1) <- n($x). n($x) <- start($x)."
    program.add("good", "twice($x, $x) <- start($x).")
    program.add("runaway", runaway)
    derived = program.tick([Record("start", 0)])
    assert "more than 500 new facts in one tick" in program.entries["runaway", runaway].error
    assert derived.added == [Record("twice", 0, 0)] and derived.removed == []


def test_ticks_that_next_causes_without_end_suspend_the_rule() -> None:
    program = Program(max_self_ticks=20)
    text = "next(on()) <- not on()."
    program.add("blink", text)
    ticks = 0
    while program.pending:
        program.tick_again()
        ticks += 1
    assert ticks == 21 and "20 ticks in a row" in program.entries["blink", text].error
    assert program.derived() == []


def waits(program: Program) -> bool:
    """Whether a tick is asked for, asked anew each time."""
    return program.pending


def test_what_is_said_only_counts_in_its_tick() -> None:
    program = Program(functions=HOSTED)
    program.add(
        "log",
        "next(seen($x)) <- said($x). next(seen($x)) <- seen($x), not forget($x). send(ack($x)) <- said($x).",
    )
    derived = program.tick((), (), [Record("said", 1)])
    assert (derived.added, derived.messages, derived.removed) == ([], [Record("ack", 1)], [])
    assert waits(program) and program.tick_again().added == [Record("seen", 1)]
    assert not waits(program)
    assert program.tick((), (), [Record("said", 1)]).messages == [Record("ack", 1)], "said again"
    assert not waits(program)
    assert not program.tick((), (), [Record("forget", 1)])
    assert program.tick_again().removed == [Record("seen", 1)]
    assert not waits(program) and program.size() == 0


def test_a_message_is_sent_again_only_when_its_cause_is_new() -> None:
    program = Program(functions=HOSTED)
    program.add("alarm", "send(alarm($x)) <- hot($x).")
    assert program.tick([Record("hot", 1)]).messages == [Record("alarm", 1)]
    assert not program.add("other", "a($x) <- b($x).").messages, "nor when rules change"
    assert not program.tick([Record("b", 1)]).messages
    program.tick((), [Record("hot", 1)])
    assert program.tick([Record("hot", 1)]).messages == [Record("alarm", 1)]


def test_a_huge_retraction_is_computed_anew_and_says_the_same() -> None:
    program = Program(functions=HOSTED)
    program.add("twice", "twice($x, $y) <- a($x), b($x, $y).")
    facts: list[Value] = [Record("a", n) for n in range(2000)]
    facts += [Record("b", n, n) for n in range(2000)]
    assert len(program.tick(facts).added) == 2000
    engines = program.statistics().engines
    derived = program.tick((), facts[:1500])
    assert len(derived.removed) == 1500 and program.statistics().engines == engines + 1


def test_a_huge_addition_is_computed_anew_where_it_takes_away_and_only_there() -> None:
    program = Program(functions=HOSTED)
    program.add("open", "open($x, $y) <- a($x), b($x, $y), not closed($x). rest($x) <- a($x), not b($x, _).")
    facts: list[Value] = [Record("a", n) for n in range(3000)]
    facts += [Record("b", n, n) for n in range(2000)]
    program.tick(facts)
    engines = program.statistics().engines
    derived = program.tick([Record("c", n) for n in range(3000)])
    assert not derived and program.statistics().engines == engines, "nothing is negated by these"
    derived = program.tick([Record("closed", n) for n in range(900)])
    assert len(derived.removed) == 900 and not derived.added
    assert program.statistics().engines == engines + 1, "the other component has no closed facts"


@pytest.mark.slow
def test_a_space_that_starts_again_derives_the_same_by_functions_of_the_host() -> None:
    text, facts = PROGRAMS["hosted"], universe()
    for seed in range(6):
        rng, numbers, held = random.Random(seed), itertools.count(2), dict[object, int]()
        one, twin = Space("s"), Space("s")
        one.rules.functions = twin.rules.functions = HOSTED
        for space in (one, twin):
            space.commit("me", [(ASSERT, 1, Record("rule", "r", text))], 0)
        for _ in range(40):
            fact = rng.choice(facts)
            action: Action
            if key(fact) in held:
                action = (RETRACT, held.pop(key(fact)))
            else:
                held[key(fact)] = number = next(numbers)
                action = (ASSERT, number, fact)
            for space in (one, twin):
                space.commit("me", [action], 0)
            if rng.random() < 0.2:
                again = Space("s")
                again.rules.functions = HOSTED
                owners = {owner: dict(one.claims(owner)) for owner in one.owners()}
                again.restore(owners, one.epoch, one.time)
                again.advance(0)
                assert again.epoch == one.epoch, "nothing has to be corrected"
                one = again
            assert {*map(key, one.index.values())} == {*map(key, twin.index.values())}
