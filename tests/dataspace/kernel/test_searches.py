"""Put and withdraw end the claims that the plainest reckoning ends, in the order of the turn."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Final

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.client.session.turns import ClaimSet, Ticket
from dataspace.errors import Refused, UsageError
from dataspace.facts import usual_key
from dataspace.kernel.actions import ASSERT, PUT, REPLACE, RETRACT, SEND, WITHDRAW, Action, are_by_handle
from dataspace.kernel.searches import COMPARED, MOST_PATTERNS, Search
from dataspace.kernel.space import Space
from dataspace.steps import Steps, at_once
from index.patterns.patterns import matcher
from index.patterns.text import parse_pattern
from index.values.values import Record, Value, key, keys
from server.spaces.turns.searches import Searches

OWNER: Final = "durable:me"
Claimed = dict[int, Value]


def k(*fields: Value) -> Record:
    return Record("k", *fields)


def reckoned(claims: Claimed, actions: Sequence[Action]) -> Claimed | None:
    """What an owner claims after a turn; None if the turn is refused.  Nothing is clever here."""
    left = dict(claims)
    for action in actions:
        begun: tuple[int, Value] | None = None
        match action:
            case (0, int(handle), value):
                begun = handle, value
            case (1, int(handle)):
                if left.pop(handle, None) is None:
                    return None
            case (3, int(old), int(handle), value):
                if handle in left or left.pop(old, None) is None:
                    return None
                begun = handle, value
            case (4, pattern):
                match = matcher(pattern)
                left = {at: fact for at, fact in left.items() if match(fact) is None}
            case (5, int(handle), value, by):
                if handle in left:
                    return None
                match = matcher(usual_key(value) if by is None else by)
                row = match(value)
                assert row is not None
                same = [
                    at for at, fact in left.items() if (r := match(fact)) is not None and keys(r) == keys(row)
                ]
                for at in same:
                    del left[at]
                begun = handle, value
        if begun is not None:
            if begun[0] in left:
                return None
            left[begun[0]] = begun[1]
    return left


def found(claims: Claimed, actions: Sequence[Action]) -> list[Action]:
    """The actions by handle, as the product finds them."""
    search = Search(actions)
    at_once(search.reading())
    for handle, value in claims.items():
        search.claim(_same, handle, value)
    return search.settled(lambda handle, value: claims[handle] is value)


def _same(handle: Hashable) -> int:
    assert isinstance(handle, int)
    return handle


def committed(claims: Claimed, actions: Sequence[Action]) -> Claimed | None:
    """What a space has of it, which commits actions by handle."""
    space = Space("main")
    space.commit(OWNER, [(ASSERT, handle, value) for handle, value in claims.items()], 1)
    space.commit("other", [(ASSERT, 1, k(1, 1)), (ASSERT, 2, k(1, 2))], 1)
    try:
        space.commit(OWNER, found(claims, actions), 2)
    except Refused:
        return None
    space.index.check()
    assert dict(space.claims("other")) == {1: k(1, 1), 2: k(1, 2)}
    return dict(space.claims(OWNER))


def check(claims: Claimed, actions: Sequence[Action]) -> None:
    wanted = reckoned(claims, actions)
    got = committed(claims, actions)
    assert _shown(got) == _shown(wanted), (claims, actions)
    if wanted is not None:
        kept = ClaimSet()
        kept.apply(Ticket(1, "", tuple((ASSERT, at, value) for at, value in claims.items())))
        kept.apply(Ticket(2, "", tuple(actions)))
        assert _shown(kept.held()) == _shown(wanted), "the client knows what is left"


def _shown(claims: Claimed | None) -> dict[int, Hashable] | None:
    return None if claims is None else {handle: key(value) for handle, value in claims.items()}


BY: Final = parse_pattern("k(_, $v)")
ACTIONS: Final[list[Action]] = [
    (ASSERT, 1, k(1, 1)),
    (ASSERT, 7, k(1, 2)),
    (RETRACT, 1),
    (RETRACT, 7),
    (REPLACE, 1, 8, k(2, 1)),
    (REPLACE, 7, 1, k(1, 1)),
    (SEND, k(1, 1)),
    (WITHDRAW, parse_pattern("k(1, _)")),
    (WITHDRAW, parse_pattern("_")),
    (WITHDRAW, parse_pattern("k($x, $x)")),
    (PUT, 7, k(1, 1), None),
    (PUT, 9, k(1, True), None),
    (PUT, 10, k(2, 1), BY),
]
CLAIMS: Final[list[Claimed]] = [
    {},
    {1: k(1, 1)},
    {1: k(2, 1), 2: k(1, 1), 3: k(1, 1)},
    {1: k(1, 2), 7: k(1, True), 3: "text", 4: Record("k", 1), 5: k(1.0, 1), 6: k(1, 2, 3)},
]


def test_all_small_turns_do_what_they_are_reckoned_to_do() -> None:
    for claims in CLAIMS:
        for length in (1, 2):
            for actions in itertools.product(ACTIONS, repeat=length):
                check(claims, actions)


@pytest.mark.slow
def test_all_turns_of_three_actions_do_what_they_are_reckoned_to_do() -> None:
    for claims in CLAIMS:
        for actions in itertools.product(ACTIONS, repeat=3):
            check(claims, actions)


values = st.one_of(
    st.builds(k, st.integers(0, 2), st.sampled_from([0, 1, True, 1.0, "1"])),
    st.sampled_from(["x", Record("k"), Record("k", 1), k((1, 2), 1), k(k(1), 1)]),
)
patterns = st.sampled_from(
    [
        parse_pattern(text)
        for text in ("_", "k(1, _)", "k($a, $b)", "k($x, $x)", "k(_, 1)", "none()", "$w(k(_))")
    ]
)
handles = st.integers(1, 12)
puts = st.tuples(
    st.just(PUT),
    handles,
    st.builds(k, st.integers(0, 2), st.sampled_from([0, 1, True])),
    st.sampled_from([None, BY, parse_pattern("k($a, _)"), parse_pattern("_")]),
)
turns = st.lists(
    st.one_of(
        st.tuples(st.just(ASSERT), handles, values),
        st.tuples(st.just(RETRACT), handles),
        st.tuples(st.just(REPLACE), handles, handles, values),
        st.tuples(st.just(SEND), values),
        st.tuples(st.just(WITHDRAW), patterns),
        puts,
    ),
    max_size=8,
)


@settings(max_examples=300)
@given(st.dictionaries(handles, values, max_size=10), turns)
def test_any_turn_does_what_it_is_reckoned_to_do(claims: Claimed, actions: list[Action]) -> None:
    check(claims, actions)


Beside = tuple[int, bool, int, Value]
"""How many steps of the search come before it, whether it is a claim or the end of one, handle and fact."""


@settings(max_examples=200)
@given(
    st.dictionaries(st.integers(0, 4 * COMPARED), values, min_size=COMPARED, max_size=3 * COMPARED),
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 5 * COMPARED), values), max_size=20),
    st.lists(st.one_of(st.tuples(st.just(WITHDRAW), patterns), puts), min_size=1, max_size=4),
)
def test_a_search_is_exact_whatever_is_committed_meanwhile(
    claims: Claimed, beside: list[Beside], stated: list[Action]
) -> None:
    """It is judged in the state in which it is committed, not in that in which it began."""
    actions = [(PUT, 1000 + n, *each[2:]) if each[0] == PUT else each for n, each in enumerate(stated)]
    space = Space("main")
    searches = Searches(space)
    space.commit(OWNER, [(ASSERT, handle, value) for handle, value in claims.items()], 1)
    with searches.of(OWNER, actions) as search:
        steps: Steps[None] = search.reading()
        for count, comes, handle, value in beside:
            for _ in itertools.islice(steps, count):
                pass
            action: Action = (ASSERT, handle, value) if comes else (RETRACT, handle)
            if comes != (handle in space.claims(OWNER)):
                searches.add_claims(space.commit(OWNER, [action], 2).claims)
        at_once(steps)
        before = dict(space.claims(OWNER))
        by_handle = search.settled()
    assert are_by_handle(by_handle) and not len(searches)
    space.commit(OWNER, by_handle, 3)
    assert _shown(dict(space.claims(OWNER))) == _shown(reckoned(before, actions))


def test_what_cannot_be_put_or_withdrawn_by_is_refused() -> None:
    for action in ((PUT, 1, k(1), None), (PUT, 1, "text", None), (PUT, 1, k(1, 2), Record("other"))):
        with pytest.raises(Refused, match="bad-request"):
            Search([action])
    with pytest.raises(UsageError):
        Search([(WITHDRAW, Record("_", "no-class"))])
    many: list[Action] = [(WITHDRAW, Record("k", n)) for n in range(MOST_PATTERNS)]
    assert Search([*many, many[0]]).cost == MOST_PATTERNS, "the same pattern is one"
    with pytest.raises(Refused, match="limit"):
        Search([*many, (PUT, 1, k(1, 2), None)])


def test_puts_by_the_usual_key_are_looked_up_and_not_compared() -> None:
    """A turn of many puts costs its puts and one pass over the claims, not their product."""
    claims: Claimed = {n: k(n, 0) for n in range(400)}
    actions: list[Action] = [(PUT, 10_000 + n, k(n, 1), None) for n in range(400)]
    assert Search(actions).cost == 1
    assert len(found(claims, actions)) == 800
    check(claims, actions)


def test_a_space_commits_no_other_actions_than_those_by_handle() -> None:
    space = Space("main")
    for action in ((WITHDRAW, Record("_")), (PUT, 1, k(1, 2), None)):
        with pytest.raises(Exception, match="no action"):
            space.commit(OWNER, [(ASSERT, 5, "x"), action], 1)
        assert not space.claims(OWNER)
