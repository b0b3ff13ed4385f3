"""Rows out of an archive are the rows that the log's own replay gives, for every pattern and every span."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetFile

from dataspace.client.bulk.blocks import block
from dataspace.codec import unpack_own
from dataspace.kernel.changes import Epoch
from dataspace.wire.observing import NUMBERS
from index.patterns.text import parse_pattern
from index.values.values import Record, Value
from relay.archive import columns as archived_columns
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.archiver import Archiver, RangeSizes, archive_all
from relay.archive.merging import Merger, MergeRules
from relay.log.columns import ColumnReplay
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.objects.opening import open_objects
from relay.spark.cold import archives
from relay.spark.cold.archives import ColdArchive
from relay.spark.cold.columns import ColumnTask
from relay.spark.cold.plans import ColdPlan, planned
from relay.spark.cold.shares import _of_columns as shares_of_columns
from relay.spark.cold.states import column_state, state_rows
from relay.spark.common.connections import DaemonPeer
from relay.spark.common.fitting import Misfit
from relay.spark.common.options import read_options
from relay.spark.common.schema import SEQ, Columns, columns, inferred
from relay.spark.common.where import condition, kept as keeping
from relay.spark.source.archived import cold_rows
from relay.spark.source.tasks import batches
from tests.relay.log.histories import append

THOROUGH: Final = "TORTURE_ROUNDS" in os.environ

AT = datetime(2026, 11, 27, 1, 2, 3, 4, tzinfo=UTC)

Turn = tuple[Sequence[Value], Sequence[Value], Sequence[Value]]


def r(label: Value, *fields: Value) -> Record:
    return Record(label, *fields)


# Each fact is there once at a time, as in the log; fields have odd values, and one label becomes wide late.
TURNS: list[Turn] = [
    ([r("p", 1, "a"), r("p", 2, "b"), r("q", 1.5, AT), "bare"], [r("say", "hello")], []),
    ([r("p", 1, "c"), r("q", -0.0, AT), r("q", math.nan, None)], [r("p", 1, "a")], [r("p", 1, "a")]),
    ([r("p", True, "a"), r("p", 1.0, "a"), r("p", 2**70, "a"), r("one", b"\x00")], [], [r("p", 2, "b")]),
    ([r("p", None, None), r("q", 0.0, "x"), r("w", 1)], [], [r("q", -0.0, AT), "bare"]),
    ([r("p", 1, ("seq",)), r("p", 1, r("in", 1)), r("w", 2)], [r("w", 9)], [r("p", None, None)]),
    ([r("w", 1, 2), r("w", 1, 3)], [], [r("w", 1), r("p", True, "a")]),
    ([r("p", 7, 'é\n"')], [], [r("w", 1, 2), r("q", math.nan, None)]),
    ([r("P", 1, "a"), r(5, 1, "a"), r("none"), r("p", 1, "a")], [r("say", "bye")], [r("w", 1, 3)]),
]

PATTERNS = [
    "p($n:int, $s:str)",
    "p($n, $s)",
    'p($n:int, "a")',
    "p(1, $s)",
    "p(1, $s:str)",
    "p($n, null)",
    "p($n:float, $s)",
    "p(true, $s)",
    "p(1180591620717411303424, $s)",
    "q($v:float, $t:time)",
    "q($v:float, $t)",
    "q($v, $t)",
    "q(-0.0, $t)",
    "p($n, _)",
    "p(_, $s)",
    "p(_, _)",
    "p($n)",
    "w($n:int)",
    "w($n, $m)",
    "say($what:str)",
    "one($b:bytes)",
    "none()",
    "P($n, $s)",
    "<5>($n, $s)",
    "$anything",
    "p($n, in($m))",
    "absent($n)",
]


OPTIONS = read_options({"pattern": "p($)", "arrowBatchRows": "2"})


class Kept:
    """A log with an archive of several ranges, whose objects have many groups."""

    def __init__(self, folder: Path, changes: int, *merges: MergeRules) -> None:
        (folder / "data").mkdir(parents=True)
        self.several = changes == 9
        self.log = Log.open(folder / "data")
        for at, (added, sent, removed) in enumerate(TURNS, 1):
            append(
                self.log, Epoch(at, at * 1_000_000, tuple(added), tuple(sent), tuple(removed), (), None, 0)
            )
        reader = LogReader.open(folder / "data")
        archiver = Archiver(
            reader, open_objects(folder / "archive"), "main", sizes=RangeSizes(changes=changes)
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("relay.archive.packing.GROUP_BYTES", 1)
            patched.setattr("relay.archive.columns.GROUP_ROWS", 4)
            patched.setattr("relay.archive.columns.CLUSTERED_ROWS", 3)
            archiver.begin()
            archive_all(archiver, lambda _: None)
            for rules in merges:
                Merger(archiver.archive, rules=rules).merge_all(lambda _: None)
        reader.close()
        self.peer = DaemonPeer("", archive=str(folder / "archive"))
        self.archive = Archive(open_objects(folder / "archive"), ArchivePlace("main", self.log.identity))
        self.archive.renew()
        self.ranges = [*self.archive.ranges()]


CLUSTERED = MergeRules(changes=12, clusters={"p": (1, 0), "q": (1,)})
KINDS: dict[str, tuple[int, *tuple[MergeRules, ...]]] = {
    "ranges of one epoch": (1,),
    "of two": (9,),
    "one range": (100,),
    "merged": (1, MergeRules(changes=6), MergeRules(changes=12)),
    "merged and clustered": (1, CLUSTERED),
}


LATER = {"merged": pytest.mark.torture(long=True)}
"""What the quick form leaves out: there what is merged is clustered as well."""


@pytest.fixture(scope="module", params=[pytest.param(each, marks=LATER.get(each, ())) for each in KINDS])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    made = Kept(tmp_path_factory.mktemp("kept"), *KINDS[request.param])
    yield made
    made.log.close()


def columns_for(pattern: str, *, malformed: str = "null", whole: bool = False) -> Columns:
    schema = inferred(pattern, include_value=whole)
    return columns(pattern, schema, include_value=whole, malformed=malformed)  # type: ignore[arg-type]


def told(log: Log, wanted: Columns, after: int, upto: int) -> list[str]:
    """The rows as the log's own replay gives them."""
    replay = ColumnReplay(log, wanted.pattern, after, places=True)
    blocks = [block(unpack_own(each.packed)) for each in replay.blocks(upto)]
    return shown(batches(blocks, wanted, 1, peer=DaemonPeer("")))


