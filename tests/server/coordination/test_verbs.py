"""Locks take turns, puts keep one fact for each key, and what has ended stays so where that is wanted."""

from __future__ import annotations

import asyncio
import time

import pytest
import trio
import trio.testing

import dataspace
from dataspace import ConnectionChange, LockLost, Record, Refused, UsageError
from dataspace.client.locks import Queue, Term
from dataspace.kernel.changes import EpochChanges
from index.values.values import Value
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy


async def test_clients_that_wait_for_a_lock_take_turns_in_the_order_in_which_they_came(url: str) -> None:
    taken: list[tuple[int, int]] = []
    first = trio.Event()

    async def take(space: dataspace.RemoteSpace, number: int) -> None:
        async with space.lock("billing", number) as lock:
            taken.append((number, lock.token))
            await first.wait()
            async with space.turn(expect=[lock.held]) as turn:
                turn.send(Record("done", number))

    async with dataspace.connect(url) as one, dataspace.connect(url) as two:
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(take, (one, two)[number % 2], number)
                await one.first(f'contender("billing", {number}, _)')
            first.set()
        assert [number for number, _ in taken] == list(range(6))
        assert [token for _, token in taken] == sorted({token for _, token in taken})
        assert await one.matches("contender($, $)") == await one.matches("lock($, $)") == []


async def test_a_leader_is_announced_in_the_turn_of_its_claim_and_a_timeout_leaves_nothing(url: str) -> None:
    async with dataspace.connect(url) as one, dataspace.connect(url) as two:
        async with one.elect("billing", "one") as lock:
            async with two.observe("leader($name, $who)", as_of=lock.token, quiet=True) as leaders:
                assert (await anext(aiter(leaders))).captures == ("billing", "one")
            assert await two.matches("leader($, $)") == [("billing", "one")]
            with pytest.raises(TimeoutError, match="the election 'billing' is still held"):
                async with two.elect("billing", "two", timeout=0.05):
                    raise AssertionError
            assert await two.matches('contender("billing", $)') == [("one",)]
        assert await two.matches("leader($, $)") == []


async def test_a_name_may_be_any_value_and_is_no_pattern(url: str) -> None:
    odd = Record("_")
    async with dataspace.connect(url) as space:
        async with space.lock(odd), space.lock(("a", 1)), space.lock("b", timeout=5) as lock:
            async with space.turn(expect=[lock.held]) as turn:
                turn.send(Record("held"))
            with pytest.raises(TimeoutError):
                async with space.lock(odd, timeout=0.05):
                    raise AssertionError
    for ttl in (0, -1.0, 1e9):
        async with dataspace.connect(url) as space:
            with pytest.raises(UsageError, match="ttl is in seconds"):
                async with space.lock("a", ttl=ttl):
                    raise AssertionError


async def test_a_holder_that_was_stopped_finds_its_lock_lost(url: str) -> None:
    async with dataspace.connect(url) as space:
        steps: list[str] = []
        with pytest.raises(LockLost, match="not renewed within"):
            async with space.lock("a", ttl=0.1) as lock:
                assert _state(lock) == (True, False) and 0 < lock.remaining <= 0.08
                time.sleep(0.1)  # noqa: ASYNC251  # as a process that is stopped
                assert _state(lock) == (False, True) and lock.remaining == 0
                steps.append("stopped")
                await trio.sleep_forever()
        assert steps == ["stopped"]
        with pytest.raises(LockLost):
            lock.check()
        with pytest.raises(Refused):
            async with space.turn(expect=[lock.held]) as turn:
                turn.send(Record("too", "late"))


