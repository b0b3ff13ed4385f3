"""Blocks of columns say exactly what a replay says, however they are cut."""

from __future__ import annotations

import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from time import sleep

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.client.bulk.blocks import Block, block
from dataspace.codec import unpack
from dataspace.errors import ProtocolError, UsageError
from dataspace.kernel.changes import Claims, Epoch
from dataspace.wire.observing import NUMBERS
from index.patterns.patterns import capture, discard, exact, matcher
from index.patterns.skeletons import skeleton
from index.values.values import Record, Value, keys
from relay.log import columns as columnar
from relay.log.columns import ColumnReplay
from relay.log.log import Log
from relay.log.replay import Replay
from relay.log.retention import Retention
from relay.log.segments import Segment
from relay.log.selections import flat_selection
from relay.log.shares import StateShares, StateSorter
from relay.log.snapshots import RecoveredState
from tests.relay.log.histories import append, epoch, lived
from tests.relay.log.test_replay import PATTERNS, Turns, histories
from tests.relay.log.test_retention import EVERYTHING, LATE, write_snapshot

pytestmark = pytest.mark.usefixtures("home")

MORE_PATTERNS: Sequence[Value] = (
    *PATTERNS,
    Record("p", capture("a", "int"), capture("b", "float")),
    Record("p", capture("a"), discard("str")),
    exact(Record("p", capture("a"), capture("b"))),
    Record("p", "1", capture("b")),
    Record("p", 1, capture("b")),
    Record("p", capture("a"), capture("a")),
    Record("q", capture("a"), (capture("b"),)),
    Record("q", capture("a"), capture("b", "seq"), capture("c", "record")),
)


def told(blocks: Iterator[Block]) -> list[tuple[int, int, str, int, object]]:
    """Every change by itself: epoch, time, kind, position in the epoch, captures."""
    said: list[tuple[int, int, str, int, object]] = []
    for each in blocks:
        rows = iter(zip(*each.columns, strict=True) if each.columns else [()] * len(each))
        at = each.skipped
        for number, time, *counts in zip(
            each.numbers, each.times, each.added, each.messages, each.removed, strict=True
        ):
            for kind, count in zip("+!-", counts, strict=True):
                for _ in range(count):
                    said.append((number, time, kind, at, keys(next(rows))))
                    at += 1
            at = 0
    return said


def placed(blocks: Iterator[Block]) -> list[tuple[int, int, object]]:
    """Epoch, position in the epoch, and captures of every change."""
    said: list[tuple[int, int, object]] = []
    for each in blocks:
        rows = [*zip(*each.columns, strict=True)] if each.columns else [()] * len(each)
        numbers = [n for n, total in zip(each.numbers, each.totals(), strict=True) for _ in range(total)]
        places: Sequence[int] = array("i", each.places or b"")
        if each.places is None:
            first = each.skipped
            places = []
            for total in each.totals():
                places += range(first, first + total)
                first = 0
        said += zip(numbers, places, map(keys, rows), strict=True)
    return said


def truly_placed(
    epochs: Sequence[Epoch], pattern: Value, after: int, upto: int
) -> list[tuple[int, int, object]]:
    """The same from the epochs themselves: the first of its kind comes, the last of its kind goes."""
    match = matcher(pattern)
    counts: Counter[object] = Counter()
    said: list[tuple[int, int, object]] = []
    for one in epochs:
        kinds = [(1, each) for each in one.added] + [(0, each) for each in one.messages]
        for at, (by, value) in enumerate([*kinds, *[(-1, each) for each in one.removed]]):
            row = match(value)
            if row is None:
                continue
            counts[keys(row)] += by
            if after < one.number <= upto and (by == 0 or counts[keys(row)] == (by > 0)):
                said.append((one.number, at, keys(row)))
    return said