def shown(made: Iterator[pa.RecordBatch]) -> list[str]:
    """Rows as texts, which tell -0.0 from 0.0, without their place in the epoch."""
    rows = [row for batch in made for row in batch.to_pylist()]
    return [repr({name: value for name, value in row.items() if name != SEQ}) for row in rows]


def read(kept: Kept, wanted: Columns, after: int, upto: int, count: int = 1) -> list[str]:
    """The rows of all tasks, in order."""
    plans = planned(kept.archive, wanted.pattern, after, upto, count)
    return [row for plan in plans for row in shown(cold_rows(plan, wanted, kept.peer, OPTIONS))]


def spans(kept: Kept, pattern: str) -> list[tuple[int, int]]:
    """The spans of epochs for a pattern: all of them, or some, so that each is several patterns'."""
    every = [*combinations(range(0, len(TURNS) + 1, 1 if kept.several else 2), 2)]
    return every if THOROUGH else every[PATTERNS.index(pattern) % 4 :: 4]


def epochs(kept: Kept, pattern: str) -> range:
    """The epochs whose states are looked at for a pattern, likewise."""
    step = (1 if kept.several else 3) if THOROUGH else 4
    return range(1 + PATTERNS.index(pattern) % step, len(TURNS) + 1, step)


@pytest.mark.torture
@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_are_those_of_the_log(kept: Kept, pattern: str) -> None:
    wanted = columns_for(pattern)
    for after, upto in spans(kept, pattern):
        expected = told(kept.log, wanted, after, upto)
        assert read(kept, wanted, after, upto) == expected, (after, upto)
        for count in (8,) if kept.several else (3,) if len(kept.ranges) == 1 else ():
            assert read(kept, wanted, after, upto, count) == expected, (after, upto)
    whole = columns_for(pattern, whole=True)
    assert read(kept, whole, 1, 7, count=2) == told(kept.log, whole, 1, 7)


