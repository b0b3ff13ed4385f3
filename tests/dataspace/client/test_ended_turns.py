"""A turn object that is used after its block is refused, in each client: nothing it did would be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.session.turns import Draft
from dataspace.errors import UsageError
from dataspace.kernel.actions import SEND
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

FACT = Record("fact", 1)
VERBS: dict[str, Callable[[Draft], object]] = {
    "assert_": lambda turn: turn.assert_(FACT),
    "assert_ for an owner": lambda turn: turn.assert_(FACT, owner="ops"),
    "retract": lambda turn: turn.retract(1),
    "replace": lambda turn: turn.replace(1, FACT),
    "put": lambda turn: turn.put(FACT, by="fact(_)"),
    "withdraw": lambda turn: turn.withdraw("fact(_)"),
    "send": lambda turn: turn.send(FACT),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    daemon = DaemonProcess(Path(tmp_path_factory.mktemp("ended")) / "data")
    with running(daemon):
        yield daemon.url


def _check(turn: Draft) -> None:
    for act in VERBS.values():
        with pytest.raises(UsageError, match="this turn has ended with its block, and nothing more"):
            act(turn)
    assert not turn.others and turn.actions == [(SEND, Record("inside"))]


async def _play(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.turn() as turn:
            turn.send(Record("inside"))
        _check(turn)
        with pytest.raises(ZeroDivisionError):
            async with space.turn() as failed:
                failed.send(Record("inside"))
                raise ZeroDivisionError
        _check(failed)
        draft = space.draft()  # which has no block, and is committed when its program says so
        draft.assert_(FACT)
        await space.commit(draft)
        assert await space.matches("fact($n)") == [(1,)]


def test_trio(url: str) -> None:
    trio.run(_play, url)


def test_asyncio(url: str) -> None:
    asyncio.run(_play(url))


def test_blocking(url: str) -> None:
    with dataspace.connect_blocking(url) as space:
        with space.turn() as turn:
            turn.send(Record("inside"))
        _check(turn)
        with pytest.raises(ZeroDivisionError), space.turn() as failed:
            failed.send(Record("inside"))
            raise ZeroDivisionError
        _check(failed)
