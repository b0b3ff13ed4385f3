"""A log in a store that was compacted answers as before, in fewer segments, and is written and followed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from dataspace.errors import Refused
from relay.log.notes import Registers
from relay.log.reader import LogReader
from relay.log.retention import Retention
from relay.log.snapshots import RecoveredState
from relay.store.address import StoreAddress
from relay.store.errors import LogFenced
from relay.store.postgres.rewriting import Rewriting
from relay.store.postgres.tables import PostgresLog
from server.cli.main import main
from server.cluster.database.compacting import compact_store
from server.cluster.database.seen import StoreFollowedLog
from tests.postgres.servers import patient
from tests.relay.store.postgres.leaders import leaders, numbers, write
from tests.server.cluster.contents import content
from tests.server.processes import DaemonProcess, running

TURNS = 40


@pytest.mark.parametrize("snapshot", [0, 5, 20])
def test_its_segments_are_joined_and_numbered_on(postgres_url: str, snapshot: int) -> None:
    with leaders(postgres_url) as (one, _):
        log = one.log()
        for number in range(1, TURNS // 2 + 1):
            write(log, number)
            if number == snapshot:
                log.recover(snapshot=True)
        log._tables.abandon()
        one.member.leave()
        with closing(StoreFollowedLog.over(PostgresLog(one.database, one.space))) as reader:
            before = reader.recover()
            epochs = [*map(repr, reader.read(0))]
            done = compact_store(StoreAddress.parse(patient(postgres_url)), "main", Retention())
            assert done.segments_before == TURNS // 2
            assert done.segments == (2 if snapshot == 5 else 1)
            with pytest.raises(Refused, match="past retention"):
                reader.tail(before.segment)
            assert held(reader.recover()) == held(before)
            assert [*map(repr, reader.read(0))] == epochs
            one.member.join()
            one.take()
            log = one.log()
            write(log, log.next_epoch)
            assert [each.last for each in reader.tail(reader.last_segment)] == [log.last]
        assert numbers(log) == [*range(1, TURNS // 2 + 1), log.last]


NONE = Registers()


def held(state: RecoveredState) -> object:
    """Returns what a state says but for its segment."""
    owners = {owner: dict(claims.items()) for owner, claims in state.owners.items()}
    return owners, state.registers.rows(), replace(state, owners={}, registers=NONE, segment=0)


def test_under_another_term_nothing_is_rewritten(postgres_url: str) -> None:
    with leaders(postgres_url) as (one, _):
        write(one.log(), 1)
        assert one.writer is not None
        other = replace(one.writer.fence, term=one.writer.fence.term + 1)
        with one.database.connect() as connection, pytest.raises(LogFenced), connection.transaction():
            Rewriting(one.database, connection, one.space, other).end(1, None, {})
        with closing(LogReader(PostgresLog(one.database, one.space))) as reader:
            assert reader.verify().segments == 1


@pytest.mark.slow
async def test_a_daemon_goes_on_with_it(
    postgres_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "10m")
    daemon = DaemonProcess(postgres_url)
    with trio.fail_after(300):
        with running(daemon):
            async with dataspace.connect(daemon.url, owner="map") as space:
                for n in range(TURNS):
                    await space.assert_(Record("here", n))
            assert await compacted(postgres_url) == 2, "a daemon leads"
            assert "leads space 'main'" in capsys.readouterr().err
        before = content(postgres_url)
        assert await compacted(postgres_url) == 0
        assert f"{TURNS} segments in" in capsys.readouterr().out
        assert content(postgres_url) == before
        assert await compacted(postgres_url, "--keep-bytes", "1") == 0
        assert main(["log", "verify", "--data", postgres_url]) == 0
        assert await compacted(postgres_url, "--space", "else") == 2
        with running(daemon):
            async with dataspace.connect(daemon.url, owner="map") as space:
                assert len(await space.matches("here($n)")) == TURNS
                await space.assert_(Record("here", TURNS))


async def compacted(url: str, *more: str) -> int:
    return await trio.to_thread.run_sync(main, ["log", "compact", "--data", url, *more])
