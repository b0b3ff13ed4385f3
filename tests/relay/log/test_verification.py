"""A state that no epoch explains is found: the newest snapshot is held against the epochs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dataspace.kernel.changes import Claims, Epoch
from dataspace.kernel.handles import Handles
from index.values.values import Record
from relay.log.log import Log
from relay.log.reader import verify
from relay.log.retention import Retention
from relay.log.snapshots import RecoveredState
from relay.store.errors import LogDamaged
from tests.relay.log.histories import append, epoch, flight
from tests.relay.log.lives import CLAIMED_AGAIN, TRIMMED, History
from tests.relay.log.test_retention import fill, write_snapshot
from tests.relay.store.files import asked

pytestmark = pytest.mark.usefixtures("home")

GHOST = Record("ghost", 1)


def _state(log: Log) -> RecoveredState:
    state = RecoveredState()
    for each in log.read(0):
        state.apply(each)
    return state


def _damages(directory: Path) -> str:
    return "\n".join(verify(directory).damages)


def test_a_snapshot_that_the_epochs_explain_is_no_damage(log: Log, tmp_path: Path) -> None:
    fill(log, 9, snapshot=5)
    assert _damages(tmp_path) == ""
    log.trim(Retention(age=4.0), 9_000_000)
    assert log.oldest > 1
    assert _damages(tmp_path) == ""


def test_a_fact_in_no_epoch_is_named(log: Log, tmp_path: Path) -> None:
    fill(log, 5)
    state = _state(log)
    state.owners.setdefault("durable:a", Handles())[7] = GHOST
    write_snapshot(log, state)
    fill_on(log, 6)
    assert _damages(tmp_path) == (
        "snapshot after epoch 5: durable:a claims ghost(1) under handle 7, but no epoch does"
    )


def test_a_claim_that_an_epoch_has_ended_is_named_though_older_ones_are_gone(
    log: Log, tmp_path: Path
) -> None:
    fill(log, 5)
    (owner, claims), *_ = _state(log).owners.items()
    handle = next(iter(claims))
    made = epoch(6, flight(6))
    append(log, made._replace(time=6_000_000, claims=[*made.claims, Claims(owner, (), [handle])]))
    fill_on(log, 7)
    whole = _state(log)
    whole.owners[owner][handle] = claims[handle]
    write_snapshot(log, whole)
    log.trim(Retention(age=2.5), 7_000_000)
    assert 1 < log.oldest <= 6
    assert f"under handle {handle}, but the epochs end that claim" in _damages(tmp_path)


@pytest.mark.parametrize("trimmed", [False, True])
def test_claims_that_a_snapshot_lacks_or_has_otherwise_are_named(
    log: Log, tmp_path: Path, trimmed: bool
) -> None:
    fill(log, 5)
    if trimmed:
        write_snapshot(log, _state(log))
    state = _state(log)
    fill_on(log, 6)
    for each in log.read(5):
        state.apply(each)
    (change,) = next(iter(log.read(5))).claims
    (handle, _), *_ = change.asserted
    state.owners[change.owner][handle] = GHOST
    write_snapshot(log, state)
    if trimmed:
        log.trim(Retention(age=0.5), 6_000_000)
        assert log.oldest > 1
    assert f"under handle {handle}, but the epochs say " in _damages(tmp_path)
    del state.owners[change.owner][handle]
    write_snapshot(log, state)
    assert "by the epochs" in _damages(tmp_path) and "is not there" in _damages(tmp_path)


def test_an_epoch_that_ends_what_none_began_is_named(log: Log, tmp_path: Path) -> None:
    fill(log, 2)
    append(log, Epoch(3, 3_000_000, (), ("m",), (), (Claims("durable:a", (), (99,)),)))
    assert _damages(tmp_path) == "epoch 3 ends claim 99 of durable:a, which no epoch begins"


def fill_on(log: Log, number: int) -> None:
    """One more epoch as ``fill`` makes them."""
    made = epoch(number, flight(number))
    append(log, made._replace(time=number * 1_000_000))


def _trimmed(directory: Path, *, gone: bool) -> None:
    """A log whose second segment has a silent entry that is needed, and no epoch that is; and was altered."""
    history = History(Log.open(directory), CLAIMED_AGAIN)
    for step, count in TRIMMED:
        step(history, count)
    assert (history.log.oldest, _damages(directory)) == (2, "")
    if gone:
        history.log._put(anchor=history.log._chain.checksum_of(2))
    what = "DELETE FROM segments" if gone else "UPDATE segments SET body = x'00'"
    asked(history.log, f"{what} WHERE segment = 2")
    history.log.close()


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        (False, "segment 2 with epochs 1 to 1 was altered"),
        (True, "segment 2, after the snapshot, is gone"),
    ],
)
def test_silent_entries_after_the_snapshot_are_needed(tmp_path: Path, gone: bool, named: str) -> None:
    _trimmed(tmp_path, gone=gone)
    assert named in _damages(tmp_path)
    with closing(Log.open(tmp_path)) as log, pytest.raises(LogDamaged, match=named):
        log.recover()
    with closing(Log.open(tmp_path, accept_damage=True)) as log:
        assert log.recover().owners["durable:a"][3] == "y"
    with closing(Log.open(tmp_path)) as log:
        assert log.recover().owners["durable:a"][3] == "y"
    assert _damages(tmp_path) == ""
