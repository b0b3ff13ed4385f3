"""A merge settles the class of each field anew, and all objects of a label agree on it; no value changes."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from index.patterns.text import parse_pattern
from index.values.values import Map, Record, Value, key
from relay.archive import columns as making, intervals
from relay.archive.archive import Archive
from relay.archive.archiver import RangeSizes
from relay.archive.columns import exact_changes, exact_intervals, settled_anew
from relay.archive.erasure.erasing import erase
from relay.archive.manifest import COLUMNS, STATES, ArchivedFile
from relay.archive.merging import Merger, MergeRules
from relay.archive.orphans import GRACE, collect
from relay.archive.reading import ReadArchive
from relay.archive.states import state_files
from relay.archive.verifying import verify_archive
from relay.archive.writing import NotThisArchive
from relay.log.replay import state_at
from tests.relay.archive.histories import ArchivedLog, Killed, striking
from tests.relay.archive.memory import ObjectsInMemory
from tests.relay.archive.test_states import by_sums

parquet: Any = pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)

ERAS: Sequence[Sequence[Value]] = [
    (None,),
    (1, 2, -(1 << 63), (1 << 64) + 1),
    ("x", "", "1"),
    (1.5, -0.0, 0.0, math.nan),
    (True, False),
    (b"", b"x" * 300, b"y" * 70_000),
    (WHEN, datetime(1, 1, 1, tzinfo=UTC)),
    ((1, "a"), Map({"k": 1}), Record("in", 1)),
]
"""Values that a field has for a while, of one class or of none."""

TYPES = {"b": "bool", "i": "int64", "f": "double", "s": "string", "y": "binary", "t": "timestamp[us, tz=UTC]"}

POINTS = ("archive-after-object", "merge-before-manifest", "merge-after-manifest")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ArchivedLog]:
    made = ArchivedLog(tmp_path, RangeSizes(changes=1), ObjectsInMemory())
    yield made
    made.close()


def files_of(archive: Archive) -> list[ArchivedFile]:
    files = [file for of in archive.ranges() for file in of.files]
    files += [file for state in archive.states() for file in state.files]
    return [file for file in files if file.form in (COLUMNS, STATES)]


def schema(archive: Archive, file: ArchivedFile) -> Any:
    return parquet.read_schema(io.BytesIO(archive.content(file)))


def check(archive: Archive) -> None:
    """Columns say what segments say, and each object of a label has the classes of the manifest."""
    assert verify_archive(archive, deep=True).damages == ()
    for file in files_of(archive):
        found = schema(archive, file)
        if file.label is None:
            continue
        classes = archive.manifest.types[f"{file.label}/{file.arity}"]
        assert json.loads(found.metadata[b"dataspace"])["classes"] == classes
        assert [str(found.field(f"f{at}").type) for at in range(file.arity)] == [TYPES[it] for it in classes]
        assert file.others == tuple(at for at in range(file.arity) if f"f{at}_other" in found.names)


def rows(archive: Archive) -> list[Any]:
    """All changes in columns, with exact values."""
    found = [
        (number, time, at, kind, key(value))
        for each in archive.ranges()
        for file in each.files
        if file.form == COLUMNS
        for number, time, at, kind, value in exact_changes(archive.content(file))
    ]
    return sorted(found, key=lambda row: (row[0], row[2]))


def test_a_field_that_began_as_null_gets_the_class_of_its_values(kept: ArchivedLog) -> None:
    kept.turn([Record("p", at, None) for at in range(3)])
    kept.archive()
    assert kept.reader().manifest.types == {"p/2": "is"}
    for at in range(3, 20):
        kept.turn([Record("p", at, at * 10)])
    kept.archive()
    archive = kept.reader()
    assert archive.manifest.types == {"p/2": "is"}, "until ranges are merged"
    before = rows(archive)
    while Merger(archive, rules=MergeRules(changes=64)).merge_due():
        check(archive)
        assert rows(archive) == before
    assert archive.manifest.types == {"p/2": "ii"}
    assert [file.others for file in files_of(archive)] == [()] * len(files_of(archive))
    kept.turn([Record("p", 99, 99)])
    [added] = kept.archive()
    assert [file.others for file in added.files if file.label] == [()], "new ranges have it too"
    check(kept.reader())


def test_a_class_changes_for_a_clear_majority_only() -> None:
    import pyarrow

    def table(letter: str, values: Sequence[Value]) -> tuple[Any, str]:
        return pyarrow.table(dict(making.field_arrays([(each,) for each in values], letter))), letter

    cases: list[tuple[str, list[Value], str]] = [
        ("s", [None, None], "s"),
        ("s", [None, 1], "i"),
        ("s", ["a", 1, 2], "s"),
        ("s", ["a", 1, 2, 3], "i"),
        ("s", ["a", 1, 2, 2.5, 3.5], "s"),
        ("s", [1, 2, 2.5, math.nan, -0.0], "f"),
        ("f", [math.nan, -0.0, 1], "f"),
        ("i", [1 << 70, 1 << 71, WHEN], "i"),
        ("s", [1 << 70, WHEN, datetime(3000, 1, 1, 0, 0, 0, 1, tzinfo=UTC)], "t"),
        ("i", [(1,), Map({}), Record("x"), Record("y", 1)], "i"),
        ("i", [b"a", b"b" * 300, b"c" * 70_000], "y"),
        ("i", [True, False, None], "b"),
        ("i", ["a", "b" * 40, "c" * 300, 1], "s"),
    ]
    for known, values, expected in cases:
        assert settled_anew([table(known, values)], known) == expected, (known, values)
        for letter in TYPES:  # whatever classes the objects have now
            parts = [table(letter, [value]) for value in values]
            assert settled_anew(parts, known) == expected, (known, letter, values)


def lives(random: Random) -> Iterator[tuple[list[Record], list[Record], list[Record]]]:
    """Turns in which each of two fields has the values of one era for a while, or mixed ones."""
    held: list[Record] = []
    mixed = tuple(value for era in ERAS for value in era)
    while True:
        eras = [random.choice([*ERAS, mixed]) for _ in range(2)]
        for _ in range(random.choice([1, 4, 9, 20])):
            facts = [
                Record(random.choice("ppq"), *map(random.choice, eras[: random.choice([1, 2, 2])]))
                for _ in range(random.choice([0, 1, 3]))
            ]
            there = {key(each) for each in held}
            added = [*{key(each): each for each in facts if key(each) not in there}.values()]
            removed = random.sample(held, min(len(held), random.choice([0, 1, 2])))
            gone = {key(each) for each in removed}
            held = [*[each for each in held if key(each) not in gone], *added]
            yield added, facts[:1], removed


@pytest.mark.parametrize(
    "seed", [*range(2), *[pytest.param(seed, marks=pytest.mark.torture(long=True)) for seed in range(2, 12)]]
)
def test_readers_see_the_same_whatever_classes_are_settled(
    kept: ArchivedLog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside archiving, restarts, kills, erasures, rows among all others, and orders by fields."""
    random = Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(making, "MOST_LABELS", 1)
        monkeypatch.setattr(making, "MANY_ROWS", 5)
        monkeypatch.setattr(intervals, "MANY_ROWS", 5)
    rules = MergeRules(changes=200, clusters={"p": (1,)} if seed % 2 else {})
    patch, seen, changed = striking(monkeypatch), set[object](), 0
    for at, turn in enumerate(lives(random)):
        kept.turn(*turn)
        if random.random() < 0.3 or at > 60:
            kept.archive()
            archive = kept.reader()
            point, left = random.choice(POINTS), random.choice([0, 0, 1, 3])

            def strike(name: str, point: str = point) -> None:
                nonlocal left
                left -= name == point
                if left == 0 and name == point:
                    raise Killed(point)

            before, types = rows(archive), dict(archive.manifest.types)
            patch(strike)
            try:
                Merger(archive, rules=rules).merge_due()
            except Killed:
                pass
            patch(lambda _: None)
            archive = kept.reader()
            changed += any(archive.manifest.types[each] != types[each] for each in types)
            check(archive)
            assert rows(archive) == before
            seen |= {tuple(sorted(archive.manifest.types.items()))}
        if at % 20 == 19:
            kept.restart()
            erase(kept.reader(), parse_pattern(f'p("x", {random.choice(["_", "1"])})'), 10**9, "me")
            check(kept.reader())
        if at > 60:
            break
    archive = kept.reader()
    Merger(archive, rules=MergeRules(changes=10_000)).merge_all(lambda _: None)
    check(archive)
    assert changed, "else nothing was shown"
    held: Any = kept.objects
    held.now += GRACE + 1
    collect(archive)
    check(archive)


