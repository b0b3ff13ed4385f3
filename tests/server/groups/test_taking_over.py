"""A group goes on at the next leader: members keep their jobs, and each job is done once."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import dataspace
from dataspace import Record
from dataspace.kernel.actions import SEND
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from server.config.model import Config
from server.daemon.serve import serve
from server.groups import consuming
from server.groups.space import reading
from server.groups.space.awaiting import AWAITED_SECONDS
from server.groups.space.definitions import joined
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.groups import SETTLE_SECONDS
from server.groups.space.reading import read_behind
from tests.ports import free_port
from tests.server.groups.spaces import BareSpace
from tests.server.processes import DaemonProcess, running
from tests.server.proxies import Proxy

pytestmark = pytest.mark.slow


async def test_members_keep_their_jobs_at_the_next_leader(
    successors: tuple[DaemonProcess, DaemonProcess],
) -> None:
    first, second = successors
    with trio.fail_after(60):
        both = f"{first.url},{second.url}"
        async with dataspace.connect(both, grace=20) as space, dataspace.connect(both, grace=20) as other:
            async with (
                space.consume("job($id)", group="w", in_flight=2) as one,
                other.consume(group="w", in_flight=2) as two,
            ):
                for number in range(8):
                    await space.send(Record("job", number))
                taken = [await _next(jobs) for jobs in (one, one, two, two)]
                await taken[0].done()
                await trio.to_thread.run_sync(first.kill)
                done = [job["id"] for job in taken]
                for job in taken[1:]:
                    async with (space if job in taken[:2] else other).turn(done=[job]) as turn:
                        turn.assert_(Record("result", job["id"]), owner="results")
                while len(done) < 8:
                    for jobs, client in ((one, space), (two, other)):
                        with trio.move_on_after(0.2) as scope:
                            job = await _next(jobs)
                        if scope.cancelled_caught:
                            continue
                        async with client.turn(done=[job]) as turn:
                            turn.assert_(Record("result", job["id"]), owner="results")
                        done.append(job["id"])
                assert sorted(map(repr, done)) == sorted(map(repr, range(8)))
                results = [row[0] for row in await space.matches("result($)")]
                assert sorted(map(repr, results)) == sorted(
                    repr(each) for each in done if each != taken[0]["id"]
                )


async def test_a_turn_waits_for_a_group_that_the_next_leader_still_reads(
    successors: tuple[DaemonProcess, DaemonProcess],
) -> None:
    """The item of the turn is behind so many others that the group has not read it when the turn comes."""
    first, second = successors
    count = 4_000
    with trio.fail_after(90):
        async with (
            dataspace.connect(f"{first.url},{second.url}", grace=30) as space,
            space.consume("job($id)", group="w", key="id", in_flight=count + 1) as jobs,
        ):
            async with space.turn() as turn:
                for number in range(count + 1):
                    turn.send(Record("job", number))
            *taken, last = [await _next(jobs) for _ in range(count + 1)]
            await jobs.done(*taken)
            async with trio.open_nursery() as nursery:
                first.process.send_signal(signal.SIGSTOP)
                nursery.start_soon(_reports, space, last)
                await trio.testing.wait_all_tasks_blocked(0.1)
                await trio.to_thread.run_sync(first.kill)
            assert await space.matches("result($)") == [(1,)]


async def _reports(space: dataspace.RemoteSpace, job: dataspace.Job) -> None:
    async with space.turn(done=[job]) as turn:
        turn.assert_(Record("result", 1), owner="results")


async def _next(jobs: dataspace.Jobs) -> dataspace.Job:
    job = await jobs.next_job()
    assert job is not None  # nothing ends the group
    return job


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_member_that_comes_back_late_keeps_its_job(
    successors: tuple[DaemonProcess, DaemonProcess], nursery: trio.Nursery, comes_back: bool
) -> None:
    """Another member is there long before; it gets the job if the grace of the first member is over."""
    first, second = successors
    with trio.fail_after(60):
        proxies = [Proxy(each.url) for each in successors]
        for each in proxies:
            await nursery.start(each.run)
        async with (
            dataspace.connect(
                ",".join([each.url for each in proxies]), grace=30 if comes_back else 3
            ) as near,
            near.consume("job($id)", group="w", ack_within=300) as mine,
        ):
            await near.send(Record("job", 1))
            job = await _next(mine)
            for each in proxies:
                each.refusing = True
                each.cut()
            await trio.to_thread.run_sync(first.kill)
            async with (
                dataspace.connect(second.url, wait=60) as far,
                far.consume("job($id)", group="w", in_flight=5) as others,
            ):
                await far.send(Record("job", 2))
                with trio.move_on_after(1.3):  # the second of all groups after a start is over
                    raise AssertionError(f"{await _next(others)!r} was handed out")
                if not comes_back:
                    assert [(await _next(others))["id"] for _ in range(2)] == [1, 2]
                    return
                for each in proxies:
                    each.refusing = False
                async with near.turn(done=[job]) as turn:
                    turn.assert_(Record("result", job["id"]), owner="results")
                assert (await _next(others))["id"] == 2
                assert await far.matches("result($id)") == [(1,)]


@pytest.mark.parametrize("quiet", [False, True])
async def test_a_member_keeps_its_job_however_long_groups_read_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, quiet: bool
) -> None:
    """Its group is the last of many, each of which reads for long, and another member is there before it."""
    read_as_ever = reading._portion

    def slowly(*args: Any) -> Any:
        time.sleep(0.4)
        return read_as_ever(*args)

    monkeypatch.setattr(reading, "_portion", slowly)
    first, port = DaemonProcess(tmp_path / "data"), free_port()
    url = f"tcp://127.0.0.1:{port}"
    with trio.fail_after(60), running(first):
        async with dataspace.connect(f"{first.url},{url}", grace=30) as space:
            for number in range(20):
                async with space.consume("other($id)", group=f"other-{number}"):
                    pass
            async with space.consume("job($id)", group="w", quiet=quiet) as mine:
                await space.send(Record("job", 1))
                job = await _next(mine)
                await trio.to_thread.run_sync(first.kill)
                await nursery.start(serve, Config((f"tcp:127.0.0.1:{port}",), tmp_path / "data"))
                async with (
                    dataspace.connect(url, wait=30) as far,
                    far.consume(group="w", in_flight=5) as others,
                ):
                    await job.done()
                    assert not others.ready
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("closes", [True, False])
async def test_a_member_that_is_back_holds_its_group_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    """Its client names an item that there will never be, and closes it, or the group stays behind."""
    goes_on, read_as_ever = threading.Event(), reading._portion
    bare, is_over, got = BareSpace(tmp_path), False, trio.Event()
    groups = bare.groups

    def until_first(log: Any, group: WorkGroup, after: int, upto: int) -> Any:
        if after >= first:
            goes_on.wait()
        return read_as_ever(log, group, after, min(upto, after + 1))

    monkeypatch.setattr(reading, "_portion", until_first)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        group = await joined(groups, ConsumeOptions("w", parse_pattern("w($id)")))
        other = StreamMember(("session:other", 1), 9, "me", lambda *_: got.set(), lambda _: None)
        groups.join(group, other, "session:other", ())
        first = bare.commit("boss", [(SEND, Record("w", 1))]).number
        await bare.commits.wait_durable(first)
        for when in (closes, not closes):
            if when:
                second = bare.commit("boss", [(SEND, Record("w", 2))]).number
                await bare.commits.wait_durable(second)
            else:
                nursery.start_soon(consuming._wait_read, groups, group, (1 << 40, 0), lambda: is_over)
                await trio.testing.wait_all_tasks_blocked()
        assert group in groups.awaited.claimed and not group.state.is_live
        nursery.start_soon(groups.run)
        nursery.start_soon(read_behind, groups)
        try:
            with trio.fail_after(10):
                while closes and group.state.read < (first, 0):  # noqa: ASYNC110  # no event says so
                    await trio.sleep(0.01)
                assert not closes or not got.is_set()
                is_over = closes
                await got.wait()
        finally:
            goes_on.set()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("comes", ["never", "as a member", "with all its streams", "too late"])
async def test_a_group_waits_for_known_sessions_with_its_pattern(
    comes: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.05  # threads read and write meanwhile
    bare, got = BareSpace(tmp_path), dict[str, float]()

    def note(group: WorkGroup, _: object) -> None:
        got.setdefault(group.name, trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        groups = bare.groups
        for name in ("w", "other"):
            await joined(groups, ConsumeOptions(name, parse_pattern(f"{name}($id)")))
        grace = 3.0 if comes == "too late" else 600.0
        awaited = [(f"session:{label}", grace, parse_pattern(f"{label}($id)")) for label in ("w", "x")]
        groups.lead(bare.own_log, was_clean=False, awaited=awaited)
        began = trio.current_time()
        nursery.start_soon(groups.run)
        nursery.start_soon(read_behind, groups)
        for name in ("w", "other"):
            member = StreamMember(("session:new", 1), 1, "me", note, lambda _: None)
            groups.join(groups.find(name), member, "session:new", ())
            bare.commit("boss", [(SEND, Record(name, 1))])
        await bare.commits.wait_durable(bare.space.epoch)
        await trio.sleep(2)
        if comes == "as a member":
            back = StreamMember(("session:w", 1), 1, "me", lambda *_: None, lambda _: None)
            groups.join(groups.find("w"), back, "session:w", ())
            groups.wake()
        elif comes == "with all its streams":
            groups.awaited.expect_no_more("session:w")
        await trio.sleep(10)
        late = {"never": AWAITED_SECONDS, "too late": 3.0}.get(comes, 2.0)
        assert got["other"] - began == pytest.approx(SETTLE_SECONDS, abs=0.3)
        assert got["w"] - began == pytest.approx(late, abs=0.3)
        nursery.cancel_scope.cancel()
