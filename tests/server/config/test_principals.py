"""A principal is what the daemon has established of a peer, and no token can be narrowed into another's."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.codec import pack
from dataspace.errors import UsageError
from index.values.values import Map
from server.config.principals import DAEMON, Principal

NAMES = st.text(alphabet="ab./#%\0", min_size=1, max_size=4)
CAVEATS = st.one_of(
    st.sampled_from(["a", "b", "a.b"]).map(lambda name: Map({"name": name})),
    st.sampled_from(["a", "b"]).map(lambda name: Map({"durable": (name,)})),
)
TOKENS = st.tuples(NAMES, st.lists(CAVEATS, max_size=3))


def of(token: tuple[str, list[Map]]) -> Principal:
    name, caveats = token
    return Principal.of_token(name, [(pack(each), each) for each in caveats])


@given(TOKENS, TOKENS)
def test_tokens_are_one_principal_only_with_the_same_name_and_caveats(
    one: tuple[str, list[Map]], other: tuple[str, list[Map]]
) -> None:
    same = one == other
    assert (of(one) == of(other)) is same
    assert (str(of(one)) == str(of(other))) is same


@given(TOKENS, st.lists(CAVEATS, min_size=1, max_size=2))
def test_a_narrower_token_is_covered_by_the_wider_and_never_the_other_way_round(
    token: tuple[str, list[Map]], more: list[Map]
) -> None:
    wide, narrow = of(token), of((token[0], [*token[1], *more]))
    assert wide.covers(wide)
    assert wide.covers(narrow)
    assert not narrow.covers(wide)


def test_a_caveat_without_a_name_is_told_from_others_by_its_bytes() -> None:
    unnamed, named = Map({"durable": ("d",)}), Map({"durable": ("d",), "name": "night"})
    assert of(("t", [unnamed])) != of(("t", [Map({"durable": ("e",)})]))
    assert str(of(("t", [named]))) == "token:t/night"
    assert of(("t", [named])) == of(("t", [Map({"durable": ("e",), "name": "night"})]))


@pytest.mark.parametrize(
    ("peer", "text"),
    [
        ("10.0.0.7:4711", "address:10.0.0.7"),
        ("::ffff:10.0.0.7:4711", "address:10.0.0.7"),
        ("::1:4711", "address:::1"),
        ("2001:db8:0:1:2:3:4:5:4711", "address:2001:db8:0:1::/64"),
        ("fe80::7%eth0:4711", "address:fe80::/64"),
        ("unix", "unix"),
    ],
)
def test_without_a_token_it_is_the_address(peer: str, text: str) -> None:
    assert str(Principal.of_peer(peer)) == text


def test_the_daemon_is_nobody_else() -> None:
    assert str(DAEMON) == "daemon"
    assert not DAEMON.covers(Principal("unix"))
    assert DAEMON.covers(DAEMON)


def test_a_name_that_is_no_word_is_refused() -> None:
    with pytest.raises(UsageError, match="a name or a stamp is 1 to 64 letters"):
        of(("t", [Map({"name": "a/b"})]))