@settings(max_examples=30)
@given(histories(), st.sampled_from(MORE_PATTERNS), st.integers(1, 5), st.data())
def test_places_are_positions_in_the_epoch_and_captures_are_chosen(
    turns: Turns, pattern: Value, rows: int, data: st.DataObject
) -> None:
    _, epochs, _ = lived(turns, ())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "BLOCK_ROWS", rows)
        log = Log.open(Path(folder))
        append(log, *epochs)
        upto = data.draw(st.integers(0, log.last))
        after = data.draw(st.integers(0, upto))
        width = len(skeleton(pattern).captures)
        replay = ColumnReplay(log, pattern, after, places=True)
        whole = [block(unpack(each.packed)) for each in replay.blocks(upto)]
        assert placed(iter(whole)) == truly_placed(epochs, pattern, after, upto)
        wanted = sorted(data.draw(st.sets(st.integers(0, width - 1)))) if width else []
        few = ColumnReplay(log, pattern, after, captures=wanted, places=True)
        some = [block(unpack(each.packed), wanted) for each in few.blocks(upto)]
        assert [replace(each, columns=()) for each in some] == [replace(each, columns=()) for each in whole]
        for one, all_of in zip(some, whole, strict=True):
            for at, column in enumerate(one.columns):
                assert keys(column) == (keys(all_of.columns[at]) if at in wanted else keys(()))
        log.close()


def owner_of(epoch: int) -> str | None:
    """The owner of all claims of an epoch; None for no epoch."""
    return None if epoch < 0 else f"owner {epoch % 3}"


def owned(epochs: Sequence[Epoch]) -> list[Epoch]:
    """Epochs whose claims have these owners."""
    return [
        one._replace(claims=[claims._replace(owner=str(owner_of(one.number))) for claims in one.claims])
        for one in epochs
    ]


def dated(blocks: Iterator[Block]) -> list[tuple[int, str, int, object]]:
    """Epoch, kind, since when it was there, and captures of every change."""
    said: list[tuple[int, str, int, object]] = []
    for each in blocks:
        assert each.since is not None
        rows = zip(*each.columns, strict=True) if each.columns else iter([()] * len(each))
        epochs, times = (iter(array("q", part)) for part in each.since)
        owners = None if each.owners is None else iter(each.owners)
        for number, *counts in zip(each.numbers, each.added, each.messages, each.removed, strict=True):
            for kind in "+" * counts[0] + "!" * counts[1] + "-" * counts[2]:
                said.append((number, kind, next(epochs), keys(next(rows))))
                assert (next(times) < 0) == (said[-1][2] < 0)
                assert owners is None or next(owners) == owner_of(said[-1][2])
    return said


def truly_dated(
    epochs: Sequence[Epoch], pattern: Value, after: int, upto: int
) -> tuple[list[tuple[int, str, int, object]], dict[object, int]]:
    """The same from the epochs themselves, and since when each row is there at the end."""
    match = matcher(pattern)
    counts: Counter[object] = Counter()
    since: dict[object, int] = {}
    said: list[tuple[int, str, int, object]] = []
    for one in epochs:
        if one.number > upto:
            break
        for kind, values in zip("+!-", (one.added, one.messages, one.removed), strict=True):
            for row in [keys(found) for found in map(match, values) if found is not None]:
                counts[row] += {"+": 1, "!": 0, "-": -1}[kind]
                began = -1
                if kind == "+" and counts[row] == 1:
                    began = since[row] = one.number
                elif kind == "-" and not counts[row]:
                    began = since.pop(row)
                if after < one.number <= upto and (kind == "!" or began >= 0):
                    said.append((one.number, kind, began, row))
    return said, since


@settings(max_examples=30)
@given(histories(), st.sampled_from(MORE_PATTERNS), st.integers(1, 5), st.data())
def test_rows_say_since_when_they_are_there(
    turns: Turns, pattern: Value, rows: int, data: st.DataObject
) -> None:
    """And by whose claim they came."""
    _, lived_epochs, _ = lived(turns, ())
    epochs = owned(lived_epochs)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "BLOCK_ROWS", rows)
        log = Log.open(Path(folder))
        append(log, *epochs)
        asks = partial(ColumnReplay, log, pattern, asserted=True, owners=data.draw(st.booleans()))
        for _ in range(2):  # the second goes on from where the first left off, before it or behind it
            upto = data.draw(st.integers(0, log.last))
            after = data.draw(st.integers(0, upto))
            made = [block(unpack(each.packed)) for each in asks(after).blocks(upto)]
            said, since = truly_dated(epochs, pattern, after, upto)
            assert dated(iter(made)) == said
            for share in (None, (0, NUMBERS)):
                state = asks(upto, share=share, places=share is None).state(9)
                found = dated(block(unpack(each.packed)) for each in state)
                assert {row: began for _, _, began, row in found} == since
            alone = ColumnReplay(log, pattern, after, owners=True, places=True)
            blocks = [block(unpack(each.packed)) for each in alone.blocks(upto)]
            assert placed(iter(blocks)) == truly_placed(epochs, pattern, after, upto)
            owners = [one for each in blocks for one in each.owners or ()]
            assert owners == [owner_of(began) for *_, began, _ in said]
        log.close()


