"""A durable value is compared and set in one turn, which puts and withdraws what its author need not know."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import ExpectationFailed, Record, Refused, RemoteSpace, UsageError, absent, exactly, unchanged
from dataspace.kernel.actions import ACTIONS, ASSERT, PUT, RETRACT, WITHDRAW, Action
from dataspace.kernel.limits import SpaceLimits
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from index.patterns.text import parse_pattern
from index.values.values import Map, Value, key
from server.config.rights import Key, Rights
from server.sessions.peer import PEERS
from server.turns.conditions import commit_at_once
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy
from tests.server.streams.inside import Inside, Wire, inside
from tests.striking import strike

OWNER: Final = "durable:ops"
MANY: Final = 10_000
MIB: Final = 1 << 20
THOROUGH: Final = os.environ.get("TORTURE_ROUNDS", "0") != "0"
STRIDE: Final = 7
"""Without torture a turn is struck at some lines only."""

LIMITED: Final = "the secret of a writer"


async def set_speed(space: RemoteSpace, old: int, new: int) -> int | None:
    """Sets a durable value if it is still the old one."""
    async with space.turn(expect=[exactly('config("speed", $v)', [(old,)])]) as turn:
        turn.put("config", "speed", new, owner="ops")
    return turn.epoch


async def test_a_durable_value_is_compared_and_set_by_another_process(daemon: DaemonProcess) -> None:
    async with dataspace.connect(daemon.url) as space:
        await space.put("config", "speed", 7, owner="ops")
    daemon.stop()
    daemon.start()
    async with dataspace.connect(daemon.url) as space:
        assert await set_speed(space, 7, 8) is not None
        with pytest.raises(ExpectationFailed) as caught:
            await set_speed(space, 7, 9)
        assert caught.value.rows == [(8,)]
        assert await space.matches('config("speed", $)') == [(8,)]
        async with space.turn(expect=[exactly('config("speed", $)', [(8,)])]) as turn:
            turn.withdraw('config("speed", _)', owner="ops")
        assert await space.matches("config($, $)") == []


async def test_no_update_is_lost_by_clients_that_count_at_once(url: str) -> None:
    async with dataspace.connect(url) as one:
        await one.put("count", "all", 0, owner="ops")

        async def count(name: str) -> None:
            async with dataspace.connect(url, name=name) as space:
                for _ in range(8):
                    while True:
                        ((now,),) = await space.matches('count("all", $)')
                        assert isinstance(now, int)
                        try:
                            async with space.turn(expect=[exactly('count("all", $)', [(now,)])]) as turn:
                                turn.put("count", "all", now + 1, owner="ops")
                                turn.put("last", name, now + 1)
                        except ExpectationFailed:
                            continue
                        break

        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "c"):
                nursery.start_soon(count, name)
        assert await one.matches('count("all", $)') == [(24,)]


async def test_observers_see_one_value_in_each_epoch(url: str) -> None:
    async with dataspace.connect(url) as space, space.observe("config($, $)", quiet=True) as seen:
        for value in (1, 2, 2, 3):
            async with space.turn() as turn:
                turn.put("config", "speed", value, owner="ops")
        held, last = set[tuple[Value, ...]](), 0
        while held != {("speed", 3)}:
            epoch = await seen.next_epoch()
            assert epoch is not None
            last = epoch.number
            held |= set(epoch.added)
            held -= set(epoch.removed)
            assert len(held) <= 1 if not epoch.added else len(held) == 1
        assert last == turn.epoch and turn.epoch == 3, "the same value again is no epoch"


async def test_a_turn_puts_and_withdraws_for_several_owners(url: str) -> None:
    async with dataspace.connect(url) as space, dataspace.connect(url) as other:
        async with space.turn() as turn:
            for owner in ("", "ops", "results"):
                turn.put("config", "speed", len(owner), owner=owner)
                turn.assert_(Record("task", 1, owner), owner=owner)
        await other.put("config", "speed", 99)
        assert sorted(await other.matches('config("speed", $)')) == [(0,), (3,), (7,), (99,)]
        async with space.turn(expect=[unchanged("task(_, _)", since=turn.epoch or 0)]) as turn:
            turn.withdraw("task(_, _)", owner="ops")
            mine = turn.put("config", "speed", 1)
            turn.put(Record("config", "speed", 4), by="config($, _)", owner="ops")
            turn.send(Record("done"))
        assert (mine.owner, mine.epoch) == ("", turn.epoch)
        assert sorted(await other.matches('config("speed", $)')) == [(1,), (4,), (7,), (99,)]
        assert sorted(await other.matches("task(_, $)")) == [("",), ("results",)]
        await space.retract(mine)
        with pytest.raises(ExpectationFailed):
            async with space.turn(expect=[absent("task(_, _)")]) as turn:
                turn.withdraw("_", owner="ops")
                turn.withdraw("_", owner="results")
        assert sorted(await other.matches('config("speed", $)')) == [(4,), (7,), (99,)]
        with pytest.raises(Refused, match="handle-in-use"):
            async with space.turn() as turn:
                turn.withdraw("_", owner="results")
                turn.assert_(Record("x"), handle=5)
                turn.assert_(Record("y"), handle=5)
        assert len(await other.matches("$")) == 5


async def test_the_owner_of_the_client_is_meant_where_none_is_named(url: str) -> None:
    async with dataspace.connect(url, owner="ops") as ops, dataspace.connect(url, lease=30.0) as leased:
        for space in (ops, leased):
            await space.put("config", "speed", 7)
            async with space.turn() as turn:
                turn.put("config", "speed", 8)
                turn.put("config", "gone", 1)
                turn.withdraw('config("gone", _)')
        assert await ops.matches("config($, $)") == [("speed", 8)]
        await ops.withdraw("_")
        assert await ops.matches("config($, $)") == [("speed", 8)], "that of the lease"


@pytest.mark.parametrize("space_limits", [SpaceLimits(actions_per_turn=50)])
async def test_a_turn_ends_no_more_claims_than_it_may_have_actions(url: str) -> None:
    async with dataspace.connect(url) as space:
        for part in range(3):
            async with space.turn() as turn:
                for n in range(40):
                    turn.assert_(Record("many", part, n), owner="ops")
        for pattern in ("many(_, _)", "_"):
            with pytest.raises(Refused, match="limit"):
                async with space.turn() as turn:
                    turn.withdraw(pattern, owner="ops")
        assert len(await space.matches("many($, $)")) == 120
        async with space.turn() as turn:
            turn.withdraw("many(0, _)", owner="ops")
        assert len(await space.matches("many($, $)")) == 80


async def test_what_cannot_be_is_refused_where_it_is_stated(url: str) -> None:
    async with dataspace.connect(url) as space:
        wrong: list[Callable[[dataspace.Draft], object]] = [
            lambda turn: turn.put("text"),
            lambda turn: turn.put("config(1, 2)"),
            lambda turn: turn.put(Record("one", 1)),
            lambda turn: turn.put("config", "a", 1, by="other(_)"),
            lambda turn: turn.put("config", "a", 1, owner="lease:5:x"),
            lambda turn: turn.withdraw("p("),
            lambda turn: turn.withdraw("_", owner="lease:5:x"),
        ]
        for state in wrong:
            with pytest.raises(UsageError):
                async with space.turn() as turn:
                    state(turn)
        assert await space.sync() == 0


async def test_claims_that_a_turn_has_withdrawn_are_not_asserted_again(url: str, proxy: Proxy) -> None:
    back = trio.Event()
    async with dataspace.connect(url) as other, dataspace.connect(proxy.url) as space:
        async with space.turn() as turn:
            for n in range(5):
                turn.assert_(Record("mine", n))
            turn.put("state", "of", "first")
        async with space.turn() as turn:
            turn.withdraw("mine(3)")
            turn.put("state", "of", "second")

        def changed(event: dataspace.ConnectionEvent) -> None:
            if event.change is dataspace.ConnectionChange.ANEW:
                back.set()

        space.on_connection = changed
        proxy.cut()
        with trio.fail_after(10):
            await back.wait()
            await space.sync()
        assert sorted(await other.matches("mine($)")) == [(0,), (1,), (2,), (4,)]
        assert await other.matches('state("of", $)') == [("second",)]
        async with space.turn() as turn:
            turn.withdraw("$")
        assert await other.matches("$") == []


async def test_a_put_of_which_the_answer_was_lost_happens_once(url: str, proxy: Proxy) -> None:
    async with dataspace.connect(url) as other, dataspace.connect(proxy.url) as space:
        seen = other.observe("count($, $)", quiet=True, snapshot=False)
        seen.open()
        await other.sync()
        for n in range(4):
            draft = space.draft()
            draft.put("count", "all", n, owner="ops")
            ticket = space.submit_nowait(draft)
            proxy.cut()
            with trio.fail_after(10):
                await ticket.wait()
        epochs = [await seen.next_epoch() for _ in range(4)]
        assert [[*each.added] for each in epochs if each] == [[("all", n)] for n in range(4)]
        seen.close()


@pytest.fixture
def limited() -> tuple[Key, ...]:
    said: dict[str, Value] = {"assert": ("mine(_, _)",), "observe": ("mine(_, _)",), "durable": ("ops",)}
    return (Key("limited", LIMITED, Rights.read(Map(said))),)


async def test_a_put_needs_the_right_to_assert_and_a_withdrawal_that_to_observe(
    tmp_path: Path, limited: tuple[Key, ...]
) -> None:
    put: Action = (PUT, 1, Record("mine", 1, 1), None)
    withdraw: Action = (WITHDRAW, parse_pattern("mine(_, _)"))
    async with inside(tmp_path, keys=limited) as made:
        made.hosted.commit(OWNER, [(ASSERT, 1, Record("secret", 1, 1))])
        wire = made.connect(trusted=False)
        await wire.say(p.Hello(p.VERSION, "~limited", "", Wanted(token=LIMITED).packed()))
        assert isinstance(await wire.hear(), p.Welcome)
        refused: list[tuple[str, Action]] = [
            ("ops", (WITHDRAW, parse_pattern("_"))),
            ("ops", (PUT, 2, Record("secret", 1, 2), None)),
            ("other", put),
            ("other", withdraw),
        ]
        for owner, action in refused:
            for turn in (
                p.Turn(1, "main", owner, (action,)),
                p.Turn(1, "main", "", (), (), ((owner, (action,)),)),
            ):
                await wire.say(turn)
                said = await wire.hear()
                assert isinstance(said, p.Refusal) and said.code == "not-allowed", (owner, action)
        await wire.say(p.Turn(1, "main", "ops", ((PUT, 7, Record("mine", 1, 1), None), withdraw)))
        assert isinstance(await wire.hear(), p.Accepted)
        assert list(made.hosted.space.claims(OWNER).values()) == [Record("secret", 1, 1)]


async def test_the_welcome_lists_the_actions_of_a_turn(tmp_path: Path) -> None:
    async with inside(tmp_path) as made:
        wire = made.connect()
        await wire.say(p.Hello(p.VERSION, "~a", "", Wanted(spoken=True).packed()))
        welcome = await wire.hear()
        assert isinstance(welcome, p.Welcome)
        listed = welcome.features["spoken"]
        assert isinstance(listed, Map) and listed["actions"] == ACTIONS


# -- owners that claim much ----------------------------------------------------------------------------


async def prepared(made: Inside, wires: int) -> list[Wire]:
    made.hosted.commit(OWNER, [(ASSERT, n, Record("p", n, n % 2)) for n in range(MANY)])
    found = [made.connect() for _ in range(wires)]
    for n, wire in enumerate(found):
        await wire.greet(f"~peer{n}")
    return found


async def test_turns_that_wait_for_their_search_hold_their_own_bytes(tmp_path: Path) -> None:
    withdraw: Action = (WITHDRAW, Record("none"))
    with trio.fail_after(120):
        async with inside(tmp_path) as made:
            wires = await prepared(made, 4)
            tracemalloc.start()
            try:
                for wire in wires:
                    await wire.say(*[p.Turn(1 + n, "main", "ops", (withdraw,)) for n in range(25)])
                for wire in wires:
                    for _ in range(25):
                        assert isinstance(await wire.hear(), p.Accepted)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 6 * MIB
            assert not len(made.hosted.searches)


async def test_a_withdrawal_in_a_turn_is_of_its_own_epoch_while_others_come_and_go(tmp_path: Path) -> None:
    """After its epoch nothing of the owner matches, whatever was committed while it was looked for."""
    with trio.fail_after(120):
        async with inside(tmp_path) as made:
            hosted = made.hosted
            (wire,) = await prepared(made, 1)
            odd = parse_pattern("p(_, 1)")
            await wire.say(p.Turn(1, "main", "ops", ((WITHDRAW, odd), (ASSERT, 1 << 50, Record("p", -1, 1)))))
            answers, beside = list[p.Packet | None](), 0
            at: list[tuple[int, int]] = []

            async def answered() -> None:
                answers.append(await wire.hear())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answered)
                while not answers:
                    actions: list[Action] = [(ASSERT, MANY + beside, Record("p", -beside, 1))]
                    gone = MANY - 1 - 2 * beside
                    if gone in hosted.space.claims(OWNER):
                        actions.append((RETRACT, gone))
                    at.append((hosted.commit(OWNER, actions).number, MANY + beside))
                    beside += 1
                    await trio.lowlevel.checkpoint()
            (answer,) = answers
            assert isinstance(answer, p.Accepted)
            (epoch,) = answer.epochs
            left = hosted.space.claims(OWNER)
            odds = {
                handle for handle, fact in left.items() if isinstance(fact, Record) and fact.fields[1] == 1
            }
            later = {handle for number, handle in at if number > epoch}
            assert odds == {1 << 50} | later
            assert any(number < epoch for number, _ in at), "some came while it was looked for"
            assert len(left) == MANY // 2 + len(odds)


async def test_a_connection_that_ends_while_it_is_looked_for_changes_nothing(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with inside(tmp_path) as made:
            wire, other = await prepared(made, 2)
            async with made.hosted.searches.lock(OWNER):
                await wire.say(p.Turn(1, "main", "ops", ((WITHDRAW, parse_pattern("_")),)))
                await other.say(p.Turn(1, "main", "", ((ASSERT, 1, "here"),)))
                assert isinstance(await other.hear(), p.Accepted), "no other turn waits for it"
                first = made.daemon.parts[PEERS][1]
                first.cancel()
                await first.tasks.ended.wait()
            assert len(made.hosted.space.claims(OWNER)) == MANY
            assert not len(made.hosted.searches)


# -- all or nothing ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
async def test_an_exception_at_any_line_leaves_all_or_nothing(
    tmp_path: Path, error: type[BaseException]
) -> None:
    """From the expectation over the search to the commit."""
    async with inside(tmp_path) as made:
        wire = made.connect()
        await wire.greet()
        hosted, peer = made.hosted, made.daemon.parts[PEERS][1]
        hosted.commit(OWNER, [(ASSERT, 1, Record("config", "speed", 0)), (ASSERT, 2, Record("kept"))])
        now, struck, at = 0, True, 1 + len(error.__name__)
        while struck:
            hosted.commit(OWNER, [(ASSERT, 10 * at + n, Record("gone", n)) for n in range(2)])
            before = state(hosted.space.claims(OWNER)), hosted.space.epoch
            turn = p.Turn(
                at,
                "main",
                "ops",
                (
                    (WITHDRAW, Record("gone")),
                    (PUT, (1 << 50) + at, Record("config", "speed", at), None),
                ),
                ((1, parse_pattern('config("speed", $)'), ((now,),)),),
                (("", ((PUT, at, Record("mine", "x", at), None),)),),
            )
            struck = False
            try:
                with strike(at, error):
                    assert commit_at_once(peer, turn)
            except error:
                struck = True
            hosted.space.index.check()
            assert hosted.space.damage is None and not len(hosted.searches)
            after = state(hosted.space.claims(OWNER)), hosted.space.epoch
            if after != before:
                assert after == (state({1: Record("config", "speed", at), 2: Record("kept")}), before[1] + 1)
                now = at
            else:
                hosted.commit(OWNER, [(RETRACT, 10 * at + n) for n in range(2)])
            done, at = at, at + (1 if THOROUGH else STRIDE)
        assert at > 500 and now == done, "the last one was not struck"
        await hosted.commits.wait_durable(hosted.space.epoch)


def state(claims: object) -> list[object]:
    return sorted(key(value) for value in claims.values())  # type: ignore[attr-defined,type-var]


# -- the other clients ---------------------------------------------------------------------------------


def test_the_blocking_client_compares_and_sets(daemon: DaemonProcess) -> None:
    with dataspace.connect_blocking(daemon.url) as space:
        space.put("config", "speed", 7, owner="ops")
        with space.turn(expect=[exactly('config("speed", $v)', [(7,)])]) as turn:
            turn.put("config", "speed", 8, owner="ops")
        with (
            pytest.raises(ExpectationFailed),
            space.turn(expect=[exactly('config("speed", $v)', [(7,)])]) as turn,
        ):
            turn.withdraw("_", owner="ops")
        assert space.matches('config("speed", $)') == [(8,)]


def test_the_client_under_asyncio_compares_and_sets(daemon: DaemonProcess) -> None:
    async def main() -> None:
        async with dataspace.connect(daemon.url) as space:
            await space.put("config", "speed", 7, owner="ops")
            assert await set_speed(space, 7, 8) is not None
            with pytest.raises(ExpectationFailed):
                await set_speed(space, 7, 9)
            assert await space.matches('config("speed", $)') == [(8,)]

    asyncio.run(main())
