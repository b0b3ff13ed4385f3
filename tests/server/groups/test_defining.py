"""The options of a group change in its definition; dead letters are bounded, and are tried again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map, Record, Refused, RemoteSpace
from server.config.model import Config, Limits
from server.config.principals import Quotas
from server.daemon.serve import serve
from server.logs import AUDIT
from tests.server.groups.test_consuming import JOB, is_idle, job, number_of, take
from tests.server.processes import DaemonProcess


async def alter(space: RemoteSpace, what: str, **arguments: Any) -> Any:
    return await space.request("group-alter", Map({"group": "w", "what": what, **arguments}))


async def status(space: RemoteSpace) -> Any:
    answer: Any = await space.request("groups", Map({"group": "w"}))
    return answer[0]


async def test_a_pause_and_changed_options_outlast_the_daemon(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        async with space.consume(JOB, group="w"):
            await alter(space, "alter", options=Map({"ack_within": 90, "attempts": 3, "window": 5}))
            await alter(space, "pause", why="until noon")
        await space.send(job(1))
        await space.sync()
        daemon.kill()
        daemon.start()
        async with space.consume(group="w", ack_within=90) as jobs:
            found = await status(space)
            assert (found["paused"], found["options"]["paused"]) == (True, "until noon")
            assert [found["options"][name] for name in ("ack_within", "attempts", "window")] == [90, 3, 5]
            assert jobs.ack_within == 90
            assert await is_idle(jobs, space)
            await alter(space, "resume")
            (each,) = await take(jobs, 1)
            await each.done()


async def test_a_member_with_other_options_is_told_so(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", ack_within=20):
        with pytest.raises(Refused, match=r"ack_within=20.0, not 10"):
            async with space.consume(JOB, group="w", ack_within=10):
                pass
        with pytest.raises(Refused, match=r"attempts=5, not 6.*groups alter"):
            async with space.consume(group="w", attempts=6):
                pass
        async with space.consume(JOB, group="w", ack_within=20, attempts=5):
            pass


@pytest.mark.parametrize(
    "options",
    [
        {"key": "id"},
        {"ack_within": 0},
        {"attempts": 1.5},
        {"attempts": True},
        {"window": 0},
        {"backoff": "1"},
    ],
    ids=str,
)
async def test_options_without_a_meaning_are_refused(url: str, options: dict[str, Any]) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w"):
        before = (await status(space))["options"]
        with pytest.raises(Refused, match="bad-request"):
            await alter(space, "alter", options=Map(options))
        assert (await status(space))["options"] == before


async def test_dead_letters_are_tried_again_with_all_their_attempts(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        claim = await space.assert_(job(1))
        async with space.consume(JOB, group="w", start="held", in_flight=3, attempts=2) as jobs:
            await space.send(job(2))
            await space.send(job(3))
            first = await take(jobs, 3)
            for each in first:
                await each.dead(f"why {number_of(each)}")
            rows = await space.matches("dead(_, _, _, job($id, _), $why, $n, $time, $kind)")
            assert sorted((row[0], row[1], row[2], row[4]) for row in rows) == [
                (1, "why 1", 0, "fact"),
                (2, "why 2", 0, "message"),
                (3, "why 3", 0, "message"),
            ]
            assert {row[3] for row in rows} == {each.time for each in first}
            assert await alter(space, "retry", pattern=Record("job", 3, Record("_"))) == 1
            (third,) = await take(jobs, 1)
            assert (third.id, third.attempt, third.is_message) == (first[2].id, 1, True)
            await third.done()
            await space.retract(claim)
            assert await alter(space, "retry") == 2, "one of them is a fact that has gone"
            (second,) = await take(jobs, 1)
            assert second.id == first[1].id
            daemon.kill()
            daemon.start()
            await second.done()
            assert await is_idle(jobs, space)
            assert (await status(space))["dead"] == 0


async def test_what_is_tried_again_outlasts_the_daemon(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        async with space.consume(JOB, group="w", in_flight=3) as jobs:
            for number in range(3):
                await space.send(job(number))
            taken = await take(jobs, 3)
            for each in taken[:2]:
                await each.dead()
            await taken[2].done()
            await alter(space, "pause")
            assert await alter(space, "retry") == 2
        daemon.kill()
        daemon.start()
        async with space.consume(group="w", in_flight=3) as jobs:
            await alter(space, "resume")
            assert [each["id"] for each in await take(jobs, 2)] == [0, 1]
            assert await is_idle(jobs, space)


async def test_a_group_with_too_many_dead_letters_is_paused(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    limits = Limits(group_dead=1)
    (url,) = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), tmp_path / "data", limits=limits))
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=2) as jobs:
        for number in range(2):
            await space.send(job(number))
        for each in await take(jobs, 2):
            await each.dead()
        await space.send(job(2))
        assert await is_idle(jobs, space)
        found = await status(space)
        assert (found["dead"], found["undone"]) == (1, 2), "nothing is dropped"
        assert "limits.group_dead=1" in found["options"]["paused"]
        assert "limits.group_dead=1" in caplog.text and "group-paused" in caplog.text, (
            "as the audit log has it"
        )
        assert await alter(space, "retry", pattern=Record("job", 7, Record("_"))) == 0
        assert await alter(space, "retry") == 1
        await alter(space, "resume")
        assert sorted(map(number_of, await take(jobs, 2))) == [0, 2]  # job 1 waits for half a minute


async def test_the_log_warns_before_dead_letters_pause_a_group(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(group_dead=5)
    (url,) = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), tmp_path / "data", limits=limits))
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=4) as jobs:
        for number in range(4):
            assert "dead letters" not in caplog.text
            await space.send(job(number))
            await (await take(jobs, 1))[0].dead()
        assert "4 dead letters, and is paused at limits.group_dead=5" in caplog.text
        assert not (await status(space))["paused"]


async def test_groups_count_for_who_makes_them(tmp_path: Path, nursery: trio.Nursery) -> None:
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", quotas=Quotas(groups=1))
    (url,) = await nursery.start(serve, config)
    async with dataspace.connect(url) as space:
        async with space.consume(JOB, group="w"), space.consume(group="w"):
            with pytest.raises(Refused, match=r"the limit is quota.groups=1"):
                async with space.consume(JOB, group="other"):
                    pass
        await alter(space, "delete")
        async with space.consume(JOB, group="other"):
            pass


async def test_a_shorter_time_holds_for_jobs_that_are_out(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        async with space.consume(JOB, group="w", ack_within=3600) as jobs:
            await space.send(job(1))
            (each,) = await take(jobs, 1)
            async with other.consume(group="w") as others:
                await alter(space, "alter", options=Map({"ack_within": 0.1}))
                (again,) = await take(others, 1)
                assert (again.id, again.attempt) == (each.id, 2)
