"""What a client takes for its claims is what the space holds for it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.client.session import turns
from dataspace.client.session.turns import ClaimSet, Ticket
from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, Action
from dataspace.kernel.space import Space
from index.values.values import key
from tests.dataspace.kernel.test_space import actions

OWNER = "lease:1000:me"


@pytest.mark.slow
@given(st.lists(st.lists(actions, max_size=4), max_size=12))
def test_a_set_of_claims_follows_what_a_space_accepts(turns: list[list[Action]]) -> None:
    space, claims = Space("main"), ClaimSet(OWNER)
    for sequence, turn in enumerate(turns, 1):
        ticket = Ticket(sequence, OWNER, tuple(turn))
        try:
            space.commit(OWNER, turn, sequence)
        except Refused:
            continue
        assert _claimed(claims.after([ticket])) == _held(space)
        claims.apply(ticket)
        claims.apply(Ticket(sequence, "", tuple(turn)))
        claims.apply(Ticket(sequence, OWNER, tuple(turn), restating=True))
    assert _claimed(claims) == _held(space) and len(claims) == len(space.claims(OWNER))


def _claimed(claims: ClaimSet) -> set[object]:
    return {(action[1], key(action[2])) for action in claims.again() if action[0] == ASSERT}


def _held(space: Space) -> set[object]:
    return {(handle, key(value)) for handle, value in space.claims(OWNER).items()}


async def test_an_answer_that_is_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket makes its event when a task waits, and none after the answer."""
    monkeypatch.setattr(turns, "loop", None)
    ticket = Ticket(1, OWNER, ())
    ticket.accept(7)
    assert await ticket.wait() == 7
    refused = Ticket(2, OWNER, ())
    refused.fail(Refused("denied", "no"))
    with pytest.raises(Refused):
        await refused.wait()
