"""Each test file is in one part, and parts become shorter; tests with Spark are apart from all others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests import parts


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A table of its own, empty."""
    path = tmp_path / "seconds.txt"
    path.touch()
    monkeypatch.setattr(parts, "SECONDS", path)
    _forget()
    yield path
    _forget()


def _forget() -> None:
    parts.seconds.cache_clear()
    parts.part_of.cache_clear()


@pytest.mark.parametrize("spark", [False, True])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_each_file_is_in_one_part(count: int, spark: bool) -> None:
    found = parts.part_of(count, spark=spark)
    files = [path for path in parts.TESTS.rglob("test_*.py") if not spark or parts.has_spark(path)]
    assert found.keys() == {path.relative_to(parts.TESTS.parent).as_posix() for path in files}
    assert set(found.values()) == set(range(1, count + 1))


@pytest.mark.usefixtures("table")
def test_each_part_is_shorter_than_the_one_before_it() -> None:
    parts.record({name: 2.0 + at % 7 for at, name in enumerate(parts.part_of(1))})
    _forget()
    took = [0] * 10
    for name, part in parts.part_of(10).items():
        took[part - 1] += parts.seconds()[name]
    assert all(after < before for before, after in pairwise(took))
    assert 0.2 < took[-1] / took[0] < 0.3


def test_tests_with_spark_have_rows_of_their_own(table: Path) -> None:
    parts.record({"a": 7.4, "b": 1.2})
    parts.record({"a": 30.0}, spark=True)
    parts.record({"a": 8.0})
    assert table.read_text() == "30 a spark\n8 a\n"
    _forget()
    assert parts.seconds() == {"a spark": 30, "a": 8}


@pytest.mark.usefixtures("table")
def test_the_longest_file_is_alone_if_it_outweighs_all_others() -> None:
    name = "tests/relay/spark/test_torture.py"
    parts.record({name: 10_000.0}, spark=True)
    _forget()
    alone = parts.part_of(2, spark=True)
    assert [each for each, part in alone.items() if part == alone[name]] == [name]
    assert len(set(parts.part_of(2).values())) == 2, "and its other tests weigh as ever"
