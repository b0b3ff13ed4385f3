"""Who may settle a job: the member that had it last, with the rights that are needed to get it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import DeliveryLost, Map, Record, Refused, RemoteSpace
from dataspace.transport.tokens import narrow
from server.config.model import Config, Limits
from server.config.rights import Key
from server.daemon.serve import serve
from tests.server.groups.test_beginnings import frame
from tests.server.groups.test_consuming import JOB, job, take
from tests.server.groups.test_defining import status
from tests.server.processes import DaemonProcess
from tests.wire_client import ACCEPTED, ASSERT, HELLO, REFUSAL, TURN, _unpack as unpack, record

BOSS = "the secret of the boss"


async def settle(space: RemoteSpace, *cells: tuple[int, ...], verb: str = "done") -> Any:
    return await space.request("settle", Map({"group": "w", verb: cells}))


async def until_members(space: RemoteSpace, count: int) -> None:
    with trio.fail_after(20):
        while (await status(space))["members"] != count:  # noqa: ASYNC110  # no event says so
            await trio.sleep(0.005)


def turn_with(url: str, token: str, cell: tuple[int, ...]) -> list[Any]:
    """Returns the answer to a turn that reports a job of another connection as done."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw:
        turn: tuple[Any, ...] = (
            TURN,
            1,
            "main",
            "",
            [[ASSERT, 1, record("x", 1)]],
            [],
            [],
            "",
            [["w", list(cell)]],
        )
        raw.sendall(frame(HELLO, 1, "~other", "other", {"token": token}) + frame(*turn))
        said = raw.makefile("rb")
        while True:
            packet: list[Any] = unpack(said.read(int.from_bytes(said.read(4), "big")))
            if packet[0] in (ACCEPTED, REFUSAL):
                return packet


async def test_a_job_that_does_not_exist_yet_cannot_be_done(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        async with space.consume(JOB, group="w"):
            pass
        for _ in range(2):
            daemon.stop()
            daemon.start()
            await space.sync()
        async with space.consume(group="w", in_flight=2) as jobs:
            await space.send(job(0))
            (first,) = await take(jobs, 1)
            epoch = await space.sync()
            for ahead in (1, 2, 50, 1 << 40):
                for token in (0, 1, first.token - 1, first.token, first.token + 1):
                    with pytest.raises(DeliveryLost):
                        await settle(space, (epoch + ahead, 0, token))
            await first.done()
            await space.send(job(1))
            (second,) = await take(jobs, 1)
            assert second["id"] == 1
            await second.done()


async def test_a_job_that_waits_is_done_by_the_member_that_had_it_last(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w") as jobs:
        await space.send(job(1))
        (busy,) = await take(jobs, 1)
        waiting = await space.send(job(2))
        await space.sync()
        for token in range(busy.token - 3, busy.token + 4):
            with pytest.raises(DeliveryLost):
                await settle(space, (waiting, 0, token))
        await busy.done()
        (second,) = await take(jobs, 1)
        assert second["id"] == 2
        await second.again(after=3600)
        await settle(space, (second.epoch, second.position, second.token))
        assert (await status(space))["undone"] == 0


async def test_to_settle_needs_the_rights_that_are_needed_to_get_jobs(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", keys=(Key("boss", BOSS),))
    (url,) = await nursery.start(serve, config)
    topics = Map({"subscribe": True})
    narrowed = narrow(BOSS, Map({"groups": ("w",), "assert": ("x(_)",), "topics": topics}))
    async with (
        dataspace.connect(url, token=BOSS) as boss,
        boss.consume(JOB, group="w") as jobs,
        dataspace.connect(url, token=narrowed) as space,
    ):
        await boss.send(job(1))
        (each,) = await take(jobs, 1)
        cell = (each.epoch, each.position, each.token)
        for verb in ("done", "again", "dead", "extend"):
            with pytest.raises(Refused, match="not-allowed"):
                await settle(space, cell, verb=verb)
        refusal = await trio.to_thread.run_sync(turn_with, url, narrowed, cell)
        assert refusal[:3] == [REFUSAL, 1, "not-allowed"]
        for more in ({"topic": "x"}, {"options": Map({"attempts": 9})}):
            with pytest.raises(Refused) as caught:  # and not how the group differs from that
                await space.request("take", Map({"group": "w", "wait": 0, **more}))
            assert caught.value.code == "not-allowed"
        await each.done()


@pytest.mark.slow
async def test_requests_for_jobs_are_members_while_their_connection_is_there(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    config = Config(("tcp:127.0.0.1:0",), tmp_path / "data", limits=Limits(group_members=8))
    (url,) = await nursery.start(serve, config)
    taking = Map(
        {"group": "w", "pattern": Record("job", Record("$", "id", None, Record("_"))), "wait": 60_000}
    )
    async with dataspace.connect(url) as space:
        await space.request("take", Map({**dict(taking.pairs()), "wait": 0}))
        async with dataspace.connect(url) as other, trio.open_nursery() as waiting:
            for _ in range(8):
                waiting.start_soon(other.request, "take", taking)
            await until_members(space, 8)
            with pytest.raises(Refused, match=r"limits.group_members=8"):
                async with space.consume(group="w"):
                    pass
            waiting.cancel_scope.cancel()
        await until_members(space, 0)
        async with space.consume(group="w"):
            pass
        await space.send(Record("job", 1))
        answer: Any = await space.request("take", Map({**dict(taking.pairs()), "wait": 5_000}))
        (epoch, position, _, token, *_), *_ = answer["jobs"]
        assert (await status(space))["members"] == 1, "it has a job"
        await settle(space, (epoch, position, token))
        assert (await status(space))["members"] == 0


@pytest.mark.slow
async def test_many_jobs_are_settled_in_one_request(url: str) -> None:
    async with dataspace.connect(url) as space, space.consume(JOB, group="w", in_flight=500) as jobs:
        async with space.turn() as turn:
            for number in range(300):
                turn.send(job(number))
        taken = await take(jobs, 300)
        cells = [(each.epoch, each.position, each.token) for each in taken]
        await settle(space, *cells[:100], verb="dead")
        await settle(space, *cells[100:200], verb="again")
        await settle(space, *cells[200:])
        found = await status(space)
        assert (found["dead"], found["undone"]) == (100, 100)
        assert await space.request("group-alter", Map({"group": "w", "what": "retry"})) == 100
        found = await status(space)
        assert (found["dead"], found["undone"]) == (0, 200)
