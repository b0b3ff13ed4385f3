"""What is prepared spares the publication the reading, and is nothing more than that."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, Refused
from dataspace.client.bulk.client import PREPARING, BulkClient
from dataspace.client.bulk.packed import PackedColumns
from index.patterns.text import parse_pattern as pattern
from index.values.values import Map, Value
from server.config.model import Config
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from server.spaces.turns.packed import Operations, Prepared, read
from server.turns import publication as publishing
from tests.server.processes import DaemonProcess

ONE = PackedColumns("assert", "n", [[1]], 1).packed()
TWO = PackedColumns("assert", "n", [[2]], 1).packed()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Operations]:
    """All that the daemon of this process reads, while it reads it."""
    made: list[Operations] = []

    def reading(staged: Value) -> Operations:
        made.append(read(staged))
        return made[-1]

    monkeypatch.setattr(publishing, "read", reading)
    return made


def told(*keys: bytes, owner: str = "w", sequence: int = 1) -> Map:
    return Map({"keys": keys, "owner": owner, "client": "c", "sequence": sequence})


async def test_it_is_read_once_and_seen_when_it_is_published(url: str, reads: list[Operations]) -> None:
    async with dataspace.connect(url) as space:
        assert await space.request("prepare", Map({"rows": ONE})) == 1
        assert len(reads) == 1
        assert await space.matches("n($)") == []
        assert await space.request("publish", told(ONE, TWO)) == 1
        assert len(reads) == 2, "only what was not prepared is read now"
        assert await space.matches("n($)") == [(1,), (2,)]
        await space.request("publish", told(ONE, sequence=2))
        assert len(reads) == 3, "what was published is not kept"


@pytest.mark.parametrize("rubbish", [b"", b"\xc1", PackedColumns("upsert", "n", [[2]], 1).packed(), "text"])
async def test_rubbish_is_refused(url: str, rubbish: Value) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match=r"no operations|malformed|no value|must be binary"):
            await space.request("prepare", Map({"rows": rubbish}))


async def test_who_publishes_needs_the_rights_whoever_prepared_it(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    weak = Rights.read(Map({"assert": ("m(_)",), "observe": True}))
    keys = (Key("strong", "the secret of the strong"), Key("weak", "the secret of the weak", weak))
    addresses = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path, keys=keys))
    async with (
        dataspace.connect(addresses[0], token="the secret of the strong") as strong,
        dataspace.connect(addresses[0], token="the secret of the weak") as other,
    ):
        with pytest.raises(Refused, match="does not allow to assert"):
            await other.request("prepare", Map({"rows": ONE}))
        await strong.request("prepare", Map({"rows": ONE}))
        with pytest.raises(Refused, match="does not allow to assert"):
            await other.request("publish", told(ONE, owner="lease:60000:w"))
        assert await strong.matches("n($)") == []


def test_beyond_the_limit_the_oldest_goes() -> None:
    prepared = Prepared(limit=10)
    meaning = [Operations(["send"], [Record("n", at)]) for at in range(4)]
    for at, body in enumerate([b"aaaa", b"bbbb", b"cccc", b"x" * 11]):
        prepared.remember(body, meaning[at])
        prepared.remember(body, meaning[at])
        assert prepared.statistics().bytes == (4, 8, 8, 0)[at]
    prepared.remember(b"aaaa", meaning[0])
    assert prepared.taken(b"aaaa") is meaning[0]
    assert prepared.taken(b"aaaa") is None
    assert prepared.statistics().used == 1
    assert (prepared.statistics().pieces, prepared.statistics().bytes) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["publish-before-commit", "publish-after-commit"])
def test_a_death_in_between_costs_nothing_and_doubles_nothing(daemon: DaemonProcess, fault: str) -> None:
    rows = [list(range(5_000))]
    body = PackedColumns("assert", "n", rows, 5_000).packed()

    def publish(link: BulkClient) -> int:
        return link.publish([body], client="c", sequence=1, owner="w")

    with BulkClient(daemon.url) as link:
        link.prepare(body)
    daemon.kill()
    daemon.start(fault=f"{fault}:1")
    with BulkClient(daemon.url) as link:
        link.prepare(body)
        with pytest.raises(dataspace.Broken):
            publish(link)
    daemon.wait()
    daemon.start()
    with BulkClient(daemon.url) as link:
        link.prepare(body)
        epoch = publish(link)
        now = link.frontier()
        parts = link.changes(pattern("n($)"), after=now.oldest - 1, upto=now.epoch)
        made = [(part.number, len(part.added)) for part in parts if part.added]
    assert sum(count for _, count in made) == 5_000
    assert {number for number, _ in made} == {epoch}


@pytest.mark.slow
def test_nobody_has_to_ask_what_became_of_it(daemon: DaemonProcess) -> None:
    with BulkClient(daemon.url) as link:
        for at in range(3 * PREPARING):
            link.prepare(ONE if at % 2 else b"rubbish")
        assert link.publish([ONE], client="c", sequence=1, owner="w") > 0
        link.prepare(TWO)
        assert link.frontier().epoch > 0
