"""Registers: a snapshot has what they hold, in the bytes that LOG.md documents, and only whole."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dataspace.codec import pack
from dataspace.errors import UsageError
from dataspace.kernel.changes import Claims, Epoch
from index.values.values import Record
from relay.groups.state import DONE, END, GROUP, UNDONE, GroupStates, Item, done_fields, of_group
from relay.log.log import Log
from relay.log.notes import DERIVED, KINDS, ORIGIN, Note
from relay.log.reader import LogReader, verify
from relay.log.retention import Retention
from relay.log.segments import encode, encode_note
from relay.log.snapshots import CHUNK_CLAIMS, RecoveredState, newest
from relay.space_registers import (
    SESSION,
    SESSION_ENDED,
    KnownSession,
    KnownSessions,
    ZoneData,
    began,
    digest_of,
    ended,
    space_registers,
)
from tests.relay.log.histories import facts_of

FACT = Record("n", 1)
ITEM = Item((1, 0), 1, FACT, is_message=True)


def session(number: int) -> KnownSession:
    secret = digest_of(bytes([number]) * 16)
    return KnownSession(f"session:0.{number}", f"~{number}", number, secret, 10.0, "", "unix")


@given(st.lists(st.one_of(st.integers(1, 4), st.lists(st.integers(1, 4), max_size=2)), max_size=8))
def test_sessions_are_those_that_began_and_have_not_ended(steps: list[int | list[int]]) -> None:
    known = KnownSessions()
    expected: set[int] = set()
    for step in steps:
        if isinstance(step, int):
            known.apply(SESSION, session(step))
            expected.add(step)
        else:
            known.apply(SESSION_ENDED, [session(each).owner for each in step])
            expected = expected - set(step) if step else set()
    assert known == {session(each).owner: session(each) for each in expected}


def test_each_kind_that_the_program_reads_has_a_register_or_builds_nothing_up() -> None:
    assert {ORIGIN, DERIVED} | KnownSessions.KINDS | GroupStates.KINDS | ZoneData.KINDS == KINDS
    assert not KnownSessions.KINDS & GroupStates.KINDS


NOTES = (
    began(session(2)),
    began(session(1)),
    of_group(GROUP, ("w", 1, END, 3, (ITEM.packed(),), (), ())),
    of_group(GROUP, ("topic", 4, 2, 1, (), (5, 1), ((5, 2, 1, 9),), 77)),
    of_group(DONE, done_fields("w", [(2, 0)])),
    Note("hint", ("x",)),
    began(session(3)),
    ended(["session:0.3"]),
)


def written(directory: Path) -> None:
    """Writes a log with notes of all registers."""
    claims = [Claims("session:0.1", [(7, FACT)])]
    with closing(Log.open(directory)) as log:
        log.append([encode(Epoch(1, 1, [FACT], claims=claims, client="c", sequence=5))])
        log.append([encode_note(1, 1, each) for each in NOTES])


def test_the_chunks_of_a_snapshot_are_as_documented(tmp_path: Path) -> None:
    written(tmp_path)
    with closing(Log.open(tmp_path, registers=space_registers)) as log:
        state = log.recover()
        state.past, state.past_epoch = [("p", None)], 1
        writer = log.snapshot(state)
        while writer.step():
            pass
        with log._tables.newest_snapshot() as found:
            bodies = [body for _, body in found.chunks]
        again = newest(log._tables, space_registers)
    assert bodies == [
        pack(("session:0.1", [7], [("n", 1)], [])),
        pack((None, [("c", 5, 1)])),
        pack((None, "session", True, [session(2), session(1)])),
        pack((None, "group", True, (("w", 1, END, 3, (ITEM.packed(),), (2, 0), ()),))),
        pack((None, "group", True, (("topic", 4, 2, 1, (), (5, 1), ((5, 2, 1, 9),), 77),))),
        pack((None, "rules-past", False, (1,))),
        pack((None, "rules-past", False, (1, ("p", None)))),
    ]
    assert again is not None and again.registers.rows() == state.registers.rows()


def test_many_sessions_are_in_several_chunks() -> None:
    known = KnownSessions((str(at), session(1)) for at in range(CHUNK_CLAIMS + 1))
    assert [(kind, len(some)) for kind, some in known.rows()] == [(SESSION, CHUNK_CLAIMS), (SESSION, 1)]


def test_a_log_without_a_register_is_read_and_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    monkeypatch.setattr("relay.log.log.SNAPSHOT_CHANGES", 0)  # a start would write a snapshot
    with closing(LogReader.open(tmp_path)) as reader:
        assert [each.number for each in reader.read(0) if not each.silent] == [1]
    assert not verify(tmp_path).damages
    with closing(Log.open(tmp_path)) as log:
        state = log.recover()
        assert facts_of(state) == [FACT]
        with pytest.raises(UsageError, match="open it with registers=space_registers"):
            log.snapshot(state)
        with pytest.raises(UsageError, match="'session-ended' entries"):
            log.trim(Retention(size=0), 0)
        with pytest.raises(UsageError, match="without GroupStates"):
            state.registers.of(GroupStates)


def test_other_notes_need_no_register(tmp_path: Path) -> None:
    with closing(Log.open(tmp_path)) as log:
        log.append([encode(Epoch(1, 1, [FACT])), encode_note(1, 1, Note("hint", ("x",)))])
        log.recover(snapshot=True)
        assert log.snapshot_epoch() == 1


def test_the_log_is_kept_for_the_register_that_needs_most() -> None:
    registers = space_registers()
    assert registers.needs_after() is None
    for name, read in (("later", 9), ("first", 4)):
        registers.apply(of_group(GROUP, (name, read, END, 1, (), (), ())))
    assert registers.needs_after() == 4
    registers.saved([(GROUP, [("first", 12, END, 1, (), (), ())])])
    assert registers.needs_after() == 9


def test_rows_stay_as_they_are_while_the_registers_go_on() -> None:
    registers = space_registers()
    for each in NOTES:
        registers.apply(each)
    before = registers.rows()
    copy = repr(before)
    registers.apply(ended())
    registers.apply(of_group(UNDONE, ("w", ITEM.packed())))
    registers.apply(of_group(DONE, done_fields("w", [(1, 0)])))
    assert repr(before) == copy and registers.rows() != before
    state = RecoveredState(registers=registers, rows=before)
    assert state.rows == before
