"""A token can be narrowed by whoever has it, and widened by nobody."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.codec import pack
from dataspace.errors import UsageError
from dataspace.transport.tokens import MAX_CAVEATS, PREFIX, Token, narrow, new_secret
from index.values.values import Map

SECRET = "a secret that is long enough"
CAVEATS = st.lists(st.sampled_from(["p(_)", "q(_)"]).map(lambda text: Map({"observe": (text,)})), max_size=4)


@given(CAVEATS)
def test_every_narrowing_is_sealed_by_the_secret_and_by_no_other(caveats: list[Map]) -> None:
    token = SECRET
    for caveat in caveats:
        token = narrow(token, caveat)
    shown = Token.read(token)
    assert shown.is_sealed_by(SECRET) and not shown.is_sealed_by(new_secret())
    assert shown.caveats == tuple(pack(caveat) for caveat in caveats)
    assert SECRET not in token or not caveats


@given(CAVEATS.filter(bool), st.data())
def test_who_takes_away_or_changes_a_caveat_breaks_the_seal(caveats: list[Map], data: st.DataObject) -> None:
    token = SECRET
    for caveat in caveats:
        token = narrow(token, caveat)
    shown = Token.read(token)
    at = data.draw(st.integers(0, len(caveats) - 1))
    without = Token(shown.secret_name, shown.caveats[:at] + shown.caveats[at + 1 :], shown.seal)
    changed = list(shown.caveats)
    changed[at] = pack(Map({}))
    assert not without.is_sealed_by(SECRET)
    assert not Token(shown.secret_name, tuple(changed), shown.seal).is_sealed_by(SECRET)


@given(st.text(max_size=40))
def test_any_text_is_a_token_or_is_said_to_be_damaged_without_being_repeated(text: str) -> None:
    try:
        Token.read(PREFIX + text)
    except UsageError as error:
        assert str(error) == "the token is damaged"


def test_there_is_an_end_to_narrowing() -> None:
    token = SECRET
    for _ in range(MAX_CAVEATS):
        token = narrow(token, Map({}))
    with pytest.raises(UsageError, match=f"at most {MAX_CAVEATS} caveats"):
        narrow(token, Map({}))


def test_no_secret_is_in_what_is_shown_of_a_token() -> None:
    assert SECRET not in repr(Token.read(SECRET))
    assert Token.read(SECRET).seal.hex() not in repr(Token.read(SECRET))
