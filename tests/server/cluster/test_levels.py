"""What an older daemon would lose or misread is written once all daemons know it, and an operator says so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
import trio

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")

import dataspace
from dataspace import Record
from dataspace.errors import Refused
from index.values.values import Map
from relay.store.address import StoreAddress
from relay.store.levels import FIRST, LATEST
from relay.store.postgres.database import Database
from tests.postgres.servers import Server
from tests.server.processes import DaemonProcess, running
from tests.upgrade.older import OLDER

pytestmark = pytest.mark.slow

SOON = 120
JOB = "job($n)"
WAITS = (3600.0, 7200.0)
"""For so long that jobs would be parked, were that allowed."""

LATER: dict[str, Any] = {"most_out": 3, "rate": 50.0, "exclusive": True, "kinds": "+-!", "priority": "n"}


@pytest.fixture
def before(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The address of a store that was made before there were levels."""
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "1s")
    with postgres.schema() as name:
        url = postgres.url(name)
        database = Database(StoreAddress.parse(url))
        database.prepare()
        database.close()
        with postgres.connect(name) as connection:
            connection.execute("ALTER TABLE store DROP COLUMN level")
            connection.execute("ALTER TABLE members DROP COLUMN level")
        yield url


def cluster(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dataspace", "cluster", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SOON)


def level_of(store: str) -> int:
    return int(json.loads(cluster("status", "--json", "--data", store).stdout)["level"])


def daemon(store: str, name: str, *, older: bool = False) -> DaemonProcess:
    program = OLDER if older else ("-m", "dataspace")
    found = DaemonProcess(store, program=program)
    found.environment["DATASPACE_SERVE_CLUSTER_NAME"] = name
    return found


async def postponed(url: str, numbers: range) -> None:
    """Fills the window of a group with jobs that wait for an hour."""
    async with dataspace.connect(url) as space:
        async with space.consume(JOB, group="w", in_flight=3, attempts=0) as jobs:
            await space.request(
                "group-alter", Map({"group": "w", "what": "alter", "options": Map({"window": 4})})
            )
            for n in numbers:
                await space.send(Record("job", n))
            for _ in numbers:
                await (await jobs.__anext__()).again(after=3600)
        await space.sync()


async def parked(url: str) -> list[Any]:
    async with dataspace.connect(url) as space:
        found: Any = await space.peek("w")
    assert found["postponed"] == len(found["jobs"])
    return [each for each in found["jobs"] if each["captures"] is None]


async def test_a_newer_leader_writes_nothing_that_an_older_follower_does_not_know(before: str) -> None:
    """Until the level is raised, which the older daemon prevents while it lives; then it cannot join."""
    newer, older = daemon(before, "newer"), daemon(before, "older", older=True)
    with running(newer, older), trio.fail_after(SOON):
        for name, value in LATER.items():
            async with dataspace.connect(newer.url) as space:
                with pytest.raises(Refused, match=f"level.*{name} of a group.*dataspace cluster upgrade"):
                    async with space.consume(JOB, group="g", key="n", **{name: value}):
                        pass
        async with dataspace.connect(newer.url) as space:
            with pytest.raises(Refused, match=r"level.*a list of backoff"):
                async with space.consume(JOB, group="g", backoff=WAITS):
                    pass
            async with space.consume(JOB, group="g"):
                with pytest.raises(Refused, match=r"level.*needs level 2 of the store, which has level 1"):
                    await space.request(
                        "group-alter", Map({"group": "g", "what": "alter", "options": Map({"rate": 5})})
                    )
        await postponed(newer.url, range(12))
        assert await parked(newer.url) == []
        refused = cluster("upgrade", "--data", before)
        assert refused.returncode == 2 and "older at tcp://" in refused.stderr
        assert "upgrade that daemon first" in refused.stderr and level_of(before) == FIRST
        newer.stop()  # which writes a snapshot
        async with dataspace.connect(older.url, wait=SOON) as space:
            found: Any = {"behind": 1}
            while found["behind"]:
                found = await space.peek("w")
            assert (found["undone"], found["postponed"]) == (12, 12), "the older daemon leads all of it"
        newer.start()
        assert older.stop() == 0, older.errors
        assert "dataspace cluster upgrade" in cluster("status", "--data", before).stdout
        assert cluster("upgrade", "--data", before).stdout == f"features: level {LATEST}\n"
        while True:  # the leader learns it with the next renewal of its lease
            async with dataspace.connect(newer.url, wait=SOON) as space:
                try:
                    async with space.consume(JOB, group="h", key="n", **LATER):
                        break
                except Refused as refusal:
                    assert refusal.code == "level"
                    await trio.sleep(0.1)
        await postponed(newer.url, range(12, 24))
        assert await parked(newer.url) != []
        with pytest.raises(AssertionError, match="did not start"):
            older.start()
        assert f"has features of level {LATEST}, this program knows them up to level {FIRST}" in older.errors


async def test_a_new_store_has_the_latest_level_and_its_older_daemon_says_why_it_does_not_start(
    postgres_url: str,
) -> None:
    newer, older = daemon(postgres_url, "newer"), daemon(postgres_url, "older", older=True)
    with running(newer):
        assert level_of(postgres_url) == LATEST
        with pytest.raises(AssertionError, match="did not start"):
            older.start()
        assert older.process.returncode == 1 and "UPGRADE.md" in older.errors
        assert cluster("upgrade", "--data", postgres_url).returncode == 0


async def test_a_daemon_whose_lease_ran_out_is_no_member_again_once_the_level_is_beyond_it(
    before: str,
) -> None:
    newer, older = daemon(before, "newer"), daemon(before, "older", older=True)
    with running(newer, older), trio.fail_after(SOON):
        older.process.send_signal(signal.SIGSTOP)
        while cluster("upgrade", "--data", before).returncode:
            pass  # its lease lasts
        older.process.send_signal(signal.SIGCONT)
        assert await trio.to_thread.run_sync(older.wait) == 1
        assert f"this program knows them up to level {FIRST}" in older.errors
