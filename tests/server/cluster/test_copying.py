"""A home copied into another one is the same: its past, topics, sessions and batches; and it is served on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.space import RemoteSpace
from index.values.values import Map
from relay.backup.copies import CopyPace
from server.cli.main import main
from tests import warm
from tests.postgres.servers import Server
from tests.server.cluster.contents import content
from tests.server.processes import DaemonProcess, running

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
pytestmark = pytest.mark.slow

SPACES = ("main", "plant")
HOSTED = ("--host-space", "plant")
TURNS = 30
PATIENCE = 150


@pytest.fixture
def other_url(postgres: Server, postgres_url: str) -> Iterator[str]:
    """The address of a second schema."""
    with postgres.schema() as name:
        yield postgres.url(name)


async def used(daemon: DaemonProcess) -> None:
    """Makes turns in each space, topics, a staged batch, and a session that may come back; kills it then."""
    for name in SPACES:
        async with dataspace.connect(daemon.url, space=name, owner="map") as space:
            for n in range(TURNS):
                await space.assert_(Record("here", name, n))
            await staged(space, "batch")
    async with dataspace.connect(daemon.url) as space, space.publish("readings", durable=True) as topic:
        for n in range(TURNS):
            await topic.send(n)
            await topic.advance(n + 1)
    async with trio.open_nursery() as nursery, dataspace.connect(daemon.url, grace=600) as space:
        await space.assert_(Record("here", "away", 0))
        await trio.to_thread.run_sync(daemon.kill)
        nursery.cancel_scope.cancel()


async def staged(space: RemoteSpace, key: str) -> None:
    """Stages two parts under a key."""
    for n in range(2):
        operations = (("assert", Record("n", n)),)
        await space.request("stage", Map({"key": (key,), "operations": operations}))


def copied(source: Path | str, target: Path | str, *more: str, status: int = 0) -> None:
    """Runs the command."""
    words = ["log", "copy", "--from", str(source), "--to", str(target), "--quiet", *more]
    assert main(words) == status


def struck(source: Path | str, target: Path | str, point: str) -> None:
    """Runs the command in a process of its own, which is killed at a point."""
    words = ["log", "copy", "--from", str(source), "--to", str(target), "--quiet"]
    env = os.environ | {"DATASPACE_FAULT": point}
    done = warm.run(*words, env=env)
    assert f"fault reached: {point.partition(':')[0]}" in done.stderr


async def counted(daemon: DaemonProcess, *, away: int = 1) -> None:
    """A daemon has all facts of each space, those of so many sessions that may come back, and the topic; it
    takes turns.
    """
    for name in SPACES:
        async with dataspace.connect(daemon.url, space=name, owner="map") as space:
            assert len(await space.matches("here($x, $n)")) == TURNS + away * (name == "main")
            claim = await space.assert_(Record("else", 1))
            await space.retract(claim)
    async with dataspace.connect(daemon.url) as space:
        async with space.subscribe("readings", as_of=0) as epochs:
            async for epoch in epochs:
                if epoch.time == TURNS - 1:
                    break


async def test_a_home_is_copied_there_and_back_and_served_on(
    tmp_path: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, back = tmp_path / "data", tmp_path / "back"
    daemon = DaemonProcess(first, *HOSTED)
    with trio.fail_after(PATIENCE * 2):
        daemon.start()
        await used(daemon)
        before = content(first)
        copied(first, postgres_url)
        assert "every checksum verified" in capsys.readouterr().out
        assert content(postgres_url) == before
        assert content(first) == before, "the source is as it was"
        assert len(before["main"][8]) == 1, "a session that may come back"
        for space in SPACES:
            assert main(["log", "verify", "--data", postgres_url, "--space", space]) == 0
        daemon = DaemonProcess(postgres_url, *HOSTED)
        with running(daemon):
            await counted(daemon)
            copied(postgres_url, tmp_path / "beside")  # as of a moment
        before = content(postgres_url)
        assert before["main"][2] > content(first)["main"][2]
        copied(postgres_url, back)
        assert content(back) == before
        daemon = DaemonProcess(back, *HOSTED)
        with running(daemon):
            await counted(daemon)


async def test_one_space_is_copied_alone(tmp_path: Path, postgres_url: str, other_url: str) -> None:
    daemon = DaemonProcess(tmp_path / "data", *HOSTED)
    with trio.fail_after(PATIENCE):
        daemon.start()
        await used(daemon)
    copied(tmp_path / "data", postgres_url, "--space", "plant")
    before = content(tmp_path / "data")
    assert content(postgres_url) == {"plant": before["plant"], "topics": []}
    copied(tmp_path / "data", postgres_url, "--space", "main")
    assert content(postgres_url) == before
    copied(postgres_url, other_url)
    assert content(other_url) == before


def test_a_target_that_is_used_is_refused(
    tmp_path: Path,
    postgres_url: str,
    other_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "10m")
    daemon = DaemonProcess(tmp_path / "data")
    led = DaemonProcess(other_url)
    with running(daemon, led):
        copied(tmp_path / "data", postgres_url, status=1)
        assert "process" in capsys.readouterr().err, "the daemon that holds the directory"
        daemon.stop()
        copied(tmp_path / "data", other_url, status=2)
        assert "leads space 'main' of the target: end the daemons" in capsys.readouterr().err
    copied(tmp_path / "data", other_url, status=2)
    assert "is not empty" in capsys.readouterr().err
    copied(tmp_path / "data", tmp_path, status=2)
    assert "is not empty" in capsys.readouterr().err
    copied(tmp_path / "nothing", postgres_url, status=2)
    assert "there is no log in" in capsys.readouterr().err
    copied(tmp_path / "data", postgres_url, "--space", "else", status=2)
    assert "there is no log of space 'else'" in capsys.readouterr().err
    copied(tmp_path / "data", postgres_url)
    copied(tmp_path / "data", postgres_url, status=2)
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("way", "point"),
    [
        ("to a store", "copy-portion:1"),
        ("to a store", "copy-before-header:2"),
        ("to a directory", "copy-before-header:1"),
    ],
)
async def test_a_copy_that_was_killed_is_nothing_to_start_with_and_goes_on(
    tmp_path: Path, postgres_url: str, other_url: str, way: str, point: str
) -> None:
    source: Path | str
    target: Path | str
    source, target = tmp_path / "data", other_url
    daemon = DaemonProcess(source, *HOSTED)
    with trio.fail_after(PATIENCE * 2):
        daemon.start()
        await used(daemon)
        if way == "to a directory":
            copied(source, postgres_url)
            source, target = postgres_url, tmp_path / "target"
        before = content(source)
        struck(source, target, point)
        part = target if isinstance(target, str) else tmp_path / "target.partial"
        with pytest.raises(AssertionError, match="is a copy that has not ended"):
            DaemonProcess(part, *HOSTED).start()
        copied(source, target)
        assert content(target) == before


def test_a_copy_that_was_interrupted_says_what_there_is(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    with running(daemon), dataspace.connect_blocking(daemon.url, owner="map") as space:
        space.assert_(Record("here", 1))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CopyPace, "spent", interrupted)
        copied(tmp_path / "data", postgres_url, status=1)
    said = capsys.readouterr().err
    assert "interrupted; what was copied is kept" in said and "secret" not in said
    copied(tmp_path / "data", postgres_url)
    assert content(postgres_url) == content(tmp_path / "data")
