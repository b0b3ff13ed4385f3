"""The page of guarantees names validators and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.guarantees.validators import VALIDATORS

TOP: Final = Path(__file__).parents[1]
PAGE: Final = (TOP / "GUARANTEES.md").read_text(encoding="utf-8")


def test_every_validator_is_the_judge_of_a_promise() -> None:
    judges = re.findall(r"^\| \d+ \|.*?\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(judges) == sorted(VALIDATORS)


def test_promises_are_numbered_in_a_row() -> None:
    promises, _, _ = PAGE.partition("\n## With followers\n")  # which says what some of them mean there
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", promises, re.MULTILINE)]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_every_test_that_it_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 20
    for file, name in named:
        text = (TOP / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text if name else "def test_" in text or name == "", f"{file}::{name}"
