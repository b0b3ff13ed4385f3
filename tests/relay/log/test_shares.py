"""A state is the same rows in the same order, sorted in memory or in files, and is cut as asked."""

from __future__ import annotations

import gc
import math
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from dataspace.codec import pack
from dataspace.wire.observing import NUMBERS
from index.errors import InternalError
from index.patterns.patterns import capture
from index.values.values import Record, Value, keys
from relay.log.columns import ColumnReplay
from relay.log.cursors import Cursors, RowCounts, Since, TimedCounts, key_bytes, row_keys
from relay.log.log import Log
from relay.log.shares import StateShares, StateSorter
from relay.store.errors import LogFailed
from tests.relay.log.histories import append, epoch

Row = tuple[Value, ...]

BUDGETS = st.sampled_from([0, 700, 3000, 1 << 20])

odd = st.sampled_from([1, 1.0, True, "1", b"1", -0.0, 0.0, math.nan, -math.nan, None, 2**70, (1, math.nan)])


def sorted_state(
    rows: Sequence[Row], since: Sequence[Since | None] | None = None, budget: int | None = None
) -> StateShares:
    """Rows of a state, each of them there once, as they are sorted."""
    sorter = StateSorter(timed=since is not None, budget=budget)
    if since is None:
        sorter.change(rows, [])
    for row, began in zip(rows, since or (), strict=False):
        sorter.now = None if began is None else began[:2]
        sorter.owners = None if began is None else [began[2]]
        sorter.change([row], [])
    return sorter.shares()


