"""Who was away for longer than the log reaches is told so, or shown a difference that says what it is of."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.client import BulkClient
from dataspace.errors import Refused
from relay.log import writer as retaining
from relay.log.retention import Retention
from server.config.model import Config
from server.daemon.serve import serve
from tests.server.proxies import Proxy
from tests.server.streams.test_readers import publish

pytestmark = pytest.mark.slow


@pytest.fixture
async def forgetful(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Proxy]:
    """A daemon that keeps as little as it can, and a link to it that can be cut."""
    monkeypatch.setattr(retaining.retain, "__kwdefaults__", {"every": 0.01})
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path, retention=Retention(age=0.0))
    address = (await nursery.start(serve, config))[0]
    proxy = Proxy(address.replace("tcp:", "tcp://", 1))
    await nursery.start(proxy.run)
    return address, proxy


async def _away(forgetful: tuple[str, Proxy]) -> None:
    """The link is cut until what has happened meanwhile is not held any more."""
    address, proxy = forgetful

    def happen() -> None:
        with BulkClient(address) as link:
            start = link.frontier().epoch
            publish(link, 1, 40)
            while link.frontier().oldest < start + 30:
                pass

    proxy.refusing = True
    proxy.cut()
    await trio.to_thread.run_sync(happen)
    proxy.refusing = False


@pytest.mark.parametrize(
    "options", [{"snapshot": False}, {"policy": "wait"}, {"policy": "fail"}, {"after": 0}], ids=str
)
async def test_every_epoch_was_wanted(forgetful: tuple[str, Proxy], options: dict[str, object]) -> None:
    with trio.fail_after(60):
        async with (
            dataspace.connect(forgetful[1].url) as space,
            dataspace.connect(forgetful[0].replace("tcp:", "tcp://", 1)) as near,
            space.observe("said($n)", **options) as heard,  # type: ignore[call-overload]  # those above
        ):
            heard.open()
            await space.sync()
            await near.assert_(Record("said", 1))
            assert (await anext(heard)).captures == (1,)
            await _away(forgetful)
            await near.assert_(Record("said", 2))
            with pytest.raises(
                Refused, match=r"epoch-gone: epochs after \d+ are wanted, the oldest held is \d+"
            ):
                await anext(heard)


async def _oldest(space: dataspace.RemoteSpace) -> int:
    told = await space.status()
    assert isinstance(told["oldest_epoch"], int)
    return told["oldest_epoch"]


async def test_nothing_is_missing_of_what_was_let_go_while_the_line_held(
    forgetful: tuple[str, Proxy],
) -> None:
    """It was told of nothing since 1, which is gone; but it was told that there was nothing."""
    with trio.fail_after(60):
        async with (
            dataspace.connect(forgetful[1].url, heartbeat=0.2) as space,
            dataspace.connect(forgetful[0].replace("tcp:", "tcp://", 1)) as near,
            space.observe("said($n)", snapshot=False) as heard,
        ):
            await space.sync()
            first = await near.send(Record("said", 1))
            assert (await anext(heard)).captures == (1,)
            last = 0
            while await _oldest(near) <= first:
                last = await near.send(Record("other"))
            while (heard.epochs().statistics().known or 0) < last:
                await near.sync()
            forgetful[1].refusing = True
            forgetful[1].cut()
            await near.send(Record("said", 2))
            forgetful[1].refusing = False
            assert (await anext(heard)).captures == (2,)


async def test_the_state_was_wanted(forgetful: tuple[str, Proxy]) -> None:
    with trio.fail_after(60):
        async with (
            dataspace.connect(forgetful[1].url) as space,
            dataspace.connect(forgetful[0].replace("tcp:", "tcp://", 1)) as near,
        ):
            gone = await near.assert_(Record("said", 1))
            await near.assert_(Record("said", 2))
            async with space.observe("said($n)") as heard:
                state = await heard.next_epoch()
                assert state is not None and sorted(state.added) == [(1,), (2,)]
                forgetful[1].refusing = True
                forgetful[1].cut()
                await near.retract(gone)
                await near.send(Record("said", 9))
                await near.assert_(Record("said", 3))
                await _away(forgetful)
                epoch = await heard.next_epoch()
            assert epoch is not None
            assert (epoch.added, epoch.messages, epoch.removed) == (((3,),), (), ((1,),))
            assert epoch.first == state.number + 1 < epoch.number
