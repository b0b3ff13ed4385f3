"""Archive, log and readers have each epoch once, whatever is killed and whatever the store answers.

Three seeds here; ``make torture`` runs forty more, some hundreds of kills.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from dataspace.errors import DataspaceError
from index.patterns.text import parse_pattern
from index.values.values import Record, key
from relay.archive.archiver import RangeSizes
from relay.archive.columns import ERASED_VALUE
from relay.archive.erasure.erasing import erase
from relay.archive.merging import Merger, MergeRules
from relay.archive.orphans import GRACE, collect
from relay.archive.verifying import verify_archive
from relay.objects.objects import StoreFailed
from tests.relay.archive.histories import ArchivedLog, Killed, striking
from tests.relay.archive.memory import ObjectsInMemory

pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

SEEDS = 3
MORE_SEEDS = 40


class FaultyObjects(ObjectsInMemory):
    """A store that fails now and then, before or after it has done what was asked."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self.rate = 0.0

    def _may_fail(self) -> None:
        if self._random.random() < self.rate:
            raise StoreFailed("no answer")

    def get(self, name: str) -> bytes:
        self._may_fail()
        return super().get(name)

    def put(self, name: str, content: bytes) -> None:
        self._may_fail()
        super().put(name, content)
        self._may_fail()

    def create(self, name: str, content: bytes) -> bool:
        self._may_fail()
        made = super().create(name, content)
        self._may_fail()
        return made


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_epoch_is_there_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives(seed, tmp_path, monkeypatch)


@pytest.mark.torture(long=True)
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + MORE_SEEDS))
def test_each_epoch_is_there_once_in_many_lives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives(seed, tmp_path, monkeypatch)


def lives(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes, archives, merges, erases, deletes and restarts, with kills and a store that fails."""
    random = Random(seed)
    objects = FaultyObjects(random)
    kept = ArchivedLog(tmp_path, RangeSizes(changes=4), objects)
    patch, number, kills, erased = striking(monkeypatch), 0, 0, 0
    left = 0

    def strike(name: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed(name)

    def write() -> None:
        nonlocal number
        for _ in range(random.randrange(1, 5)):
            number += 1
            gone = [Record("at", number - 1)] if number > 1 else []
            kept.turn([Record("at", number)], [Record("said", number)], gone)

    def merge() -> None:
        Merger(kept.reader(), rules=MergeRules(changes=40)).merge_due()

    def merge_all() -> None:
        Merger(kept.reader(), rules=MergeRules(changes=40)).merge_all(lambda _: None)

    def erase_said() -> None:
        nonlocal erased
        done = erase(kept.reader(), parse_pattern("said($)"), kept.epochs[-1].time + 1, "me")
        erased = max(erased, done.upto if done.rows else 0)

    def tidy() -> None:
        objects.now += GRACE / 2
        collect(kept.reader())

    doings: list[Callable[[], object]] = [
        kept.archive,
        kept.archive,
        merge,
        merge,
        merge_all,
        erase_said,
        tidy,
        kept.trim,
    ]
    try:
        write()
        for _ in range(40):
            write()
            left, objects.rate = random.randrange(1, 12), random.choice([0.0, 0.0, 0.05])
            patch(strike)
            try:
                random.choice(doings)()
            except (Killed, DataspaceError) as error:
                kills += isinstance(error, Killed)
                kept.stop()
            patch(lambda _: None)
            objects.rate = 0.0
            if random.random() < 0.1:
                random.choice([kept.restart, kept.compact])()
        kept.archive()
        assert kills
        archive = kept.reader()
        assert verify_archive(archive, deep=True).damages == ()
        for is_trimmed in (False, True):
            if is_trimmed:
                kept.trim()
            kept.log.archive = kept.reader()
            read = [each for each in kept.log.read(0) if not each.silent]
            assert [each.number for each in read] == [each.number for each in kept.epochs]
            for one, other in zip(read, kept.epochs, strict=True):
                assert [*map(key, one.added)] == [*map(key, other.added)]
                assert [*map(key, one.removed)] == [*map(key, other.removed)]
                said = (
                    {key(ERASED_VALUE)}
                    if one.number <= erased
                    else {key(ERASED_VALUE), *map(key, other.messages)}
                )
                assert {*map(key, one.messages)} <= said and len(one.messages) == 1
    finally:
        kept.close()