@pytest.mark.parametrize("asserted", [False, True])
def test_a_state_in_the_middle_is_remembered(asserted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder))
        append(log, *[epoch(number, Record("p", number, 0)) for number in range(1, 9)])
        read: list[int] = []
        segments = log.segments

        def noted(after: int, upto: int) -> Iterator[Segment]:
            read.append(after)
            return segments(after, upto)

        monkeypatch.setattr(log, "segments", noted)

        def state() -> list[object]:
            made = ColumnReplay(log, exact(FAITHFUL), 5, asserted=asserted).state(50)
            return [block(unpack(each.packed)) for each in made]

        first = state()
        assert read and first
        read.clear()
        assert state() == first and not read
        log.close()


@settings(max_examples=15)
@given(histories(), st.sampled_from(MORE_PATTERNS), st.integers(1, 4), st.booleans(), st.data())
def test_shares_are_the_state_each_row_once(
    turns: Turns, pattern: Value, most: int, asserted: bool, data: st.DataObject
) -> None:
    """In one order, whichever way the state was found, and as many rows as are asked for in each share.

    Out of the log, or of a snapshot before or behind it; sorted in memory or in files.
    """
    _, epochs, _ = lived(turns, ())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "BLOCK_ROWS", 3)
        patch.setattr("relay.log.shares.SORTED_BYTES", data.draw(st.sampled_from([0, 1000, 1 << 20])))
        log = Log.open(Path(folder))
        state, snapshot = RecoveredState(), data.draw(st.integers(0, len(epochs)))
        for number, each in enumerate(epochs, 1):
            append(log, each)
            state.apply(each)
            if number == snapshot:
                write_snapshot(log, state)
        if data.draw(st.booleans()):
            while log.trim(EVERYTHING, LATE).more:
                pass
        at = data.draw(st.integers(log.oldest - 1, log.last))
        _, since = truly_dated(epochs, pattern, 0, at)
        whole = [block(unpack(each.packed)) for each in ColumnReplay(log, pattern, at).state(9)]
        low, read, sizes = 0, list[Block](), []
        while low < NUMBERS:
            if data.draw(st.booleans()):
                log.cursors.clear()
            asks = partial(ColumnReplay, log, pattern, at, places=True, asserted=asserted)
            high = asks(share=(low, NUMBERS)).shares().upto(low, most)
            made = [block(unpack(each.packed)) for each in asks(share=(low, high)).state(9)]
            sizes.append(sum(map(len, made)))
            read, low = read + made, high
        rows = placed(iter(read))
        assert [row[:2] for row in rows] == [(at, place) for place in range(len(rows))]
        assert Counter([row for *_, row in rows]) == Counter([row for *_, row in placed(iter(whole))])
        assert Counter([row for *_, row in rows]) == Counter([*since])
        if asserted:
            began = {row: epoch for _, _, epoch, row in dated(iter(read))}
            assert all(began[row] == epoch for row, epoch in since.items() if epoch >= log.oldest), (
                "of what came before the oldest epoch that is not known"
            )
        assert sizes == [
            *[most] * (len(rows) // most),
            *([len(rows) % most] if len(rows) % most else []),
        ] or (not rows and sizes == [0])
        log.close()


@pytest.mark.parametrize("asserted", [False, True])
def test_a_state_that_many_ask_for_at_once_is_sorted_once(
    asserted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder))
        append(log, epoch(1, *[Record("p", at, 0.5) for at in range(50)]))
        together, sorted_states, found = Barrier(8), list[StateShares](), list[StateShares]()

        shares = StateSorter.shares

        def sort(sorter: StateSorter) -> StateShares:
            sorted_states.append(shares(sorter))
            sleep(0.02)  # the others come meanwhile
            return sorted_states[-1]

        monkeypatch.setattr(StateSorter, "shares", sort)

        def ask() -> None:
            replay = ColumnReplay(log, FAITHFUL, log.last, share=(0, NUMBERS), asserted=asserted)
            together.wait()
            found.append(replay.shares())

        threads = [Thread(target=ask) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert found == sorted_states * 8
        log.close()


def test_captures_that_the_pattern_has_not_are_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder))
        for wrong in ((2,), (1, 0), (0, 0)):
            with pytest.raises(UsageError, match="captures must be ascending numbers below 2"):
                ColumnReplay(log, FAITHFUL, 0, captures=wrong)
        log.close()


