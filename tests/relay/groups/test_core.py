"""How items are shared, their sizes, waits, tokens and checkpoints; who gets which: `tests/generated`."""

from __future__ import annotations

import pytest

from dataspace.errors import Refused
from index.values.values import Record, Value
from relay.groups.core import GroupCore
from relay.groups.members import MEMBER_BYTES, GroupMember, GroupOptions, JobDelivery
from relay.groups.state import DONE, GROUP, GroupState, GroupStates, Item, done_fields


def item(number: int, key: str = "a") -> Item:
    return Item((number, 0), 0, Record("job", key, number), is_message=True)


def core(*, key: bool = False, term: int = 1) -> GroupCore:
    def key_at(value: Value) -> Value:
        assert isinstance(value, Record)
        return value.fields[0]

    options = GroupOptions(key="key" if key else None, attempts=0)
    state = GroupState("w")
    return GroupCore(state, term=term, options=options, holds=lambda _: True, key_at=key_at if key else None)


def numbers(deliveries: list[JobDelivery]) -> list[int]:
    return [each.item.at[0] for each in deliveries]


def test_items_are_shared_among_members_with_credit() -> None:
    group = core()
    members = [GroupMember(number, 50) for number in range(4)]
    for member in members:
        group.join(member)
    for number in range(1, 101):
        group.take(item(number))
    given = list(group.assign())
    assert numbers(given) == list(range(1, 101))
    assert all(len(member.out) >= 16 for member in members)


def test_a_token_of_another_delivery_is_refused_and_one_of_an_earlier_term_is_not() -> None:
    group = core(term=2)
    group.join(GroupMember("one"))
    group.take(item(1))
    (old,) = group.assign()
    group.give_back(old)
    assert group.judge([(old.item.at, old.token)], None) == [], "it is out to nobody"
    (new,) = group.assign()
    assert new.token > old.token
    assert group.judge([(old.item.at, old.token)], None) == [old.item.at]
    assert group.judge([(new.item.at, new.token)], None) == []
    assert group.judge([((9, 0), 5)], None) == [], "not read yet since the start: of an earlier term"
    assert group.judge([((9, 0), new.token)], None) == [(9, 0)]
    group.done([new.item.at])
    assert group.judge([(new.item.at, new.token)], None) == [new.item.at]


def test_what_was_not_read_since_the_start_is_not_done_where_keys_have_an_order() -> None:
    group = core(key=True, term=2)
    with pytest.raises(Refused, match=r"out-of-order: item .* was not read yet since the start"):
        group.judge([((9, 0), 5)], None)
    group.take(item(8))
    group.take(item(9))
    with pytest.raises(Refused, match=r"out-of-order: item .* is done before item"):
        group.judge([((9, 0), 5)], None)
    assert group.judge([((8, 0), 4), ((9, 0), 5)], None) == []


def test_a_checkpoint_has_what_is_undone_and_what_is_done_beyond_it() -> None:
    states = GroupStates()
    group = states["w"] = GroupState("w")
    for number in (1, 2, 3):
        group.take(item(number))
    states.apply(DONE, done_fields("w", [(2, 0), (5, 1), (5, 0)]))
    states.apply("group-again", ("w", 3, 0, 4, 77))
    states.apply("group-again", ("w", 6, 0, 1, 88))
    ((_, (checkpoint,)),) = states.rows()
    again = GroupStates()
    again.apply(GROUP, checkpoint)
    found = again["w"]
    assert (sorted(found.undone), found.read, found.above) == ([(1, 0), (3, 0)], (3, 0), {(5, 0), (5, 1)})
    assert (found.undone[3, 0].attempts, found.undone[3, 0].due, found.failed) == (4, 77, {(6, 0): (1, 88)})
    assert not found.take(item(5)) and found.take(item(6)) and found.undone[6, 0].attempts == 1


def test_about_so_many_bytes_are_out_to_a_member_and_one_item_of_any_size() -> None:
    group = core()
    member = GroupMember("one", 100)
    group.join(member)
    half = MEMBER_BYTES // 2
    for number, size in enumerate((half, half, 10, 3 * MEMBER_BYTES, 10), 1):
        made = item(number)
        made.size = size
        group.take(made)
    out = list(group.assign())
    assert numbers(out) == [1, 2]
    group.done([out[0].item.at])
    out = list(group.assign())
    assert numbers(out) == [3, 4], "it had less than that out"
    group.done([(2, 0), (3, 0)])
    assert numbers(list(group.assign())) == []
    group.give_back(out[1])
    assert numbers(list(group.assign())) == [4]
    group.done([(4, 0)])
    assert numbers(list(group.assign())) == [5]
    group.done([(5, 0)])
    assert (member.size, group.size) == (0, 0)


def test_deliveries_that_were_taken_are_forgotten_with_their_end() -> None:
    group = core()
    group.join(GroupMember("one", 3))
    for number in range(1, 4):
        group.take(item(number))
    for each in group.assign():
        group.taken[each.token] = each
    group.done([(1, 0)])
    group.give_back(next(iter(group.taken.values())))
    assert [each.item.at[0] for each in group.taken.values()] == [3]


def test_an_item_that_fails_waits_twice_as_long_each_time_and_half_a_minute_at_most() -> None:
    group = core()
    group.join(GroupMember("one"))
    group.take(item(1))
    (delivery,) = group.assign()
    waits = [group.fails(delivery, 5) for _ in range(12)]
    assert waits == [5 + min(100_000 * 2**n, 30_000_000) for n in range(12)]
    assert group.fails(delivery, 5, blame=False) == 0, "nobody is to blame, and nothing was asked for"
    assert group.fails(delivery, 5, after=0.2, blame=False) == 5 + 200_000
