"""Items go to members with credit, oldest first; items given back come again; a key stays with one member."""

from __future__ import annotations

from itertools import product

import pytest

from dataspace.errors import Refused
from index.values.values import Record, Value
from relay.groups.core import GroupCore
from relay.groups.members import MEMBER_BYTES, GroupMember, GroupOptions, JobDelivery
from relay.groups.state import DONE, GROUP, GroupState, GroupStates, Item, done_fields


def item(number: int, key: str = "a") -> Item:
    return Item((number, 0), 0, Record("job", key, number), is_message=True)


def core(*, key: bool = False, attempts: int = 0, term: int = 1) -> GroupCore:
    def key_at(value: Value) -> Value:
        assert isinstance(value, Record)
        return value.fields[0]

    options = GroupOptions(key="key" if key else None, attempts=attempts)
    state = GroupState("w")
    return GroupCore(state, term=term, options=options, holds=lambda _: True, key_at=key_at if key else None)


def numbers(deliveries: list[JobDelivery]) -> list[int]:
    return [each.item.at[0] for each in deliveries]


def test_a_member_that_has_left_holds_up_nobody() -> None:
    group = core()
    gone, stays = GroupMember("gone"), GroupMember("stays")
    group.join(gone)
    group.join(stays)
    group.leave(gone, blame=False)
    group.take(item(1))
    assert [each.member for each in group.assign()] == [stays]


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


@pytest.mark.parametrize("steps", list(product(("done", "again", "leave"), repeat=3)), ids="-".join)
def test_of_a_key_the_items_that_are_out_are_the_oldest_and_with_one_member(steps: tuple[str, ...]) -> None:
    group = core(key=True)
    for name in ("one", "two"):
        group.join(GroupMember(name, 2))
    for number in range(1, 7):
        group.take(item(number, "ab"[number % 2]))
    done: dict[str, list[int]] = {"a": [], "b": []}
    for step in (*steps, *["done"] * 6):
        list(group.assign())
        for queue in group._keys.values():
            out = [each for each in queue.in_order() if each.token]
            assert out == list(queue.out.values())
            assert queue.out.keys().isdisjoint(queue.waiting)
            assert len({group.out[each.token].member.holder for each in out}) <= 1
        first = min(group.out.values(), key=lambda each: each.item.at, default=None)
        if first is None:
            continue
        if step == "done":
            later = [
                each for each in group.out.values() if each.item.key == first.item.key and each is not first
            ]
            if later:
                with pytest.raises(Refused, match="out-of-order"):
                    group.judge([(later[0].item.at, later[0].token)], None)
            assert group.judge([(first.item.at, first.token)], None) == []
            group.done([first.item.at])
            done[first.item.key].append(first.item.at[0])
        elif step == "again":
            group.give_back(first)
        else:
            group.leave(first.member, blame=False)
            group.join(GroupMember(first.member.holder, 2))
    assert done == {"a": [2, 4, 6], "b": [1, 3, 5]} and not group._keys


def test_the_last_attempt_of_an_item_is_made_alone() -> None:
    group = core(attempts=2)
    member = GroupMember("one", 5)
    group.join(member)
    for number in (1, 2, 3):
        group.take(item(number))
    first, *others = group.assign()
    group.give_back(first, due=group.fails(first, 0) or 0)
    group.come_due(10**12)
    group.take(item(4))
    assert numbers(list(group.assign())) == [], "it waits until the member has nothing else"
    group.done([each.item.at for each in others])
    assert numbers(list(group.assign())) == [1]
    assert numbers(list(group.assign())) == [], "nothing goes beside it"
    assert group.fails(member.out[max(member.out)], 0) is None, "it is dead"


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
    states.take_in(DONE, done_fields("w", [(2, 0), (5, 1), (5, 0)]))
    states.take_in("group-again", ("w", 3, 0, 4, 77))
    states.take_in("group-again", ("w", 6, 0, 1, 88))
    (checkpoint,) = states.checkpoints()
    again = GroupStates()
    again.take_in(GROUP, checkpoint)
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


def test_what_comes_again_goes_out_before_what_is_later() -> None:
    group = core()
    member = GroupMember("one", 3)
    group.join(member)
    for number in range(1, 10):
        group.take(item(number))
    first = list(group.assign())
    assert numbers(first) == [1, 2, 3]
    for each in (first[1], first[0]):
        group.give_back(each)
    assert numbers(list(group.assign())) == [1, 2]
    group.done([(1, 0), (2, 0), (3, 0)])
    again = list(group.assign())
    assert numbers(again) == [4, 5, 6]
    group.give_back(again[2], due=1)
    group.done([(4, 0), (5, 0)])
    assert numbers(list(group.assign())) == [7, 8, 9]
    group.come_due(1)
    group.take(item(10))
    group.done([(7, 0), (8, 0)])
    assert numbers(list(group.assign())) == [6, 10]


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


def test_after_a_start_a_member_keeps_the_first_items_of_a_key_and_none_whose_key_another_has() -> None:
    group, before = core(key=True, term=2), 1 << 32 | 7
    one, two = GroupMember("one", 2), GroupMember("two", 2)
    for number in (1, 2, 3):
        group.take(item(number))
    assert group.adopt((2, 0), before, one) is None, "the first of its key is not done"
    assert group.adopt((1, 0), 2 << 32, one) is None, "a token of this term was handed out by this daemon"
    kept = group.adopt((1, 0), before, one)
    assert kept is not None and (kept.item.at, kept.member, group.counts.adopted) == ((1, 0), one, 1)
    assert group.adopt((2, 0), before, two) is None, "the key is with another member"
    assert group.adopt((2, 0), before, one) is not None
    group.done([(1, 0), (2, 0)])
    assert group.counts.done == 2
    assert group.adopt((3, 0), before, two) is not None, "nobody has the key"
