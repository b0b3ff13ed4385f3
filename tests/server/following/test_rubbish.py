"""A follower takes whatever clients send: each packet is answered, refused, or ends the connection."""

from __future__ import annotations

import logging
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace.wire import packets as p
from server.config.model import Config, Follow
from server.daemon.serve import serve
from tests.abuse.generating import Script
from tests.abuse.tenants import ATTACKERS
from tests.server.peers import Peer, fact

CONNECTIONS = 200 if "TORTURE_ROUNDS" in os.environ else 60
PACKETS = 20
SOON = 60


@pytest.mark.slow
@pytest.mark.torture
async def test_no_packet_is_a_defect(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    listen = ("tcp:127.0.0.1:0",)
    (leader,) = await nursery.start(serve, Config(listen, tmp_path))
    (follower,) = await nursery.start(serve, Config(listen, tmp_path, follow=Follow(tmp_path)))
    chance = random.Random(1)
    kinds: set[type] = set()
    with caplog.at_level(logging.WARNING), trio.fail_after(SOON):
        for number in range(CONNECTIONS):
            script = Script(replace(chance.choice([*ATTACKERS.values()]), token="", space="main"), chance)
            async with Peer(follower) as peer:
                await peer.greet(f"~{number}")
                for _ in range(PACKETS):
                    packet = script.packet()
                    if isinstance(packet, p.Request) and packet.verb == "drain":
                        continue  # everybody may here, and it ends
                    kinds.add(packet.__class__)
                    await peer.say(packet)
                await peer.say(p.Bye("", ""))
                with trio.move_on_after(5):
                    await peer.rest()
        async with dataspace.connect(leader) as space, dataspace.connect(follower, read="any") as reader:
            await space.assert_(fact(1))
            while not await reader.matches("fact($n)"):  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert {p.Turn, p.Open, p.Request, p.Offer, p.Produce} <= kinds
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
