"""A group is made whole or not at all: whatever ends in the same write, and whoever has its fact already."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio

import dataspace
from dataspace import Map, Record, Refused
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from relay.groups.members import GroupOptions
from server.groups.space.definitions import alter, delete, joined
from server.groups.space.group import stated
from server.groups.space.reading import read_behind
from tests.server.groups.spaces import BareSpace
from tests.server.groups.test_consuming import JOB, job, take
from tests.server.processes import DaemonProcess
from tests.wire_client import ASSERT as WIRE_ASSERT, BYE, HELLO, OPEN, REQUEST, TURN, _pack, capture, record

PATTERN = parse_pattern("job($id)")
FORM = record("job", capture("id"))


def frame(*packet: Any) -> bytes:
    packed = _pack(list(packet))
    return len(packed).to_bytes(4, "big") + packed


@pytest.mark.parametrize("verb", ["consume", "take"])
@pytest.mark.parametrize("end", ["goodbye", "garbage", "nothing"])
async def test_a_session_that_ends_in_the_write_that_makes_a_group_leaves_a_group(
    url: str, verb: str, end: str
) -> None:
    port = int(url.rpartition(":")[2])
    spec = {"kind": "consume", "group": "w", "pattern": FORM}
    opening = (
        frame(OPEN, 1, spec, 100, 1 << 20)
        if verb == "consume"
        else frame(REQUEST, 1, "take", {"group": "w", "pattern": FORM, "wait": 0})
    )
    ending = {"goodbye": frame(BYE, "", ""), "garbage": frame(msgpack.ExtType(9, b"")), "nothing": b""}[end]
    async with dataspace.connect(url) as space:
        for number in range(5):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(
                    frame(HELLO, 1, f"~{verb}{end}{number}", "attacker", {})
                    + frame(TURN, 1, "main", "", [[WIRE_ASSERT, 1, record("x", number)]])
                    + opening
                    + ending
                )
                if end != "nothing":
                    await trio.to_thread.run_sync(raw.recv, 1 << 16)
            async with space.consume("job($id)", group="w") as jobs:
                await space.send(Record("job", number))
                (each,) = await take(jobs, 1)
                await each.done()
            await space.request("group-alter", Map({"group": "w", "what": "delete"}))


async def test_a_group_can_be_made_where_another_owner_has_its_fact(daemon: DaemonProcess) -> None:
    fact = Record("group", "w", parse_pattern(JOB), stated(GroupOptions()))
    async with dataspace.connect(daemon.url) as space:
        await space.assert_(fact, owner="mallory")
        async with space.consume(JOB, group="w") as jobs:
            await space.send(job(1))
            (each,) = await take(jobs, 1)
            daemon.kill()
            daemon.start()
            await each.done()
        async with space.consume(group="w") as jobs:
            await space.send(job(2))
            (each,) = await take(jobs, 1)
            assert each["id"] == 2
            await each.done()
        await space.request("group-alter", Map({"group": "w", "what": "delete"}))
        with pytest.raises(Refused, match="no-group"):
            async with space.consume(group="w"):
                pass


async def test_facts_that_hold_have_names_that_no_row_of_the_log_has(tmp_path: Path) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        fact = Record("group", "w", PATTERN, stated(GroupOptions()))
        facts = [Record("job", 1), Record("job", 2), fact]
        bare.commit("boss", [(ASSERT, number, each) for number, each in enumerate(facts)])
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN, begin="held"))
        held = list(group.state.undone)
        rows = {
            (epoch.number, position)
            for epoch in bare.own_log.read(0)
            for position, _ in enumerate([*epoch.added, *epoch.messages])
        }
        assert len(held) == 2 and not rows & set(held)
        assert all(at <= group.state.read for at in held)
        nursery.cancel_scope.cancel()


async def test_a_maker_that_is_gone_leaves_a_group_for_others(tmp_path: Path) -> None:
    bare = BareSpace(tmp_path)  # whose log is not written yet
    with trio.move_on_after(0.01):
        await joined(bare.groups, ConsumeOptions("w", PATTERN))
    assert "w" in bare.groups.by_name
    bare.commit("boss", [(SEND, Record("job", 1))])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        nursery.start_soon(read_behind, bare.groups)
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN))
        await bare.commits.wait_durable(bare.space.epoch)
        with trio.fail_after(60):
            while not group.state.undone:  # noqa: ASYNC110  # no event says so
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()


async def test_a_group_that_was_defined_twice_is_one_again_with_its_next_change(tmp_path: Path) -> None:
    bare = BareSpace(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bare.commits.run)
        group = await joined(bare.groups, ConsumeOptions("w", PATTERN))
        second = Record("group", "w", PATTERN, stated(GroupOptions(ack_within=7.0)))  # of an earlier version
        bare.commit("group:w", [(ASSERT, bare.space.fresh_handle("group:w"), second)])
        await alter(bare.groups, group, lambda _: GroupOptions(attempts=9))
        (fact,) = bare.space.claims("group:w").values()
        assert isinstance(fact, Record) and fact.fields[2] == stated(GroupOptions(attempts=9))
        await delete(bare.groups, "w")
        assert not bare.space.claims("group:w") and not bare.groups.by_name and not bare.groups.states
        nursery.cancel_scope.cancel()