@contextmanager
def in_small_parts(runs: int, block: int) -> Iterator[None]:
    """Has so few runs merged at once, and blocks of so few bytes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("relay.store.spilled.RUNS", runs)
        patched.setattr("relay.store.spilled.BLOCK_BYTES", block)
        yield


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Has the system refuse to write files beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@given(
    st.lists(st.tuples(odd, st.integers(0, 300)), unique_by=keys),
    st.randoms(),
    st.integers(0, 1),
    st.booleans(),
    BUDGETS,
)
def test_shares_have_one_order_whatever_the_order_before(
    rows: list[tuple[Value, int]], random: Random, few: int, is_large: bool, budget: int
) -> None:
    """Also where many rows have one number: then a share has all of them; and where they are in a file."""
    with pytest.MonkeyPatch.context() as patched:
        if is_large:
            patched.setattr("relay.store.spilled.HELD_BYTES", 16)
            patched.setattr("relay.store.spilled._WRITTEN", 16)
        if few:
            patched.setattr("relay.log.shares.blake2b", lambda said, digest_size: Few(said, digest_size))
        made = sorted_state(rows)
        again = sorted_state(random.sample(rows, len(rows)), budget=budget)
        since = [None if at % 3 else (at, at * 7, "me" if at % 2 else None) for at in range(len(rows))]
        timed = sorted_state(rows, since, budget)
    whole = range(len(rows))
    assert is_large or not made.spilled
    by_row = {keys(row): each for row, each in zip(rows, since, strict=True)}
    assert timed.since(whole) == [by_row[keys(row)] for row in timed.rows(whole)]
    named = [*map(keys, made.rows(whole))]
    for start in range(0, len(rows), 2):
        assert [*map(keys, made.rows(whole[start : start + 3]))] == named[start : start + 3]
    assert named == [keys(row) for row in again.rows(whole)] == [keys(row) for row in timed.rows(whole)]
    assert {*named} == {keys(row) for row in rows}
    for most in (1, 2, 50):
        low, seen = 0, 0
        while low < NUMBERS:
            high = made.upto(low, most)
            places = made.places(low, high)
            assert places.start == seen
            assert len(places) <= most or few
            assert len(places) > 0 or not rows
            low, seen = high, places.stop
        assert seen == len(rows)
    for size in (1, 20, 1000) if not few else ():
        low, sizes = 0, [len(pack(row)) for row in made.rows(whole)]
        while low < NUMBERS:
            high = made.upto(low, len(rows) + 1, size)
            places = made.places(low, high)
            assert len(places) <= 1 or sum(sizes[places.start : places.stop]) <= size
            assert places.stop == len(rows) or sum(sizes[places.start : places.stop + 1]) > size
            low = high


class Few:
    """A hash with three values."""

    def __init__(self, said: bytes, size: int) -> None:
        self._number = len(said) % 3 << 8 * size - 2

    def digest(self) -> bytes:
        return self._number.to_bytes(6)


class Model:
    """What is there, counted in the plainest way."""

    def __init__(self) -> None:
        self.there: dict[object, tuple[int, Since | None]] = {}
        self._named: dict[object, bytes] = {}

    def change(self, row: Row, by: int, since: Since | None = None) -> bool:
        """Adds or removes one fact; False, and it stays, if there is none to remove."""
        at = keys(row)
        self._named[at] = key_bytes(row_keys([row])[0])
        count, began = self.there.get(at, (0, None))
        if count + by < 0:
            return False
        self.there[at] = count + by, began if count else since
        return True

    def sorted(self) -> list[tuple[object, Since | None]]:
        """The rows by the hash of their keys, and since when they are there."""
        there = [(self._named[at], at, began) for at, (count, began) in self.there.items() if count]
        there.sort(key=lambda each: (blake2b(each[0], digest_size=6).digest(), each[0]))
        return [(at, began) for _, at, began in there]


def found(shares: StateShares, *, timed: bool) -> list[tuple[object, Since | None]]:
    """The same of what was sorted."""
    whole = range(len(shares))
    since = shares.since(whole) if timed else [None] * len(whole)
    return [*zip(map(keys, shares.rows(whole)), since, strict=True)]


few_values = st.sampled_from([1, 1.0, "1", math.nan, -math.nan, ("x", math.nan), "x" * 300])
few_rows = st.tuples(few_values, st.integers(0, 2))
facts = st.lists(st.tuples(few_rows, st.integers(0, 2)), max_size=6)


@given(
    st.lists(st.tuples(st.booleans(), facts), max_size=4),
    st.lists(st.lists(st.tuples(st.booleans(), few_rows), max_size=5), max_size=8),
    st.booleans(),
    BUDGETS,
    st.sampled_from([(2, 1), (3, 1000), (64, 64 << 10)]),
)
def test_sorting_in_files_is_sorting_in_memory(
    beginning: list[tuple[bool, list[tuple[Row, int]]]],
    epochs: list[list[tuple[bool, Row]]],
    timed: bool,
    budget: int,
    parts: tuple[int, int],
) -> None:
    """Facts come several times, and with the captures of others; rows go, come again, and hold a NaN."""
    model, seen = Model(), set[object]()
    with in_small_parts(*parts):
        sorter, undone = StateSorter(timed=timed, budget=budget), StateSorter(budget=budget)
        for hashed, facts in beginning:
            rows, hashes = [row for row, _ in facts], [b"%d" % fact for _, fact in facts]
            sorter.add_facts([(rows, hashes if hashed else None)])
            for row, fact in zip(rows, hashes, strict=True):
                at = keys(row), fact if hashed else b""
                if at not in seen:
                    seen.add(at)
                    model.change(row, 1)
        before = model.sorted()
        taken = list[tuple[list[Row], list[Row]]]()
        for number, changes in enumerate(epochs, 1):
            now = number, 10 * number, f"owner {number}" if number % 2 else None
            added, removed = [row for comes, row in changes if comes], list[Row]()
            for row in added:
                model.change(row, 1, now if timed else None)
            removed += [row for comes, row in changes if not comes and model.change(row, -1)]
            sorter.now, sorter.owners = now[:2], [now[2]] * len(added)
            sorter.change(added, removed)
            taken.append((added, removed))
        ends = [(row, count) for row, count in model.there.items() if count[0]]
        end_rows = {keys(row): row for _, facts in beginning for row, _ in facts}
        end_rows |= {keys(row): row for changes in epochs for _, row in changes}
        undone.change([end_rows[at] for at, (count, _) in ends for _ in range(count)], [])
        undone.undo(taken)
        assert found(sorter.shares(), timed=timed) == model.sorted()
        assert found(undone.shares(), timed=False) == [(at, None) for at, _ in before]


def test_every_short_history_of_two_rows_ends_as_it_is_counted() -> None:
    """With each change in a file of its own; only what is lacking in the end is an error."""
    steps = [(row, by) for row in ((1,), ("a",)) for by in (1, -1)]
    for length in range(5):
        for history in product(steps, repeat=length):
            sorter, model, is_valid = StateSorter(timed=True, budget=0), Model(), True
            totals = {row: sum([by for each, by in history if each == row]) for row, _ in steps}
            for at, (row, by) in enumerate(history, 1):
                sorter.now, sorter.owners = (at, at), None
                sorter.change([row] if by > 0 else [], [row] if by < 0 else [])
                is_valid = model.change(row, by, (at, at, None)) and is_valid
            if min(totals.values()) < 0:
                with pytest.raises(InternalError, match="never there"):
                    sorter.shares()
                continue
            made = found(sorter.shares(), timed=True)
            assert {at for at, _ in made} == {keys(row) for row, total in totals.items() if total}
            assert not is_valid or made == model.sorted(), history


@given(st.lists(few_rows), st.lists(few_rows), st.booleans(), BUDGETS)
def test_a_bag_that_was_left_is_gone_on_from(
    rows: list[Row], more: list[Row], timed: bool, budget: int
) -> None:
    """And stays as it was."""
    bag, model = TimedCounts() if timed else RowCounts(), Model()
    for at, row in enumerate(rows, 1):
        if isinstance(bag, TimedCounts):
            bag.now = at, at
        bag.change([row], [])
        model.change(row, 1, (at, at, None) if timed else None)
    entries = [*bag.entries()]
    with in_small_parts(2, 1), pytest.MonkeyPatch.context() as patched:
        patched.setattr("relay.log.shares.KEPT_ROWS", 2)
        sorter = StateSorter(timed=timed, budget=budget)
        sorter.start_from(bag)
        sorter.now = 99, 99
        sorter.change(more, rows[:3])
        for row in more:
            model.change(row, 1, (99, 99, None) if timed else None)
        for row in rows[:3]:
            model.change(row, -1)
        assert found(sorter.shares(), timed=timed) == model.sorted()
    assert repr([*bag.entries()]) == repr(entries)


def test_rows_that_come_and_go_all_the_time_fill_no_files() -> None:
    """Memory is that of the rows that are there, and of those that a run has."""
    sorter = StateSorter(budget=100_000)
    for at in range(20_000):
        sorter.change([(at % 50, at)], [(at % 50, at - 50)] if at >= 50 else [])
    assert not sorter.runs and len(sorter.shares()) == 50


def test_facts_that_many_owners_claim_fill_no_files() -> None:
    sorter = StateSorter(budget=200_000)
    rows: list[Row] = [(at,) for at in range(100)]
    sorter.add_facts((rows, None if at % 2 else [b"same"] * 100) for at in range(200))
    assert not sorter.runs and len(sorter.shares()) == 100


def test_memory_does_not_grow_with_the_rows() -> None:
    """Python's own objects: of four times the rows there are four times the runs."""
    import tracemalloc

    peaks, runs = [], []
    for count in (3_000, 12_000):
        gc.collect()
        tracemalloc.start()
        sorter = StateSorter(budget=400_000)
        with pytest.MonkeyPatch.context() as patched, in_small_parts(64, 2000):
            for start in range(0, count, 100):
                sorter.change([(at, "x" * 500) for at in range(start, start + 100)], [])
            patched.setattr("relay.store.spilled.HELD_BYTES", 10_000)
            patched.setattr("relay.store.spilled._WRITTEN", 10_000)
            runs.append(sorter.runs)
            assert len(sorter.shares()) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert runs[0] > 5 and runs[1] >= 3.5 * runs[0]
    assert peaks[1] < 1.5 * peaks[0], f"{peaks} bytes at most"


