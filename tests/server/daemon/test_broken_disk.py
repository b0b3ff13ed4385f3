"""A disk that fails in earnest ends the daemon, which says why; nothing that was accepted is lost by that.

The failure is that of SQLite's own operation, injected where it asks the system (``breaking``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.client import BulkClient
from dataspace.errors import DataspaceError, Refused
from index.patterns.text import parse_pattern
from server.cli.main import main
from tests.server.daemon import breaking
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


def _breakable(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DaemonProcess, Path]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    order = place / "order"
    return DaemonProcess(place / "data", program=(breaking.__file__, str(order))), order


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("sync log.sqlite-wal", "a flush to the disk failed, and what is there is not known"),
        ("write log.sqlite-wal", "disk I/O error (SQLITE_IOERR_WRITE)"),
    ],
)
def test_a_log_that_cannot_be_written_ends_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, said: str
) -> None:
    daemon, told = _breakable(tmp_path, monkeypatch)
    daemon.start()
    trio.run(_turns_until_refused, daemon.url, told, order)
    assert daemon.wait() == 1
    assert daemon.errors.splitlines()[-1] == f"dataspace: cannot write {daemon.data}/log.sqlite: {said}"
    assert "Traceback" not in daemon.errors
    told.unlink()
    daemon.start()
    with BulkClient(daemon.url) as link:
        past = list(link.changes(parse_pattern("kept($n)"), after=0, upto=link.frontier().epoch))
    assert [row for each in past for row in each.added][:3] == [(0,), (1,), (2,)]
    assert daemon.stop() == 0
    assert main(["log", "verify", "--data", str(daemon.data)]) == 0


async def _turns_until_refused(url: str, told: Path, order: str) -> None:
    with trio.fail_after(60):
        async with dataspace.connect(url, reconnect=False) as space:
            for number in range(3):
                await space.assert_(Record("kept", number))
            told.write_text(order)  # noqa: ASYNC240  # a few bytes
            with pytest.raises(DataspaceError):
                await space.assert_(Record("kept", 3))


def test_what_waited_for_the_log_is_asked_of_the_next_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal would say that nothing has happened, which is not known."""
    daemon, told = _breakable(tmp_path, monkeypatch)
    daemon.start()

    async def ask() -> None:
        with trio.fail_after(60):
            async with dataspace.connect(daemon.url) as space:
                held = await space.hold(Record("held", 1), ttl=60)
                told.write_text("sync log.sqlite-wal")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(space.sync)
                    nursery.start_soon(held.put, Record("held", 2))
                    nursery.start_soon(lambda: space.put("kept", "a", 1, owner="people"))
                    await trio.to_thread.run_sync(daemon.wait)
                    told.unlink()
                    await trio.to_thread.run_sync(daemon.start)
                assert await space.matches("held($n)") == [(2,)]
                assert await space.matches("kept(_, $n)") == [(1,)]

    trio.run(ask)
    assert daemon.stop() == 0


def test_a_journal_that_cannot_be_written_ends_it_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, told = _breakable(tmp_path, monkeypatch)
    daemon.start()

    async def publish() -> None:
        with trio.fail_after(60), pytest.raises(DataspaceError):
            async with (
                dataspace.connect(daemon.url, reconnect=False) as space,
                space.publish("t", durable=True) as topic,
            ):
                await topic.send("kept")
                await topic.advance(1)
                await topic.flush()
                told.write_text("sync topics.sqlite-wal")  # a few bytes
                await topic.send("lost")
                await topic.flush()

    trio.run(publish)
    assert daemon.wait() == 1
    assert daemon.errors.splitlines()[-1].startswith(
        f"dataspace: cannot write {daemon.data}/topics.sqlite: a flush to the disk failed"
    )
    assert "Traceback" not in daemon.errors
    told.unlink()
    daemon.start()

    async def read() -> list[object]:
        async with dataspace.connect(daemon.url) as space:
            return [each.items async for each in space.completed("t", upto=1)]

    assert trio.run(read) == [("kept",)]
    assert daemon.stop() == 0


def test_staging_that_fails_refuses_and_the_daemon_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, told = _breakable(tmp_path, monkeypatch)
    daemon.start()
    with BulkClient(daemon.url) as link:
        told.write_text("sync staged.sqlite-wal")
        for _ in range(2):
            with pytest.raises(Refused, match=r"disk-failed.*a flush to the disk failed"):
                link.stage(("k",), [("assert", "x")])
        told.unlink()
        with pytest.raises(Refused, match=r"disk-failed.*a flush to the disk failed"):
            link.stage(("k",), [("assert", "x")])  # the kernel may say yes now, and mean another write
        assert link.frontier().epoch == 0
    assert daemon.stop() == 0


def test_a_past_that_cannot_be_read_is_refused_and_the_daemon_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, told = _breakable(tmp_path, monkeypatch)
    daemon.start()

    async def write() -> None:
        async with dataspace.connect(daemon.url, owner="o") as space:
            for number in range(3):
                await space.assert_(Record("kept", number, "x" * 200_000))

    trio.run(write)
    assert daemon.stop() == 0
    daemon.start()  # what it reads from now on is in no cache

    async def read() -> None:
        with trio.fail_after(30):
            async with dataspace.connect(daemon.url) as space:
                told.write_text("read log.sqlite")  # a few bytes
                async with space.observe("kept($n, _)", after=0, upto=3, quiet=True) as seen:
                    with pytest.raises(Refused, match=r"disk-failed|log-damaged"):
                        assert [epoch async for epoch in seen.epochs()]
                assert sorted(await space.matches("kept($n, _)")) == [(0,), (1,), (2,)]
                told.unlink()  # as above
                async with space.observe("kept($n, _)", after=0, upto=3, quiet=True) as seen:
                    assert [[*epoch.added] async for epoch in seen.epochs()] == [[(0,)], [(1,)], [(2,)]]
                await space.send(Record("goes", "on"))

    trio.run(read)
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.errors


def test_an_altered_epoch_is_an_error_for_who_reads_it_and_for_nobody_else(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    with BulkClient(daemon.url) as link:
        for number in range(1, 6):
            link.stage(("k",), [("assert", Record("on", number))])
            link.publish([("k",)], client="c", sequence=number, owner="o")
    assert daemon.stop() == 0
    path = daemon.data / "log.sqlite"
    whole = bytearray(path.read_bytes())
    at = whole.index(b"\x91\x92\xa2on\x02")
    whole[at + 5] ^= 64
    path.write_bytes(whole)
    daemon.start()
    try:
        trio.run(_read_around, daemon.url)
    finally:
        assert daemon.stop() == 0
    assert "Traceback" not in daemon.errors


async def _read_around(url: str) -> None:
    with trio.fail_after(30):
        async with dataspace.connect(url) as space:
            with pytest.raises(Refused, match=r"log-damaged.*segment 2 with epochs 2 to 2 was altered"):
                async with space.observe("on($n)", after=0, upto=5, quiet=True) as seen:
                    assert [epoch async for epoch in seen.epochs()]
            async with space.observe("on($n)", after=2, upto=5, quiet=True) as seen:
                assert [[*epoch.added] async for epoch in seen.epochs()] == [[(3,)], [(4,)], [(5,)]]
            assert sorted(await space.matches("on($n)")) == [(1,), (2,), (3,), (4,), (5,)]
