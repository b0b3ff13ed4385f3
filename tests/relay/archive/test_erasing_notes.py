"""Items in notes of groups go with the rows that they are, whatever note has them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from index.patterns.text import parse_pattern
from index.values.values import Record, Value, key
from relay.archive.archive import Archive
from relay.archive.archiver import RangeSizes
from relay.archive.columns import ERASED_VALUE
from relay.archive.erasure.erasing import Erasable, erase, erase_all
from relay.archive.merging import Merger
from relay.archive.verifying import verify_archive
from relay.groups.state import GROUP, READ, UNDONE, Item, items_of, of_group
from relay.log.segments import encode_note
from tests.relay.archive.histories import ArchivedLog
from tests.relay.archive.memory import ObjectsInMemory
from tests.relay.archive.test_archived_topics import Topics

pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

PATTERN = parse_pattern("job($)")
LIVES = ("gone", "back", "holds", "late")
"""Facts: gone by the time, gone and there again, there ever since, and gone after the time."""
MESSAGES = ("said", "topic")
UPTO = 5


def job(name: str) -> Record:
    return Record("job", name)


def items() -> list[Item]:
    """An item for each value that was added or sent in epoch 1, one of another label, and the later life."""
    facts = [Item((1, at), 1005, job(name), is_message=False) for at, name in enumerate(LIVES)]
    said = Item((1, 4), 1005, job("said"), is_message=True, attempts=2, due=7)
    topic = Item((9, 3), 1005, job("topic"), is_message=False, origin=((1, 2), "crashed"))
    other = Item((1, 5), 1005, Record("other", "stays"), is_message=True)
    return [*facts, said, topic, other, Item((3, 0), 1015, job("back"), is_message=False)]


GOES = (True, True, False, False, True, True, False, False)
"""Which of these go: the later life of a fact stays, as it holds."""


def note(kind: str, packed: list[Value]) -> tuple[Value, ...]:
    if kind == GROUP:
        return ("w", 3, 0, 1, tuple(packed), (8, 1), ((9, 0, 1, 5),), 77)
    return ("w", 3, 0, *packed) if kind == READ else ("w", *packed)


def lived(folder: Path, kind: str, after: int) -> ArchivedLog:
    """A log with a range for each epoch, and a note with all items behind one of them."""
    kept = ArchivedLog(folder, RangeSizes(changes=1), ObjectsInMemory())
    turns: list[tuple[list[Value], list[Value], list[Value]]] = [
        ([*map(job, LIVES)], [job("said"), Record("other", "stays")], []),
        ([], [], [job("gone"), job("back")]),
        ([job("back")], [], []),
        ([], [Record("other", 4)], []),
        ([], [Record("other", 5)], []),
        ([], [], [job("late")]),
        ([], [Record("other", 7)], []),
    ]
    for number, turn in enumerate(turns, 1):
        kept.turn(*turn)
        if number == after:
            said = of_group(kind, note(kind, [each.packed() for each in items()]))
            kept.log.append([encode_note(number, kept.epochs[-1].time, said)])
    kept.archive()
    return kept


def noted(archive: Archive) -> tuple[str, tuple[Value, ...]]:
    segments = archive.segments(0, archive.upto)
    [found] = [each for segment in segments for each in segment.items() if not hasattr(each, "claims")]
    assert not hasattr(found, "claims") and found.required
    return found.kind, found.fields


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(("kind", "after"), [*product((GROUP, UNDONE, READ), (3, 4, 6))])
def test_items_go_as_their_rows_do(tmp_path: Path, kind: str, after: int, merged: bool) -> None:
    kept = lived(tmp_path, kind, after)
    try:
        archive = kept.reader()
        if merged:
            Merger(archive).merge_all(lambda _: None)
        before = kept.epochs[UPTO - 1].time + 1
        assert noted(archive) == (kind, note(kind, [each.packed() for each in items()]))
        done = erase(archive, PATTERN, before, "me")
        goes = [each and after <= UPTO for each in GOES]
        left = items()
        for item, is_gone in zip(left, goes, strict=True):
            item.value = ERASED_VALUE if is_gone else item.value
        expected = kind, note(kind, [each.packed() for each in left])
        assert key(noted(archive)) == key(expected)
        assert (done.rows, done.holding, archive.erased) == (5 + sum(goes), 3, UPTO)
        assert sum([each.rows for of in archive.ranges() for each in of.erasures]) == 5
        assert verify_archive(archive, deep=True).damages == ()
        assert not erase(archive, PATTERN, before, "me").rows
    finally:
        kept.close()


def test_a_later_copy_of_what_was_erased_goes_by_the_next_erasure(tmp_path: Path) -> None:
    kept = lived(tmp_path, UNDONE, 6)
    try:
        archive = kept.reader()
        erase(archive, PATTERN, kept.epochs[UPTO - 1].time + 1, "me")
        done = erase(archive, PATTERN, kept.epochs[-1].time + 1, "me")
        gone = [each.value == ERASED_VALUE for each in items_of(*noted(archive))]
        assert gone == [True, True, False, True, True, True, False, False], "what was late is gone by now"
        assert done.rows == 2 + sum(gone)
        assert verify_archive(archive, deep=True).damages == ()
    finally:
        kept.close()


def test_the_archive_of_a_topic_keeps_its_items(tmp_path: Path) -> None:
    kept = lived(tmp_path, READ, 4)
    topics = Topics(tmp_path, kept.objects)
    try:
        topics.complete(3)
        topic = topics.archive(kept.log.identity)
        assert topic.place == kept.reader().place._replace(topic=77)
        before = [(each.checksum, each.files) for each in topic.ranges()]
        assert before and erase(kept.reader(), parse_pattern("$any"), 10**9, "me").rows
        topic.refresh()
        assert [(each.checksum, each.files) for each in topic.ranges()] == before
        assert verify_archive(topic, deep=True).damages == ()
        topics.check(1)
    finally:
        topics.journal.close()
        kept.close()


def test_a_range_in_which_a_note_alone_has_it_is_written_anew(tmp_path: Path) -> None:
    kept = lived(tmp_path, READ, 4)
    try:
        archive = kept.reader()
        topic = parse_pattern('job("topic")')
        one, two = erase_all(
            archive, [Erasable(topic, 10**9, "me"), Erasable(parse_pattern("none()"), 1, "you")]
        )
        assert (one.rows, one.ranges, two.rows) == (1, 1, 0)
        [of] = [each for each in archive.ranges() if each.erasures]
        assert [(each.rows, each.by) for each in of.erasures] == [(0, "me")] and of.last in (4, 5)
        assert verify_archive(archive, deep=True).damages == ()
    finally:
        kept.close()
