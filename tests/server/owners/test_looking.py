"""A look finds what stood all the time, whatever changes meanwhile, and requests that wait copy nothing."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import given, strategies as st

from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.handles import handle_at
from dataspace.kernel.space import Space
from dataspace.wire import packets as p
from index.patterns.patterns import matcher
from index.values.values import Map, Record, Value
from server.turns.claims import STEP, look, still_claims
from tests.server.streams.inside import Inside, inside

OWNER: Final = "durable:me"
PATTERN: Final = Record("p", Record("_"), 1)
MANY: Final = 10_000
HALF: Final = MANY // 2
MIB: Final = 1 << 20

Change = tuple[int, bool, int]
"""How many steps of the look come before it, whether it is a claim or the end of one, and which handle."""


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 5 * STEP)), max_size=20),
    st.lists(st.booleans(), min_size=3 * STEP, max_size=4 * STEP),
)
def test_what_stood_from_first_to_last_is_found_and_nothing_else(
    changes: list[Change], fits: list[bool]
) -> None:
    space = Space("main")
    claimed = {handle: Record("p", handle, int(fit)) for handle, fit in enumerate(fits)}
    space.commit(OWNER, [(ASSERT, handle, value) for handle, value in claimed.items()], 1)
    first = dict(claimed)
    stood = {handle for handle, value in claimed.items() if value.fields[1] == 1}
    found, steps = list[tuple[int, Value]](), look(space, OWNER, matcher(PATTERN))

    def step() -> bool:
        for each in steps:
            if each is None:
                return True
            found.append((handle_at(each.place), each.value))
        return False

    going_on = step()  # which is when its turn has come
    for count, comes, handle in changes:
        for _ in range(count):
            going_on = going_on and step()
        action: Action
        if comes and handle not in claimed:
            claimed[handle] = Record("p", -handle, 1)
            action = (ASSERT, handle, claimed[handle])
        elif not comes and handle in claimed:
            del claimed[handle]
            stood.discard(handle)
            action = (RETRACT, handle)
        else:
            continue
        space.commit(OWNER, [action], 2)
    while going_on:
        going_on = step()
    handles = [handle for handle, _ in found]
    assert len(set(handles)) == len(handles)
    assert stood <= set(handles) <= first.keys()
    assert all(matcher(PATTERN)(value) is not None for _, value in found)


def test_what_has_ended_or_was_claimed_again_is_no_longer_what_was_found() -> None:
    space = Space("main")
    space.commit(OWNER, [(ASSERT, 1, Record("p", 1)), (ASSERT, 2, Record("p", 2))], 1)
    one, two = [each for each in look(space, OWNER, matcher(Record("p"))) if each is not None]
    space.commit(OWNER, [(RETRACT, 1)], 2)
    assert (still_claims(space, OWNER, one), still_claims(space, OWNER, two)) == (False, True)
    space.commit(OWNER, [(ASSERT, 1, Record("p", 3))], 3)
    assert not still_claims(space, OWNER, one)


REQUESTS: Final[dict[str, Map]] = {
    "withdraw": Map({"owner": "me", "pattern": Record("none")}),
    "owners": Map({"pattern": Record("none")}),
}


@pytest.mark.parametrize("verb", sorted(REQUESTS))
async def test_requests_that_wait_hold_their_own_bytes(tmp_path: Path, verb: str) -> None:
    """100 of them held 100 copies of all that the owner claims."""
    with trio.fail_after(120):
        async with inside(tmp_path) as made:
            hosted = made.hosted
            hosted.commit(OWNER, [(ASSERT, n, Record("many", n)) for n in range(MANY)])
            wires = [made.connect() for _ in range(4)]
            for n, wire in enumerate(wires):
                await wire.greet(f"~peer{n}")
            tracemalloc.start()
            try:
                for wire in wires:
                    await wire.say(*[p.Request(n, verb, REQUESTS[verb]) for n in range(25)])
                for wire in wires:
                    for _ in range(25):
                        assert isinstance(await wire.hear(), p.Answer)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 6 * MIB


async def test_a_withdrawal_retracts_what_stood_at_its_turn_while_others_come_and_go(tmp_path: Path) -> None:
    """Every claim ends once: by the withdrawal or by the turns beside it, and what came later stays."""
    with trio.fail_after(120):
        async with inside(tmp_path) as made:
            hosted = made.hosted
            facts = [(ASSERT, n, Record("p", n, n % 2)) for n in range(MANY)]
            hosted.commit(OWNER, facts)
            wire = made.connect()
            await wire.greet()
            pattern = Record("p", Record("_"), 1)
            await wire.say(p.Request(1, "withdraw", Map({"owner": "me", "pattern": pattern})))
            ended, answers = 0, list[p.Packet | None]()

            async def answered() -> None:
                answers.append(await wire.hear())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answered)
                while not answers:
                    await _turn_beside(made, ended)
                    ended += 1
            (answer,) = answers
            assert isinstance(answer, p.Answer) and isinstance(answer.value, Map)
            left = [value for value in hosted.space.claims(OWNER).values() if isinstance(value, Record)]
            came = [value for value in left if value.label == "late"]
            assert len(came) == ended
            evens = [value for value in left if value.label == "p" and value.fields[1] == 0]
            odds = [value for value in left if value.label == "p" and value.fields[1] == 1]
            assert len(evens) == HALF and not odds
            gone = min(ended, HALF)
            retracted = answer.value["retracted"]
            assert isinstance(retracted, int) and HALF - gone <= retracted <= HALF


async def _turn_beside(made: Inside, number: int) -> None:
    """Ends one of the claims that are being withdrawn, if it stands, and makes another one."""
    hosted, handle = made.hosted, MANY - 1 - 2 * number
    actions: list[Action] = [(ASSERT, MANY + number, Record("late", number, 1))]
    if handle in hosted.space.claims(OWNER):
        actions.append((RETRACT, handle))
    hosted.commit(OWNER, actions)
    await trio.lowlevel.checkpoint()
