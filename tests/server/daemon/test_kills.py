"""Whatever is killed, no acknowledged epoch is lost, none is seen by half, and no turn takes effect twice.

Real processes, SIGKILL, a real disk.  A killed process does not lose the page cache, so these tests do not
show that acceptance follows the sync: ``tests/relay/store/test_lost_writes.py`` does.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.client import BulkClient
from index.patterns.text import parse_pattern
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

TURNS = 120
SEED = int(os.environ.get("TORTURE_SEED", "1"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path / "data")
    yield process
    if process.process.poll() is None:
        process.kill()


async def _write(url: str, started: trio.Event) -> dict[int, int]:
    """Turns that each replace the fact before by the next and send a message; epoch by number."""
    accepted: dict[int, int] = {}

    async def note(number: int, ticket: dataspace.Ticket) -> None:
        accepted[number] = await ticket.wait()

    async with dataspace.connect(url, owner="the counter") as space, trio.open_nursery() as nursery:
        started.set()
        for number in range(TURNS):
            draft = space.draft()
            if number:
                draft.retract(number)
            draft.assert_(Record("count", number), handle=number + 1)
            draft.send(Record("counted", number))
            ticket = await space.submit(draft)
            nursery.start_soon(note, number, ticket)
            if number % 7 == 0:  # so that there are many groups on the disk, each of a few turns
                await ticket.wait()
    return accepted


def _check(daemon: DaemonProcess, accepted: dict[int, int]) -> None:
    """The log tells the whole story, once, in order, with the epochs that were acknowledged."""
    assert sorted(accepted) == list(range(TURNS))
    with BulkClient(daemon.url) as link:
        newest = link.frontier().epoch
        seen = [
            (part.number, [*part.added], [*part.messages], [*part.removed])
            for pattern in ("count($n)",)
            for part in link.changes(parse_pattern(pattern), after=0, upto=newest)
        ]
        said = [
            (part.number, row[0])
            for part in link.changes(parse_pattern("counted($n)"), after=0, upto=newest)
            for row in part.messages
        ]
    assert seen == [(accepted[n], [(n,)], [], [(n - 1,)] if n else []) for n in range(TURNS)], (
        "each turn whole, once, in order"
    )
    assert said == [(accepted[n], n) for n in range(TURNS)]


@pytest.mark.torture
@pytest.mark.parametrize("round_", range(int(os.environ.get("TORTURE_ROUNDS", "1"))))
@pytest.mark.parametrize("point", ["log-before-write", "log-after-write", "turn-committed", "turn-accepted"])
async def test_a_daemon_killed_at_a_named_point(daemon: DaemonProcess, point: str, round_: int) -> None:
    count = random.Random(f"{SEED} {point} {round_}").randint(2, 9)  # a test's choice
    daemon.start(fault=f"{point}:{count}")
    accepted: dict[int, int] = {}

    async def write() -> None:
        accepted.update(await _write(daemon.url, trio.Event()))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            assert await trio.to_thread.run_sync(daemon.wait) == -signal.SIGKILL
            assert f"fault reached: {point}" in daemon.errors, "the fault must have struck"
            daemon.start()
    _check(daemon, accepted)


@pytest.mark.torture
@pytest.mark.parametrize("round_", range(int(os.environ.get("TORTURE_ROUNDS", "2"))))
async def test_a_daemon_killed_at_random_instants(daemon: DaemonProcess, round_: int) -> None:
    chance = random.Random(f"{SEED} {round_}")  # a test's choice
    daemon.start()
    accepted: dict[int, int] = {}
    done = trio.Event()

    async def write(started: trio.Event) -> None:
        accepted.update(await _write(daemon.url, started))
        done.set()

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            started = trio.Event()
            nursery.start_soon(write, started)
            await started.wait()
            for _ in range(3):
                await trio.sleep(chance.uniform(0.0, 0.06))
                daemon.kill()
                daemon.start()
    _check(daemon, accepted)


async def test_observers_see_no_gap_no_double_and_no_blink_across_a_crash(daemon: DaemonProcess) -> None:
    """Durable facts do not blink: the observer goes on, and its picture is right at the end."""
    daemon.start()
    state: set[int] = set()
    finished = trio.Event()

    async def follow() -> None:
        async with dataspace.connect(daemon.url) as space, space.observe("count($n)") as observation:
            async for epoch in observation.epochs():
                for row in epoch.added:
                    assert row[0] not in state
                    state.add(row[0])  # type: ignore[arg-type]  # a number
                for row in epoch.removed:
                    state.remove(row[0])  # type: ignore[arg-type]  # as above
                if state == {TURNS - 1}:
                    finished.set()
                    return

    async def write() -> None:
        await _write(daemon.url, trio.Event())

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.sleep(0.05)
            nursery.start_soon(write)
            for _ in range(2):
                await trio.sleep(0.05)
                daemon.kill()
                daemon.start()
            await finished.wait()


async def test_after_a_restart_the_facts_of_sessions_are_seen_to_have_gone(daemon: DaemonProcess) -> None:
    daemon.start()
    holder = subprocess.Popen(  # noqa: ASYNC220  # it starts at once
        [
            sys.executable,
            "-m",
            "dataspace",
            "assert",
            "--url",
            daemon.url,
            'present("Alice")',
            'present("Bob")',
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stderr is not None  # a pipe, as asked for
    assert "asserted 2 facts" in holder.stderr.readline()
    daemon.kill()
    holder.kill()
    holder.communicate()
    daemon.start()
    with BulkClient(daemon.url) as link:
        parts = list(link.changes(parse_pattern("present($who)"), after=0, upto=link.frontier().epoch))
    assert [(sorted(map(str, part.added)), sorted(map(str, part.removed))) for part in parts] == [
        (["('Alice',)", "('Bob',)"], []),
        ([], ["('Alice',)", "('Bob',)"]),
    ]
    assert parts[1].number > parts[0].number + 1, "numbers that may have been given out are not used again"


async def test_a_killed_client_takes_its_facts_along_in_one_turn(daemon: DaemonProcess) -> None:
    daemon.start()
    async with dataspace.connect(daemon.url) as space, space.observe("present($who)") as observation:
        await observation.next_epoch()
        holder = subprocess.Popen(  # noqa: ASYNC220  # it starts at once
            [
                sys.executable,
                "-m",
                "dataspace",
                "assert",
                "--url",
                daemon.url,
                'present("Alice")',
                'present("Bob")',
            ],
            stderr=subprocess.DEVNULL,
        )
        came = await observation.next_epoch()
        assert came is not None and len(came.added) == 2
        holder.send_signal(signal.SIGKILL)
        gone = await observation.next_epoch()
        assert gone is not None and sorted(gone.removed) == [("Alice",), ("Bob",)]
        holder.wait()


def test_a_daemon_stopped_by_a_signal_ends_cleanly_and_forgets_nothing(daemon: DaemonProcess) -> None:
    for sequence, number in enumerate((signal.SIGTERM, signal.SIGINT), 1):
        daemon.start()
        with BulkClient(daemon.url) as link:
            before = link.frontier()
            link.stage(("a",), [("assert", Record("kept", int(number)))])
            epoch = link.publish([("a",)], client="test", sequence=sequence, owner="me")
            assert epoch == before.epoch + 1, "a clean stop wastes no numbers"
        daemon.process.send_signal(number)
        assert daemon.wait() == 0
        assert daemon.errors == f"dataspace: {number.name}, stopping\n"


def test_a_second_daemon_on_the_same_data_is_refused(daemon: DaemonProcess) -> None:
    daemon.start()
    other = DaemonProcess(daemon.data)
    with pytest.raises(AssertionError, match="is in use by process"):
        other.start()
