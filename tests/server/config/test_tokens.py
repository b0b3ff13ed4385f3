"""A daemon with tokens lets in who has one, allows what it is good for, and a stranger costs little."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import ProtocolError, Record, Refused
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.packed import Pairs
from dataspace.transport.tokens import narrow
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.values.values import Map, Value
from server.config.model import Config, Limits
from server.config.rights import Key, Rights
from server.connections import dispatch
from server.daemon.serve import serve
from tests.server.peers import Peer

ADMIN, SENSOR, READER = "the secret of the admin", "the secret of a sensor", "the secret of a reader"
RIGHTS: dict[str, dict[str, Value]] = {
    "sensor": {"assert": ("reading(_, _)",), "send": ("alarm(_)",)},
    "reader": {"observe": ("reading(_)",), "readers": ("nightly",)},
}


@pytest.fixture
async def url(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[str]:
    keys = (
        Key("admin", ADMIN),
        Key("sensor", SENSOR, Rights.read(Map(RIGHTS["sensor"]))),
        Key("reader", READER, Rights.read(Map(RIGHTS["reader"]))),
    )
    limits = Limits(hello_seconds=0.5, strangers=20)
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path, keys=keys, limits=limits)
    addresses = await nursery.start(serve, config)
    yield addresses[0]


async def _refused(url: str, token: str) -> str:
    with pytest.raises(ProtocolError) as raised:
        async with dataspace.connect(url, token=token):
            pass
    assert raised.value.code == "unauthorized"
    return raised.value.text


async def test_who_has_none_or_a_wrong_one_is_told_so(url: str) -> None:
    with trio.fail_after(10):
        assert "this daemon requires a token" in await _refused(url, "")
        wrong = await _refused(url, "a secret of somebody else's")
        assert wrong == "the token is unknown to this daemon"
        assert await _refused(url, "ds1.rubbish") == "the token is damaged"

        def link() -> None:
            BulkClient(url, token="wrong")

        with pytest.raises(ProtocolError, match="unauthorized"):
            await trio.to_thread.run_sync(link)


async def test_who_has_one_may_do_what_it_is_good_for(url: str) -> None:
    with trio.fail_after(10):
        async with (
            dataspace.connect(url, token=SENSOR) as sensor,
            dataspace.connect(url, token=READER) as reader,
            dataspace.connect(url, token=ADMIN) as admin,
        ):
            await sensor.assert_(Record("reading", "d1", 21.5))
            assert await reader.matches("reading($device, $value)") == [("d1", 21.5)]
            for doing, said in [
                (sensor.assert_(Record("present", "me")), 'does not allow to assert present("me")'),
                (sensor.send(Record("reading", "d1", 1.0)), "does not allow to send reading"),
                (sensor.matches("reading($d, $v)"), "does not allow to observe reading"),
                (sensor.assert_(Record("rule", "r", "a($x) <- b($x).")), "does not allow to add rules"),
                (reader.assert_(Record("reading", "d2", 1.0)), "does not allow to assert"),
                (reader.matches("present($who)"), "does not allow to observe present($who)"),
                (reader.request("index", Map()), "does not allow to ask for the index"),
                (reader.request("lease", Map({"owner": "lease:1000:x"})), "does not allow to hold facts"),
            ]:
                with pytest.raises(Refused) as raised:
                    await doing
                assert raised.value.code == "not-allowed" and said in raised.value.text
            await admin.assert_(Record("rule", "hot", "hot($d) <- reading($d, $v), $v > 20.0."))
            assert await admin.matches("hot($d)") == [("d1",)]
            assert await admin.request("index", Map())


async def test_what_is_staged_is_looked_at_as_well(url: str) -> None:
    with trio.fail_after(10):
        async with dataspace.connect(url, token=SENSOR) as sensor:
            with pytest.raises(Refused, match="does not allow to assert other"):
                await sensor.stage(("k",), [("assert", Record("other", 1))])

    def by_rows() -> None:
        with BulkClient(url, token=SENSOR) as link:
            link.stage(("k",), [("assert", Record("reading", "d", 1.0))])
            with pytest.raises(Refused, match="not allow to assert other"):
                inline = Pairs([("assert", Record("other", 1))]).packed()
                link.publish([inline], client="c", sequence=1, owner="lease:1000:mine")
            with pytest.raises(Refused, match="does not allow to assert other"):
                link.stage(("k",), [("assert", Record("other", 1))])
            with pytest.raises(Refused, match="speak for the durable owner 'me'"):
                link.publish([("k",)], client="me", sequence=1, owner="me")

    await trio.to_thread.run_sync(by_rows)


async def test_only_a_reader_that_is_listed_holds_the_log(url: str) -> None:
    def acknowledge(token: str, reader: str) -> None:
        with BulkClient(url, token=token) as link:
            link.acknowledge(reader, link.frontier().epoch)

    with trio.fail_after(10):
        await trio.to_thread.run_sync(acknowledge, READER, "nightly")
        await trio.to_thread.run_sync(acknowledge, ADMIN, "weekly")
        with pytest.raises(Refused, match="does not allow to speak for reader 'weekly'"):
            await trio.to_thread.run_sync(acknowledge, READER, "weekly")
        async with dataspace.connect(url, token=narrow(ADMIN, Map({"topics": ("t",)}))) as space:
            asked = {"topic": "t", "id": 1, "reader": "nightly", "number": 1}
            with pytest.raises(Refused, match="does not allow to speak for reader 'nightly'"):
                await space.request("topic-acknowledge", Map(asked))


async def test_identities_and_owners_that_last_need_a_right(url: str) -> None:
    with pytest.raises(ProtocolError, match="speak for the durable owner 'board'"):
        async with dataspace.connect(url, token=SENSOR, client="board"):
            pass
    reading = Record("reading", "d", 1.0)
    with trio.fail_after(10):
        async with dataspace.connect(url, token=SENSOR, owner="board") as sensor:
            with pytest.raises(Refused, match="speak for the durable owner 'board'") as raised:
                await sensor.assert_(reading)
            assert raised.value.code == "not-allowed"
        async with dataspace.connect(url, token=ADMIN, owner="board") as board:
            assert await board.matches(reading) == []
            await board.assert_(Record("notice", 1))


async def test_two_tokens_narrowed_from_one_secret_are_two_bearers(url: str) -> None:
    kitchen, hall = (narrow(ADMIN, Map({"name": name})) for name in ("kitchen", "hall"))
    others = [
        ADMIN,
        SENSOR,
        hall,
        narrow(kitchen, Map({"assert": True})),
        narrow(hall, Map({"name": "kitchen"})),
    ]
    async with dataspace.connect(url, token=kitchen, client="~mine") as mine:
        await mine.assert_(Record("still", "here"))
        for other in others:
            with pytest.raises(ProtocolError, match="has connected with another token"):
                async with dataspace.connect(url, token=other, client="~mine"):
                    pass
        await mine.assert_(Record("and", "goes on"))
        assert await mine.matches("still($x)") == [("here",)]
        assert mine.reconnects == 0
    async with dataspace.connect(url, token=hall, client="~mine") as theirs:
        await theirs.assert_(Record("and", "another"))


async def test_a_token_that_is_renewed_under_its_name_is_the_same_bearer(url: str) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    caveats: list[dict[str, Value]] = [{"name": "kitchen"}, {"name": "kitchen", "until": until}]
    async with Peer(url) as first, Peer(url) as second:
        for peer, caveat in zip((first, second), caveats, strict=True):
            wanted = Wanted(token=narrow(ADMIN, Map(caveat)))
            await peer.say(p.Hello(p.VERSION, "~mine", "", wanted.packed()))
            assert isinstance(await peer.hear(), p.Welcome)
        assert (await first.farewell()).code == "superseded"


@pytest.mark.parametrize("name", ["", "a/b", "#1", "a b", "x" * 65, 7])
async def test_the_name_of_a_caveat_is_a_word(url: str, name: Value) -> None:
    assert "a name or a stamp is" in await _refused(url, narrow(ADMIN, Map({"name": name})))


async def test_a_narrowed_token_is_good_for_less_and_for_as_long_as_it_says(url: str) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    narrower = narrow(narrow(ADMIN, Map({"observe": ("p(_)",)})), Map({"until": soon}))
    with trio.fail_after(10):
        with pytest.raises(ProtocolError, match=f"the token expired at {soon:%Y-%m-%dT%H:%M:%SZ}"):
            async with dataspace.connect(url, token=narrower) as space:
                assert await space.matches("p($x)") == []
                with pytest.raises(Refused, match="not-allowed: the token narrowed from 'admin' does not"):
                    await space.matches("q($x)")
                await trio.sleep_forever()
        assert "the token expired at" in await _refused(url, narrower)
        named = narrow(narrow(ADMIN, Map({"name": "gate"})), Map({"observe": ("p(_)",)}))
        async with dataspace.connect(url, token=named) as space:
            with pytest.raises(
                Refused, match="the token 'gate' narrowed from 'admin' does not allow to observe"
            ):
                await space.matches("q($x)")


async def test_the_epoch_of_an_answer_shows_whether_a_fact_was_there(url: str) -> None:
    """As SECURITY.md says, under *What is not promised*."""
    async with (
        dataspace.connect(url, token=ADMIN) as admin,
        dataspace.connect(url, token=SENSOR) as sensor,
    ):
        await admin.assert_(Record("reading", 1, 42))
        before = await admin.sync()
        assert await _asserted(sensor, Record("reading", 1, 42)) == before
        assert await _asserted(sensor, Record("reading", 1, 43)) == before + 1


async def _asserted(space: dataspace.RemoteSpace, fact: Record) -> int:
    draft = space.draft()
    draft.assert_(fact)
    return await space.commit(draft)


async def test_a_clock_that_is_set_forward_ends_what_has_expired(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "CLOCK_SECONDS", 0.01)
    ahead = timedelta()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls.fromtimestamp((datetime.now(tz) + ahead).timestamp(), tz)

    monkeypatch.setattr(dispatch, "datetime", Clock)
    tomorrow = narrow(ADMIN, Map({"until": datetime.now(UTC) + timedelta(hours=23)}))
    with trio.fail_after(10), pytest.raises(ProtocolError, match="the token expired at"):
        async with dataspace.connect(url, token=tomorrow) as space:
            await space.sync()
            ahead = timedelta(days=1)  # as a clock does that was a day late when the session began
            await trio.sleep_forever()


async def test_no_token_is_ever_written_down(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with dataspace.connect(url, token=ADMIN) as space:
        await space.assert_(Record("x", 1))
        assert ADMIN not in str(await space.status())
    await _refused(url, "a wrong secret of mine")
    assert "secret" not in caplog.text
    for holder in (Wanted(token=ADMIN), Key("admin", ADMIN)):
        assert ADMIN not in repr(holder)


async def test_a_flood_of_strangers_is_bounded_in_number_and_time(url: str) -> None:
    """Those without a hello have a few places, for half a second here, and who has come in is served on."""
    async with dataspace.connect(url, token=ADMIN) as space:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                ends: list[str] = []
                for at in range(60):
                    nursery.start_soon(_loiter, url, at, ends)
                await trio.sleep(0.1)
                told = await space.status()
                assert isinstance(told["sessions"], int) and told["sessions"] <= 21
                await space.assert_(Record("served", "on"))
        assert ends.count("limit") >= 30
        assert set(ends) <= {"limit", "timeout", "unauthorized"}
        assert space.reconnects == 0
    async with dataspace.connect(url, token=ADMIN) as again:
        assert await again.matches("served($x)") == []


async def _loiter(url: str, at: int, ends: list[str]) -> None:
    """One that says nothing, or guesses; who is turned away while it speaks may only see a reset."""
    async with Peer(url) as peer:
        if at % 2:
            guess = Wanted(token=f"guess number {at}").packed()
            await peer.say(p.Hello(p.VERSION, f"~{at}", "", guess))
        try:
            ends.append((await peer.farewell()).code)
        except (AssertionError, IndexError):
            ends.append("limit")