async def test_a_block_that_ends_without_noticing_the_loss_does_not_end_silently(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(LockLost):
            async with space.lock("a", ttl=0.1):
                time.sleep(0.1)  # noqa: ASYNC251  # as above
        with pytest.raises(ZeroDivisionError):
            async with space.lock("a"):
                raise ZeroDivisionError


async def test_a_contender_whose_end_was_never_told_begins_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its fact came and went while its observation had no connection."""

    async def silent(self: Term) -> bool:
        return False

    monkeypatch.setattr(Queue, "take", lambda self, epoch: None)
    monkeypatch.setattr(Term, "_renew", silent)
    with trio.fail_after(60):
        async with dataspace.connect(url) as one, dataspace.connect(url) as two:
            async with one.lock("billing", "one"), trio.open_nursery() as nursery:
                async with one.observe('contender("billing", "two", $term)') as terms:
                    waiting = two.lock("billing", "two", ttl=0.2)
                    nursery.start_soon(waiting.take)
                    seen = set()
                    async for change in terms:
                        seen.add(change.captures)
                        if len(seen) == 3:
                            break
                nursery.cancel_scope.cancel()


async def test_the_blocking_client_has_the_same_locks(daemon: DaemonProcess) -> None:
    def work() -> None:
        with (
            dataspace.connect_blocking(daemon.url, name="one") as one,
            dataspace.connect_blocking(daemon.url, name="two") as two,
        ):
            with one.lock("a") as lock:
                assert lock.valid and lock.token > 0 and lock.remaining > 0
                assert two.first('lock("a", $who, _)') == ("one",)
                with pytest.raises(TimeoutError), two.lock("a", timeout=0.05):
                    raise AssertionError
                with one.turn(expect=[lock.held]) as turn:
                    turn.send(Record("held"))
            with two.elect("a", "me", ttl=0.1) as late:
                assert late.token > lock.token and late.identity == lock.identity
            with pytest.raises(LockLost), two.lock("b", ttl=0.05) as late:
                late._lock._term.lose("as a test wants")
                assert not late.valid
            assert [one.put("config", "rate", n) > 0 for n in (1, 2)] == [True, True]
            assert two.matches("config($, $)") == [("rate", 2)]
            with pytest.raises(TimeoutError):
                one.first("nothing(_)", timeout=0.05)

    await trio.to_thread.run_sync(work)
    await trio.to_thread.run_sync(asyncio.run, _on_asyncio(daemon.url))


async def _on_asyncio(url: str) -> None:
    """Locks under asyncio: they take turns, and a block whose lock is lost is cancelled."""
    taken: list[int] = []

    async def take(space: dataspace.RemoteSpace) -> None:
        async with space.lock("turns") as lock:
            taken.append(lock.token)
            await asyncio.sleep(0)

    async with dataspace.connect(url) as one, dataspace.connect(url) as two:
        await asyncio.gather(*[take(space) for space in (one, two, one, two)])
        assert taken == sorted(set(taken)) and len(taken) == 4
        with pytest.raises(LockLost):
            async with one.lock("lost", ttl=0.1):
                time.sleep(0.1)  # noqa: ASYNC251  # as a process that is stopped
                await asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            async with one.elect("turns", "me"), two.elect("turns", "you", timeout=0.05):
                raise AssertionError


@pytest.mark.parametrize("owner", ["", "results"])
async def test_put_keeps_one_fact_for_each_key_and_each_epoch_shows_one(url: str, owner: str) -> None:
    async with dataspace.connect(url, owner=owner) as space, dataspace.connect(url) as other:
        seen = other.observe('config("billing", "rate", $n)', policy="wait", quiet=True)
        seen.open()
        await other.sync()
        for n in range(5):
            await space.put("config", "billing", "rate", n)
            await space.put("config", "billing", "limit", -n)
        await space.put(Record("config", "billing", "rate", "new", 1), by='config("billing", "rate", _)')
        rows = await other.matches("config($, $, $)")
        assert sorted(map(str, rows)) == sorted(
            map(str, [("billing", "rate", "new"), ("billing", "limit", -4)])
        )
        state: list[object] = []
        async with seen:
            async for epoch in seen.epochs():
                state += [row[0] for row in epoch.added]
                for row in epoch.removed:
                    state.remove(row[0])
                assert len(state) <= 1 and (state or epoch.snapshot)
                if state == ["new"]:
                    break
        with pytest.raises(UsageError, match="does not have the key"):
            await space.put(Record("other", 1), by='config("billing", "rate", _)')
        with pytest.raises(UsageError, match="put needs a record with a key"):
            await space.put("alone")
        with pytest.raises(UsageError, match=r"got now\(7\); for one such fact in all add by='now\(_\)'"):
            await space.put("now", 7)
        await space.put("now", 7, by="now(_)")
        await space.put("now", 8, by="now(_)")
        assert await space.matches("now($t)") == [(8,)]


async def test_two_clients_of_a_durable_owner_share_its_keys(url: str) -> None:
    async with (
        dataspace.connect(url, owner="all", client="~1") as one,
        dataspace.connect(url, owner="all", client="~2") as two,
    ):
        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon((one, two)[n % 2].put, "rate", "x", n)
        assert len(await one.matches("rate($, $)")) == 1


async def test_what_has_ended_stays_so_where_that_is_wanted(proxy: Proxy, url: str) -> None:
    events: list[ConnectionChange] = []
    back = trio.Event()

    def note(event: dataspace.ConnectionEvent) -> None:
        events.append(event.change)
        if event.change is ConnectionChange.ANEW:
            assert event.facts == 0
            back.set()

    async with (
        dataspace.connect(proxy.url, reassert=False, on_connection=note) as space,
        dataspace.connect(url) as other,
    ):
        await space.assert_(Record("present", "me"))
        await space.put("config", "rate", 1)
        proxy.cut()
        with trio.fail_after(30):
            await back.wait()
        await space.sync()
        assert await other.matches("present($)") == await other.matches("config($, $)") == []
        await space.put("config", "rate", 2)
        assert await other.matches("config($, $)") == [("rate", 2)]
    assert events == [ConnectionChange.CONNECTED, ConnectionChange.LOST, ConnectionChange.ANEW]


async def test_the_first_match_is_there_or_comes(url: str) -> None:
    async with dataspace.connect(url) as space:
        await space.assert_(Record("ready", 1))
        assert await space.first("ready($n)") == (1,)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(space.first, "said($)")
            await trio.testing.wait_all_tasks_blocked(0.05)
            await space.send(Record("said", "hi"))
        with pytest.raises(TimeoutError, match="nothing has matched"):
            await space.first("never(_)", timeout=0.05)


def _state(lock: dataspace.Lock) -> tuple[bool, bool]:
    return lock.valid, lock.lost.is_set()


def _states(queue: Queue) -> str:
    flags = {"first": queue.is_first, "out": queue.is_out, "unclear": queue.is_unclear}
    return " ".join(name for name, is_set in flags.items() if is_set)


def _epoch(number: int, came: list[str], went: list[str] = [], *, first: int | None = None) -> EpochChanges:  # noqa: B006
    rows: list[list[tuple[Value, ...]]] = [[("who", term) for term in terms] for terms in (came, went)]
    return EpochChanges(number, 0, first or number, ("who", "term"), rows[0], [], rows[1])


def test_a_queue_counts_those_that_came_before() -> None:
    queue = Queue("me")
    states = []
    for epoch in (
        _epoch(1, ["a", "b"]),
        _epoch(2, ["me"]),
        _epoch(3, ["c"], ["a"]),
        _epoch(4, [], ["b"]),
    ):
        queue.take(epoch)
        states.append(_states(queue))
    assert states == ["", "", "", "first"]
    queue.wait_for([("who", "b")])  # it has gone already
    assert _states(queue) == "first"
    queue.wait_for([("who", "z")])
    assert _states(queue) == ""
    queue.take(_epoch(6, [], ["z", "me"]))
    assert _states(queue) == "out"
    queue = Queue("me")
    for epoch in (_epoch(1, ["b"]), _epoch(2, ["me"]), _epoch(3, [], ["b"]), _epoch(9, ["b"], first=3)):
        queue.take(epoch)  # the daemon was killed before it had written the end of b
    assert _states(queue) == "first"
    queue.wait_for([("who", "b")])
    assert _states(queue) == "", "b is waited for again"
    queue = Queue("me")
    queue.take(_epoch(9, ["a", "me"], first=7))
    assert _states(queue) == "unclear"


async def test_work_is_done_until_something_matches_and_then_ends_once(url: str) -> None:
    ended: list[str] = []
    begun = trio.Event()

    async def work(name: str) -> None:
        try:
            begun.set()
            await trio.sleep_forever()
        finally:
            ended.append(name)

    async with (
        dataspace.connect(url) as space,
        dataspace.connect(url) as other,
        trio.open_nursery() as nursery,
    ):

        async def answers() -> None:
            await begun.wait()
            async with other.turn() as turn:  # several at once: the first counts, and only that
                for n in range(5):
                    turn.assert_(Record("answer", n))
                turn.send(Record("answer", 5))

        nursery.start_soon(answers)
        assert await space.react_until("answer($n)", work, "first") == (0,)
        assert ended == ["first"], "it has ended before the answer is returned"
        row = await space.react_until("answer($n)", work, "never begun")
        assert row[0] in range(5) and ended == ["first"]
        with pytest.raises(ZeroDivisionError):
            await space.react_until("nothing()", _fails)
        assert (await space.status())["observers"] == 0


async def _fails() -> None:
    raise ZeroDivisionError


async def test_work_that_ends_sooner_leaves_the_wait_for_the_match(url: str) -> None:
    async with dataspace.connect(url) as space:

        async def sends() -> None:
            await space.send(Record("answer", 7))

        assert await space.react_until("answer($n)", sends) == (7,), "what the work itself causes counts"
