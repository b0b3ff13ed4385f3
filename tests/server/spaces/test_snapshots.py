"""A daemon that makes no turn leaves a snapshot of the epoch and the time that it has found."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record, Refused
from dataspace.transport.addresses import parse_listen
from relay.log.reader import LogReader
from server.config.model import Config
from server.daemon.serve import serve


async def test_it_has_the_epoch_and_the_time_of_its_state(tmp_path: Path) -> None:
    config = Config(("tcp:127.0.0.1:0",), tmp_path)
    found = []
    for turn in (1, 0):
        async with trio.open_nursery() as nursery:
            (address,) = await nursery.start(serve, config)
            async with dataspace.connect(parse_listen(address).url, owner="mine") as space:
                if turn:
                    await space.assert_(Record("fact", turn))
                else:  # it is refused, after a note of where it comes from
                    with pytest.raises(Refused, match="handle"):
                        async with space.turn() as draft:
                            draft.retract(17)
            nursery.cancel_scope.cancel()
        reader = LogReader.open(tmp_path)
        state, _ = reader._rolled_forward(pytest.fail)
        found.append((reader.snapshot_epoch(), state.time))
        reader.close()
    assert found[0][1] > 0
    assert found[1] == found[0]
