"""No two bearers can state names that are kept as one, unless a right lists them for both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, strategies as st

from dataspace.codec import pack
from dataspace.errors import Refused
from index.values.values import Map, Value
from server.config.principals import Principal
from server.config.rights import Permit, Rights
from server.owners.bearers import TRUSTED, Bearer, stated
from server.owners.turn_numbers import Clients
from server.turns.claims import said_of

LISTED = ("shared", "owner:shared", "robot")


def bearer(key: str, *caveats: dict[str, Value]) -> Bearer:
    """That of a token with a right to what is listed, narrowed by caveats."""
    maps = [Map(each) for each in caveats]
    principal = Principal.of_token(key, [(pack(each), each) for each in maps])
    rights: dict[str, Value] = {"assert": True, "durable": LISTED}
    tables = [Rights.read(Map(rights))]
    tables += [Rights.read(Map({n: v for n, v in each.pairs() if n != "name"})) for each in maps]
    return Bearer(Permit(key, tables, principal=principal), principal)


BEARERS = (
    bearer("a"),
    bearer("a b"),
    bearer("a @ token:b"),
    bearer("b"),
    bearer("a", {"name": "b"}),
    bearer("a", {"name": "b"}, {"name": "c"}),
    bearer("a", {"stamp": Map({"by": "x"})}),
    bearer("a", {"stamp": Map({"by": "x"}), "name": "b"}),
    bearer("a", {"stamp": Map({"by": "x", "of": "y"}), "name": "b"}),
)
PIECES = st.sampled_from(
    ["~", "@", " ", " @ ", "token:a", "token:a/b", "durable:", "lease:1:", "by=x", "x", "robot"]
)
NAMES = st.one_of(st.lists(PIECES, max_size=5).map("".join), st.sampled_from(LISTED))
STATED = {"own": "thing:", "lease": "lease:1:"}
"""What stands before a name in what these ways state."""

WAYS: dict[str, Callable[[Bearer, str], str]] = {
    "own": lambda who, name: who.own(f"{STATED['own']}{name}"),
    "lease": lambda who, name: who.owner(f"{STATED['lease']}{name}"),
    "durable": lambda who, name: who.owner(name),
    "client": lambda who, name: who.client(name),
    "publishing": lambda who, name: who.publisher(name, who.owner("shared"), Clients({})),
    "in a lease": lambda who, name: who.publisher(name, who.owner("lease:1:x"), Clients({})),
}
OWNERS, IDENTITIES = ("lease", "durable"), ("client", "publishing", "in a lease")


def kept(way: str, who: Bearer, name: str) -> str:
    """The name under which it is kept; one that is refused is no case."""
    try:
        return WAYS[way](who, name)
    except Refused:
        assume(False)
        raise


@given(
    st.sampled_from([("own",), OWNERS, IDENTITIES]).flatmap(
        lambda ways: st.tuples(st.sampled_from(ways), st.sampled_from(ways))
    ),
    st.sampled_from(BEARERS),
    st.sampled_from(BEARERS),
    NAMES,
    NAMES,
)
@example(("lease", "durable"), BEARERS[0], BEARERS[0], "", "lease:1:")
def test_what_is_kept_as_one_was_stated_as_one_by_one_bearer_or_is_listed(
    ways: tuple[str, str], one: Bearer, other: Bearer, first: str, second: str
) -> None:
    if kept(ways[0], one, first) != kept(ways[1], other, second):
        return
    assert f"{STATED.get(ways[0], '')}{first}" == f"{STATED.get(ways[1], '')}{second}"
    if one is not other:
        assert not one.permit.stamp and not other.permit.stamp, "a stamp shares nothing"
        # an owner that is shared numbers what is not listed
        assert first in LISTED or ways == ("publishing", "publishing")


@given(st.sampled_from(BEARERS), NAMES)
def test_what_is_kept_says_who_stated_what(who: Bearer, name: str) -> None:
    said = said_of(kept("lease", who, name))
    assert said["owner"] == f"lease:1:{name}"
    assert said["bearer"] == who.holder
    assert said["stamp"] == Map(dict(who.permit.stamp))
    assert stated(kept("lease", who, name)) == f"lease:1:{name}"


@given(NAMES)
def test_without_a_token_a_name_is_kept_as_it_is(name: str) -> None:
    assume(" @ " not in name and name and not name.startswith("lease:"))
    assert TRUSTED.own(name) == name
    if own := name.removeprefix("durable:"):
        assert TRUSTED.owner(name) == TRUSTED.owner(f"durable:{own}") == f"durable:{own}"
    assert TRUSTED.client(name) == name
    assert TRUSTED.publisher(name, "durable:x", Clients({})) == name


def test_an_identity_of_a_session_is_not_numbered_elsewhere() -> None:
    clients = Clients({})
    other, mine = bearer("b", {"durable": ("pub",)}), bearer("a")
    assert other.publisher("job", "durable:pub", clients) == "job @ durable:pub"
    clients.get("robot").holder = mine.holder
    with pytest.raises(Refused, match="a session of another token numbers its turns as 'robot'"):
        other.publisher("robot", "durable:pub", clients)
    assert mine.publisher("robot", "durable:shared", clients) == "robot"
    with pytest.raises(Refused, match="not-allowed"):
        other.publisher("owner:shared", "durable:pub", clients)


@pytest.mark.parametrize("owner", ["", "x @ y", "lease:1:x @ token:a"])
def test_an_owner_that_is_none_is_refused(owner: str) -> None:
    with pytest.raises(Refused, match="bad-request"):
        TRUSTED.owner(owner)
