"""Every cut between an archive and its log, and every way to cut segments, gives readers the same epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from dataspace.errors import Refused
from dataspace.kernel.changes import Claims, Epoch
from index.patterns.text import parse_pattern
from relay.log.log import Log
from relay.log.replay import Replay
from relay.log.segments import Segment, cut, encode
from relay.store.ports import Start
from tests.relay.log.histories import append, epoch, flight

EPOCHS = 6


class ArchiveInMemory:
    """The archived epochs of a log, as segments in memory; away if told so."""

    def __init__(self, segments: Sequence[Segment], later: Sequence[Segment] = ()) -> None:
        """``later`` will be found by the next ``renew``."""
        self._segments = list(segments)
        self._later = list(later)
        self.is_away = False
        self.erased_upto = 0

    @property
    def oldest(self) -> int:
        return 1

    @property
    def upto(self) -> int:
        return self._segments[-1].last if self._segments else 0

    @property
    def erased(self) -> int:
        return self.erased_upto

    def renew(self) -> None:
        self._segments += self._later
        self._later = []

    def starts(self) -> list[Start]:
        return [(1, 0)]

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        for each in self._segments:
            if self.is_away:
                raise Refused("archive-away", "not now")
            if each.last > after and each.first <= upto:
                yield each

    def erased_at(self, after: int = 0, upto: int | None = None) -> int:
        return 0

    def segments_after(self, epoch: int) -> int:
        return len([each for each in self._segments if each.last > epoch])

    def time_of(self, epoch: int) -> int:
        return max([0, *[each.number * 10 for each in self._all() if each.number <= epoch]])

    def epoch_at(self, time: int) -> int:
        return max([0, *[each.number for each in self._all() if each.number * 10 <= time]])

    def _all(self) -> list[Epoch]:
        return [each for segment in self._segments for each in segment.epochs() if not each.silent]


def made(number: int) -> list[Epoch]:
    """An epoch with a fact, and a silent entry after every second."""
    found = [epoch(number, flight(number))]
    if number % 2 == 0:
        claims = (Claims("durable:EWR", [(10**9 + number, "unseen")]),)
        found.append(Epoch(number, number * 10, (), (), (), claims, None, 0, True))
    return found


def segments_of(lengths: Sequence[int]) -> list[Segment]:
    """Segments of so many epochs each."""
    found: list[Segment] = []
    at, checksum = 0, bytes(16)
    for length in lengths:
        entries = [encode(each) for number in range(at + 1, at + length + 1) for each in made(number)]
        [segment] = cut(entries, len(found) + 1, checksum)
        found.append(segment)
        at, checksum = at + length, segment.checksum
    return found


CUTS = [cut for size in range(1, 4) for cut in product(range(1, 5), repeat=size) if sum(cut) == EPOCHS]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = Log.open(tmp_path)
    for number in range(1, EPOCHS + 1):
        append(opened, *made(number))
    yield opened
    opened.close()


def trim_to(log: Log, oldest: int) -> None:
    """Drops what is before an epoch."""
    if oldest > log.held_from:
        log._drop_before(log.ordinal_after(oldest - 1))


@pytest.mark.parametrize("lengths", CUTS, ids=str)
def test_each_epoch_is_read_once_whatever_the_cut(log: Log, lengths: Sequence[int]) -> None:
    for held_from in range(1, EPOCHS + 1):
        trim_to(log, held_from)
        for count in range(len(lengths) + 1):
            archive = ArchiveInMemory(segments_of(lengths)[:count])
            log.archive = archive
            if archive.upto < log.held_from - 1:
                assert log.oldest == log.held_from
                continue
            assert log.oldest == 1
            for after, upto in product(range(EPOCHS), range(EPOCHS + 1)):
                found = [each.number for each in log.read(after, upto) if not each.silent]
                assert found == [*range(after + 1, upto + 1)], (held_from, count, after, upto)
            for number in range(1, EPOCHS + 1):
                assert log.time_of(number) == 10 * number
                assert log.epoch_at(10 * number + 3) == number
            assert log.epoch_at(9) == 0 and not log.lost(2) and log.gaps(0) == []


@pytest.mark.parametrize("lengths", CUTS, ids=str)
def test_portions_are_of_the_archive_or_of_the_log(
    log: Log, lengths: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.log.reader.PORTION_BYTES", 1)
    for held_from in range(1, EPOCHS + 1):
        trim_to(log, held_from)
        log.archive = ArchiveInMemory(segments_of(lengths))
        replay, rows = Replay(log, parse_pattern("flight(_, $n, _, _, _, _)"), 0), list[object]()
        while replay.at < EPOCHS:
            assert log.is_at_hand(replay.at) == (replay.at >= held_from - 1)
            portion = log.portion(replay.at, EPOCHS)
            assert len({each.last < held_from for each in portion}) <= 1, "of the archive, or of the log"
            upto = portion[-1].last if portion else EPOCHS
            rows += [row for row in replay.steps(upto, portion) if row is not None]
        assert rows == [(number, 10 * number, [(number,)], [], []) for number in range(1, EPOCHS + 1)]


def test_a_reader_finds_what_was_archived_and_deleted_meanwhile(log: Log) -> None:
    segments = segments_of([1] * EPOCHS)
    log.archive = ArchiveInMemory(segments[:2], segments[2:5])
    trim_to(log, 3)
    reading = log.read(0)
    assert [next(reading).number for _ in range(2)] == [1, 2]
    trim_to(log, 6)
    assert sorted({each.number for each in reading}) == [2, 3, 4, 5, 6]  # the second has a silent entry


def test_what_is_gone_in_both_is_refused(log: Log) -> None:
    segments = segments_of([1] * EPOCHS)
    log.archive = ArchiveInMemory(segments[:2])
    trim_to(log, 5)
    assert log.oldest == 5
    for after in range(4):
        with pytest.raises(Refused, match="epoch-gone"):
            list(log.read(after))


def test_an_archive_that_is_away_refuses_only_what_it_has(log: Log) -> None:
    log.archive = archive = ArchiveInMemory(segments_of([2, 2, 2]))
    trim_to(log, 5)
    archive.is_away = True
    assert [each.number for each in log.read(4) if not each.silent] == [5, 6]
    with pytest.raises(Refused, match="archive-away"):
        list(log.read(3))
