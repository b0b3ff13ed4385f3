"""What a turn expects is checked by the rights and limits of its client; a refusal tells what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import ExpectationFailed, Record, Refused, UsageError, absent, exactly, unchanged
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.kernel.expectations import FOUND_ROWS, MOST_EXPECTED, Expectation
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.patterns.text import parse_pattern
from index.values.values import Map, Value
from relay.log.recent import RecentEpochs
from server.config.model import Config, Limits
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from server.spaces.turns.conditions import KEPT, QUICK
from tests.server.processes import DaemonProcess
from tests.server.streams.inside import Inside, Wire, inside

FULL, LIMITED = "the secret of everything", "the secret of a reader"
MINE: Final = Record("mine", 1)


async def refused(space: dataspace.RemoteSpace, *expect: Expectation) -> Refused:
    """Why a turn that expects this is refused."""
    before = await space.sync()
    with pytest.raises(Refused) as caught:
        async with space.turn(expect=expect) as turn:
            turn.assert_(Record("never", 1))
    assert await space.sync() == before
    return caught.value


async def test_a_refusal_tells_what_was_found(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.turn(expect=[absent('leader("billing", _)')]) as turn:
            claim = turn.assert_(Record("leader", "billing", "me"))
        assert claim.epoch == turn.epoch
        failure = await refused(space, absent("nothing(_)"), absent('leader("billing", $who)'))
        assert isinstance(failure, ExpectationFailed) and failure.code == "expectation"
        assert (failure.number, failure.rows, failure.count, failure.epoch) == (2, [("me",)], 1, 0)
        assert failure.text == (
            'expectation 2 does not hold: expected leader("billing", $who) to have no match, found ("me")'
        )
        failure = await refused(space, exactly("leader($, $)", [("billing", "you")]))
        assert failure.text.endswith('to match exactly ("billing", "you"), found ("billing", "me")')
        failure = await refused(space, exactly("leader(_, $)", []))
        assert failure.text.endswith('to match exactly nothing, found ("me")')
        await space.replace(claim, Record("leader", "billing", "you"))
        assert claim.epoch is not None
        failure = await refused(space, unchanged("leader(_, $)", since=claim.epoch))
        assert isinstance(failure, ExpectationFailed)
        assert (failure.rows, failure.count, failure.epoch) == ([("you",), ("me",)], 2, claim.epoch + 1)


async def test_unchanged_sees_what_went_and_came_back(url: str) -> None:
    async with dataspace.connect(url) as space:
        claim = await space.assert_(Record("rate", 7))
        since = await space.sync()
        again = await space.replace(claim, Record("rate", 8))
        await space.replace(again, Record("rate", 7))
        async with space.turn(expect=[exactly("rate($)", [(7,)])]) as turn:
            turn.send(Record("seen"))
        assert (await refused(space, unchanged("rate(_)", since=since))).code == "expectation"


async def test_what_is_found_is_bounded(url: str) -> None:
    async with dataspace.connect(url) as space:
        async with space.turn() as turn:
            for n in range(100):
                turn.assert_(Record("small", n))
            for n in range(4):
                turn.assert_(Record("large", "x" * 3000 + str(n)))
        failure = await refused(space, absent("small($)"))
        assert isinstance(failure, ExpectationFailed)
        assert (len(failure.rows), failure.count) == (FOUND_ROWS, 100)
        failure = await refused(space, absent("large($)"))
        assert isinstance(failure, ExpectationFailed)
        assert (len(failure.rows), failure.count) == (2, 4)
        assert len(failure.text) < 1000


async def test_an_epoch_that_is_to_come_and_a_pattern_that_is_none_are_refused(url: str) -> None:
    async with dataspace.connect(url) as space:
        assert (await refused(space, unchanged("p(_)", since=99))).code == "epoch-ahead"
        wrong = Expectation(0, Record("_", "no-class"))
        assert (await refused(space, wrong)).code == "bad-request"
        many = [absent("p(_)")] * (MOST_EXPECTED + 1)
        assert (await refused(space, *many)).code == "limit"
    wrong_ones: list[Callable[[], Expectation]] = [
        lambda: absent("p("),
        lambda: exactly("p($)", ["abc"]),
        lambda: unchanged("p(_)", since=-1),
        lambda: unchanged("p(_)", since=True),
    ]
    for make in wrong_ones:
        with pytest.raises(UsageError):
            make()


@pytest.mark.parametrize("limits", [replace(Limits(), expected_facts=300)])
async def test_expectations_concern_so_many_facts_and_changes_at_most(url: str) -> None:
    async with dataspace.connect(url) as space:
        begin = await space.sync()
        async with space.turn() as turn:
            for n in range(301):
                turn.assert_(Record("many", n, 0))
        failure = await refused(space, exactly("many($, 1)", []), exactly("many($, 0)", []))
        assert failure.code == "limit" and "limits.expected_facts" in failure.text
        assert (await refused(space, unchanged("many(_, 1)", since=begin))).code == "limit"
        assert (await refused(space, absent("many(_, 0)"))).code == "expectation", "some are seen soon"
        async with space.turn(expect=[absent("many(_, 1)"), exactly("many(7, $)", [(0,)])]) as turn:
            turn.send(Record("done"))


async def test_where_many_facts_are_alike_the_index_files_what_is_compared(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with inside(tmp_path) as made:
            wire = made.connect()
            await wire.greet()
            facts = tuple((ASSERT, n, Record("lock", n, "x")) for n in range(QUICK * 4))
            hosted = made.hosted
            assert isinstance(await turned(wire, 1, facts[:QUICK], "lock(7, _)"), p.Accepted)
            assert isinstance(await turned(wire, 2, facts[QUICK:], "lock(-1, _)"), p.Accepted)
            assert len(hosted.conditions) == 0, "few are alike"
            for n in range(3, 20):
                said = await turned(wire, n, (), f"lock({n}, _)")
                assert isinstance(said, p.Refusal) and said.found["count"] == 1
                assert isinstance(await turned(wire, n, (), f"lock({-n}, _)"), p.Accepted)
                assert len(hosted.conditions) == 1, "one set of positions for all of them"
            hosted.space.index.check()
            others = [f"lock(_{', _' * n}, 1)" for n in range(KEPT + 5)] + ["lock(_, 1)", "lock(_, $a:int)"]
            for n, pattern in enumerate(others, 100):
                await turned(wire, n, (), pattern)
            assert len(hosted.conditions) <= KEPT
            hosted.space.index.check()


async def turned(wire: Wire, sequence: int, actions: tuple[Value, ...], *patterns: str) -> p.Packet | None:
    """The answer to a turn that expects these patterns to have no match."""
    expected = tuple((0, parse_pattern(pattern)) for pattern in patterns)
    await wire.say(p.Turn(sequence, "main", "", actions, expected))  # type: ignore[arg-type]
    return await wire.hear()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Inside]:
    limited: dict[str, Value] = {"assert": ("mine(_)",), "observe": ("mine(_)",)}
    keys = (Key("full", FULL), Key("limited", LIMITED, Rights.read(Map(limited))))
    with trio.fail_after(30):
        async with inside(tmp_path, keys=keys) as made:
            yield made


async def test_an_expectation_needs_the_right_to_observe(made: Inside) -> None:
    wire = made.connect(trusted=False)
    await wire.say(p.Hello(p.VERSION, "~limited", "", Wanted(token=LIMITED).packed()))
    assert isinstance(await wire.hear(), p.Welcome)
    for pattern in ("secret(_)", "$anything"):
        said = await turned(wire, 1, ((ASSERT, 1, MINE),), "mine(_)", pattern)
        assert isinstance(said, p.Refusal) and said.code == "not-allowed"
    assert isinstance(await turned(wire, 1, ((ASSERT, 1, MINE),), "mine(_)"), p.Accepted)
    said = await turned(wire, 2, ((ASSERT, 2, Record("other", 1)),), "mine(2)")
    assert isinstance(said, p.Refusal) and said.code == "not-allowed"


async def test_a_refused_turn_is_judged_anew_and_an_accepted_one_is_not(made: Inside) -> None:
    wire = made.connect()
    await wire.greet()
    other = made.connect()
    await other.greet("~other")
    await other.say(p.Turn(1, "main", "", ((ASSERT, 1, MINE),)))
    assert isinstance(await other.hear(), p.Accepted)
    assert isinstance(await turned(wire, 5, ((SEND, MINE),), "mine(_)"), p.Refusal)
    await other.say(p.Turn(2, "main", "", ((1, 1),)))
    assert isinstance(await other.hear(), p.Accepted)
    first = await turned(wire, 5, ((ASSERT, 1, MINE),), "mine(_)")
    assert isinstance(first, p.Accepted)
    assert await turned(wire, 5, ((ASSERT, 1, MINE),), "mine(_)") == first, "though it would not hold now"
    old = await turned(wire, 4, ((SEND, MINE),), "mine(_)")
    assert isinstance(old, p.Refusal) and old.code == "not-applied"


async def test_changes_before_a_restart_are_read_back(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url, owner="o") as space:
        claim = await space.assert_(Record("kept", 1))
        await space.assert_(Record("else", 1))
        epoch = await space.sync()
    daemon.stop()
    daemon.start()
    async with dataspace.connect(daemon.url, owner="o") as space:
        assert claim.epoch is not None
        async with space.turn(expect=[unchanged("kept(_)", since=claim.epoch)]) as turn:
            turn.send(Record("seen"))
        assert (await refused(space, unchanged("else(_)", since=claim.epoch))).code == "expectation"
        assert (await refused(space, unchanged("kept(_)", since=claim.epoch - 1))).code == "expectation"
        async with space.turn(expect=[unchanged("else(_)", since=epoch)]) as turn:
            turn.send(Record("seen"))


async def test_changes_that_are_no_longer_in_memory_are_not_assumed(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.log.writer.RecentEpochs", partial(RecentEpochs, changes=20))
    (url,) = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), tmp_path))
    async with dataspace.connect(url) as space:
        claim = await space.assert_(Record("early", 1))
        for n in range(20):
            await space.send(Record("noise", n))
        assert claim.epoch is not None
        failure = await refused(space, unchanged("early(_)", since=claim.epoch))
        assert failure.code == "epoch-gone" and "read the pattern again" in failure.text
        async with space.turn(expect=[unchanged("early(_)", since=await space.sync())]) as turn:
            turn.send(Record("seen"))