@pytest.mark.parametrize("budget", [0, 1 << 30])
def test_a_full_disk_is_said_and_nothing_is_left_behind(
    budget: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next reader sorts it, once there is room; also where only what is made does not fit."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("relay.log.shares.SORTED_BYTES", budget)
    monkeypatch.setattr("relay.store.spilled.HELD_BYTES", 1000)
    (tmp_path / "log").mkdir()
    log = Log.open(tmp_path / "log")
    for number in range(8):
        append(log, epoch(number + 1, *[Record("p", number * 100 + at, "x" * 50) for at in range(100)]))
    shares = ColumnReplay(log, Record("p", capture(), capture()), log.last, share=(0, NUMBERS)).shares
    gc.collect()
    open_files = len(os.listdir("/proc/self/fd"))
    with files_of_at_most(2000), pytest.raises(LogFailed, match="free some space, or set TMPDIR") as failed:
        shares()
    assert failed.value.code == "disk-full" and str(tmp_path) in str(failed.value)
    assert not log.cursors._preparing
    del failed
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert len(shares()) == 800
    assert [each.name for each in tmp_path.iterdir()] == ["log"], "no file has a name"
    log.close()


def test_no_directory_for_temporary_files_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(LogFailed, match=r"in .*none: No such file") as failed:
        sorted_state([(1,)], budget=0)
    assert failed.value.code == "disk-failed"
    assert len(sorted_state([(1,)])) == 1, "what fits in memory needs no file"


def test_a_state_larger_than_all_memory_of_cursors_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are in a file, whose bytes are bounded by themselves."""
    monkeypatch.setattr("relay.store.spilled.HELD_BYTES", 1 << 10)
    monkeypatch.setattr("relay.store.spilled._WRITTEN", 1 << 10)
    wide = [(at, "x" * 100) for at in range(1_000)]
    made = [sorted_state(wide, budget=budget) for budget in (None, 0, 1 << 16)]
    assert made[0].spilled > 100_000 and made[0].bytes < 1 << 13
    cursors = Cursors(size=1 << 15, spilled=250_000)
    for at, each in enumerate(made):
        cursors.leave("p", at, each)
        assert cursors.find("p", at) == (at, each)
    assert len(cursors) == 2, "the oldest file went"
    cursors.leave("q", 1, sorted_state(wide))
    assert len(cursors) == 2
    small = Cursors(spilled=10)
    small.leave("p", 1, made[0])
    assert len(small) == 0
    cursors.clear()
    cursors.leave("p", 1, made[0])
    assert len(cursors) == 1
