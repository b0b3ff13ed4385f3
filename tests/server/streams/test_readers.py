"""A named reader says how far it has come, and the daemon keeps the rest for it, whatever else may go."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dataspace.client.bulk.client import BulkClient
from dataspace.errors import Refused
from index.patterns.text import parse_pattern
from relay.log import writer as retaining
from relay.log.retention import Retention
from server.config.model import Config
from server.daemon.serve import serve


def publish(link: BulkClient, first: int, last: int) -> None:
    for number in range(first, last + 1):
        link.stage(("k",), [("assert", "x" * 50_000), ("send", number)])
        link.publish([("k",)], client="c", sequence=number, owner="o")


def epochs(link: BulkClient, after: int) -> list[int]:
    upto = link.frontier().epoch
    return [each.number for each in link.changes(parse_pattern("$n:int"), after=after, upto=upto)]


@pytest.mark.slow
async def test_what_a_reader_has_not_acknowledged_is_kept(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retaining, "SECONDS", 0.01)
    monkeypatch.setattr(retaining.retain, "__kwdefaults__", {"every": 0.01})
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path, retention=Retention(age=0.0))
    address = (await nursery.start(serve, config))[0]

    def read() -> None:
        with BulkClient(address) as link:
            start = link.frontier().epoch
            assert link.acknowledge("spark", start) == link.frontier().oldest
            publish(link, 1, 40)
            assert epochs(link, start) == list(range(start + 1, start + 41))
            link.acknowledge("spark", start + 30)
            while link.frontier().oldest < start + 31:
                pass
            with pytest.raises(Refused, match="epoch-gone"):
                epochs(link, start + 29)
            assert epochs(link, start + 30) == list(range(start + 31, start + 41))
            with pytest.raises(Refused, match="epoch-ahead"):
                link.acknowledge("spark", start + 1000)
            with pytest.raises(Refused, match="reader must be text of 1 to 4096 characters, got ''"):
                link.acknowledge("", 1)
            link.forget("spark")
            publish(link, 41, 42)
            while link.frontier().oldest < start + 40:
                pass

    with trio.fail_after(60):
        await trio.to_thread.run_sync(read)
