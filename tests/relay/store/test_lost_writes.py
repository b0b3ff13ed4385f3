"""A disk that loses what was not synced has every epoch that was accepted, whenever it stops.

The writes and syncs of a real run (``recording``) are replayed onto a simulated disk up to an instant.  What
a file had when it was last synced is there for sure; of what was written to it since, some writes are there
and some are not, and some are torn.  The log opens on that, and what it holds is compared with what had been
accepted by then.  This is the proof that acceptance follows the sync, which killed processes cannot give: the
kernel keeps their writes.  File names are taken to be there once made.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from relay.log.log import Log
from relay.store.errors import LogDamaged
from tests.relay.log import crashing
from tests.relay.log.disk import Event
from tests.relay.log.histories import facts_of, plain
from tests.relay.store import recording
from tests.relay.store.losses import Disk

pytestmark = [pytest.mark.slow, pytest.mark.torture]

INSTANTS = 25 * int(os.environ.get("TORTURE_ROUNDS", "0")) or 10
EPOCHS = 60


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Event]:
    """What a run asked of the disk."""
    place = tmp_path_factory.mktemp("recorded")
    record = place / "record"
    command = [sys.executable, recording.__file__, str(place / "log"), str(record), str(EPOCHS), "3"]
    subprocess.run(
        command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=120
    )
    return pickle.loads(record.read_bytes())  # type: ignore[no-any-return]  # written by ourselves, just now


def _check(place: Path, accepted: int) -> None:
    log = Log.open(place)
    held = list(log.read(0))
    assert [each.number for each in held] == list(range(1, len(held) + 1))
    assert len(held) >= accepted, f"{accepted} epochs were accepted, {len(held)} are there"
    assert plain(held) == plain([crashing.content(each.number)[0] for each in held])
    assert len(facts_of(log.recover())) == sum([len(each.added) for each in held])
    assert log.next_epoch > EPOCHS, "a number that was given out is not used again"
    log.close()


@pytest.mark.parametrize("luck", [False, True], ids=["nothing unsynced", "some of it"])
def test_what_was_accepted_survives_whenever_the_disk_stops(
    events: Sequence[Event], tmp_path: Path, luck: bool
) -> None:
    random = Random(11)
    begun = next(at for at, event in enumerate(events) if event[0] == "accepted")
    acceptances = [at + 1 for at, event in enumerate(events) if event[0] == "accepted"]
    instants = {
        *random.choices(range(begun, len(events)), k=INSTANTS),
        *random.choices(acceptances, k=INSTANTS),
    }
    disk, accepted, reached = Disk(), 0, 0
    for at, event in enumerate(events):
        if at in instants:
            disk.stop(tmp_path / str(at), random if luck else None)
            _check(tmp_path / str(at), accepted)
            reached += 1
        if event[0] == "accepted":
            accepted = event[1]
        else:
            disk.take(event)
    assert accepted == EPOCHS and reached >= INSTANTS


def test_the_disk_would_show_a_sync_that_is_missing(events: Sequence[Event], tmp_path: Path) -> None:
    """The proof of the proof: the same run without the syncs of the write-ahead log loses epochs."""
    disk = Disk()
    for event in events:
        if event[0] != "accepted" and event != ("sync", "log.sqlite-wal"):
            disk.take(event)
    disk.stop(tmp_path / "disk", None)
    with pytest.raises((AssertionError, LogDamaged)):
        _check(tmp_path / "disk", EPOCHS)
