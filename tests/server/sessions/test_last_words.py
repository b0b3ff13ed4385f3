"""What a client was to be sent reaches it, also where its socket does not take all of it at once: when the
client has ended its own sending, and when the daemon sends it away."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from dataspace.kernel.actions import ASSERT
from dataspace.transport.sockets import SocketLink
from dataspace.wire import packets as p
from index.values.values import Map, Record
from server.config.model import Config
from server.daemon.serve import serve
from tests.server.peers import EVERYTHING, Peer, turn

FACTS = 100
REQUESTS = 4
BUFFER = 4_096
"""Bytes that each end of the connection keeps, about: less than one answer."""


@pytest.fixture
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = SocketLink.__init__

    def begin_small(link: SocketLink, connected: socket.socket) -> None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        begin(link, connected)

    monkeypatch.setattr(SocketLink, "__init__", begin_small)


@pytest.mark.usefixtures("_small_buffers")
@pytest.mark.parametrize("loop", ["task", "auto"])
@pytest.mark.parametrize("end", ["half-closed", "drained"])
async def test_a_client_that_reads_late_hears_all_answers(tmp_path: Path, loop: str, end: str) -> None:
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        config = Config(("tcp:127.0.0.1:0",), tmp_path, loop=loop)
        (address,) = await nursery.start(lambda **told: serve(config, ending=ending, **told))
        async with Peer(address.replace(":", "://", 1), window=BUFFER) as peer:
            await peer.greet()
            await peer.say(turn(1, *[(ASSERT, n, Record("fact", n, "x" * 500)) for n in range(FACTS)]))
            assert isinstance(await peer.hear(), p.Accepted)
            asked = Map({"pattern": EVERYTHING, "most": FACTS})
            await peer.say(*[p.Request(number, "owners", asked) for number in range(REQUESTS)])
            await trio.sleep(0.2)  # its buffers are full by now
            if end == "half-closed":
                await peer.socket.send_eof()
            else:
                ending.set()
            await trio.sleep(0.2)
            heard = await peer.rest()
        ending.set()
    answers = [each for each in heard if isinstance(each, p.Answer)]
    assert sorted([each.number for each in answers]) == list(range(REQUESTS))
    assert isinstance(heard[-1], p.Bye) == (end == "drained")