def test_facts_of_a_state_are_those_of_the_log(kept: ArchivedLog) -> None:
    """Through each way to them, while classes change around the states."""
    for number, turn in enumerate(lives(Random(5)), 1):
        kept.turn(*turn)
        kept.archive()
        archive = kept.reader()
        while Merger(archive, rules=MergeRules(changes=64)).merge_due():
            pass
        if number % 15 == 0:
            read = ReadArchive(archive)
            for epoch in range(max(1, number - 40), number + 1, 7):
                expected = {key(each) for each in state_at(kept.log, epoch)}
                assert by_sums(archive, state_files(archive, epoch), epoch) == expected
                assert {key(each) for each in state_at(read, epoch)} == expected
        if number == 90:
            break
    assert [*archive.states()], "else this shows nothing of them"
    check(archive)


def test_objects_elsewhere_are_few_and_in_no_chapter_or_the_class_stays(
    kept: ArchivedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere: a large range of nulls, merged no more; then a run of four ranges, each of one integer."""
    for rows_before, chapter, expected in [(31, 1000, "i"), (33, 1000, "s"), (31, 4, "s")]:
        label = f"p{rows_before}-{chapter}"
        monkeypatch.setattr("relay.archive.writing.CHAPTER", chapter)
        kept.turn([], [Record(label, None)] * rows_before)
        if chapter < 1000:  # the range goes into a chapter
            for at in range(8):
                kept.turn([], [Record(f"other-{label}", at)])
        kept.archive()
        for at in range(4):
            kept.turn([], [Record(label, at)])
        kept.archive()
        archive = kept.reader()
        assert Merger(archive, rules=MergeRules(changes=30)).merge_all(lambda _: None)
        assert archive.manifest.types[f"{label}/1"] == expected, label
        check(archive)
    assert archive.manifest.chapters


def test_a_range_that_is_archived_meanwhile_has_the_merge_begin_again(
    kept: ArchivedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.turn([Record("p", None)])
    for at in range(7):
        kept.turn([Record("p", at)])
    kept.archive()
    kept.turn([Record("p", 9)])
    archive, patch = kept.reader(), striking(monkeypatch)

    def between(name: str) -> None:
        if name == "merge-before-manifest":
            patch(lambda _: None)
            assert len(kept.archive()) == 1, "with the class of before"

    patch(between)
    with pytest.raises(NotThisArchive, match="from another writer"):
        Merger(archive, rules=MergeRules(changes=64)).merge_due()
    check(kept.reader())
    assert Merger(archive, rules=MergeRules(changes=64)).merge_all(lambda _: None) == 1
    assert archive.manifest.types == {"p/1": "i"}
    check(archive)
    held: Any = kept.objects
    held.now += GRACE + 1
    collect(archive)
    named = {archive.name(each.path) for of in archive.ranges() for each in of.files}
    assert {name for name in held.held if "/manifest/" not in name} == named, "the lost merge left nothing"


def test_an_earlier_version_reads_as_before(kept: ArchivedLog) -> None:
    """A reader that has begun goes on with the objects that it knows, which stay for a day."""
    kept.turn([Record("p", None, "a")])
    for at in range(7):
        kept.turn([Record("p", at, at)])
    kept.archive()
    early, archive = kept.reader(), kept.reader()
    before = rows(early)
    Merger(archive, rules=MergeRules(changes=64)).merge_all(lambda _: None)
    assert archive.manifest.types != early.manifest.types
    assert rows(early) == before == rows(archive)
    check(archive)


def test_intervals_stay_in_ranges_that_are_written_anew(kept: ArchivedLog) -> None:
    one = Record("p", None, 1)
    kept.turn([one])
    kept.turn([], [], [one])
    kept.turn([one, Record("p", None, 2)])
    kept.turn([], [], [one])
    kept.archive()
    archive = kept.reader()
    rules = MergeRules(changes=5, clusters={"p": (0, 1)})
    Merger(archive, rules=rules).merge_all(lambda _: None)
    [merged] = archive.ranges()

    def intervals_of() -> list[Any]:
        file = next(archive.ranges()).files[1]
        content = archive.content(file)
        pairs = zip(exact_changes(content), exact_intervals(content), strict=True)
        return sorted([(each[0], each[2], interval) for each, interval in pairs])

    before = intervals_of()
    for at in range(5):
        kept.turn([Record("p", at, 9)])
    kept.archive()
    Merger(archive, rules=rules).merge_all(lambda _: None)
    first, *_ = archive.ranges()
    assert archive.manifest.types == {"p/2": "ii"} and first.files[1].path != merged.files[1].path
    assert intervals_of() == before and first.files[1].order == (0, 1)
    check(archive)
