"""An archive in S3 (moto) has every epoch once, wherever its writer is killed, and whoever else writes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from dataspace.kernel.changes import Epoch
from index.patterns.text import unparse
from index.values.values import Record
from relay.journal.journal import Journal
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.segments import encode
from tests.relay.log.histories import epoch
from tests.server.archiving.test_topics_archiver import Home
from tests.server.upkeep.test_stores import ROUNDS, STORES, Place, path, s3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torture,
    pytest.mark.skipif("TORTURE_ROUNDS" not in os.environ, reason="servers and kills, for make torture"),
    pytest.mark.skipif(not (STORES / "ready").exists(), reason="no .venv/stores: make .venv/stores/ready"),
]

MERGING = ("merge-before-manifest", "merge-after-manifest")
ERASING = ("erase-before-manifest", "erase-after-manifest")
FAILED = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
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
            said = (Record("said", number),)
            log.append([encode(Epoch(number, number * 10, made.added, said, (), made.claims))])
            log.issue(number)
        return log.last
    finally:
        log.close()


class Unreliable:
    """A proxy before a server, until it is closed: it loses requests and answers, delays them, and answers
    with errors."""

    def __init__(self, port: int, random: Random) -> None:
        self._behind = port
        self._random = random
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.fates: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                serving = threading.Thread(target=self._serve, args=(near,))
                serving.start()
                self._threads.append(serving)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._behind)) as far:
            asking = threading.Thread(target=self._pump, args=(near, far, "request"))
            asking.start()
            self._pump(far, near, "answer")
            asking.join()

    def _pump(self, one: socket.socket, other: socket.socket, what: str) -> None:
        with suppress(OSError):
            while some := one.recv(1 << 16):
                with self._lock:
                    (fate,) = self._random.choices(("sent", "lost", "failed", "late"), (94, 1, 1, 4))
                    self.fates[f"{fate} {what}"] += 1
                if fate == "lost":
                    break
                if fate == "failed" and some.startswith(b"HTTP/1.1 "):
                    other.sendall(FAILED)
                    break
                if fate == "late":
                    time.sleep(0.05)
                other.sendall(some)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # which ends what accepts
        for each in self._threads:
            each.join()
        self._listener.close()


@pytest.fixture
def unreliable(place: Place) -> Iterator[Place]:
    """The same server behind such a proxy."""
    behind = int(place.right["FSSPEC_S3_ENDPOINT_URL"].rpartition(":")[2])
    with closing(Unreliable(behind, Random(8))) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        yield Place(place.url, place.right | {"FSSPEC_S3_ENDPOINT_URL": url}, place.wrong)
        assert {"lost request", "lost answer", "failed answer", "late answer"} <= {*proxy.fates}, proxy.fates


def insist(place: Place, *words: object) -> str:
    """Repeats a command until it succeeds, as an operator does; returns what it printed."""
    for _ in range(20):
        done = place.run(*words)
        assert "Traceback" not in done.stderr, done.stderr
        if done.returncode == 0:
            return done.stdout
    raise AssertionError(done.stderr)


@pytest.mark.parametrize("kind", ["place", "unreliable"])
def test_every_epoch_is_archived_once_wherever_a_writer_is_killed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Archiving, merging and erasing are killed at each of their points, topics included, and at any time."""
    place: Place = request.getfixturevalue(kind)
    data, random, erased, reached = tmp_path / "data", Random(5), 0, 0
    archive = ("log", "archive", place.url, "--data", data)
    erase = ("log", "erase", "said($)", "--before", "0s", "--archive", place.url)
    strikes = [
        *product([archive], POINTS),
        *product([(*archive, "--merge")], MERGING),
        *product([erase], ERASING),
    ]
    newest = grow(data, random)
    with closing(Journal.open(data)) as journal:
        home = Home(data, cast(Any, None), journal)
        refused = place.run(*archive, variables=place.wrong)
        assert refused.returncode == 1 and "PermissionError" in refused.stderr, refused.stderr
        for words, point in strikes * (1 + ROUNDS // 10):
            newest = grow(data, random)
            if words != archive:
                insist(place, *archive)
            home.complete(*random.sample(home.step_logs, 2))
            killed = place.run(*words, fault=f"{point}:1")
            struck = "fault reached" in killed.stderr
            assert struck or kind == "unreliable", killed.stderr
            reached += struck
            if words == erase:
                insist(place, *erase)
                erased = newest
            elif words == archive:  # of what is left, topics have the most
                home.complete(*home.step_logs)
                place.run(*words, fault=f"{point}:{random.randrange(1, 4)}")
            if ROUNDS > 1:
                place.run(*random.choice(strikes)[0], seconds=random.uniform(0.3, 2))
        assert reached >= len(strikes) // 2
        insist(place, *archive)
        checked = insist(place, "log", "verify", "--archive", place.url, "--deep", "--json").splitlines()
        log, *topics = map(json.loads, checked)
        assert (log["first"], log["upto"], log["missing"], log["damages"]) == (1, newest, [], [])
        assert [each["completed"] for each in topics] == [each.completed for each in home.step_logs]
        for each in topics:
            assert (each["first"], each["missing"], each["damages"]) == (1, [], [])
    with closing(LogReader.open(data)) as held:
        local = [
            [each.number, [*map(unparse, each.added)], "erased()" if each.number <= erased else said]
            for each in held.read(0)
            for said in map(unparse, each.messages)
        ]
    assert [json.loads(line) for line in told(place)] == local


READ = """
import json, sys
from index.patterns.text import unparse
from relay.archive.archive import only_archive
from relay.objects.opening import open_objects

archive = only_archive(open_objects(sys.argv[1]), "main")
for segment in archive.segments(0, archive.upto):
    for each in segment.epochs():
        if not each.silent:
            print(json.dumps([each.number, [*map(unparse, each.added)], *map(unparse, each.messages)]))
"""


def told(place: Place) -> list[str]:
    """A line for each archived epoch: its number, the facts that came, its message."""
    done = subprocess.run(
        [sys.executable, "-c", READ, place.url],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path()} | place.right,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


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
