"""A daemon archives its durable topics, lets go of what is archived, and readers see no border."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Refused
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.topics import topic_epochs, topic_frontier, topic_number
from dataspace.client.completed import CompletedEpoch, TopicFrontier
from dataspace.errors import Broken, Unreachable
from relay.archive.archive import only_archive, topics_in
from relay.archive.verifying import verify_archive
from relay.objects.opening import open_objects
from tests.server.archiving.test_archiving_daemons import children, command, status, wait
from tests.server.processes import STARTING, DaemonProcess, follower, running

pytestmark = pytest.mark.slow
pytest.importorskip("zstandard", reason="the extra `archive` is not installed")

RETAIN = 64 << 10
PAYLOAD = "x" * 2_000


@pytest.fixture
def archiving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """A daemon that archives every step soon."""
    monkeypatch.setenv("DATASPACE_SERVE_LOG_ARCHIVE_EVERY", "0.1")
    monkeypatch.setenv("TRIMS_EVERY", "0.2")
    words = ("--archive", str(tmp_path / "archive"))
    process = DaemonProcess(tmp_path / "data", *words, program=STARTING)
    process.start()
    yield process
    process.stop()


def publish(daemon: DaemonProcess, first: int, count: int) -> None:
    """Completes some epochs of one item; the number of an epoch is the item and one more."""

    async def publishing() -> None:
        options: Any = {"durable": True, "retain": RETAIN, "name": "meter", "away": 30.0}
        async with dataspace.connect(daemon.url) as space, space.publish("t", **options) as topic:
            for number in range(first, first + count):
                await topic.finish((number, PAYLOAD), then=number + 1)

    trio.run(publishing)


def behind(daemon: DaemonProcess) -> int:
    return int(status(daemon)["archive"]["topics_behind_epochs"])


def retained(daemon: DaemonProcess) -> int:
    with BulkClient(daemon.url) as link:
        found: Any = link.request("lookup", {"topic": "t", "detail": True})
        return int(found["retained_bytes"])


def frontier(daemon: DaemonProcess) -> TopicFrontier:
    with BulkClient(daemon.url) as link:
        return topic_frontier(link, "t")


def number_in(items: Any) -> int:
    return int(items[0][0])


def numbers(daemon: DaemonProcess, after: int, upto: int) -> list[int]:
    """The items of some completed epochs."""
    with BulkClient(daemon.url) as link:
        known = topic_frontier(link, "t")
        found: list[CompletedEpoch] = list(topic_epochs(link, "t", id=known.id, after=after, upto=upto))
        assert [each.number for each in found] == [*range(after + 1, upto + 1)]
        return [number_in(each.items) for each in found]


def subscribed(daemon: DaemonProcess, as_of: int, count: int) -> list[int]:
    """The items that a subscriber gets from a time on."""

    async def reading() -> list[int]:
        async with dataspace.connect(daemon.url) as space, space.subscribe("t", as_of=as_of) as subscription:
            with trio.fail_after(60):
                return [number_in((await anext(subscription)).items) for _ in range(count)]

    return trio.run(reading)


def divided(daemon: DaemonProcess, start: Any, count: int, group: str) -> list[int]:
    """The items that a new group has from its beginning on, each reported as done."""

    async def consuming() -> list[int]:
        async with dataspace.connect(daemon.url) as space:
            async with space.consume(topic="t", group=group, start=start, in_flight=20) as jobs:
                found: list[int] = []
                with trio.fail_after(60):
                    while len(found) < count and (job := await jobs.next_job()) is not None:
                        assert (job.epoch, job.position) == (job.topic_time + 1, 0)  # type: ignore[operator]  # a number
                        await job.done()
                        found.append(number_in([job["item"]]))
                return found

    return trio.run(consuming)


def test_a_group_divides_what_only_the_archive_has(archiving: DaemonProcess) -> None:
    publish(archiving, 0, 150)
    wait(lambda: retained(archiving) <= RETAIN, "what is archived goes")
    assert divided(archiving, 1, 100, "first") == [*range(100)]
    archiving.kill()
    archiving.start()
    assert divided(archiving, 1, 50, "first") == [*range(100, 150)]
    assert divided(archiving, 30, 121, "second") == [*range(29, 150)]
    past = datetime.now(UTC) - timedelta(days=1)
    assert divided(archiving, past, 150, "third") == [*range(150)]


def test_readers_of_a_topic_see_no_border(archiving: DaemonProcess, tmp_path: Path) -> None:
    publish(archiving, 0, 150)
    wait(lambda: retained(archiving) <= RETAIN, "what is archived goes")
    expected = [*range(150)]
    assert frontier(archiving).oldest == 1
    assert numbers(archiving, 0, 150) == expected
    assert subscribed(archiving, 0, 150) == expected
    archiving.kill()
    archiving.start()
    assert frontier(archiving).oldest == 1
    assert numbers(archiving, 3, 150) == expected[3:]
    assert subscribed(archiving, 7, 143) == expected[7:]
    publish(archiving, 150, 60)
    wait(lambda: retained(archiving) <= RETAIN, "that goes as well")
    assert numbers(archiving, 0, 210) == [*range(210)]
    assert subscribed(archiving, 0, 210) == [*range(210)]
    with BulkClient(archiving.url) as link:
        known = topic_frontier(link, "t")
        for time in (0, 1, 77, 209):
            assert topic_number(link, "t", id=known.id, time=time) == time
    with running(other := follower(archiving.data, "--archive", str(tmp_path / "archive"))):
        assert numbers(other, 0, 210) == [*range(210)]
        assert subscribed(other, 0, 210) == [*range(210)]
    shown = command("log", "verify", "--archive", str(tmp_path / "archive"), "--deep")
    assert 'topic "t": completed epochs 1 to ' in shown
    listed = command("log", "files", str(tmp_path / "archive"), "--topic", "t", "--json").splitlines()
    assert json.loads(listed[0])["first"] == 1 and ".dsz" in listed[0]


def test_no_step_is_missed_wherever_the_process_is_killed(archiving: DaemonProcess, tmp_path: Path) -> None:
    killed: set[int] = set()
    for turn in range(3):
        publish(archiving, 40 * turn, 40)
        wait(lambda: bool({*children(archiving)} - killed), "the process runs")
        for each in {*children(archiving)} - killed:
            os.kill(each, signal.SIGKILL)
            killed.add(each)
    wait(lambda: retained(archiving) <= RETAIN, "what is archived goes")
    assert numbers(archiving, 0, 120) == [*range(120)]
    archive = only_archive(open_objects(tmp_path / "archive"), "main")
    (topic,) = topics_in(archive)
    assert verify_archive(topic, deep=True).damages == ()
    steps = [step[0] for each in topic.segments(0, topic.upto) for step in each.every_entry()]
    assert steps == [*range(1, topic.upto + 1)]


def test_a_topic_goes_on_while_its_archive_is_away(archiving: DaemonProcess, tmp_path: Path) -> None:
    publish(archiving, 0, 100)
    wait(lambda: retained(archiving) <= RETAIN, "what is archived goes")
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    (tmp_path / "archive").write_text("no directory")
    publish(archiving, 100, 60)
    assert 0 < behind(archiving) <= 160
    with pytest.raises(Refused, match="archive-away"):
        numbers(archiving, 0, 100)
    with pytest.raises(Refused, match="archive-away"):
        subscribed(archiving, 0, 1)
    assert numbers(archiving, 110, 160) == [*range(110, 160)]
    archiving.stop()
    archiving.start()
    assert 1 < frontier(archiving).oldest <= 101, "what is not archived stays"
    with pytest.raises(Refused, match="archive-away"):
        numbers(archiving, 0, 100)
    (tmp_path / "archive").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "archive")
    wait(lambda: retained(archiving) <= RETAIN, "it is archived later")
    wait(lambda: behind(archiving) == 0, "all of it")
    assert numbers(archiving, 0, 160) == [*range(160)]


def test_over_a_store_the_next_leader_goes_on(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_LOG_ARCHIVE_EVERY", "0.1")
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "2s")
    monkeypatch.setenv("TRIMS_EVERY", "0.2")
    prefix = str(tmp_path / "archive")
    one, two = [DaemonProcess(postgres_url, "--archive", prefix, program=STARTING) for _ in range(2)]
    with running(one, two):
        publish(one, 0, 100)
        wait(lambda: retained(one) <= RETAIN, "what is archived goes")
        for each in (one, two):
            assert numbers(each, 0, 100) == [*range(100)]
            assert subscribed(each, 3, 97) == [*range(3, 100)]
        one.kill()

        def goes_on() -> bool:
            with suppress(Broken, Unreachable, Refused):
                publish(two, 100, 60)
                return True
            return False

        wait(goes_on, "the other daemon leads")
        wait(lambda: retained(two) <= RETAIN, "and archives")
        assert numbers(two, 0, 160) == [*range(160)]
        assert subscribed(two, 0, 160) == [*range(160)]
        assert 'topic "t": epochs 1 to ' in command("log", "archive", prefix, "--data", postgres_url)
    assert "DAMAGED" not in command("log", "verify", "--archive", prefix, "--deep")
