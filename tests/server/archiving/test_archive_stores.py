"""An archive in S3 (moto) has every epoch once, wherever its writer is killed, and whoever else writes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from dataspace.kernel.changes import Epoch
from index.values.values import Record
from relay.log.log import Log
from relay.log.segments import encode
from tests.relay.log.histories import epoch
from tests.server.upkeep.test_stores import ROUNDS, STORES, Place, s3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torture,
    pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="servers and kills, for make torture"),
    pytest.mark.skipif(not (STORES / "ready").exists(), reason="no .venv/stores: make .venv/stores/ready"),
]

POINTS = ("archive-after-object", "archive-before-manifest", "archive-after-manifest")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with s3(tmp_path) as made:
        yield made


def grow(data: Path, random: Random) -> int:
    """Opens a log, writes some epochs, and closes it; returns its newest epoch."""
    log = Log.open(data)
    try:
        for number in range(log.next_epoch, log.next_epoch + random.randrange(1, 40)):
            made = epoch(number, *[Record("part", number, at, random.random()) for at in range(20)])
            log.append([encode(Epoch(number, number * 10, made.added, (), (), made.claims))])
            log.issue(number)
        return log.last
    finally:
        log.close()


def test_every_epoch_is_archived_once_wherever_the_writer_is_killed(place: Place, tmp_path: Path) -> None:
    data, random = tmp_path / "data", Random(5)
    words = ("log", "archive", place.url, "--data", data)
    grow(data, random)
    refused = place.run(*words, variables=place.wrong)
    assert refused.returncode == 1 and "PermissionError" in refused.stderr, refused.stderr
    for number in range(len(POINTS) * (1 + ROUNDS // 2)):
        newest = grow(data, random)
        killed = place.run(*words, fault=f"{POINTS[number % len(POINTS)]}:1")
        assert "fault reached" in killed.stderr, killed.stderr
        if number % 2:
            place.run(*words, seconds=random.uniform(0.3, 2))
    done = place.run(*words)
    assert done.returncode == 0, done.stderr
    sound = place.run("log", "verify", "--archive", place.url, "--deep")
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert f"epochs 1 to {newest}" in sound.stdout
    listed = place.run("log", "files", place.url).stdout.splitlines()
    ends = sorted(tuple(map(int, re.findall(r"/(\d{12})-(\d{12})-", each)[0])) for each in listed)
    assert ends[0][0] == 1 and ends[-1][1] == newest
    assert all(one[1] < other[0] for one, other in pairwise(ends))


def test_a_copy_does_not_write_the_archive_of_its_original(place: Place, tmp_path: Path) -> None:
    data, random = tmp_path / "data", Random(6)
    grow(data, random)
    shutil.copytree(data, tmp_path / "copy")
    grow(data, random)
    grow(tmp_path / "copy", random)
    assert place.run("log", "archive", place.url, "--data", data).returncode == 0
    refused = place.run("log", "archive", place.url, "--data", tmp_path / "copy")
    assert refused.returncode == 1 and "another daemon writes this archive" in refused.stderr, refused.stderr
    assert "Traceback" not in refused.stderr
