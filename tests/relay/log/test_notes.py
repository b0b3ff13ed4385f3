"""Notes stand between epochs and change no fact: sessions are known by them, and none is misread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dataspace.codec import pack
from dataspace.kernel.changes import Claims, Epoch, Origin
from index.patterns.patterns import capture
from index.values.values import Record
from relay.log import notes, snapshots
from relay.log.compaction import compact
from relay.log.log import Log
from relay.log.notes import Note
from relay.log.reader import LogReader, verify
from relay.log.replay import Replay
from relay.log.retention import Retention
from relay.log.segments import CHECKSUM_BYTES, cut, encode, encode_note
from relay.log.snapshots import RecoveredState
from relay.space_registers import (
    KnownSession,
    KnownSessions,
    began,
    digest_of,
    ended,
    space_registers,
)
from relay.store.errors import LogDamaged

FACT = Record("n", 1)
N = Record("n", capture())


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log.open(tmp_path / "data", registers=space_registers)
    yield made
    made.close()


def session(number: int) -> KnownSession:
    secret = digest_of(bytes([number]) * 16)
    return KnownSession(f"session:0.{number}", f"~{number}", number, secret, 10.0, "", "unix")


def owned(number: int, at: int) -> Epoch:
    return Epoch(
        number, number, [Record("n", at)], claims=[Claims(f"session:0.{at}", [(1, Record("n", at))])]
    )


def snapshot(log: Log, state: RecoveredState) -> None:
    writer = log.snapshot(state)
    while writer.step():
        pass


def test_a_note_comes_back_as_it_was_and_is_no_change() -> None:
    said = [began(session(1)), ended(["session:0.1"]), Note("hint", (1, "x"))]
    entries = [encode(owned(1, 1)), *[encode_note(1, 10, each) for each in said], encode(owned(2, 2))]
    (segment,) = cut(entries, 1, bytes(CHECKSUM_BYTES))
    assert [each for each in segment.items() if isinstance(each, Note)] == said
    assert [each.number for each in segment.epochs()] == [1, 1, 1, 1, 2]
    assert [each[0] for each in segment.changes_after(0, 2)] == [1, 2]
    assert [each[0] for each in segment.rows_after(0, 2)] == [1, 2]
    assert [each.body for each in segment.encoded_until(2)] == [each.body for each in entries]


def test_a_fact_that_looks_like_a_note_is_none() -> None:
    fact = Record("session", *session(1))
    epoch = Epoch(1, 1, [fact], claims=[Claims("a", [(1, fact)])])
    silent = Epoch(1, 1, claims=[Claims("b", [(1, fact)])], silent=True)
    (segment,) = cut([encode(epoch), encode(silent)], 1, bytes(CHECKSUM_BYTES))
    assert not [each for each in segment.items() if isinstance(each, Note)]


def test_the_bytes_are_as_documented() -> None:
    """A program of an earlier format reads the origin of turns, the one kind that it knows, as it did."""
    origin = Origin("c", "kitchen", "unix", "unix")
    body = encode_note(7, 70, notes.origin(origin)).body
    assert body == pack((7, 70, 0, 0, 0, (("origin", *origin),), (), (), None, 0, True))
    body = encode_note(7, 70, ended(["session:0.1"])).body
    assert body == pack((7, 70, 0, 0, 0, (("session-ended", "session:0.1"),), (), (), None, 1, True))


# -- in a log -----------------------------------------------------------------------------------------


def test_sessions_are_recovered_from_notes_and_from_a_snapshot(tmp_path: Path) -> None:
    log = Log.open(tmp_path, registers=space_registers)
    log.append([encode_note(0, 0, began(session(1))), encode(owned(1, 1))])
    log.append([encode_note(1, 1, began(session(2))), encode(owned(2, 2))])
    snapshot(log, log.recover())
    log.append([encode_note(2, 2, began(session(3))), encode_note(2, 2, ended(["session:0.1"]))])
    log.close()
    log = Log.open(tmp_path, registers=space_registers)
    expected = {each.owner: each for each in (session(2), session(3))}
    assert log.recover().registers.of(KnownSessions) == expected == log.registers.of(KnownSessions)
    snapshot(log, log.recover())
    log.close()
    assert not verify(tmp_path, space_registers).damages
    compact(tmp_path)
    assert not verify(tmp_path, space_registers).damages
    log = Log.open(tmp_path, registers=space_registers)
    assert log.recover().registers.of(KnownSessions) == expected
    log.close()


def test_a_log_of_notes_alone_is_sound_though_the_first_have_gone(tmp_path: Path) -> None:
    """They are before the first epoch, which is the oldest that the log has."""
    log = Log.open(tmp_path, registers=space_registers)
    log.append([encode_note(0, 0, began(session(1)))])
    log.append([encode_note(0, 0, began(session(2)))])
    log.append([encode_note(0, 0, ended(["session:0.2"]))])
    snapshot(log, log.recover())
    log.trim(Retention(age=0.0), 1 << 60)
    assert log._chain.first == 3
    log.close()
    assert not verify(tmp_path, space_registers).damages


@pytest.mark.parametrize("wrong", ["gone", "altered", "ended"])
def test_a_snapshot_whose_sessions_no_note_explains_is_found(log: Log, wrong: str) -> None:
    log.append([encode_note(0, 0, began(session(1))), encode(owned(1, 1))])
    state = log.recover()
    sessions = state.registers.of(KnownSessions)
    match wrong:
        case "gone":
            sessions.clear()
        case "altered":
            sessions["session:0.1"] = session(1)._replace(grace=1e9)
        case _:
            sessions["session:0.2"] = session(2)
    snapshot(log, state)
    assert ["may be resumed" in each for each in log.damages()] == [True]


def test_readers_of_facts_pass_notes_over(log: Log) -> None:
    log.append([encode_note(0, 0, began(session(1))), encode(owned(1, 1))])
    log.append([encode_note(1, 1, ended(["session:0.1"])), encode(owned(2, 2))])
    found = Replay(log, N, 0).epochs(2)
    assert [(number, rows) for number, _, rows, _, _ in found] == [(1, [(1,)]), (2, [(2,)])]


UNKNOWN = Note("fence", ("x",), required=True)


@pytest.mark.usefixtures("home")
def test_a_required_kind_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([encode_note(0, 0, UNKNOWN), encode(owned(1, 1))])
    log.close()
    log = Log.open(tmp_path)
    with pytest.raises(LogDamaged, match="entries of the kind 'fence'"):
        log.recover()
    with pytest.raises(LogDamaged, match="entries of the kind 'fence'"):
        list(log.read(0))
    with pytest.raises(LogDamaged, match="entries of the kind 'fence'"):
        list(Replay(log, N, 0).epochs(1))
    log.close()


def test_another_kind_that_is_not_known_is_passed_over_and_kept(tmp_path: Path) -> None:
    hint = Note("hint", ("x",))
    log = Log.open(tmp_path)
    log.append([encode_note(0, 0, hint), encode(owned(1, 1))])
    log.close()
    compact(tmp_path)
    with closing(Log.open(tmp_path)) as log:
        assert log.recover().owners == {"session:0.1": {1: FACT}}
        (segment,) = log.segments(0, 1)
        assert next(segment.items()) == hint


@pytest.mark.usefixtures("home")
def test_a_snapshot_with_a_required_kind_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([encode(owned(1, 1))])
    state = log.recover()
    snapshot(log, state)
    really = snapshots._bodies

    def bodies(state: RecoveredState, required: bool) -> Iterator[bytes]:
        yield from really(state)
        yield pack((None, "fences", required, ()))

    for required in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshots, "_bodies", lambda state, required=required: bodies(state, required))
            snapshot(log, state)
        if required:
            with pytest.raises(LogDamaged, match="entries of the kind 'fences'"):
                log.recover()
        else:
            assert log.recover().owners == state.owners
    log.close()


# -- the term and the format --------------------------------------------------------------------------


def header(path: Path) -> dict[str, object]:
    with closing(sqlite3.connect(path / LogReader.FILE)) as connection:
        return dict(connection.execute("SELECT name, value FROM meta"))


def test_every_opening_has_a_term_of_its_own(tmp_path: Path) -> None:
    for expected in range(3):
        with closing(Log.open(tmp_path)) as log:
            assert log.term == expected == header(tmp_path)["term"]
    with closing(LogReader.open(tmp_path)) as reader:
        assert reader.term == 2
