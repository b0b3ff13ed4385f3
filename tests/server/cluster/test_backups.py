"""A store is backed up while daemons write it, as a directory is: whole, added to, continued, restored."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings, strategies as st

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from dataspace.errors import UsageError
from index.values.values import text_of
from relay.backup import logs
from relay.backup.backup import back_up, working_directory
from relay.backup.copies import CopyPace
from relay.backup.logs import NotThisLog
from relay.backup.manifest import Manifest
from relay.backup.restore import RestoreWanted, restore
from relay.log.log import BLOCK, Log
from relay.log.reader import LogReader, verify
from relay.log.replay import state_at
from relay.store.address import StoreAddress
from server.cli.main import main
from server.cluster.database.copying import store_backup
from server.cluster.database.reading import reading
from tests.postgres.servers import Server, connect
from tests.relay.log.lives import CLAIMED_AGAIN, TRIMMED, History, claims_of, lives, shared_claims
from tests.relay.log.test_replay import Turns
from tests.relay.store.postgres.leaders import Leader
from tests.server.cluster.contents import content
from tests.server.cluster.test_copying import HOSTED, PATIENCE, SPACES, TURNS, counted, used
from tests.server.processes import DaemonProcess, running
from tests.server.upkeep.test_copies import facts_at, kill_at_random, loaded, run, topics

pytestmark = pytest.mark.slow

POINTS: tuple[str, ...] = ("backup-portion:1", "")
"""Where backups are killed; an empty one is at random."""
if "TORTURE_ROUNDS" in os.environ:
    POINTS = ("backup-chunks:1", "backup-before-mark:1", *POINTS)


@pytest.fixture
def small_portions() -> Iterator[None]:
    """Copies in portions of a segment or two, with whatever comes in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "PORTION_BYTES", 60)
        patch.setattr(logs, "SMALL_BYTES", 60)
        yield


# -- of one log, whatever it does meanwhile -----------------------------------------------------------


@pytest.mark.usefixtures("small_portions")
def test_what_is_restored_is_the_state_at_that_epoch(postgres: Server) -> None:
    @settings(max_examples=10)
    @given(shared_claims, st.lists(lives, min_size=1, max_size=3), st.integers(0, 12))
    @example(CLAIMED_AGAIN, [[], TRIMMED, []], 12)
    def judge(turns: Turns, between: list[Any], wanted: int) -> None:
        with postgres.schema() as schema, tempfile.TemporaryDirectory() as directory:
            url = postgres.url(schema)
            with closing(Leader(url)) as leader:
                history = History(leader.log(), turns)
                for some in between:
                    left = list(reversed(some))

                    def disturb(_what: str, _copied: int, left: list[Any] = left) -> None:
                        if left:
                            step, count = left.pop()
                            step(history, count)

                    backed_up(url, Path(directory) / "backup", CopyPace(report=disturb))
                    while left:
                        disturb("", 0)
                check(Path(directory), history, wanted)

    judge()


def backed_up(url: str, target: Path, pace: CopyPace) -> None:
    target.mkdir(exist_ok=True)
    with store_backup(StoreAddress.parse(url)) as source:
        back_up(source, target, pace)


def check(top: Path, history: History, wanted: int) -> None:
    found = verify(top / "backup")
    assert not found.damages
    last, oldest = found.statistics.last, found.statistics.oldest
    with closing(LogReader.open(top / "backup")) as copied:
        segment = copied.last_segment
    noted = Manifest.read(top / "backup").spaces[0]
    assert (noted.epoch, noted.oldest, noted.identity) == (last, oldest, found.identity)
    at = max(oldest, min(wanted, last))
    (top / "restored").mkdir()
    try:
        restore(
            top / "backup", top / "restored", RestoreWanted(epoch=at) if last else RestoreWanted(), CopyPace()
        )
    except UsageError as error:
        assert (oldest > 1 and "past retention" in str(error)) or at > last
        return
    with closing(Log.open(top / "restored")) as log:
        assert log.identity != found.identity
        assert log.next_epoch > found.statistics.reserved
        assert claims_of(log.recover()) == history.state(segment, at if at < last else None)


# -- of daemons ---------------------------------------------------------------------------------------


@pytest.mark.torture
def test_backups_of_a_store_in_use_are_whole_and_can_be_restored(postgres_url: str, tmp_path: Path) -> None:
    """Two daemons write and follow; some backups are killed, and each is added to."""
    leader, follower = DaemonProcess(postgres_url), DaemonProcess(postgres_url)
    with running(leader):
        turns(leader, 0)  # its end makes a snapshot
    epochs: list[tuple[Path, int]] = []
    target = tmp_path / "backup"
    with running(leader, follower):
        with loaded(leader.url):
            for number, point in enumerate(POINTS):
                if point:
                    killed = run("backup", target, "--data", postgres_url, fault=point)
                    assert f"fault reached: {point[:-2]}" in killed.stderr
                    assert is_absent_or_whole(target)
                else:
                    kill_at_random(0.6, "backup", target, "--data", postgres_url)
                done = run("backup", target, "--data", postgres_url)
                assert done.returncode == 0, done.stderr
                assert "all of it anew" not in done.stdout
                place = tmp_path / f"restored{number}"
                assert main(["restore", str(target), str(place)]) == 0
                epochs.append((place, Manifest.read(target).spaces[0].epoch))
        for place, epoch in epochs:
            assert facts_at(place, epoch) == facts_of_store(postgres_url, epoch)
            assert main(["log", "verify", "--data", str(place)]) == 0
    assert [epoch for _, epoch in epochs] == sorted({epoch for _, epoch in epochs})
    again = DaemonProcess(epochs[-1][0])
    with running(again), dataspace.connect_blocking(again.url, owner="writer0") as space:
        space.assert_(Record("reading", 0, 0, 0.0))
        now = space.status()["epoch"]
        assert isinstance(now, int) and now > epochs[-1][1] + BLOCK, "no number comes twice"


