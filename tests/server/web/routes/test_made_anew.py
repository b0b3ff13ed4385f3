"""What resumes checks the identity of what it resumes on: after a space or a topic was made anew, no id and
no position that a program has kept leads into the other one.

The same numbers are used before and after, so that none is refused for being still to come.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from dataspace import Record, Refused, connect
from tests.server.web.routes.callers import EventSource, HttpDaemon, record

LONG_BEFORE = "0123456789abcdef"
"""The beginning of an identity that nothing has."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[HttpDaemon]:
    daemon = HttpDaemon(tmp_path / "data")
    daemon.start()
    yield daemon
    assert daemon.stop() == 0


def make_anew(daemon: HttpDaemon) -> None:
    """Has the daemon begin with an empty directory, at the same addresses."""
    daemon.stop()
    shutil.rmtree(daemon.data)
    daemon.start()


def fill(daemon: HttpDaemon, what: str) -> int:
    """Asserts ten facts in ten epochs; returns the last epoch."""
    return [daemon.put(Record("p", f"{what}{n}")) for n in range(10)][-1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda daemon, at: EventSource(daemon, "p($)", after=at),
        lambda daemon, at: EventSource(daemon, "p($)", last=at, policy="wait"),
    ],
)
def test_an_epoch_of_another_space_is_refused(
    daemon: HttpDaemon, ask: Callable[[HttpDaemon, str], EventSource]
) -> None:
    epoch = daemon.put(Record("p", "refused"))
    source = ask(daemon, f"{epoch}-{LONG_BEFORE}")
    assert (source.status, b"epoch-lost" in source.response.read()) == (410, True)
    source.close()
    tag = daemon.get("/v1/spaces/main/facts", pattern="p($)").headers["etag"].strip('"')
    with EventSource(daemon, "p($)", after=f"0-{tag.partition('-')[2]}") as source:
        assert source.next().data


def test_a_line_of_the_log_is_asked_for_with_the_identity_of_its_space(daemon: HttpDaemon) -> None:
    epoch = daemon.put(Record("line", 1))
    tag = daemon.get("/v1/spaces/main/facts", pattern="p($)").headers["etag"].strip('"').partition("-")[2]
    found = daemon.get("/v1/spaces/main/log", pattern="line($n)", from_=f"{epoch}-{tag}").lines()
    assert [each["epoch"] for each in found] == [epoch]
    wrong = daemon.get("/v1/spaces/main/log", pattern="line($n)", from_=f"{epoch}-{LONG_BEFORE}").problem()
    assert wrong[:2] == (410, "epoch-lost")


async def test_a_client_states_of_which_space_its_epoch_is(daemon: HttpDaemon) -> None:
    epoch = await trio.to_thread.run_sync(daemon.put, Record("kept", 1))
    async with connect(daemon.url) as space:
        assert space.welcome is not None
        here = space.welcome.space
        async with space.observe("kept($n)", after=epoch - 1, identity=here) as changes:
            async for change in changes:
                assert change.epoch == epoch
                break
        async with space.observe("kept($n)", after=epoch - 1, identity=LONG_BEFORE) as changes:
            with pytest.raises(Refused, match="epoch-lost"):
                await anext(aiter(changes))


async def test_completed_epochs_are_of_the_topic_whose_number_was_kept(daemon: HttpDaemon) -> None:
    for at in range(3):
        await trio.to_thread.run_sync(
            daemon.call, "POST", "/v1/topics/completed", {"items": [record("p", at)]}
        )
    async with connect(daemon.url) as space:
        first = space.completed("completed", upto=1)
        assert [each.number async for each in first] == [1]
        more = space.completed("completed", after=1, id=first.id)
        assert [each.number async for each in more] == [2, 3]
        with pytest.raises(Refused, match="no-topic"):
            await anext(space.completed("completed", after=1, id=(first.id or 0) - 1))


@pytest.mark.slow
async def test_a_client_that_has_seen_nothing_yet_does_not_begin_in_the_space_that_was_made_anew(
    own: HttpDaemon,
) -> None:
    epoch = await trio.to_thread.run_sync(fill, own, "old")
    async with connect(own.url) as space, space.observe("p($what)", after=epoch) as changes:
        await space.sync()
        await trio.to_thread.run_sync(make_anew, own)
        await trio.to_thread.run_sync(fill, own, "new")
        with pytest.raises(Refused, match="epoch-lost"):
            await anext(aiter(changes))
