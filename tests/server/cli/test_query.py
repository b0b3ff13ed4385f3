"""Queries of a real daemon: in Python and at a shell, now and in the past, as far as a token may observe."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, Refused
from dataspace.client.bulk.short import ShortClient
from index.values.values import Map
from server.cli.main import main
from server.cli.once.get import answer
from server.config.model import Config
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from tests.server.processes import DaemonProcess

JOIN = 'task($id, $who), not done($id), $who != "nobody"'


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, int, datetime]]:
    """A daemon with a past, the epoch before the newest, and the time of that."""
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    with dataspace.connect_blocking(process.url, owner="board") as space:
        with space.turn() as turn:
            for number in (1, 2, 3):
                turn.assert_(Record("task", number, "ann" if number < 3 else "bob"))
            turn.assert_(Record("done", 2))
        assert turn.epoch is not None
        with space.observe("done($n)", quiet=True) as seen:
            first = seen.next_epoch()
        space.assert_(Record("done", 3))
        with space.observe("done(3)", after=turn.epoch, quiet=True) as seen:
            second = seen.next_epoch()
    assert first is not None and second is not None
    yield process, turn.epoch, second.time
    assert process.stop() == 0


@pytest.mark.slow
def test_a_query_joins_what_is_there_now_and_what_was(past: tuple[DaemonProcess, int, datetime]) -> None:
    process, epoch, later = past
    with dataspace.connect_blocking(process.url) as space:
        rows = space.query(JOIN)
        assert (rows.names, list(rows), rows.epoch) == (("id", "who"), [(1, "ann")], epoch + 1)
        before = space.query(JOIN, as_of=epoch)
        assert (sorted(before), before.epoch) == ([(1, "ann"), (3, "bob")], epoch)
        assert space.query(JOIN, as_of=later).epoch == epoch + 1
        assert sorted(space.query(JOIN, as_of=later.replace(year=later.year - 1))) == []
        assert list(space.query("task($id, $who)", id=3)) == [("bob",)]
        assert sorted(space.query("n($who, count($id)) <- task($id, $who)")) == [("ann", 2), ("bob", 1)]
        with pytest.raises(Refused, match="epoch-ahead"):
            space.query(JOIN, as_of=1_000_000)
    with ShortClient(process.url) as short:
        micros = int(later.timestamp() * 1_000_000)
        assert short.epoch_at(micros) == epoch + 1
        assert short.epoch_at(micros - 1) == epoch
        assert short.epoch_at(0) == 0
        assert sorted(answer(short, JOIN, epoch)) == sorted(before)
        assert list(answer(short, JOIN, None)) == list(rows)


@pytest.mark.slow
def test_a_query_at_a_shell(
    past: tuple[DaemonProcess, int, datetime],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, epoch, later = past
    monkeypatch.setenv("DATASPACE_URL", process.url)
    assert main(["query", JOIN, "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) == {"epoch": epoch + 1, "captures": {"id": 1, "who": "ann"}}
    assert err == f"1 row at epoch {epoch + 1}\n"
    assert main(["query", JOIN, "--as-of", str(epoch), "--csv"]) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["1,ann", "3,bob", "id,who"]
    time = later.astimezone(UTC).isoformat()
    assert main(["get", "done($n)", "--as-of", time]) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["n=2", "n=3"]
    assert main(["query", "task(1, _)"]) == 0
    assert capfd.readouterr().out == "true\n"
    assert main(["query", "task($id"]) == 2
    assert "expected ',' or ')'" in capfd.readouterr().err


@pytest.fixture
async def guarded(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[str]:
    """A daemon in which one token may observe tasks alone."""
    keys = (Key("all", "s" * 32), Key("some", "t" * 32, Rights.read(Map({"observe": ("task(_, _)",)}))))
    addresses = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), tmp_path, keys=keys))
    yield addresses[0]


async def test_a_query_reads_what_its_token_may_observe(guarded: str) -> None:
    async with (
        dataspace.connect(guarded, token="s" * 32) as full,
        dataspace.connect(guarded, token="t" * 32) as some,
    ):
        await full.assert_(Record("task", 1, "ann"))
        await full.assert_(Record("done", 2))
        assert list(await some.query("task($id, $who)")) == [(1, "ann")]
        for body in ("task($id, _), not done($id)", "done($id)", "$f, $f != 1"):
            with pytest.raises(Refused, match="not-allowed"):
                await some.query(body)
            with pytest.raises(Refused, match="not-allowed"):
                await some.query(body, as_of=2)
        assert len(await full.query("$f, $f != 1")) == 2
