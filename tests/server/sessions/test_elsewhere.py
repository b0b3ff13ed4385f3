"""A refusal, a failed stream and a goodbye have the address of the daemon to ask instead."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT
from dataspace.version import compiled_parts
from dataspace.wire import packets as p
from index.values.values import Map
from server.connections.dispatch import SERVED
from server.sessions.peer import PEERS
from server.spaces.space import HostedSpace
from tests.server.peers import fact, hello, opening, turn
from tests.server.streams.inside import inside

LEADER = "tcp://leader.example:7377"
SAID = ("elsewhere", "this daemon follows another one", LEADER)


def _follows(*_args: object, **_options: object) -> NoReturn:
    raise Refused(*SAID)


@pytest.mark.skipif("sessions" in compiled_parts(), reason="methods of machine code cannot be replaced")
async def test_turns_streams_and_requests_are_refused_with_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet()
        monkeypatch.setattr(HostedSpace, "check_space", _follows)
        plain = turn(1, (ASSERT, 1, fact(1)))
        await wire.say(plain, plain._replace(expected=((0, fact(1)),)))
        code, text, url = SAID
        for _ in range(2):
            assert await wire.hear() == p.Refusal(1, code, text, Map(), url)
        await wire.say(opening())
        assert await wire.hear() == p.Error(1, code, text, url)
        verbs = daemon.daemon.parts[SERVED].verbs
        assert isinstance(verbs, dict)  # the peer has the same
        verbs["lease"] = _follows
        await wire.say(p.Request(1, "lease", Map({"owner": "lease:1000:x"})))
        assert await wire.hear() == p.Denied(1, code, text, Map(), url)


async def test_a_hello_is_answered_with_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside(tmp_path) as daemon:
        monkeypatch.setattr(type(daemon.daemon), "find_space", _follows)
        wire = daemon.connect()
        await wire.say(hello())
        assert await wire.hear() == p.Bye(*SAID)
        assert await wire.hear() is None


async def test_a_session_is_ended_with_an_address(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        wire = daemon.connect()
        await wire.greet()
        (peer,) = daemon.daemon.parts[PEERS].values()
        peer.dismiss("moved", "another daemon leads", LEADER)
        assert await wire.hear() == p.Bye("moved", "another daemon leads", LEADER)
        assert await wire.hear() is None
