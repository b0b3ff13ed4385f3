"""A query's place is one text, which belongs to one pattern and to as many daemons as it began with."""

from __future__ import annotations

import json

import pytest

from dataspace.errors import UsageError
from relay.spark.source.offsets import DataLoss, Offset, OffsetOrigin, offsets_of, place

ONE, TWO = Offset(7, "s"), Offset(0, "t", OffsetOrigin("snapshot", 5))


@pytest.mark.parametrize("offsets", [[ONE], [TWO], [ONE, TWO]])
def test_a_place_is_read_back(offsets: list[Offset]) -> None:
    said = place(offsets, "p($x)")
    assert offsets_of(json.loads(json.dumps(said)), ["u"] * len(offsets), "p( $x )", nobody) == offsets
    assert json.dumps(said) == json.dumps(place(offsets, "p( $x )"))


def test_another_pattern_needs_a_checkpoint_of_its_own() -> None:
    with pytest.raises(UsageError, match=r"is of the pattern p\(\$x\), the query asks for q\(\$x\)"):
        offsets_of(place([ONE], "p($x)"), ["u"], "q($x)", nobody)


def test_a_daemon_is_not_left_out() -> None:
    with pytest.raises(UsageError, match="is of 1 daemons, url names 2, and not all of those: u, v"):
        offsets_of(place([ONE], "p()"), ["u", "v"], "p()", lambda: ["x", "y"])


def test_a_text_of_somebody_else_is_refused() -> None:
    for text in ({"daemons": 1, "pattern": "p()"}, {"offset": 1, "pattern": "p()"}):
        with pytest.raises(DataLoss, match="no offset of a dataspace"):
            offsets_of(text, ["u"], "p()", nobody)


def nobody() -> list[str]:
    raise AssertionError("no daemon is asked where there are as many as before")


def test_a_daemon_that_was_added_is_told_by_its_space() -> None:
    two = [Offset(7, "s"), Offset(3, "t")]
    text = place(two, "p()")
    assert offsets_of(text, ["a", "b", "c"], "p()", lambda: ["t", "new", "s"]) == [two[1], None, two[0]]
    assert offsets_of(place(two[:1], "p()"), ["a", "b"], "p()", lambda: ["s", "new"]) == [two[0], None]
    with pytest.raises(UsageError, match="is of 2 daemons, url names 1"):
        offsets_of(text, ["a"], "p()", nobody)
