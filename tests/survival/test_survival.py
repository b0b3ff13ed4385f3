"""Programs written as in the guide see no exception, whatever befalls daemon, store and connection.

Each client runs programs that make the calls that the guide shows.  A fault strikes before the k-th packet of
each of them at once: for each k (``make torture``), or for one k of the commonest faults.  What the programs
do is judged by themselves and by the log: it happens once, in order.  An error is allowed where it says
whether its call has happened: ``with_async.py`` and ``without_async.py`` name the calls.

Each call of the Python client with a daemon that dies, in virtual time, is in ``tests/generated/deaths.py``.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import dataspace
from tests.conformance.driving import MODULE, node
from tests.conformance.vectors import FOLDER
from tests.postgres.servers import Servers
from tests.survival import faults, with_async, without_async
from tests.survival.faults import FAULTS, Fault, Home, Line, strike
from tests.survival.sites import PATIENCE, Site

pytestmark = pytest.mark.slow

Run = Callable[[Site], Coroutine[Any, Any, int]]


def _under_trio(program: with_async.Program) -> Run:
    async def run(at: Site) -> int:
        return await program(at)

    return run


def _under_asyncio(program: with_async.Program) -> Run:
    async def run(at: Site) -> int:
        async def limited() -> int:
            async with asyncio.timeout(PATIENCE):
                return await program(at)

        return await trio.to_thread.run_sync(lambda: asyncio.run(limited()))

    return run


def _in_a_thread(program: Callable[[Site], int]) -> Run:
    async def run(at: Site) -> int:
        return await trio.to_thread.run_sync(program, at, abandon_on_cancel=True)

    return run


def _in_node(program: str) -> Run:
    async def run(at: Site) -> int:
        words = (MODULE.as_uri(), (FOLDER / "drivers" / "tcp.mjs").as_uri(), program)
        command = [node(), str(Path(__file__).with_name("programs.mjs")), *words]
        done = await trio.run_process(
            [*command, ",".join(at.urls), at.tag, str(at.grace)],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return int(done.stdout)

    return run


CLIENTS: Final[dict[str, dict[str, Run]]] = {
    "trio": {name: _under_trio(each) for name, each in with_async.PROGRAMS.items()},
    "asyncio": {name: _under_asyncio(each) for name, each in with_async.PROGRAMS.items()},
    "blocking": {name: _in_a_thread(each) for name, each in without_async.BLOCKING.items()},
    "bulk": {name: _in_a_thread(each) for name, each in without_async.BULK.items()},
    "javascript": {name: _in_node(name) for name in ("facts", "turns", "live", "jobs", "topics")},
}
PROGRAMS: Final = [(client, name) for client, programs in CLIENTS.items() for name in programs]

GRACES: Final = (20.0, 0.0)
"""Seconds that a session outlives its connection: clients have one or the other by turns."""


@asynccontextmanager
async def _home(kind: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Home]:
    made: AbstractAsyncContextManager[Home]
    if kind == "cluster":
        servers: Servers = request.getfixturevalue("servers")
        server = await trio.to_thread.run_sync(lambda: servers.new().start())
        made = faults.cluster(server, len(PROGRAMS))
    else:
        made = getattr(faults, kind)(folder, len(PROGRAMS))
    async with made as home:
        yield home


async def _lived(run: Run, site: Site, wrong: list[str]) -> int | None:
    """Returns what a program returns; notes what it raises."""
    what = f"{site.tag}, grace {site.grace:g}"
    with trio.move_on_after(PATIENCE):
        try:
            return await run(site)
        except Exception:  # noqa: BLE001  # each is judged
            wrong.append(f"{what}: {traceback.format_exc()}")
            return None
    wrong.append(f"{what}: not over within {PATIENCE:g} s")
    return None


async def _judge(home: Home, sent: dict[str, int], began: int) -> list[str]:
    """Returns what is wrong in the log: what a program has sent is there once, in its order."""
    found: dict[Any, list[Any]] = {tag: [] for tag in sent}
    async with dataspace.connect(home.leader.url) as space:
        upto = await space.sync()
        async with space.observe("sent($tag, $n)", after=began, upto=upto, quiet=True) as past:
            async for change in past:
                tag, number = change.captures
                if tag in found:
                    found[tag].append(number)
    return [
        f"{tag}: it has sent {count} messages, and in the log are {found[tag]}"
        for tag, count in sent.items()
        if found[tag] != [*range(count)]
    ]


async def _struck(home: Home, fault: Fault, at: int) -> tuple[bool, list[str]]:
    """Runs all programs with a fault before a packet of each; returns whether any came to it, and what is
    wrong."""
    wrong: list[str] = []
    sent: dict[str, int] = {}
    async with dataspace.connect(home.leader.url) as space:
        began = await space.sync()

    async def live(line: Line, client: str, program: str) -> None:
        grace = GRACES[(at + list(CLIENTS).index(client)) % 2]
        site = Site(home.urls(line), f"{client}-{program}-{at}-{fault.__name__}", grace)
        count = await _lived(CLIENTS[client][program], site, wrong)
        line.struck.set()
        if count is not None:
            sent[site.tag] = count

    async with trio.open_nursery() as nursery:
        for line, (client, program) in zip(home.lines, PROGRAMS, strict=True):
            line.begin(at)
            nursery.start_soon(live, line, client, program)
        has_struck = await strike(home, fault)
    wrong += await _judge(home, sent, began)
    return has_struck, [f"{fault.__name__} before packet {at}: {each}" for each in wrong]


@pytest.mark.torture(long=True)
@pytest.mark.parametrize(
    ("kind", "fault"), FAULTS, ids=[f"{kind}-{fault.__name__}" for kind, fault in FAULTS]
)
async def test_a_fault_before_each_packet(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, fault: Fault
) -> None:
    found: list[str] = []
    async with _home(kind, tmp_path, request) as home:
        at, has_struck = 1, True
        while has_struck:
            has_struck, wrong = await _struck(home, fault, at)
            found += wrong
            at += 1
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("kind", "strikes"),
    [
        ("alone", [(faults.cut, 12), (faults.kill, 21), (faults.drain, 28)]),
        ("pair", [(faults.kill, 16)]),
    ],
    ids=["alone", "pair"],
)
async def test_the_commonest_faults(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, strikes: list[tuple[Fault, int]]
) -> None:
    found: list[str] = []
    async with _home(kind, tmp_path, request) as home:
        for fault, at in strikes:
            has_struck, wrong = await _struck(home, fault, at)
            assert has_struck
            found += wrong
    assert not found, "\n".join(found)
