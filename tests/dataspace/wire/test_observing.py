"""Options of an observation: what is written is read again, and nothing makes no sense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import UsageError
from dataspace.wire.observing import NUMBERS, ObserveOptions, Policy
from index.patterns.patterns import capture
from index.values.values import Map, Record

EPOCHS = st.none() | st.integers(0, 1 << 62)
PATTERN = Record("n", capture("n"))
BEGINNINGS: dict[str, st.SearchStrategy[Any]] = {
    "pattern": st.just(PATTERN),
    "snapshot": st.booleans(),
    "after": EPOCHS,
    "as_of": EPOCHS,
    "quiet": st.booleans(),
    "net": st.booleans(),
}
OPTIONS = st.builds(
    ObserveOptions,
    **BEGINNINGS,
    upto=EPOCHS,
    durable=st.booleans(),
    policy=st.sampled_from(Policy),
    progress=st.booleans(),
    columns=st.booleans(),
)
COLUMNS = st.builds(
    ObserveOptions,
    pattern=st.just(PATTERN),
    after=EPOCHS,
    upto=EPOCHS,
    captures=st.none() | st.lists(st.integers(0, 9)).map(tuple),
    places=st.booleans(),
    asserted=st.booleans(),
    owners=st.booleans(),
    columns=st.just(True),
)
SHARES = st.builds(
    lambda at, low, size: ObserveOptions(PATTERN, as_of=at, upto=at, share=(low, low + size), columns=True),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 9),
)
PACED = st.builds(ObserveOptions, **BEGINNINGS, pace=st.integers(0, 60_000))


@given(OPTIONS | PACED | COLUMNS | SHARES)
def test_what_is_written_is_read_again(options: ObserveOptions) -> None:
    spec = options.spec()
    assert ObserveOptions.read(spec) == options
    assert ObserveOptions.read(Map({"space": "main", **dict(spec.pairs())})) == options


def test_what_is_usual_is_not_said() -> None:
    assert ObserveOptions(PATTERN).spec() == Map({"kind": "observe", "pattern": PATTERN})


def test_a_pattern_may_be_text_and_a_policy_a_name() -> None:
    assert ObserveOptions.of("n($n)", policy="wait") == ObserveOptions(PATTERN, policy=Policy.WAIT)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"snapshot": 1}, "snapshot must be true or false, got 1"),
        ({"quiet": "no"}, "quiet must be true or false, got 'no'"),
        ({"after": True}, "after must be the number of an epoch, got True"),
        ({"upto": -1}, "upto must be the number of an epoch, got -1"),
        ({"as_of": 1.0}, "as_of must be the number of an epoch, got 1.0"),
        ({"places": True}, "captures, places, asserted, owners and share are for streams of kind=columns"),
        ({"captures": (0,)}, "captures, places, asserted, owners and share are for streams of kind=columns"),
        ({"share": (0, 1)}, "share are for streams of kind=columns"),
        ({"policy": "perhaps"}, "policy must be one of wait, conflate, fail, drop, got 'perhaps'"),
        ({"pace": -1}, "pace must be 0 to 60000 milliseconds, got -1"),
        ({"pace": 60_001}, "pace must be 0 to 60000 milliseconds, got 60001"),
        ({"pace": 0.0}, "pace must be 0 to 60000 milliseconds, got 0.0"),
        ({"pace": True}, "pace must be 0 to 60000 milliseconds, got True"),
        ({"pace": 1, "policy": "drop"}, "puts epochs together, which needs the policy conflate, not drop"),
        ({"pace": 1, "upto": 7}, "for streams that go on with what happens, not with upto"),
        ({"pace": 1, "durable": True}, "for streams that go on with what happens, not with durable"),
        ({"pace": 1, "progress": True}, "for streams that go on with what happens, not with progress"),
        ({"policy": None}, "policy must be one of wait, conflate, fail, drop, got None"),
    ],
)
def test_an_option_without_such_a_value_is_refused(option: dict[str, Any], said: str) -> None:
    """When it is made, and when it is read."""
    with pytest.raises(UsageError, match=said):
        ObserveOptions(PATTERN, **option)
    with pytest.raises(UsageError, match=said):
        ObserveOptions.read(Map({"pattern": PATTERN, **option}))


@pytest.mark.parametrize(
    ("share", "epochs", "said"),
    [
        ((0, 0), {"as_of": 3, "upto": 3}, "share must be two ascending numbers from 0 to 281474976710656"),
        ((False, 5), {"as_of": 3, "upto": 3}, "share must be two ascending numbers"),
        ((0, NUMBERS + 1), {"as_of": 3, "upto": 3}, "share must be two ascending numbers"),
        ((0, 1, 2), {"as_of": 3, "upto": 3}, "share must be two ascending numbers"),
        ((0, 5), {"as_of": 3, "upto": 4}, "as_of and upto must be its epoch"),
        ((0, 5), {"after": 3, "upto": 3}, "as_of and upto must be its epoch"),
    ],
)
def test_a_share_is_of_a_state(share: Any, epochs: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ObserveOptions(PATTERN, columns=True, share=share, **epochs)
    assert ObserveOptions(PATTERN, columns=True, share=(0, NUMBERS), as_of=3, upto=3).share == (0, NUMBERS)


def test_a_pace_is_given_in_seconds() -> None:
    assert ObserveOptions.of("n($n)", pace=0.1).pace == 100
    assert ObserveOptions.of("n($n)", pace=0.0001).pace == 1
    assert ObserveOptions.of("n($n)", pace=60).pace == 60_000
    assert ObserveOptions.of("n($n)").pace == 0


@pytest.mark.parametrize("pace", [-0.1, 61, float("nan"), float("inf"), "1s", True])
def test_a_pace_that_is_none_is_refused(pace: Any) -> None:
    with pytest.raises(UsageError, match=r"pace must be 0 to 60 seconds, got "):
        ObserveOptions.of("n($n)", pace=pace)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "a pattern is needed"),
        ({"pattern": 1, "kind": "rows"}, "no kind 'rows' of stream, there are 'observe' and 'columns'"),
        (
            {"pattern": 1, "befor": 1},
            "no option 'befor', known are after, as_of, asserted, captures, durable, identity, kind, net, ",
        ),
        ({"pattern": 1, "kind": "columns", "pace": 5}, "not with kind=columns"),
        ({"pattern": 1, "columns": True}, "no option 'columns'"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ObserveOptions.read(Map(spec))


def test_captures_are_numbers() -> None:
    for wrong in ((-1,), ("n",), 0, (True,)):
        with pytest.raises(UsageError, match="captures must be numbers of captures"):
            ObserveOptions(PATTERN, captures=wrong, columns=True)  # type: ignore[arg-type]  # as a stranger may say
