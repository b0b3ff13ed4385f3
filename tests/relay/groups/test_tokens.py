"""A job is done by the token that was handed out for it last, to that principal: exhaustively.

Each case is one state of an item, one caller and one token of all that there are; the model is a table of the
last delivery of each item.
"""

from __future__ import annotations

from itertools import product

import pytest

from dataspace.errors import Refused
from index.values.values import Record
from relay.groups.core import GroupCore
from relay.groups.members import GroupMember, GroupOptions, JobDelivery
from relay.groups.state import GroupState, Item

STATES = ("waits", "out", "back", "back and out", "done")
TERM = 3
FIRST = TERM << 32


def _core(window: int = 100, begun: int = 50) -> GroupCore:
    options = GroupOptions(window=window, attempts=0)
    return GroupCore(
        GroupState("w"),
        term=TERM,
        options=options,
        holds=lambda _: True,
        handed_before=lambda at: at[0] <= begun,
    )


def _hand_out(core: GroupCore, member: GroupMember) -> JobDelivery:
    core.join(member)
    (delivery,) = core.assign()
    core.leave(GroupMember("none"), blame=False)
    return delivery


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("at", [(10, 0), (60, 0)], ids=["before the start", "since the start"])
def test_only_the_last_delivery_of_an_item_reports_it_as_done(state: str, at: tuple[int, int]) -> None:
    core = _core()
    core.take(Item(at, 0, Record("job", 1), is_message=True))
    last: tuple[int, str] | None = None
    if state != "waits":
        first = _hand_out(core, GroupMember("a", 1, "A"))
        last = (first.token, "A")
        if state.startswith("back"):
            core.leave(first.member, blame=False)
        if state == "back and out":
            last = (_hand_out(core, GroupMember("b", 1, "B")).token, "B")
        if state == "done":
            core.done([at])
    tokens = (0, 1, FIRST - 1, FIRST, *range(FIRST + 1, core.next_token + 3))
    for token, caller in product(tokens, ("A", "B", "C")):
        if state == "done":
            may = False
        elif last is not None:
            may = last == (token, caller)
        else:  # only an earlier daemon can have handed it out, which is not remembered
            may = token < FIRST and at[0] <= 50
        assert (core.judge([(at, token)], caller) == []) is may, (token, caller)


@pytest.mark.parametrize("at", [(10, 0), (51, 0), (1 << 40, 7)])
@pytest.mark.parametrize("token", [0, 1, FIRST - 1, FIRST, FIRST + 1, FIRST + 2])
def test_an_item_that_is_not_read_yet_is_done_only_if_it_was_there_before_the_start(
    at: tuple[int, int], token: int
) -> None:
    core = _core()
    assert (core.judge([(at, token)], "A") == []) is (token < FIRST and at[0] <= 50)


def test_no_more_unread_items_are_done_than_can_have_been_out() -> None:
    core = _core(window=20)
    some = [((10, position), 0) for position in range(20)]
    assert core.judge(some, "A") == []
    core.done([at for at, _ in some])
    assert core.judge([((11, 0), 0)], "A") == [(11, 0)]
    assert len(core.judge([((12, position), 0) for position in range(21)], "A")) == 21
    assert len(core.state.above) == 20
    with pytest.raises(Refused):
        core.judge([((10, 0), 0), ((10, 0), 0)], "A")
