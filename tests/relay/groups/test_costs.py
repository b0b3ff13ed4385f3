"""What a request does to n items of one group costs n, in whatever order a client names them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from types import FrameType
from typing import Any, Final

import pytest

from relay.groups.core import GroupCore
from relay.groups.members import GroupMember, JobDelivery
from relay.groups.state import Item
from tests.relay.groups.test_core import core, item

COUNT: Final = 150
SLACK: Final = 1.3
"""Twice the items may cost so many times twice as much: tables grow in jumps."""


def _done(group: GroupCore, member: GroupMember, given: list[JobDelivery]) -> None:
    assert group.judge([(each.item.at, each.token) for each in given], None) == []
    group.done([each.item.at for each in given])


def _each_done(group: GroupCore, member: GroupMember, given: list[JobDelivery]) -> None:
    for delivery in sorted(given, key=lambda each: each.item.at):
        assert group.judge([(delivery.item.at, delivery.token)], None) == []
        group.done([delivery.item.at])
        list(group.assign())


def _again(group: GroupCore, member: GroupMember, given: list[JobDelivery]) -> None:
    for delivery in given:
        if delivery.token in group.out:
            group.give_back(delivery)


def _leave(group: GroupCore, member: GroupMember, given: list[JobDelivery]) -> None:
    assert group.leave(member, blame=False) == []


def _blamed(group: GroupCore, member: GroupMember, given: list[JobDelivery]) -> None:
    for delivery in given:
        delivery.deadline = 1.0
    failed = group.leave(member, blame=True)
    assert len(failed) == len(given)
    for delivery in failed:
        if delivery.token in group.out:
            group.give_back(delivery)


def _join(group: GroupCore, member: GroupMember, given: list[JobDelivery]) -> None:
    group.join(GroupMember("m", 10_000))


ENDS: Final[dict[str, Callable[[GroupCore, GroupMember, list[JobDelivery]], None]]] = {
    "done": _done,
    "each done": _each_done,
    "again": _again,
    "leave": _leave,
    "leave, blamed": _blamed,
    "join": _join,
}
ORDERS: Final[dict[str, Callable[[list[JobDelivery]], list[JobDelivery]]]] = {
    "forward": lambda given: given,
    "backward": lambda given: given[::-1],
    "inside out": lambda given: [*given[1::2], *given[::2][::-1]],
}


def _steps(monkeypatch: pytest.MonkeyPatch, function: Callable[[], None]) -> int:
    """Returns how many lines a function carries out, and how many items it compares."""
    count = 0

    def trace(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    def same(one: object, other: object) -> bool:
        nonlocal count
        count += 1
        return one is other

    before = sys.gettrace()
    with monkeypatch.context() as patched:
        for kind in Item, JobDelivery, GroupMember:  # what searches of lists and queues do is done in C
            patched.setattr(kind, "__eq__", same)
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(before)
    return count


def _cost(monkeypatch: pytest.MonkeyPatch, end: str, order: str, keys: int, count: int) -> int:
    group, member = core(key=keys > 0), GroupMember("m", 10_000)
    group.join(member)
    for number in range(1, count + 1):
        group.take(item(number, f"{number % (keys or 1)}"))
    given = ORDERS[order](list(group.assign()))
    assert len(given) == count
    return _steps(monkeypatch, lambda: ENDS[end](group, member, given))


@pytest.mark.parametrize(("end", "order", "keys"), list(product(ENDS, ORDERS, (0, 1, 7, COUNT))))
def test_twice_the_items_cost_twice_as_much(
    monkeypatch: pytest.MonkeyPatch, end: str, order: str, keys: int
) -> None:
    one = _cost(monkeypatch, end, order, keys, COUNT)
    other = _cost(monkeypatch, end, order, min(keys, 7) if keys < COUNT else 2 * COUNT, 2 * COUNT)
    assert other <= 2 * SLACK * one + 50


def test_a_member_of_many_stands_in_the_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = []
    for count in (100, 200):
        group = core()
        members = [GroupMember(at, 1) for at in range(count)]
        for member in members:
            group.join(member)
        for number in range(1, count + 1):
            group.take(item(number))
        given = list(group.assign())
        costs.append(_steps(monkeypatch, lambda: _done(group, members[0], given)))  # noqa: B023  # called at once
        assert len(group._row) == count
    assert costs[1] <= 2 * SLACK * costs[0]