@pytest.mark.torture
@pytest.mark.parametrize("pattern", ["p($n, $s)", "q($v, $t)", "w($n, $m)", "$anything"])
def test_tasks_have_all_epochs_between_them_and_about_as_many_rows(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """A range is divided where a task would be larger than it may be, and where more tasks are asked for."""
    wanted = parse_pattern(pattern)
    monkeypatch.setattr("relay.spark.cold.plans.ORDERED_SHARE", 1)
    (whole,) = planned(kept.archive, wanted, 0, len(TURNS), 1)
    for after, upto in {*spans(kept, pattern), (0, len(TURNS))}:
        for rows, count in [(1, 1), (3, 1), (100, 2), (100, 4), (100, 9)]:
            monkeypatch.setattr("relay.spark.cold.plans.TASK_ROWS", rows)
            plans = planned(kept.archive, wanted, after, upto, count)
            ends = [each.upto for each in plans]
            assert [each.after for each in plans] == [after, *ends][: len(plans)]
            assert ends == sorted({*ends})
            assert (
                ends[-1:] in ([upto], []) or whole.files is not None
            )  # the last ranges may have no such rows
            if (after, upto, rows) == (0, len(TURNS), 1):
                assert len(plans) >= 3
            if (after, upto, rows, count) == (0, len(TURNS), 100, 2):
                assert len(plans) == 2


def test_a_task_reads_the_row_groups_of_its_epochs(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are in the order of the log, one row group at most is read by two tasks."""
    groups: list[int] = []
    read_groups = ParquetFile.iter_batches

    def counted(self: ParquetFile, size: int, row_groups: list[int], **rest: Any) -> Any:
        groups.extend(row_groups)
        return read_groups(self, size, row_groups, **rest)

    monkeypatch.setattr(ParquetFile, "iter_batches", counted)
    wanted = columns_for("p($n, $s)")
    alone = read(kept, wanted, 0, len(TURNS))
    expected, groups[:] = len(groups), []
    assert read(kept, wanted, 0, len(TURNS), 3) == alone
    (plans,) = [planned(kept.archive, wanted.pattern, 0, len(TURNS), 3)]
    ordered = any(each.order for of in kept.ranges for each in of.files)
    assert len(groups) <= expected * (len(plans) if ordered else 1) + len(plans) - 1


def test_a_task_goes_on_with_the_counts_of_the_one_before(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def rows(task: ColumnTask, files: Any, begin: int, upto: int) -> Any:
        begun.append(upto)
        return state_rows(task, files, begin, upto)

    monkeypatch.setattr("relay.spark.cold.counted.state_rows", rows)
    for pattern in ("p($n, _)", "p(_, $s)", "q($v)"):
        wanted = columns_for(pattern)
        for after, upto in [(2, 3), (3, 5), (5, 8), (1, 8)]:
            assert read(kept, wanted, after, upto) == told(kept.log, wanted, after, upto)
    assert begun == [2, 1] * 3


@pytest.mark.parametrize("pattern", PATTERNS)
def test_places_in_the_epoch_ascend(kept: Kept, pattern: str) -> None:
    wanted = columns_for(pattern)
    for plan in planned(kept.archive, wanted.pattern, 0, len(TURNS), 8):
        rows = [
            (row["_epoch"], row["_seq"])
            for batch in cold_rows(plan, wanted, kept.peer, OPTIONS)
            for row in batch.to_pylist()
        ]
        assert rows == sorted(set(rows))


def test_columns_answer_where_captures_and_constants_are_all_fields(kept: Kept) -> None:
    """Else the tests above compare a replay with itself."""
    by_columns = {
        pattern
        for pattern in PATTERNS
        if all(
            plan.files is not None for plan in planned(kept.archive, parse_pattern(pattern), 0, len(TURNS), 1)
        )
    }
    assert {"p($n:int, $s:str)", "q(-0.0, $t)", "w($n, $m)", "none()", "one($b:bytes)"} <= by_columns
    assert not by_columns & {"p($n, _)", "w($n:int)", "$anything", "<5>($n, $s)", "p($n, in($m))"}


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        ("p($n:int, $s:str)", "n = 7"),
        ("p($n:int, $s:str)", "n > 1 and s <> 'b'"),
        ("p($n:int, $s:str)", "n in (1, 7) or s = 'b'"),
        ("p($n:int, $s)", "s = '\"c\"'"),
        ("p($n, $s:str)", "n = '1'"),
        ("q($v:float, $t)", "v = 0"),
        ("q($v:float, $t)", "v >= 1.5"),
        ("w($n:int)", "n < 2 and _epoch > 4"),
        ("say($what:str)", "what < 'c'"),
    ],
)
def test_a_condition_leaves_the_rows_for_which_it_is_true(kept: Kept, pattern: str, where: str) -> None:
    """Whatever is passed over because statistics say so."""
    found = condition(where, inferred(pattern))
    wanted = columns_for(pattern)
    chosen = [
        row
        for plan in planned(kept.archive, wanted.pattern, 0, len(TURNS), 8)
        for batch in cold_rows(plan, replace(wanted, where=found), kept.peer, OPTIONS)
        for row in shown(iter([keeping(found, batch)]))
    ]
    everything = [
        batch
        for plan in planned(kept.archive, wanted.pattern, 0, len(TURNS), 1)
        for batch in cold_rows(plan, wanted, kept.peer, OPTIONS)
    ]
    assert chosen == shown(keeping(found, batch) for batch in everything)
    assert chosen


def test_a_value_that_does_not_fit_fails_with_its_epoch(kept: Kept) -> None:
    wanted = columns_for("p($n:int, $s)", malformed="fail")
    with pytest.raises(Misfit, match="epoch 3 has int 1180591620717411303424 for column n"):
        read(kept, wanted, 0, len(TURNS))
    dropped = read(kept, columns_for("p($n:int, $s)", malformed="drop"), 0, len(TURNS))
    assert dropped == told(kept.log, columns_for("p($n:int, $s)", malformed="drop"), 0, len(TURNS))


@pytest.mark.torture
@pytest.mark.parametrize("by_columns", [True, False])
def test_the_state_at_an_epoch_is_that_of_the_log(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, *, by_columns: bool
) -> None:
    summed: list[str] = []

    def sums(task: ColumnTask, *rest: Any) -> object:
        summed.append(task.form.label)
        return column_state(task, *rest) if by_columns else None

    monkeypatch.setattr("relay.spark.source.archived.column_state", sums)
    for pattern in PATTERNS:
        wanted = columns_for(pattern)
        for at in epochs(kept, pattern):
            plan = ColdPlan(kept.archive.place.identity, at, at, state=True)
            found = shown(cold_rows(plan, wanted, kept.peer, OPTIONS))
            replay = ColumnReplay(kept.log, wanted.pattern, at)
            blocks = [block(unpack_own(each.packed)) for each in replay.state(at * 1_000_000)]
            assert sorted(found) == sorted(shown(batches(blocks, wanted, 1, peer=DaemonPeer(""))))
    assert {"p", "q", "w", "none", "absent"} <= {*summed}


@pytest.mark.torture
@pytest.mark.parametrize("by_columns", [True, False])
def test_shares_of_a_state_are_those_of_the_log(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, *, by_columns: bool
) -> None:
    """In the order that the daemon sends them in, so that a state may be begun there and ended here."""
    summed: list[str] = []

    def of_columns(cold: ColdArchive, at: int, wanted: Columns) -> object:
        made = shares_of_columns(cold, at, wanted) if by_columns else None
        summed.extend([] if made is None else [str(wanted.pattern)])
        return made

    monkeypatch.setattr("relay.spark.cold.shares._of_columns", of_columns)
    for pattern in PATTERNS:
        wanted = columns_for(pattern)
        for at in epochs(kept, pattern):
            archives._open.clear()  # as in another process
            log = ColumnReplay(kept.log, wanted.pattern, at, places=True, share=(0, NUMBERS))
            blocks = [block(unpack_own(each.packed)) for each in log.state(at * 1_000_000)]
            expected = [
                row for each in batches(blocks, wanted, 1, peer=kept.peer) for row in each.to_pylist()
            ]
            found, low = list[dict[str, object]](), 0
            while low < NUMBERS:
                high = log.shares().upto(low, 2)
                plan = ColdPlan(kept.archive.place.identity, at, at, state=True, share=(low, high))
                found += [
                    row for each in cold_rows(plan, wanted, kept.peer, OPTIONS) for row in each.to_pylist()
                ]
                low = high
            assert list(map(repr, found)) == list(map(repr, expected)), (pattern, at)
    assert len({*summed}) >= (10 if by_columns else 0)


def test_objects_of_rare_labels_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one label of its own, all others of these ranges are in the object for rare labels."""
    monkeypatch.setattr("relay.archive.columns.MOST_LABELS", 1)
    kept = Kept(tmp_path, 100)
    for pattern in PATTERNS:
        wanted = columns_for(pattern)
        for after, upto in [(0, 8), (2, 5), (5, 8)]:
            assert read(kept, wanted, after, upto) == told(kept.log, wanted, after, upto), pattern
    kept.log.close()


@pytest.mark.parametrize(("limit", "value"), [("MOST_FIELDS", 1), ("MOST_KINDS", 2), ("NAME_BYTES", 0)])
def test_rows_are_read_wherever_the_bounds_of_columns_put_them(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label may have an object for one number of fields, and others among the rare rows of one range."""
    monkeypatch.setattr(archived_columns, limit, value)
    kept = Kept(tmp_path, 12, MergeRules(changes=24))
    for pattern in PATTERNS:
        wanted = columns_for(pattern)
        for after, upto in [(0, 8), (2, 5), (5, 8)]:
            assert read(kept, wanted, after, upto) == told(kept.log, wanted, after, upto), pattern
    kept.log.close()


def test_rows_are_the_same_after_a_merge_that_settles_classes_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each pattern, by plans of before as well, in a process that has counts of before."""
    turns: list[Turn] = [([r("p", at, None)], [], []) for at in range(4)]
    turns += [([r("p", None, at), r("p", at % 3, f"x{at}")], [r("p", -0.0, at)], []) for at in range(4, 12)]
    turns += [([r("p", at, 2.5)], [], [r("p", at, None), r("p", None, at + 4)]) for at in range(4)]
    patterns = ["p(_, $s)", "p($n, $s)", "p($n:int, $s:int)", "p($n, _)", "p(1, $s)", "p($n, null)", "$any"]
    monkeypatch.setattr(archives, "_open", type(archives._open)())  # without those of other tests
    (tmp_path / "data").mkdir()
    log = Log.open(tmp_path / "data")
    reader = LogReader.open(tmp_path / "data")
    objects = open_objects(tmp_path / "archive")
    archiver = Archiver(reader, objects, "main", sizes=RangeSizes(changes=1))
    archive = Archive(objects, ArchivePlace("main", log.identity))
    peer = DaemonPeer("", archive=str(tmp_path / "archive"))
    try:
        for at, (added, sent, removed) in enumerate(turns, 1):
            epoch = Epoch(at, at * 1_000_000, tuple(added), tuple(sent), tuple(removed), (), None, 0)
            append(log, epoch)
        archiver.begin()
        archive_all(archiver, lambda _: None)
        archive.renew()
        classes = {archive.manifest.types["p/2"]}
        plans: dict[tuple[str, int, int], list[ColdPlan]] = {}
        for rules in (None, MergeRules(changes=4), MergeRules(changes=20), MergeRules(changes=500)):
            if rules is not None:
                [*cold_rows(ColdPlan(log.identity, 2, 9), columns_for("p(_, $s)"), peer, OPTIONS)]
                Merger(archiver.archive, rules=rules).merge_all(lambda _: None)
                for key in archives._open:
                    archives._open[key].fresh()
            for pattern in patterns:
                wanted = columns_for(pattern)
                for after, upto in [(9, len(turns)), (0, 5), (5, 9), (2, len(turns))]:
                    early = plans.get((pattern, after, upto), [])
                    archive.renew()
                    now = plans[pattern, after, upto] = planned(archive, wanted.pattern, after, upto, 2)
                    expected = told(log, wanted, after, upto)
                    for tasks in (early, now) if early else (now,):
                        found = [
                            row for each in tasks for row in shown(cold_rows(each, wanted, peer, OPTIONS))
                        ]
                        assert found == expected, (rules, pattern, after, upto)
            archive.renew()
            classes.add(archive.manifest.types["p/2"])
        assert len(classes) > 1, "else no class was settled anew"
    finally:
        reader.close()
        log.close()
