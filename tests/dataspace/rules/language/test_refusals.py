"""What looks like something that a rule could say, and would never do that, is refused with what to write."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from dataspace.rules.language.functions import FUNCTIONS, NEGATIVE
from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import AGGREGATES
from index.errors import UsageError


@pytest.mark.parametrize("condition", ["= 0", "< 1", "<= 0", "<= 0.5", "= 0.0"])
def test_a_count_that_must_be_none_is_a_negation(condition: str) -> None:
    with pytest.raises(UsageError, match=r"never 0: write not \(q\(\$x, _\)\)"):
        list(read_rules(f"p($x) <- r($x), count() of (q($x, _)) {condition}."))


@pytest.mark.parametrize("condition", ["= 1", "> 0", "< 2", "<= 1", "!= 1"])
def test_other_counts_are_read(condition: str) -> None:
    assert list(read_rules(f"p($x) <- r($x), count() of (q($x, _)) {condition}."))


NAMES = sorted({*FUNCTIONS, *AGGREGATES, "if"} - {NEGATIVE})


@pytest.mark.parametrize(("name", "case"), list(product(NAMES, (str.upper, str.title))))
def test_a_name_in_another_case_is_no_record_by_accident(name: str, case: Callable[[str], str]) -> None:
    written = case(name)
    with pytest.raises(UsageError, match=rf"{written}\(…\) is written {name}\(…\)"):
        list(read_rules(f"p($x, {written}($y)) <- q($x, $y)."))
    (rule,) = read_rules(f'p($x, "{written}"($y)) <- q($x, $y).')
    assert f'"{written}"($y)' in str(rule)
    assert [str(each) for each in read_rules(str(rule))] == [str(rule)]