def plainly(log: Log, pattern: Value, after: int, upto: int) -> list[tuple[int, int, str, int, object]]:
    said: list[tuple[int, int, str, int, object]] = []
    for number, time, *kinds in Replay(log, pattern, after).epochs(upto):
        rows = [(kind, row) for kind, rows in zip("+!-", kinds, strict=True) for row in rows]
        said += [(number, time, kind, at, keys(row)) for at, (kind, row) in enumerate(rows)]
    return said


def received(log: Log, pattern: Value, after: int, upto: int) -> Iterator[Block]:
    for each in ColumnReplay(log, pattern, after).blocks(upto):
        made = block(unpack(each.packed))
        assert len(made) == len(each)
        yield made


@given(histories(), st.sampled_from(MORE_PATTERNS), st.integers(1, 5), st.data())
def test_blocks_say_what_a_replay_says(turns: Turns, pattern: Value, rows: int, data: st.DataObject) -> None:
    _, epochs, _ = lived(turns, ())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "BLOCK_ROWS", rows)
        log = Log.open(Path(folder))
        append(log, *epochs)
        upto = data.draw(st.integers(0, log.last))
        after = data.draw(st.integers(0, upto))
        assert told(received(log, pattern, after, upto)) == plainly(log, pattern, after, upto)
        log.close()


@given(histories(), st.sampled_from(MORE_PATTERNS))
def test_a_state_in_blocks_is_the_state(turns: Turns, pattern: Value) -> None:
    _, epochs, _ = lived(turns, ())
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder))
        append(log, *epochs)
        made = [block(unpack(each.packed)) for each in ColumnReplay(log, pattern, log.last).state(9)]
        assert all(each.snapshot and each.times == (9,) for each in made)
        expected = {keys(row) for row in Replay(log, pattern, log.last).bag()}
        assert {row for *_, row in told(iter(made))} == expected
        log.close()


def test_an_epoch_that_is_too_large_is_divided_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "BLOCK_ROWS", 3)
    forming = columnar._Forming([0], (False, False, False))
    forming.add(5, 50, ([(1,)], [], []), None, 1)
    forming.add(6, 60, ([(at,) for at in range(4)], [(4,)], [(at,) for at in range(5, 8)]), None, 1)
    forming.add(7, 70, ([], [], [(8,)]), None, 1)
    made = [block(unpack(each.packed)) for each in forming.blocks()]
    assert [(each.numbers, each.skipped, each.more) for each in made] == [
        ((5,), 0, False),
        ((6,), 0, True),
        ((6,), 3, True),
        ((6,), 6, False),
        ((7,), 0, False),
    ]
    assert [each.columns[0] for each in made] == [(0 + 1,), (0, 1, 2), (3, 4, 5), (6, 7), (8,)]


def test_most_patterns_are_read_from_plain_rows() -> None:
    flat = [flat_selection(skeleton(pattern)) is not None for pattern in MORE_PATTERNS]
    assert flat == [True, True, True, True, False, False, True, True, True, True, False, False, False, False]


@pytest.mark.parametrize(
    "value", [1, (1,), (0, 0, (1,), (1,), (1,), (0,), (0,), ((1, 2),)), (0, 0, (), (), (), (), (), ())]
)
def test_what_is_no_block_is_refused(value: Value) -> None:
    with pytest.raises(ProtocolError, match="no block of changes"):
        block(value)


