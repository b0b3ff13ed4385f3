"""What rules derive in a space is in the epoch of its cause, claimed as it is logged, and by nobody else."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.changes import Changes, Numbered
from dataspace.kernel.derivation import RULES
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.language.parser import read_rules
from index.patterns.patterns import capture, matcher
from index.values.values import Record, Value, key
from tests.dataspace.kernel.ledger import Ledger
from tests.model.rules import follow

TEXT = """
    reach($x, $y) <- edge($x, $y). reach($x, $z) <- reach($x, $y), edge($y, $z).
    lone($x) <- node($x), not reach($x, _). degree($x, count($y)) <- edge($x, $y).
"""
_ = Record("_")
OWNERS = ("session:1", "durable:a")
PATTERNS: tuple[Value, ...] = (capture(), Record("reach", 1, capture()), Record("lone", capture()))

nodes = st.integers(1, 3)
facts = st.one_of(
    st.builds(
        lambda label, x, y: Record(label, x, y), st.sampled_from(["edge", "edge", "reach"]), nodes, nodes
    ),
    st.builds(lambda x: Record("node", x), nodes),
    st.sampled_from([Record("rule", "r", TEXT), "reach", (1, 2), Record(1, 2)]),
)
handles = st.integers(1, 6)
actions: st.SearchStrategy[Action] = st.one_of(
    st.tuples(st.just(ASSERT), handles, facts), st.tuples(st.just(RETRACT), handles)
)
turn_actions = st.lists(actions, max_size=6)
turns = st.lists(st.tuples(st.sampled_from(OWNERS), turn_actions), max_size=10)


class Ear:
    """What an observer has been told of, one change after the other."""

    def __init__(self) -> None:
        self.rows: set[object] = set()

    def offer(self, changes: Changes) -> None:
        for row in changes.added:
            assert key(row) not in self.rows
            self.rows.add(key(row))
        for row in changes.removed:
            self.rows.remove(key(row))


def keys(values: object) -> set[object]:
    return {key(value) for value in values}  # type: ignore[attr-defined]  # of whatever gives values


def check(space: Space, ledger: Ledger, ears: list[Ear]) -> None:
    """The space holds what follows from the claims in the ledger, and observers have been told so."""
    claimed = [value for owner in OWNERS for value in ledger.owners.get(owner, {}).values()]
    rules = read_rules(TEXT) if key(Record("rule", "r", TEXT)) in keys(claimed) else ()
    expected = follow(rules, claimed)
    assert keys(space.index.values()) == expected.keys()
    assert keys(space.claims(RULES).values()) == expected.keys() - keys(claimed)
    assert {owner: dict(held.items()) for owner, held in space.all_claims().items()} == ledger.owners
    assert space.statistics().claims == len(claimed) + len(space.claims(RULES))
    for pattern, ear in zip(PATTERNS, ears, strict=True):
        match = matcher(pattern)
        assert ear.rows == keys(row for each in expected.values() if (row := match(each)) is not None)
    space.index.check()


@settings(max_examples=50)
@given(turns)
def test_each_turn_leaves_what_follows_and_a_log_that_says_so(turns: list[tuple[str, list[Action]]]) -> None:
    space, ledger, ears = Space("main"), Ledger(), [Ear() for _ in PATTERNS]
    for pattern, ear in zip(PATTERNS, ears, strict=True):
        space.observe(pattern, ear)
    begin: list[Action] = [(ASSERT, 100, Record("rule", "r", TEXT)), (ASSERT, 101, Record("edge", 1, 2))]
    for now, (owner, turn) in enumerate([(OWNERS[1], begin), *turns]):
        before = keys(space.index.values())
        try:
            epoch = space.commit(owner, turn, now)
        except Refused:
            continue
        ledger.take(epoch)
        check(space, ledger, ears)
        after = keys(space.index.values())
        assert (keys(epoch.added), keys(epoch.removed)) == (after - before, before - after)
    again = Space("main")
    again.restore(ledger.owners, space.epoch, space.time)
    assert again.claims(RULES) == space.claims(RULES), "as they are logged, before the rules have run"
    made = again.advance(0)
    assert made is None or not made.claims, "what is restored still follows"
    assert keys(again.index.values()) == keys(space.index.values())


@settings(max_examples=50)
@given(turns, turns)
def test_a_restored_space_takes_further_turns_as_if_there_had_been_no_restart(
    before: list[tuple[str, list[Action]]], after: list[tuple[str, list[Action]]]
) -> None:
    space, again = Space("main"), Space("main")
    commit_all(space, [(OWNERS[1], [(ASSERT, 100, Record("rule", "r", TEXT))]), *before])
    again.restore(space.all_claims(), space.epoch, space.time)
    again.advance(0)
    edge: list[Action] = [(ASSERT, 101, Record("edge", 1, 2))]
    for each in (space, again):
        commit_all(each, [(OWNERS[0], edge), *after])
    assert keys(again.index.values()) == keys(space.index.values())
    assert keys(again.claims(RULES).values()) == keys(space.claims(RULES).values())


def commit_all(space: Space, turns: list[tuple[str, list[Action]]]) -> None:
    """Commits what is not refused."""
    for owner, turn in turns:
        with suppress(Refused):
            space.commit(owner, turn, 0)


def test_claims_under_handles_in_a_row_read_as_pairs() -> None:
    row = Numbered(7, ["a", "b", "c"])
    pairs = [(7, "a"), (8, "b"), (9, "c")]
    assert (list(row), len(row), row[1], row[-1], row[1:]) == (pairs, 3, pairs[1], pairs[-1], pairs[1:])
    assert (8, "b") in row and not Numbered(1, [])


def errors(space: Space) -> dict[Value, Value]:
    """The reason of each ``rule-error``, by the name of the rule."""
    pattern = Record("rule-error", capture("name"), _, _, capture("why"))
    return {row[0]: row[1] for row in space.matches(pattern)}


def test_a_text_for_which_there_is_no_room_is_said_to_be_one_too_many() -> None:
    space = Space("main", limits=SpaceLimits(rules=2))
    texts: list[Action] = [(ASSERT, n, Record("rule", f"r{n}", f"b{n}($x <- a($x).")) for n in range(4)]
    space.commit("me", texts, 0)
    assert all("expected" in str(why) for why in errors(space).values()) and len(errors(space)) == 4
    good = Record("rule", "good", "b($x) <- a($x).")
    space.commit("me", [(ASSERT, 8, good), (ASSERT, 9, Record("a", 1))], 0)
    assert errors(space)["good"] == "not looked at: there are 4 texts of rules already"
    again = Space("main", limits=SpaceLimits(rules=2))
    again.restore(space.all_claims(), space.epoch, space.time)
    again.advance(0)
    assert len(errors(again)) == 5 and not again.matches(Record("b", capture()))
    space.commit("me", [(RETRACT, 0)], 0)
    assert "good" in errors(space), "it has to be asserted anew"
    space.commit("me", [(RETRACT, 8)], 0)
    space.commit("me", [(ASSERT, 8, good)], 0)
    assert "good" not in errors(space) and space.matches(Record("b", capture())) == [(1,)]
    space.commit("me", [(RETRACT, handle) for handle in (1, 2, 3, 8, 9)], 0)
    assert not errors(space) and not space.rules.awake


def test_of_two_that_are_wrong_alike_the_error_stays_until_the_last_goes() -> None:
    space = Space("main")
    long = "x" * 100
    space.commit("me", [(ASSERT, n, Record("rule", "x", 3, long, n)) for n in range(2)], 0)
    for handle, left in ((0, 1), (1, 0)):
        assert len(errors(space)) == 1
        space.commit("me", [(RETRACT, handle)], 0)
        assert len(errors(space)) == left
    assert not space.rules.awake


def test_what_is_called_a_rule_and_is_none_is_told_for_as_long_as_it_is_there() -> None:
    space = Space("main")
    wrong = {
        1: Record("rule", "x", 3),
        2: Record("rule", "only"),
        3: Record("rule"),
        4: Record("rule", 1, 2, 3),
    }
    space.commit("me", [(ASSERT, handle, value) for handle, value in wrong.items()], 0)
    pattern = Record("rule-error", *[capture(name) for name in ("name", "text", "row", "why")])
    assert {row[3]: row[:2] for row in space.matches(pattern)} == {
        'a rule is rule(name, text), not rule("x", 3)': ("x", 3),
        'a rule is rule(name, text), not rule("only")': ("only", None),
        "a rule is rule(name, text), not rule()": (None, None),
        "a rule is rule(name, text), not rule(1, 2, 3)": (1, 2),
    }
    again = Space("main")
    again.restore(space.all_claims(), space.epoch, space.time)
    again.advance(0)
    for each in (space, again):
        each.commit(
            "me", [(ASSERT, 5, Record("rule", "good", "b($x) <- a($x).")), (ASSERT, 6, Record("a", 1))], 0
        )
        assert each.matches(Record("b", capture())) == [(1,)]
        each.commit("me", [(RETRACT, 1), (RETRACT, 5)], 0)
        assert len(each.matches(pattern)) == 3
        assert not each.matches(Record("b", capture()))
        each.commit("me", [(RETRACT, 2), (RETRACT, 3), (RETRACT, 4)], 0)
        assert not each.matches(pattern)
        assert not each.rules.awake, "turns are not told any more"
