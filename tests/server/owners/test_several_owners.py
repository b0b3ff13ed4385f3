"""One connection has facts of its session and of durable owners, also in one turn: all of it or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record, Refused, RemoteSpace, UsageError, absent
from dataspace.errors import ProtocolError
from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.kernel.turns import MOST_OWNERS
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.patterns.text import parse_pattern, unparse
from index.values.values import Map, Value
from server.config.principals import Quotas
from server.config.rights import Key, Rights
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy
from tests.server.streams.inside import Inside, Wire, inside

RESULT: Final = Record("result", 1, "ok")


async def owners_of(space: RemoteSpace, pattern: str) -> Counter[tuple[str, str]]:
    """How many claims each owner has on what matches."""
    said = await space.request("owners", Map({"pattern": parse_pattern(pattern), "most": 10_000}))
    assert isinstance(said, tuple)
    return Counter((str(each["owner"]).split(":")[0], unparse(each["fact"])) for each in said)  # type: ignore[index,call-overload]


async def test_durable_facts_outlast_the_session_that_asserted_them(url: str) -> None:
    async with dataspace.connect(url) as space:
        await space.assert_(Record("present", "me"))
        first = await space.assert_(RESULT, owner="results")
        assert (first.owner, first.epoch) == ("results", 2)
        second = await space.replace(first, Record("result", 1, "better"))
        assert second.owner == "results"
        gone = await space.assert_(Record("result", 2, "bad"), owner="results")
        await space.retract(gone)
        again = await space.assert_(Record("result", 3, "fair"), owner="results")
        async with space.turn() as turn:
            turn.retract(again.handle, owner="results")
    async with dataspace.connect(url) as other:
        assert await other.matches("result($, $)") == [(1, "better")]
        assert await other.matches("present($)") == []
        assert await other.withdraw("result(1, _)", owner="results") == 1
        assert await other.matches("$") == []


async def test_a_turn_of_both_is_one_epoch_for_all_observers(url: str) -> None:
    async with dataspace.connect(url) as space, space.observe("$what", quiet=True) as seen:
        task = await space.assert_(Record("working", 1))
        async with space.turn() as turn:
            turn.retract(task)
            claim = turn.assert_(RESULT, owner="results")
            turn.send(Record("done", 1))
        assert claim.epoch == turn.epoch
        epochs = [await seen.next_epoch() for _ in range(3)]
        whole = epochs[-1]
        assert whole is not None and whole.number == turn.epoch
        assert [*whole.added] == [(RESULT,)] and [*whole.messages] == [(Record("done", 1),)]
        assert [*whole.removed] == [(Record("working", 1),)]
        async with space.turn() as turn:  # a fact moves from one owner to another one, and is never away
            turn.retract(claim)
            moved = turn.assert_(RESULT)
        assert moved.owner == "" and await space.matches("result($, $)") == [(1, "ok")]
        assert set(await owners_of(space, "result(_, _)")) == {("session", unparse(RESULT))}


async def test_of_a_turn_that_is_refused_nothing_has_happened_for_any_owner(url: str) -> None:
    async with dataspace.connect(url) as space:
        before = await space.sync()
        for expect, handle, code in (([absent("$")], None, "expectation"), ([], 77, "unknown-handle")):
            kept = await space.assert_(Record("kept"))
            with pytest.raises(Refused, match=code):
                async with space.turn(expect=expect) as turn:
                    turn.assert_(Record("mine"))
                    turn.assert_(RESULT, owner="results")
                    if handle is not None:
                        turn.retract(handle, owner="results")
            await space.retract(kept)
        assert await space.sync() == before + 4
        assert await space.matches("$") == []
        assert dict(await owners_of(space, "$")) == {}
        async with space.turn(expect=[absent("$")]) as turn:
            turn.assert_(Record("mine"))
            turn.assert_(RESULT, owner="results")
        assert len(await space.matches("$")) == 2


async def test_two_connections_use_one_owner_at_once_without_a_handle_between_them(url: str) -> None:
    async def work(space: RemoteSpace, name: str) -> None:
        for n in range(40):
            async with space.turn() as turn:
                turn.assert_(Record("seen", name, n))
                turn.assert_(Record("result", name, n), owner="results")
            if n % 4 == 3:
                await space.put("rate", name, n, owner="results")

    async with dataspace.connect(url) as one, dataspace.connect(url) as two:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, one, "one")
            nursery.start_soon(work, two, "two")
        assert sorted(await one.matches("result($, $)")) == [
            (w, n) for w in ("one", "two") for n in range(40)
        ]
        assert sorted(await one.matches("rate($, $)")) == [("one", 39), ("two", 39)]
        assert set((await owners_of(one, "result(_, _)")).values()) == {1}


async def test_a_put_is_of_one_owner_for_all_clients(url: str) -> None:
    async with dataspace.connect(url) as one, dataspace.connect(url, lease=60.0) as two:
        for space, rate in ((one, 7), (two, 8), (one, 9)):
            await space.put("config", "billing", "rate", rate, owner="operations")
            assert await one.matches("config($, $, $)") == [("billing", "rate", rate)]
        await one.put("config", "billing", "rate", 9)
        await one.put("config", "billing", "rate", 10)
        assert sorted(await one.matches('config("billing", "rate", $)')) == [(9,), (10,)], "each its own"


async def test_a_durable_fact_is_never_asserted_again(url: str, proxy: Proxy) -> None:
    lost = trio.Event()
    async with dataspace.connect(url) as other, dataspace.connect(proxy.url) as space:
        await space.assert_(Record("mine", 1))
        await space.assert_(Record("result", 1), owner="results")
        async with space.turn() as turn:
            turn.assert_(Record("mine", 2))
            turn.assert_(Record("result", 2), owner="results")
        proxy.refusing = True
        space.on_connection = lambda _event: lost.set()
        proxy.cut()
        await lost.wait()
        assert await other.withdraw("result(_)", owner="results") == 2
        late = space.submit_nowait(_both(space))
        proxy.refusing = False
        with trio.fail_after(10):
            await late.wait()
        assert await other.matches("result($)") == [(3,)]
        assert sorted(await other.matches("mine($)")) == [(1,), (2,), (3,)]


def _both(space: RemoteSpace) -> dataspace.Draft:
    draft = space.draft()
    draft.assert_(Record("mine", 3))
    draft.assert_(Record("result", 3), owner="results")
    return draft


@pytest.mark.slow
async def test_turns_of_both_take_effect_once_over_kills_of_the_daemon(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    try:
        async with dataspace.connect(daemon.url, client="worker") as space:
            tickets = []
            for n in range(60):
                draft = space.draft()
                draft.assert_(Record("seen", n))
                draft.assert_(Record("result", n), owner="results")
                draft.send(Record("done", n))
                tickets.append(await space.submit(draft))
                if n == 30:
                    await tickets[n - 10].wait()
                    await trio.to_thread.run_sync(daemon.kill)
                    await trio.to_thread.run_sync(daemon.start)
            with trio.fail_after(30):
                epochs = [await ticket.wait() for ticket in tickets]
            assert epochs == sorted(set(epochs))
            assert space.reconnects == 1
            claims = await owners_of(space, "result(_)")
            assert claims == Counter({("durable", f"result({n})"): 1 for n in range(60)})
            assert sorted(await space.matches("seen($)")) == [(n,) for n in range(60)]
            async with space.observe("done($)", after=0, upto=epochs[-1], quiet=True) as seen:
                assert [change.captures[0] async for change in seen] == list(range(60)), "each once, in order"
    finally:
        daemon.kill()


FULL, LIMITED = "the secret of everything", "the secret of a worker"


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Inside]:
    limited: dict[str, Value] = {"assert": ("mine(_)",), "observe": ("mine(_)",), "durable": ("results",)}
    keys = (Key("full", FULL), Key("limited", LIMITED, Rights.read(Map(limited))))
    with trio.fail_after(30):
        async with inside(tmp_path, keys=keys) as made:
            yield made


async def turned(wire: Wire, sequence: int, owner: str, *others: tuple[str, tuple[Action, ...]]) -> str:
    """What comes of a turn: the code of its refusal, or empty."""
    mine: tuple[Action, ...] = ((ASSERT, sequence, Record("mine", sequence)),)
    await wire.say(p.Turn(sequence, "main", owner, mine, (), others))
    match await wire.hear():
        case p.Refusal(refused, code) if refused == sequence:
            return code
        case p.Accepted(first, _) if first == sequence:
            return ""
        case other:
            raise AssertionError(other)


async def test_each_owner_needs_its_right_and_each_fact_too(made: Inside) -> None:
    wire = made.connect(trusted=False)
    await wire.say(p.Hello(p.VERSION, "~limited", "", Wanted(token=LIMITED).packed()))
    assert isinstance(await wire.hear(), p.Welcome)
    fact: tuple[Action, ...] = ((ASSERT, 1 << 60, Record("mine", 0)),)
    before = made.hosted.space.epoch
    for owner, code in (
        ("robots", "not-allowed"),
        ("lease:1000:x", "no-lease"),
        ("a @ token:full", "bad-request"),
    ):
        assert await turned(wire, 1, "", (owner, fact)) == code
        assert await turned(wire, 1, "", ("results", fact), (owner, fact)) == code
        assert await turned(wire, 1, owner, ("results", fact)) == code
    secret: tuple[Action, ...] = ((ASSERT, 1, Record("secret", 1)),)
    assert await turned(wire, 1, "", ("results", secret)) == "not-allowed"
    assert await turned(wire, 1, "", ("results", fact), ("results", ())) == "bad-request", "stated twice"
    assert await turned(wire, 1, "", ("", fact)) == "bad-request", "the session, stated twice"
    many = [(f"o{n}", fact) for n in range(MOST_OWNERS)]
    assert await turned(wire, 1, "", *many) == "limit"
    assert made.hosted.space.epoch == before and len(made.hosted.space.index) == 0
    assert await turned(wire, 1, "", ("results", fact)) == ""
    assert await turned(wire, 1, "", ("results", fact)) == "", "sent again: its old answer"
    assert made.hosted.space.held("durable:results")[0] == 1


@pytest.mark.parametrize("quotas", [Quotas(facts=3)])
async def test_a_quota_counts_what_all_owners_of_a_turn_add(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(Refused, match=r"quota\.facts=3"):
            async with space.turn() as turn:
                for n in range(2):
                    turn.assert_(Record("mine", n))
                    turn.assert_(Record("result", n), owner="results")
        async with space.turn() as turn:
            turn.assert_(Record("mine", 1))
            turn.assert_(Record("result", 1), owner="results")
        with pytest.raises(Refused, match=r"quota\.facts=3"):
            async with space.turn() as turn:
                turn.assert_(Record("mine", 2))
                turn.assert_(Record("result", 2), owner="results")
        await space.assert_(Record("mine", 3))


def test_limits_of_a_space_count_what_all_owners_of_a_turn_add() -> None:
    space = Space("main", limits=SpaceLimits(facts=3, actions_per_turn=8))
    two: list[Action] = [(ASSERT, n, Record("p", n)) for n in range(2)]
    with pytest.raises(Refused, match=r"limits\.facts=3"):
        space.commit("a", two, 1, others=[("b", two)])
    assert (len(space.index), space.facts_bytes, space.epoch) == (0, 0, 0)
    with pytest.raises(Refused, match="actions_per_turn"):
        space.commit("a", [(RETRACT, 1)] * 5, 1, others=[("b", [(RETRACT, 1)] * 5)])
    rule: list[Action] = [(ASSERT, 9, Record("rule", "r", "q($x) <- p($x)."))]
    with pytest.raises(Refused, match="rules of two owners"):
        space.commit("a", rule, 1, others=[("b", rule)])
    epoch = space.commit("a", two, 1, others=[("b", rule)])
    assert [claims.owner for claims in epoch.claims] == ["a", "b", "rules"]
    assert set(map(unparse, epoch.added)) >= {"q(0)", "q(1)"}


async def test_what_is_no_durable_owner_is_said_before_anything_is_sent(url: str) -> None:
    async with dataspace.connect(url) as space:
        for owner in ("lease:1000:x", 7):
            with pytest.raises(UsageError, match="name of a durable owner"):
                await space.assert_(RESULT, owner=owner)  # type: ignore[arg-type]  # as beginners do
        claim = await space.assert_(RESULT, owner="results")
        with pytest.raises(UsageError, match="is a claim of 'results', not of 'other'"):
            space.draft().retract(claim, owner="other")
        with pytest.raises(UsageError, match="name it"):
            await space.withdraw("result(_, _)")
    async with dataspace.connect(url, owner="results") as space:
        mine = await space.assert_(RESULT, owner="results")
        assert mine.owner == "", "it is the client's own"
        assert await space.withdraw("result(_, _)") == 2


def test_others_that_are_none_are_malformed() -> None:
    head: tuple[Value, ...] = (2, 1, "main", "", (), ())
    assert isinstance(p.read((*head, ())), p.Turn)
    for wrong in (7, ("a",), (("a",),), (("a", 7),), ((1, ()),), (("a", ((9,),)),), (("a", (), ()),)):
        with pytest.raises(ProtocolError, match="malformed"):
            p.read((*head, wrong))


async def test_the_blocking_client_has_the_same_verbs(daemon: DaemonProcess) -> None:
    def work() -> None:
        with dataspace.connect_blocking(daemon.url) as space:
            with space.turn() as turn:
                turn.assert_(Record("mine", 1))
                turn.assert_(RESULT, owner="results")
            with space.asserting(Record("result", 2, "soon"), owner="results"):
                assert len(space.matches("result($, $)")) == 2
            space.put("config", "rate", 7, owner="operations")
        with dataspace.connect_blocking(daemon.url) as space:
            assert space.matches("result($, $)") == [(1, "ok")]
            assert space.withdraw("config(_, _)", owner="operations") == 1

    await trio.to_thread.run_sync(work)


async def test_connections_may_share_a_durable_owner(url: str) -> None:
    async with dataspace.connect(url, owner="plan") as first, dataspace.connect(url, owner="plan") as second:
        one, two = await first.assert_(Record("job", 1)), await second.assert_(Record("job", 1))
        await first.put("rate", "a", 1)
        await second.put("rate", "a", 2)
        await first.retract(one)
        assert await first.matches("job($n)") == [(1,)]  # the other claim stands
        await second.retract(two)
        assert (await first.matches("job($n)"), await second.matches("rate($k, $v)")) == ([], [("a", 2)])
        assert await first.withdraw("rate(_, _)") == 1
