"""A bit that flipped anywhere in a log's file is found, or means nothing: nothing else is ever served."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from index.values.values import Record
from relay.log.log import Log
from relay.log.reader import LogReader, verify
from relay.store.errors import LogDamaged, LogFailed
from tests.relay.log.histories import append, epoch, facts_of, plain, snapshot_facts

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))


def _fill(place: Path) -> None:
    """Three starts, of which the first two are killed with numbers given out that are lost."""
    random = Random(5)
    for count in (40, 20, 0):
        log = Log.open(place)
        state = log.recover(snapshot=True)
        for _ in range(count):
            number = log.issued + 1
            facts = [Record("flight", number, at, "x" * random.randrange(30)) for at in range(3)]
            made = epoch(number, *facts)
            append(log, made)
            state.apply(made)
        log.issue(log.issued + 7)
        if count:
            log._tables.close()  # not in good order, so that the numbers are lost
        else:
            log.close()


def _all(place: Path) -> Any:
    """All that a start and readers would be given."""
    log = LogReader.open(place)
    try:
        if log.shortfall():
            raise LogDamaged(log.shortfall())
        epochs = plain(list(log.read(log.oldest - 1)))
        snapshot, facts = snapshot_facts(log)
        known = (log.identity, log.oldest, log.last, log.reserved, log.gaps(0), snapshot)
        lost = [log.lost(each) for before, _ in log.gaps(0) for each in range(before - 5, before + 5)]
        return known, facts, epochs, [log.time_of(each) for each in (5, log.last)], lost
    finally:
        log.close()


@pytest.mark.parametrize(
    "question",
    ["UPDATE meta SET value = 7 WHERE name = 'oldest'", "UPDATE snapshots SET segment = segment - 1"],
)
def test_an_operator_can_go_on_with_what_is_left(tmp_path: Path, question: str) -> None:
    _fill(tmp_path)
    other = sqlite3.connect(tmp_path / "log.sqlite")
    other.execute(question)
    other.commit()
    other.close()
    with pytest.raises(LogDamaged, match="accept the damage to continue"):
        Log.open(tmp_path)
    log = Log.open(tmp_path, accept_damage=True)
    log.recover()
    append(log, epoch(log.next_epoch, "new"))
    log.close()
    log = Log.open(tmp_path)
    assert "new" in facts_of(log.recover())
    assert not verify(tmp_path).damages
    log.close()


def _is_found(place: Path) -> bool:
    try:
        return bool(verify(place).damages)
    except (LogDamaged, LogFailed):
        return True


@pytest.mark.slow
def test_a_flipped_bit_is_found_or_means_nothing(tmp_path: Path) -> None:
    _fill(tmp_path / "whole")
    wanted, whole = _all(tmp_path / "whole"), (tmp_path / "whole" / "log.sqlite").read_bytes()
    random, refused, same = Random(23), 0, 0
    for _ in range(200 * ROUNDS):
        at, bit = random.randrange(len(whole)), random.randrange(8)
        altered = bytearray(whole)
        altered[at] ^= 1 << bit
        shutil.copytree(tmp_path / "whole", tmp_path / "copy")
        (tmp_path / "copy" / "log.sqlite").write_bytes(altered)
        try:
            assert _all(tmp_path / "copy") == wanted, f"bit {bit} of byte {at} was served"
            same += 1
        except (LogDamaged, LogFailed):
            refused += 1
            assert _is_found(tmp_path / "copy"), f"bit {bit} of byte {at}"
        shutil.rmtree(tmp_path / "copy")
    assert refused > 50 and same > 5
