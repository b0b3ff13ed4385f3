"""The memory of a daemon: bounded by what is accounted, stated, and given back to the system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Map, Record, Refused
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.wire import packets as p
from index.patterns.text import parse_pattern
from relay.log.cursors import RowCounts
from server.sessions.memory import Memory, _group_limits, available, give_back, resident_bytes
from server.spaces.measures import memory_parts
from tests.server.peers import turn
from tests.server.processes import DaemonProcess
from tests.server.streams.inside import inside

MIB = 1 << 20
FACT = 4096
EACH = 200


def test_growth_beyond_the_limit_is_refused_by_its_name_until_there_is_room() -> None:
    used = 0
    memory = Memory(1_000, 100, lambda: {"facts": used})
    memory.admit(1, 400)
    memory.admit(1, 400)
    used = 800
    memory.admit(1, 100)
    used = 900
    with pytest.raises(Refused, match=r"limit: 1001 bytes of memory in use, the limit is limits.memory=1000"):
        memory.admit(1, 1)
    used = 500
    memory.admit(1, 400)
    assert memory.used == 1_000, "what was let go is seen before anything is refused"


def test_without_a_setting_it_is_half_of_what_there_is() -> None:
    assert Memory(0, 0, dict).limit == available() // 2
    assert 0 < available() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert resident_bytes() > MIB


@pytest.mark.parametrize(
    ("lines", "files", "found"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "700", "memory.max": "800"}, [700, 800]),
        (
            "4:memory:/a\n3:cpuset:/a\n0::/",
            {"memory/a/memory.limit_in_bytes": "500", "memory/memory.limit_in_bytes": "900"},
            [500, 900],
        ),
        ("0::/gone", {}, []),
    ],
)
def test_the_memory_of_control_groups(
    tmp_path: Path, lines: str, files: dict[str, str], found: list[int]
) -> None:
    own = tmp_path / "own"
    own.write_text(lines)
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert _group_limits(own, tmp_path / "root") == found
    assert _group_limits(tmp_path / "none", tmp_path) == []


def test_what_is_freed_is_given_back() -> None:
    blocks = [os.urandom(FACT) for _ in range(25_000)]
    held = resident_bytes()
    kept = blocks[::100]
    del blocks
    give_back()
    assert held - resident_bytes() > 60 * MIB
    assert len(kept) == 250


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    monkeypatch.setenv("DATASPACE_SERVE_LIMITS_MEMORY", "150MiB")
    process = DaemonProcess(tmp_path / "data")
    process.start()
    yield process
    assert process.stop() == 0


async def _figures(space: dataspace.RemoteSpace) -> dict[str, int]:
    told = await space.status()
    return {str(name): value for name, value in told.pairs() if value.__class__ is int}


@pytest.mark.slow
async def test_a_full_daemon_refuses_growth_and_serves_reading_and_retracting(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as bully, dataspace.connect(daemon.url) as other:
        claim = await other.assert_(Record("small", 1))
        before = await _figures(other)
        assert before["memory_limit"] == 150 * MIB
        claims: list[object] = []
        with pytest.raises(Refused, match=rf"limits.memory={150 * MIB}"), trio.fail_after(60):
            while True:
                draft, first = bully.draft(), 1 + len(claims) * EACH
                for at in range(EACH):
                    draft.assert_(Record("big", len(claims), at, "x" * FACT), handle=first + at)
                await bully.commit(draft)
                claims.append(draft)
        full = await _figures(other)
        assert len(claims) > 5
        assert 0.8 * 150 * MIB < full["memory_accounted_bytes"] <= 150 * MIB
        assert full["memory_bytes"] < 2 * full["memory_accounted_bytes"]
        with pytest.raises(Refused, match=r"limits\.memory="):
            await other.assert_(Record("big", "x" * 3_000_000))
        assert await other.matches("small($n)") == [(1,)], "reading goes on"
        await other.retract(claim)
        draft = bully.draft()
        for handle in range(1, 1 + len(claims) * EACH):
            draft.retract(handle)
        await bully.commit(draft)
        await other.assert_(Record("big", "x" * 3_000_000))
        with trio.fail_after(60):
            while (now := await _figures(other))["memory_bytes"] > full["memory_bytes"] - 30 * MIB:  # noqa: ASYNC110  no event tells
                await trio.sleep(0.1)
        assert now["memory_accounted_bytes"] < full["memory_accounted_bytes"] / 2


async def test_a_daemon_without_a_byte_left_can_be_read(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        writer, reader = daemon.connect(), daemon.connect()
        await writer.greet("~writer")
        await writer.say(turn(1, (ASSERT, 1, Record("small", 1))))
        assert isinstance(await writer.hear(), p.Accepted)
        await reader.greet("~reader")
        memory = daemon.daemon.memory
        memory.refresh()
        memory.limit = memory.used
        await writer.say(turn(2, (ASSERT, 2, Record("small", 2))))
        assert isinstance(refused := await writer.hear(), p.Refusal)
        assert refused.code == "limit"
        for number, quiet in ((1, True), (3, False)):
            spec = Map({"kind": "observe", "pattern": parse_pattern("small($n)"), "quiet": quiet})
            await reader.say(p.Open(number, spec, 1, 1 << 20))
            while not isinstance(heard := await reader.hear(), p.Values):
                assert isinstance(heard, p.Reached)
            assert heard.stream == number


async def test_what_is_kept_of_the_past_is_accounted(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet("~writer")
        before = memory_parts(daemon.hosted)["past"]
        for sequence in range(1, 101):
            await wire.say(turn(sequence, (SEND, Record("said", sequence, "x" * 1_000))))
        while daemon.hosted.commits.durable < 100:
            assert isinstance(await wire.hear(), p.Accepted)
        grown = memory_parts(daemon.hosted)["past"] - before
        assert grown == daemon.hosted.commits.recent.bytes > 200_000
        bag = RowCounts()
        bag.change([("x" * 1_000, at) for at in range(100)], ())
        daemon.hosted.log.cursors.leave("p", 1, bag)
        assert memory_parts(daemon.hosted)["past"] - before == grown + bag.bytes


async def _parts(url: str) -> dict[str, int]:
    async with dataspace.connect(url) as space:
        told = await space.status()
    assert isinstance(told["memory_parts"], Map)
    parts = {str(name): size for name, size in told["memory_parts"].pairs() if isinstance(size, int)}
    assert sum(parts.values()) == told["memory_accounted_bytes"]
    return parts


@pytest.mark.slow
async def test_the_parts_add_up_and_what_a_client_made_grow_is_given_back(daemon: DaemonProcess) -> None:
    before = await _parts(daemon.url)
    async with dataspace.connect(daemon.url) as space:
        await space.assert_(Record("held", "x" * 5_000))
        await space.assert_(Record("rule", "r", "derived($x) <- held($x)"))
        async with (
            space.observe("held($x)") as seen,
            space.consume("job($n)", group="work") as jobs,
            space.publish("steps", retain=100_000) as publication,
        ):
            await seen.__anext__()
            for n in range(20):
                await space.send(Record("job", n))
            await jobs.__anext__()
            await publication.finish("x" * 5_000, then=1)
            await publication.flush()
            during = await _parts(daemon.url)
    grown = {name for name, size in during.items() if size > before[name]}
    assert grown == {"facts", "patterns", "rules", "identities", "groups", "past", "topics", "connections"}
    with trio.fail_after(60):
        while True:
            after = await _parts(daemon.url)
            left = {name for name, size in after.items() if size > before[name]}
            if left <= {
                "facts",
                "patterns",
                "groups",
                "past",
                "identities",
            }:  # the definition of the group, and its jobs
                break
            await trio.sleep(0.05)
    assert after["facts"] < during["facts"]