def is_absent_or_whole(target: Path) -> bool:
    return not target.exists() or not verify(target).damages


def facts_of_store(url: str, epoch: int) -> list[str]:
    with reading(StoreAddress.parse(url), "main") as (log, _):
        return sorted(map(text_of, state_at(log, epoch)))


async def test_all_of_a_store_comes_back_in_another_store(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Logs, topics and staged batches; what is restored is another space, under later numbers."""
    backup, place = tmp_path / "backup", tmp_path / "restored"
    daemon = DaemonProcess(postgres_url, *HOSTED)
    with trio.fail_after(PATIENCE * 2):
        daemon.start()
        await used(daemon)
        before = content(postgres_url)
        assert main(["backup", str(backup), "--data", postgres_url]) == 0
        assert content(backup) == before, "the same identity and numbers"
        assert content(postgres_url) == before
        assert main(["restore", str(backup), str(place)]) == 0
        assert topics(place)[0].number > topics(backup)[0].number
        with postgres.schema() as schema:
            other = postgres.url(schema)
            assert main(["log", "copy", "--from", str(place), "--to", other]) == 0
            daemon = DaemonProcess(other, *HOSTED)
            with running(daemon):
                await counted(daemon, away=0)  # a restored space has no sessions
            for space in SPACES:
                assert content(other)[space][0] != before[space][0], "another identity"


def test_a_home_that_moved_is_backed_up_where_it_was(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copied home numbers its snapshots anew, and the backup keeps those of before."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    epochs = []
    for first in range(3):
        daemon = DaemonProcess(data)
        with running(daemon):
            turns(daemon, first)
        assert main(["backup", str(backup), "--data", str(data)]) == 0
        epochs.append(Manifest.read(backup).spaces[0].epoch)
    assert main(["log", "copy", "--from", str(data), "--to", postgres_url]) == 0
    daemon = DaemonProcess(postgres_url)
    for first in (3, 4):
        with running(daemon):
            turns(daemon, first)
        assert main(["backup", str(backup), "--data", postgres_url]) == 0
        epochs.append(Manifest.read(backup).spaces[0].epoch)
    assert "all of it anew" not in capsys.readouterr().out
    for n, epoch in enumerate(epochs):
        place = tmp_path / f"at{epoch}"
        assert main(["restore", str(backup), str(place), "--at", str(epoch)]) == 0
        assert len(facts_at(place, epoch)) == TURNS * (n + 1)
    # Compacted, its segments have other numbers.
    assert main(["log", "compact", "--data", postgres_url]) == 0
    assert main(["backup", str(backup), "--data", postgres_url]) == 0
    assert "all of it anew" in capsys.readouterr().out
    assert len(facts_at(backup, epochs[-1])) == TURNS * 5


def test_a_store_is_backed_up_to_a_url(postgres_url: str, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="the extra `remote` is not installed")
    (tmp_path / "store").mkdir()
    url, via = f"local://{tmp_path}/store", tmp_path / "via"
    daemon = DaemonProcess(postgres_url)
    for first in range(2):
        with running(daemon):
            turns(daemon, first)
        assert main(["backup", url, "--data", postgres_url, "--via", str(via)]) == 0
    assert main(["restore", url, str(tmp_path / "restored")]) == 0
    assert len(facts_at(tmp_path / "restored", Manifest.read(via).spaces[0].epoch)) == TURNS * 2


def turns(daemon: DaemonProcess, first: int) -> None:
    with dataspace.connect_blocking(daemon.url, owner="map") as space:
        for n in range(TURNS):
            space.assert_(Record("here", first, n))


def test_what_is_refused(
    postgres: Server, postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(postgres_url)
    target = str(tmp_path / "backup")
    secret = postgres_url.replace("//", "//dataspace:hidden@", 1).replace("@dataspace@", "@", 1)
    with running(daemon):
        turns(daemon, 0)
        assert main(["backup", target, "--data", secret]) == 0
        turns(daemon, 1)
    assert main(["backup", target, "--data", secret]) == 0

    def refused(code: int, text: str, *words: str) -> None:
        assert main(list(words)) == code
        said = capsys.readouterr().err
        assert text in said and "hidden" not in said

    with postgres.schema() as schema:
        nothing = "there is no log in postgresql://"
        refused(1, nothing, "backup", target, "--data", postgres.url(schema))
        refused(1, nothing, "log", "verify", "--data", postgres.url(schema))
    refused(2, "needs --via", "backup", f"memory://{os.getpid()}", "--data", secret)
    refused(2, "dataspace log copy --from DIR", "restore", target, secret)
    refused(2, "postgresql://", "backup", target, "--data", "mysql://host/db")
    with connect(postgres_url) as beside:  # as an asynchronous standby that was promoted
        beside.execute(b"DELETE FROM segments WHERE segment > 10 AND segment < 1 << 40")
    with (
        pytest.raises(NotThisLog, match="has gone on differently"),
        store_backup(StoreAddress.parse(postgres_url)) as source,
    ):
        back_up(source, working_directory(Path(target)), CopyPace())
    assert not verify(Path(target)).damages, "it is as it was"
