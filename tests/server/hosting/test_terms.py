"""Hosted actors have the term of their space, which rises whenever a daemon begins to lead it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.errors import Broken, Unreachable
from tests.server.processes import DaemonProcess, command, running

pytestmark = pytest.mark.slow

SOON = 240
LEASE = "DATASPACE_SERVE_CLUSTER_LEASE"
ACTORS = "".join(
    f"""
[[actors]]
run = "tests.server.rogues:termed"
name = "{name}"
arguments = ["{name}"]
isolate = {isolate}
"""
    for name, isolate in (("within", "false"), ("apart", "true"))
)


class Resource:
    """Something outside of the space, which refuses writers of earlier terms."""

    def __init__(self) -> None:
        self.highest = -1

    def write(self, term: int) -> bool:
        self.highest = max(self.highest, term)
        return term == self.highest


def daemon(data: Path | str, config: Path) -> DaemonProcess:
    config.write_text(ACTORS)
    return DaemonProcess(data, "--config", str(config))


async def hosted_in(daemons: Sequence[DaemonProcess], beyond: int = -1) -> int:
    """The term of both actors, in the daemon and in a process of its own, once that is a later one."""
    while True:
        with suppress(Unreachable, Broken):
            async with dataspace.connect([each.url for each in daemons]) as space:
                found = {str(name): term for name, term in await space.matches("term($name, $n)")}
            within, apart = found.get("within"), found.get("apart")
            if isinstance(within, int) and within == apart and within > beyond:
                return within
        await trio.sleep(0.05)


async def test_the_term_rises_with_each_start_of_a_daemon_and_a_copy_goes_on(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "10m")
    one, resource, last = daemon(tmp_path / "data", tmp_path / "daemon.toml"), Resource(), -1
    with trio.fail_after(SOON):
        for end in (one.kill, one.stop):
            with running(one):
                before, last = last, await hosted_in([one], last)
                assert resource.write(last) and not resource.write(before)
                await trio.to_thread.run_sync(end)
        words = ["log", "copy", "--from", one.place, "--to", postgres_url]
        assert (await command(*words)).returncode == 0
        other = daemon(postgres_url, tmp_path / "daemon.toml")
        with running(other):
            assert resource.write(await hosted_in([other], last))


async def test_the_term_rises_with_a_failover_and_is_the_one_of_the_leader(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE, "8s")
    pair, resource = [daemon(postgres_url, tmp_path / "daemon.toml") for _ in range(2)], Resource()
    with running(*pair), trio.fail_after(SOON):
        old = await hosted_in(pair)
        assert resource.write(old)
        [leader] = [each for each in pair if await leads(each)]
        await trio.to_thread.run_sync(leader.kill)
        [other] = [each for each in pair if each is not leader]
        new = await hosted_in([other], old)
        assert resource.write(new) and not resource.write(old)
        async with dataspace.connect(other.url, space="system") as system:
            while [(new,)] != list(await system.matches('leader("main", _, _, $term, _)')):  # noqa: ASYNC110  # of another process
                await trio.sleep(0.05)


async def leads(daemon: DaemonProcess) -> bool:
    async with dataspace.connect(daemon.url, read="leader") as space:
        return bool((await space.status())["leads"])
