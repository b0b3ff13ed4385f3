"""A state that is sorted in files is the same from leader, follower and next daemon, and fails alone."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.packed import PackedColumns
from dataspace.client.bulk.states import share_end
from dataspace.errors import Refused
from dataspace.wire.observing import NUMBERS
from index.patterns.text import parse_pattern
from relay.log.log import Log
from relay.space_registers import space_registers
from tests.server.processes import DaemonProcess, follower, running

pytestmark = pytest.mark.slow

PROGRAM: Final = (
    "-c",
    "import os, runpy, tempfile, relay.log.shares as shares, relay.store.spilled as spilled\n"
    "shares.SORTED_BYTES, spilled.HELD_BYTES, tempfile.tempdir = 3000, 2000, os.environ['SORTED_IN']\n"
    "runpy.run_module('dataspace', run_name='__main__', alter_sys=True)",
)
"""A daemon that sorts all but a few rows in files, in a directory that a test can take away."""

PATTERN: Final = parse_pattern("seat($n, $name)")

Read = tuple[list[int], list[tuple[object, ...]]]


def publish(link: BulkClient, sequence: int, verb: str, numbers: range) -> int:
    columns = [[*numbers], [f"{number:0100d}" for number in numbers]]
    body = PackedColumns(verb, "seat", columns, len(numbers)).packed()
    return link.publish([body], client="fill", sequence=sequence, owner="it")


def read(url: str, epoch: int, most: int = 37) -> Read:
    """The ends of all shares, and the rows in order."""
    ends, rows = [0], list[tuple[object, ...]]()
    with BulkClient(url) as link:
        link.frontier(epoch - 1, 30)
        while ends[-1] < NUMBERS:
            ends.append(share_end(link, PATTERN, epoch, (ends[-1], most), traced=(False, False)))
            share = ends[-2], ends[-1]
            for block in link.columns(PATTERN, upto=epoch, as_of=epoch, share=share, places=True):
                rows += zip(*block.columns, strict=True)
    return ends, rows


def test_a_state_out_of_a_snapshot_and_later_epochs_is_one_everywhere(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "sorted"
    place.mkdir()
    leader = DaemonProcess(data, program=PROGRAM)
    follows = follower(data)
    for each in (leader, follows):
        each.program = PROGRAM
        each.environment["SORTED_IN"] = str(place)
    with running(leader), BulkClient(leader.url) as link:
        for at in range(6):
            publish(link, at + 1, "assert", range(at * 100, at * 100 + 100))
    (space,) = [found.parent for found in data.rglob(Log.FILE)]
    log = Log.open(space, registers=space_registers)
    log.recover(snapshot=True)
    log.close()
    with running(leader, follows):
        with BulkClient(leader.url) as link:
            publish(link, 7, "retract", range(50, 250))
            publish(link, 8, "assert", range(600, 700))
            epoch = publish(link, 9, "assert", range(200, 210))
        wanted = {*range(50), *range(200, 210), *range(250, 700)}
        with ThreadPoolExecutor() as threads:
            found = [*threads.map(read, [leader.url] * 4 + [follows.url] * 2, [epoch] * 6)]
        assert {row[0] for row in found[0][1]} == wanted and len(found[0][1]) == len(wanted)
        assert found == found[:1] * 6
        leader.kill()
        assert not os.listdir(place), "what a killed daemon wrote has no name"
        leader.start()
        assert read(leader.url, epoch) == found[0]
        leader.kill()  # the bounds mean the same to the next daemon
        leader.start()
        place.rmdir()
        with pytest.raises(Refused, match="set TMPDIR") as refused:
            read(leader.url, epoch)
        assert refused.value.code == "disk-failed"
        with BulkClient(leader.url) as link:
            publish(link, 10, "assert", range(700, 701))
        place.mkdir()
        assert read(leader.url, epoch) == found[0], "the daemon goes on, and sorts it now"
