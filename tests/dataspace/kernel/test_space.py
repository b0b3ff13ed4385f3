"""A space agrees with a bag of claims: observers hear exactly its transitions, refusals change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import example, given, strategies as st

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.bulk_assertions import replacing
from dataspace.kernel.changes import Changes, Epoch
from dataspace.kernel.handles import FRESH
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from index.patterns.patterns import capture, matcher
from index.values.values import Map, Record, Value, key
from tests.dataspace.kernel.ledger import Ledger

OWNERS = ("session:1", "session:2", "durable:a")
facts: st.SearchStrategy[Value] = st.one_of(
    st.builds(
        lambda label, field: Record(label, field),
        st.sampled_from(["p", "q"]),
        st.sampled_from([1, True, 1.0, "1", None]),
    ),
    st.sampled_from(["p", 1, True, ("p", 1), Record(("p",), 1)]),
)
handles = st.integers(1, 4)
actions: st.SearchStrategy[Action] = st.one_of(
    st.tuples(st.just(ASSERT), handles, facts),
    st.tuples(st.just(RETRACT), handles),
    st.tuples(st.just(SEND), facts),
    st.tuples(st.just(REPLACE), handles, handles, facts),
)
turns = st.lists(st.tuples(st.sampled_from(OWNERS), st.lists(actions, max_size=4)), max_size=12)
PATTERNS: tuple[Value, ...] = (capture(), Record("p", capture()), Record("q", Record("_")), Record("p", 1))


class _Ear:
    def __init__(self) -> None:
        self.heard: list[Changes] = []

    def offer(self, changes: Changes) -> None:
        self.heard.append(changes)


def _applied(model: dict[str, dict[int, Value]], owner: str, turn: list[Action]) -> bool:
    """The turn done to plain dicts: False if it must be refused."""
    claims = dict(model.get(owner, {}))
    for action in turn:
        verb, at = action[0], action[1]
        if verb in (ASSERT, REPLACE):
            new = action[1] if verb == ASSERT else action[2]
            if new in claims or (verb == REPLACE and at not in claims):
                return False
            claims[new] = action[-1]  # type: ignore[index]  # a handle
        if verb in (RETRACT, REPLACE):
            if at not in claims:
                return False
            del claims[at]  # type: ignore[arg-type]  # a handle
    model[owner] = claims
    return True


def _bag(model: dict[str, dict[int, Value]]) -> Counter[object]:
    return Counter(key(value) for claims in model.values() for value in claims.values())


@given(turns)
def test_a_space_is_a_bag_of_claims(turns: list[tuple[str, list[Action]]]) -> None:
    space, model = Space("main"), dict[str, dict[int, Value]]()
    ears = {key(pattern): _Ear() for pattern in PATTERNS}
    for pattern in PATTERNS:
        space.observe(pattern, ears[key(pattern)])
    for now, (owner, turn) in enumerate(turns):
        before, number = _bag(model), space.epoch
        accepted = _applied(model, owner, turn)
        try:
            epoch: Epoch | None = space.commit(owner, turn, now)
        except Refused:
            epoch = None
        assert (epoch is not None) == accepted
        after = _bag(model)
        came, went = set(after) - set(before), set(before) - set(after)
        if epoch is None:
            assert (space.epoch, before) == (number, after)
        else:
            assert {key(value) for value in epoch.added} == came
            assert {key(value) for value in epoch.removed} == went
            assert epoch.silent == (not came and not went and not epoch.messages)
            assert epoch.number == number + (not epoch.silent)
        assert {owner: dict(space.claims(owner)) for owner in OWNERS} == {
            owner: model.get(owner, {}) for owner in OWNERS
        }
        space.index.check()
    _check_heard(space, ears)


def _check_heard(space: Space, ears: dict[object, _Ear]) -> None:
    """Applied one after the other, what each observer heard is what matches now."""
    for pattern in PATTERNS:
        seen: set[object] = set()
        newest = 0
        for changes in ears[key(pattern)].heard:
            assert changes.number > newest
            newest = changes.number
            for row in changes.added:
                assert key(row) not in seen
                seen.add(key(row))
            for row in changes.removed:
                seen.remove(key(row))
        match = matcher(pattern)
        rows = [match(value) for value in space.index.values()]
        assert seen == {key(row) for row in rows if row is not None}


@given(turns)
def test_a_restored_space_goes_on_as_if_nothing_had_been(turns: list[tuple[str, list[Action]]]) -> None:
    space = Space("main")
    for now, (owner, turn) in enumerate(turns):
        try:
            space.commit(owner, turn, now)
        except Refused:
            pass
    again = Space("main")
    again.restore(space.all_claims(), space.epoch, space.time)
    again.index.check()
    ended = [each.end(OWNERS, 1000) for each in (space, again)]
    assert ended[0] == ended[1]
    assert len(space.index) == len(again.index) == 0


@given(turns)
@example([("durable:a", [(ASSERT, 1, "a")]), ("durable:a", [(RETRACT, 1), (ASSERT, 1, "b")])])
@example([("durable:a", [(ASSERT, 1, "a")]), ("durable:a", [(RETRACT, 1), (ASSERT, 1, "b"), (RETRACT, 1)])])
@example([("durable:a", [(ASSERT, 1, "a"), (RETRACT, 1), (ASSERT, 1, "b")])])
@example([("durable:a", [(ASSERT, 1, "a")]), ("durable:a", [(REPLACE, 1, 2, "b"), (REPLACE, 2, 1, "c")])])
def test_what_epochs_say_of_claims_is_what_is_claimed(turns: list[tuple[str, list[Action]]]) -> None:
    space, ledger = Space("main"), Ledger()
    for now, (owner, turn) in enumerate(turns):
        try:
            ledger.take(space.commit(owner, turn, now))
        except Refused:
            continue
        assert {owner: dict(held.items()) for owner, held in space.all_claims().items()} == ledger.owners


def test_time_never_goes_back() -> None:
    space = Space("main")
    times = [space.commit("me", [(SEND, 1)], now).time for now in (5, 3, 9)]
    assert times == [5, 5, 9]


NO_ACTIONS = [
    *[(), (9,), (ASSERT, 1), (ASSERT, "1", 2), (True, 1, 2), (SEND,), ("x", 1)],
    *[1, None, "assert", Map({0: 1}), Record("x", 1), [ASSERT, 1, 2], b"\0\1\2"],
]


@pytest.mark.parametrize("action", NO_ACTIONS)
def test_what_is_no_action_breaks_the_protocol_and_changes_nothing(action: Action) -> None:
    space = Space("main")
    space.commit("me", [(ASSERT, 1, "x")], 0)
    with pytest.raises(ProtocolError, match=r"no action|a handle is"):
        space.commit("me", [(ASSERT, 2, "y"), (RETRACT, 1), action], 0)
    assert (space.epoch, [*space.index.values()], dict(space.claims("me"))) == (1, ["x"], {1: "x"})
    space.end(["me"], 0)
    assert not len(space.index)


def test_what_the_log_does_not_take_has_not_happened() -> None:
    def refuse(epoch: Epoch) -> None:
        raise OSError(f"no room for epoch {epoch.number}")

    space, ear = Space("main"), _Ear()
    space.observe(capture(), ear)
    space.commit("me", [(ASSERT, 1, "x")], 1)
    turns: list[Callable[[], object]] = [
        lambda: space.commit("me", [(REPLACE, 1, 2, "y"), (SEND, "m")], 9, submit=refuse),
        lambda: space.end(["me"], 9, submit=refuse),
    ]
    for turn in turns:
        with pytest.raises(OSError, match="no room for epoch 2"):
            turn()
        space.index.check()
        assert (space.epoch, space.time, dict(space.claims("me"))) == (1, 1, {1: "x"})
        assert ([*space.index.values()], len(ear.heard)) == (["x"], 1)


def test_an_observer_that_raises_keeps_no_other_from_being_told() -> None:
    class Deaf:
        def offer(self, changes: Changes) -> None:
            raise OSError(f"epoch {changes.number}")

    space, ears = Space("main"), [_Ear(), _Ear(), _Ear()]
    space.observe(capture(), ears[0])
    space.observe(capture(), Deaf())
    space.observe(capture(), ears[1])
    space.observe("x", ears[2])
    with pytest.raises(OSError, match="epoch 1"):
        space.commit("me", [(ASSERT, 1, "x")], 1)
    assert [[changes.number for changes in ear.heard] for ear in ears] == [[1], [1], [1]]
    assert dict(space.claims("me")) == {1: "x"}  # the turn stands


def test_only_an_empty_space_is_restored() -> None:
    space = Space("main")
    space.commit("me", [(ASSERT, 1, "x")], 0)
    with pytest.raises(UsageError, match="is not empty"):
        space.restore({}, 0, 0)


def test_a_set_that_is_replaced_keeps_what_stays() -> None:
    space = Space("main")
    space.commit("me", [(ASSERT, 1, "a"), (ASSERT, 2, "b")], 0)
    plan = replacing(space.claims("me"), ["b", "c", "c"], 10)
    assert sorted(plan, key=repr) == [(ASSERT, 10, "c"), (RETRACT, 1)]


@given(turns)
def test_a_turn_without_an_epoch_does_the_same(turns: list[tuple[str, list[Action]]]) -> None:
    known, quick = Space("known"), Space("quick")
    ears = {pattern: (_Ear(), _Ear()) for pattern in map(key, PATTERNS)}
    for pattern in PATTERNS:
        for space, ear in zip((known, quick), ears[key(pattern)], strict=True):
            space.observe(pattern, ear)
    for now, (owner, turn) in enumerate(turns):
        try:
            known.commit(owner, turn, now)
        except Refused:
            continue  # what an actor does can only be refused for want of room
        quick.act(owner, turn, now)
    assert quick.all_claims() == known.all_claims()
    assert quick.statistics() == known.statistics()
    for one, other in ears.values():
        assert list(map(_told, one.heard)) == list(map(_told, other.heard))


def _told(changes: Changes) -> tuple[object, ...]:
    return changes.number, changes.time, *map(list, (changes.added, changes.messages, changes.removed))


@pytest.mark.parametrize("limits", [SpaceLimits(facts_per_owner=1), SpaceLimits(facts=1)])
def test_a_turn_without_an_epoch_is_taken_back_where_there_is_no_room(limits: SpaceLimits) -> None:
    space = Space("s", limits=limits)
    space.act("a", [(ASSERT, 1, 1), (ASSERT, 2, 2), (RETRACT, 1)], 0)
    with pytest.raises(Refused, match=r"the limit is limits\.facts"):
        space.act("a", [(SEND, 5), (REPLACE, 2, 3, 3), (ASSERT, 4, 4)], 0)
    assert dict(space.claims("a")) == {2: 2}
    assert space.epoch == 1


def test_a_rule_works_in_a_turn_without_an_epoch() -> None:
    space = Space("s")
    space.act("a", [(ASSERT, 1, Record("rule", "r", "q($x) <- p($x)."))], 0)
    space.act("a", [(ASSERT, 2, Record("p", 1))], 0)
    assert space.matches(Record("q", capture())) == [(1,)]


@given(turns)
def test_a_fresh_handle_is_above_all_that_were_so_for_its_owner(
    turns: list[tuple[str, list[Action]]],
) -> None:
    space = Space("s")
    last = dict.fromkeys(OWNERS, FRESH.start - 1)
    for now, (owner, turn) in enumerate(turns):
        try:
            space.commit(owner, turn, now)
        except Refused:
            continue
        fresh = space.fresh_handle(owner)
        assert fresh == last[owner] + 1
        space.commit(owner, [(ASSERT, fresh, "here")], now)
        last[owner] = fresh
