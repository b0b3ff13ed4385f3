"""What is asked for in the write of a goodbye, or was before a session came back, is nobody's in the end."""

from __future__ import annotations

from pathlib import Path

import trio

from dataspace.wire import packets as p
from index.patterns.text import parse_pattern
from index.values.values import Map
from server.topics.part import TOPICS
from tests.server.peers import PLENTY
from tests.server.streams.inside import Inside, Wire, inside

CONSUMED = parse_pattern("job($id)")


async def test_a_producer_that_joins_and_says_goodbye_is_none(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        for name in ("memory", "disk"):
            wire = daemon.connect()
            await wire.greet()
            asked = Map({"topic": name, "durable": name == "disk"})
            await wire.say(p.Request(1, "join", asked), p.Bye("", ""))
            while await wire.hear() is not None:
                pass
        assert not list(daemon.daemon.parts[TOPICS].catalogue)


async def _greeted(daemon: Inside, **features: object) -> tuple[Wire, p.Welcome]:
    wire = daemon.connect()
    await wire.say(p.Hello(p.VERSION, "~worker", "worker", Map({"grace": 60_000, **features})))
    welcome = await wire.hear()
    assert isinstance(welcome, p.Welcome)
    return wire, welcome


async def test_a_member_that_is_refused_when_it_comes_back_has_no_interest(tmp_path: Path) -> None:
    async with inside(tmp_path) as daemon:
        wire, welcome = await _greeted(daemon)
        spec = Map({"kind": "consume", "group": "g", "pattern": CONSUMED})
        await wire.say(p.Open(1, spec, PLENTY, PLENTY))
        while not isinstance(await wire.hear(), p.Values):
            pass
        interests = parse_pattern("Observe($)")
        assert len(list(daemon.hosted.space.matches(interests))) == 1
        wire.link.close()
        await trio.testing.wait_all_tasks_blocked(0.05)
        back, again = await _greeted(daemon, resume=(welcome.session, welcome.features["secret"]))
        assert again.features["resumed"] is True
        await back.say(p.Open(1, Map({**dict(spec.pairs()), "in_flight": 0}), PLENTY, PLENTY))
        assert isinstance(await back.hear(), p.Error)
        assert not list(daemon.hosted.space.matches(interests))
