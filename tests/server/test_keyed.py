"""With a key, an owner holds one fact for each, whatever it asserts and in whichever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataspace.errors import Refused
from dataspace.space import Space
from index.patterns import DISCARD, capture
from index.values import Record, Value, key
from server.publishing import keyed_actions

BY = Record("p", capture("k"), DISCARD)
OWNER = "durable:w"

facts = st.builds(lambda k, v: Record("p", k, v), st.sampled_from([1, 1.0, "1"]), st.integers(0, 2))
operations = st.lists(st.tuples(st.sampled_from(["assert", "retract", "send"]), facts), max_size=8)


@given(st.lists(operations, max_size=4))
def test_one_fact_for_each_key(batches: list[list[tuple[str, Value]]]) -> None:
    space = Space("test")
    held: dict[object, Record] = {}
    for at, batch in enumerate(batches):
        space.commit(OWNER, keyed_actions(space, OWNER, batch, BY), at)
        for verb, fact in batch:
            assert isinstance(fact, Record)
            if verb == "assert":
                held[key(fact.fields[0])] = fact
            elif verb == "retract" and held.get(key(fact.fields[0])) == fact:
                del held[key(fact.fields[0])]
        assert sorted(map(repr, space.claims(OWNER).values())) == sorted(map(repr, held.values()))


def test_a_fact_that_is_there_already_is_not_touched() -> None:
    space = Space("test")
    fact = Record("p", 1, 2)
    space.commit(OWNER, keyed_actions(space, OWNER, [("assert", fact)], BY), 1)
    assert keyed_actions(space, OWNER, [("assert", fact)], BY) == ()


def test_a_fact_without_a_key_is_refused() -> None:
    with pytest.raises(Refused, match="does not match"):
        keyed_actions(Space("test"), OWNER, [("assert", Record("q", 1))], BY)