WIDE = Record("p", 1, 2, 3)
NARROW = Record("p", 1, 2)
FAITHFUL = Record("p", capture("a"), capture("b"))


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("rows", [1, 2, 8192])
def test_facts_that_are_wider_than_the_pattern_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, rows: int
) -> None:
    """Captures stop telling facts apart in epoch 2, and the epochs are read from before, at and after it."""
    monkeypatch.setattr(columnar, "BLOCK_ROWS", rows)
    turns = [([NARROW], []), ([WIDE], []), ([], [NARROW]), ([NARROW], []), ([], [WIDE]), ([], [NARROW])]
    log = Log.open(tmp_path)
    for number, (added, removed) in enumerate(turns, 1):
        append(log, Epoch(number, number, added, (), removed))
    expected = plainly(log, FAITHFUL, after, 6)
    assert [(number, kind) for number, _, kind, *_ in expected if number > 1] == [(6, "-")]
    log.cursors.clear()
    assert told(received(log, FAITHFUL, after, 6)) == expected
    log.close()


def test_a_pattern_that_captures_all_fields_is_read_without_the_state(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    for number in range(1, 5):
        append(log, Epoch(number, number, [Record("p", number, 0)], (), ()))
    first = ColumnReplay(log, FAITHFUL, 2)
    assert not first.at_hand(), "whether there are wider facts has to be looked for once"
    assert sum(map(len, first.blocks(4))) == 2
    assert all(ColumnReplay(log, FAITHFUL, at).at_hand() for at in (2, 4))
    assert ColumnReplay(log, exact(FAITHFUL), 1).at_hand(), "no fact is wider"
    assert not ColumnReplay(log, Record("p", capture(), discard()), 4).at_hand()
    log.close()


def test_a_row_of_a_trimmed_log_has_its_last_beginning() -> None:
    """Also if it came and went before the snapshot from which the oldest state is found, backwards."""
    with tempfile.TemporaryDirectory() as folder:
        log, state = Log.open(Path(folder)), RecoveredState()
        row, pattern = Record("p", 1, 2), Record("p", capture("a"), capture("b"))
        lives = [
            epoch(1, Record("p", 0, 0)),
            epoch(2, row),
            Epoch(3, 30, (), (), (row,), (Claims("durable:EWR", (), (2000,)),), None, 3),
            epoch(4, Record("p", 4, 4)),
            epoch(5, row),
        ]
        for each in lives:
            append(log, each)
            state.apply(each)
            if each.number == 4:
                write_snapshot(log, state)
        while log.trim(Retention(age=0.0), 15).more:
            pass
        assert log.oldest == 2
        for share in ((0, NUMBERS), None):
            log.cursors.clear()
            asks = ColumnReplay(log, pattern, 5, asserted=True, share=share, places=share is None)
            found = dated(block(unpack(each.packed)) for each in asks.state(9))
            assert [began for *_, began, at in found if at == keys((1, 2))] == [5], share
        log.close()


@pytest.mark.parametrize("share", [None, (0, NUMBERS)])
def test_a_fact_that_two_claim_beside_wider_ones_is_one_fact(share: tuple[int, int] | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, state = Log.open(Path(folder)), RecoveredState()
        fact, wider = Record("p", 1, 2), Record("p", 9, 9, 9)
        first, second = epoch(1, fact), epoch(2, wider, owner="durable:b")
        claimed = Claims("durable:b", [*second.claims[0].asserted, (2999, fact)])
        lives = [first, second._replace(claims=(claimed,))]
        for each in lives:
            append(log, each)
            state.apply(each)
        write_snapshot(log, state)
        gone = [Claims("durable:EWR", (), (1000,)), Claims("durable:b", (), (2999,))]
        append(log, Epoch(3, 30, (), (), (fact,), tuple(gone), None, 3))
        while log.trim(EVERYTHING, LATE).more:
            pass
        pattern = Record("p", capture("a"), capture("b"))
        made = ColumnReplay(log, pattern, 3, share=share, places=share is not None).state(9)
        rows = placed(block(unpack(each.packed)) for each in made)
        assert [at for *_, at in rows] == [keys((9, 9))]
        log.close()
