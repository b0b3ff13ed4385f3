"""An operator sees who is connected, and can end a session; nobody else can."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import trio

import dataspace
from dataspace import Map, ProtocolError, Record, Refused
from dataspace.errors import UsageError
from index.values.values import Value
from server.cli.once.sessions import sessions
from server.cli.parser import parse
from server.config.rights import Key, Keys, Rights
from tests.server.monitoring.conftest import OPERATOR, SENSOR, Served
from tests.server.peers import Peer, hello, opening


async def command(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> tuple[int, str]:
    """Runs the command in a thread, beside its daemon; its exit code and what it printed."""
    code = await trio.to_thread.run_sync(sessions, parse(["sessions", *words, "--url", url]))
    out, err = capsys.readouterr()
    return code, out + err


async def rows(space: dataspace.RemoteSpace) -> list[dict[str, object]]:
    answer = await space.request("sessions", Map({}))
    assert isinstance(answer, tuple)
    return [{str(name): value for name, value in each.pairs()} for each in answer if isinstance(each, Map)]


async def test_who_is_connected_and_what_it_costs(guarded: Served) -> None:
    async with (
        dataspace.connect(guarded.url, name="kitchen", token=SENSOR, grace=7.0) as sensor,
        dataspace.connect(guarded.url, name="me", token=OPERATOR) as operator,
    ):
        await sensor.assert_(Record("reading", 1))
        kitchen, me = await rows(operator)
        assert (kitchen["name"], kitchen["principal"], kitchen["state"]) == (
            "kitchen",
            "token:sensor",
            "connected",
        )
        assert (kitchen["turns"], kitchen["grace"], kitchen["space"], kitchen["tls"]) == (1, 7.0, "main", "")
        assert str(kitchen["address"]).startswith("127.0.0.1:")
        rate = kitchen["turns_per_second"]
        assert isinstance(rate, float) and rate > 0
        assert (me["name"], me["requests"]) == ("me", 1)
        async with dataspace.connect(guarded.url, token=OPERATOR, space="system") as system:
            rows_there = await system.matches("connection($number, $address, _, _)")
        at: dict[object, object] = dict(rows_there)  # type: ignore[arg-type]  # pairs
        assert at[kitchen["id"]] == kitchen["address"] and at[me["id"]] == me["address"]


async def test_the_slow_one_is_seen_among_others(served: Served) -> None:
    async with Peer(served.url) as slow, dataspace.connect(served.url) as space:
        await slow.greet()
        await slow.say(opening(1, items=0, size=0))
        await space.sync()
        for n in range(5):
            await space.assert_(Record("reading", n))
        first, second = await rows(space)
        assert (first["name"], first["backlog"], first["streams"]) == ("peer", 6, 1)
        assert isinstance(first["waiting_bytes"], int) and first["waiting_bytes"] > 100
        assert (second["backlog"], second["lag_epochs"]) == (0, 0)


async def test_a_session_is_ended_with_its_facts(served: Served) -> None:
    async with dataspace.connect(served.url) as operator, operator.observe("reading($n)") as seen:
        with pytest.raises(ProtocolError, match="an administrator has ended this session"):
            async with dataspace.connect(served.url, name="noisy", grace=60.0) as noisy:
                await noisy.assert_(Record("reading", 1))
                found = next(each for each in await rows(operator) if each["name"] == "noisy")
                number, name = found["session"], found["id"]
                ended = await operator.request("end-session", Map({"session": number}))
                whose = {"name": "noisy", "principal": "address:127.0.0.1"}
                assert ended == Map({"session": number, "id": name, **whose})
                await trio.sleep_forever()
        with trio.fail_after(10):
            came, went = [await anext(seen) for _ in range(2)]
        assert (came.kind, went.kind) == ("+", "-")
        with pytest.raises(Refused, match=f"there is no session {number}"):
            await operator.request("end-session", Map({"session": number}))


async def test_a_suspended_session_is_ended_as_well(served: Served) -> None:
    async with dataspace.connect(served.url) as operator:
        async with Peer(served.url) as peer:
            await peer.say(hello("~away")._replace(features=Map({"grace": 60_000})))
            await peer.hear()
            peer.reset()
        with trio.fail_after(10):
            while [each["state"] for each in await rows(operator)] != ["connected", "suspended"]:
                await trio.lowlevel.checkpoint()
        number = (await rows(operator))[1]["session"]
        await operator.request("end-session", Map({"session": number}))
        assert len(await rows(operator)) == 1


async def test_rights_are_needed(guarded: Served) -> None:
    async with dataspace.connect(guarded.url, token=SENSOR) as space:
        for verb, told in (("sessions", Map()), ("end-session", Map({"session": 1}))):
            with pytest.raises(Refused) as refused:
                await space.request(verb, told)
            assert refused.value.code == "not-allowed"
    async with dataspace.connect(guarded.url, token=OPERATOR) as space:
        ((own,),) = [[each["session"] for each in await rows(space)]]
        with pytest.raises(Refused, match="is the one that asks"):
            await space.request("end-session", Map({"session": own}))


@pytest.mark.parametrize(
    ("table", "may"),
    [
        ({}, True),
        ({"until": datetime(2090, 1, 1, tzinfo=UTC)}, True),
        ({"stamp": Map({"by": "me"})}, True),
        ({"administer": True}, True),
        ({"inspect": True}, False),
        ({"deny": Map({"administer": True})}, False),
    ],
)
def test_the_right_to_administer_makes_an_administrator(table: dict[str, Value], may: bool) -> None:
    secret = "a secret of 16 characters"
    permit = Keys((Key("one", secret, Rights.read(Map(table))),)).admit(secret)
    if may:
        permit.check_administer("end sessions")
    else:
        with pytest.raises(Refused, match="end sessions"):
            permit.check_administer("end sessions")


async def test_the_command_lists_and_ends(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    async with Peer(served.url) as peer:
        await peer.greet()
        code, told = await command(capsys, served.url)
        assert code == 0
        head, first, second = told.splitlines()
        assert head.split()[:5] == ["session", "name", "principal", "address", "tls"]
        assert first.split()[1:3] == ["peer", "address:127.0.0.1"] and "dataspace sessions" in second
        code, told = await command(capsys, served.url, "--json", "--sort", "waiting")
        by_name = {each["name"]: each for each in map(json.loads, told.splitlines())}
        number = by_name["peer"]["session"]
        code, told = await command(capsys, served.url, "end", str(number))
        assert (code, told) == (0, f"ended session {number}: peer, address:127.0.0.1\n")
        bye = await peer.farewell()
        assert (bye.code, bye.text) == ("ended", "an administrator has ended this session")
    with pytest.raises(UsageError, match="which session is to end"):
        await command(capsys, served.url, "end")
    with pytest.raises(UsageError, match="dataspace sessions end ID"):
        await command(capsys, served.url, "list", "3")
