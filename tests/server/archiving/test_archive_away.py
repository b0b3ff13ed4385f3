"""Groups whose next epochs only the archive has wait while that is away, and lose nothing; real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map, RemoteSpace
from tests.server.archiving.test_archiving_daemons import gone, status, wait, write
from tests.server.archiving.test_archiving_topics import RETAIN, publish, retained
from tests.server.groups.test_consuming import take
from tests.server.groups.test_defining import alter
from tests.server.processes import STARTING, DaemonProcess

pytestmark = pytest.mark.slow
pytest.importorskip("zstandard", reason="the extra `archive` is not installed")

PARTS, MORE, ITEMS = 40, 5, 400
"""Facts, later facts, and items of a topic: several times what a group reads at once."""

GROUPS: list[tuple[str, dict[str, Any], int]] = [
    ("facts", {"pattern": "part($n, _)"}, PARTS + MORE),
    ("items", {"topic": "t"}, ITEMS),
]


@pytest.fixture
def archiving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """A daemon that archives every epoch soon, and keeps nothing longer than it must."""
    monkeypatch.setenv("DATASPACE_SERVE_LOG_ARCHIVE_EVERY", "0.1")
    monkeypatch.setenv("TRIMS_EVERY", "0.2")
    words = ("--archive", str(tmp_path / "archive"), "--keep-for", "0s")
    process = DaemonProcess(tmp_path / "data", *words, program=STARTING)
    process.start()
    yield process
    process.stop()


def put_away(archive: Path, kind: str) -> None:
    archive.rename(archive.with_name("elsewhere"))
    if kind == "a file":
        archive.write_text("no directory")
    else:
        archive.mkdir()


def put_back(archive: Path) -> None:
    if archive.is_file():
        archive.unlink()
    else:
        archive.rename(archive.with_name("emptied"))
    archive.with_name("elsewhere").rename(archive)


def number_of(job: dataspace.Job) -> int:
    found: Any = job["n"] if job.topic_time is None else job["item"][0]  # type: ignore[index]  # a sequence
    return int(found)


async def make(daemon: DaemonProcess) -> None:
    """Makes the groups, each with a window of five items."""
    async with dataspace.connect(daemon.url) as space:
        for name, source, _ in GROUPS:
            async with space.consume(**source, group=name, start="now" if name == "facts" else 1):
                await alter(space, "alter", group=name, options=Map({"window": 5}))


async def take_what_is_here(space: RemoteSpace, name: str, source: dict[str, Any]) -> list[int]:
    """Does jobs until the group says that it cannot read the next ones."""
    found: list[int] = []
    async with space.consume(**source, group=name, in_flight=5) as jobs:
        while True:
            with trio.move_on_after(0.3):
                (job,) = await take(jobs, 1)
                await job.done()
                found.append(number_of(job))
                continue
            known: Any = await space.request("groups", Map({"group": name}))
            assert not await space.matches("group_lost($, $, $, $)")
            if "cannot_read" in known[0]:
                return found


async def do_what_is_here(daemon: DaemonProcess, found: dict[str, list[int]]) -> None:
    """Does what groups still hand out, while another one goes on beside them."""
    with trio.fail_after(60):
        async with dataspace.connect(daemon.url) as space:
            for name, source, _ in GROUPS:
                found[name] += await take_what_is_here(space, name, source)
            async with space.consume("news($n)", group="live") as jobs:
                await space.send(dataspace.Record("news", 1))
                (job,) = await take(jobs, 1)
                await job.done()


async def do_the_rest(daemon: DaemonProcess, found: dict[str, list[int]]) -> None:
    with trio.fail_after(120):
        async with dataspace.connect(daemon.url) as space:
            for name, source, count in GROUPS:
                async with space.consume(**source, group=name, in_flight=5) as jobs:
                    while len(found[name]) < count:
                        job = await jobs.next_job()
                        assert job is not None
                        await job.done()
                        found[name].append(number_of(job))
            assert not await space.matches("group_lost($, $, $, $)")


@pytest.mark.parametrize("kind", ["a file", "an empty directory"])
def test_groups_wait_for_an_archive_that_is_away(kind: str, archiving: DaemonProcess, tmp_path: Path) -> None:
    publish(archiving, 0, 1)
    trio.run(make, archiving)
    last = write(archiving, 0, PARTS)
    publish(archiving, 1, ITEMS - 1)
    wait(lambda: retained(archiving) <= RETAIN, "what is archived of the topic goes")
    write(archiving, PARTS, MORE)
    wait(gone(archiving, last), "what is archived of the log goes")
    found: dict[str, list[int]] = {name: [] for name, _, _ in GROUPS}
    put_away(tmp_path / "archive", kind)
    trio.run(do_what_is_here, archiving, found)
    archiving.stop()
    archiving.start()
    trio.run(do_what_is_here, archiving, found)
    assert 5 <= len(found["facts"]) < PARTS and 5 <= len(found["items"]) < ITEMS
    put_back(tmp_path / "archive")
    trio.run(do_the_rest, archiving, found)
    assert found == {name: [*range(count)] for name, _, count in GROUPS}
    wait(lambda: status(archiving)["archive"]["error"] == "", "it archives again")
    archiving.stop()
    for name, _, _ in GROUPS:
        assert archiving.errors.count(f"group '{name}'") == 2, "it warns once, and says when it goes on"
