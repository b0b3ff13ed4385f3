"""A request whose connection is lost: sent again where twice is as good as once, else its error says so.

Each request, with the connection cut before it is sent, before it reaches the daemon and before its answer.
With a daemon that is killed before each packet, and started again, ``tests/generated/deaths.py`` tries them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest
import trio

import dataspace
from dataspace import Broken, DeliveryLost, Record, RemoteSpace
from index.values.values import Map
from tests.server.proxies import Proxy

Cut = Literal["before sending", "on its way", "before the answer"]

JOB: Final = "job($id)"

SENT_SECONDS: Final = 0.1
"""After which what a client sends is in the socket, and the daemon has acted on it."""


@dataclass
class Client:
    """A client whose connection is cut, another one, and what the first one has made."""

    space: RemoteSpace
    witness: RemoteSpace
    made: Any = None
    jobs: Any = None


Act = Callable[[Client], Awaitable[Any]]


async def _nothing(_client: Client) -> None:
    """Prepares nothing."""


async def _take(client: Client) -> None:
    await client.witness.send(Record("job", 1))
    with trio.fail_after(10):
        client.made = await client.jobs.next_job()


async def _hold(client: Client) -> None:
    client.made = await client.space.hold(Record("held", 1), ttl=60)


async def _topic(client: Client) -> None:
    async with client.witness.publish("kept", durable=True):
        pass


async def _claims(client: Client) -> None:
    await client.witness.assert_(Record("old", 1), owner="people")


async def _subscribe(client: Client) -> None:
    async with client.space.subscribe("kept", timeout=9):
        pass


async def _completed(client: Client) -> list[Any]:
    return [each async for each in client.space.completed("kept")]


async def _publish(client: Client) -> None:
    async with client.space.publish("new") as publication:
        await publication.send(1)
        await publication.flush()


async def _turn(client: Client) -> None:
    async with client.space.turn(done=[client.made]) as turn:
        turn.assert_(Record("result", 1), owner="results")


async def _fails(client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.made:
            raise ZeroDivisionError


async def _comes_again(client: Client) -> None:
    with trio.fail_after(10):
        job = await client.jobs.next_job()
    assert (job["id"], job.attempt) == (1, 2)
    await job.done()


async def _is_idle(client: Client) -> None:
    with trio.fail_after(10):
        while True:
            answer: Any = await client.witness.request("groups", Map({"group": "w"}))
            if answer[0]["undone"] == answer[0]["out"] == 0:
                return
            await trio.sleep(0.01)


async def _is_dead(client: Client) -> None:
    assert await client.witness.matches("dead(_, _, _, job($id), $why, _)") == [(1, "no")]
    await _is_idle(client)


def _stands(fact: str, rows: list[Any]) -> Act:
    async def check(client: Client) -> None:
        assert await client.witness.matches(fact) == rows

    return check


@dataclass(frozen=True)
class Call:
    """A call of the client: what is done before it, the call, and what holds after it, however often it was
    sent."""

    act: Act
    before: Act = _nothing
    after: Act = _nothing
    joins: bool = False


SAFE: Final[dict[str, Call]] = {
    "sync": Call(lambda c: c.space.sync()),
    "status": Call(lambda c: c.space.status()),
    "assert_": Call(lambda c: c.space.assert_(Record("new", 1)), after=_stands("new($n)", [(1,)])),
    "send": Call(lambda c: c.space.send(Record("new", 1))),
    "matches": Call(lambda c: c.space.matches("x($n)")),
    "query": Call(lambda c: c.space.query("x($n)")),
    "put": Call(lambda c: c.space.put("key", "a", 1), after=_stands("key($k, $v)", [("a", 1)])),
    "put, owner": Call(
        lambda c: c.space.put("key", "a", 1, owner="people"), after=_stands("key($k, $v)", [("a", 1)])
    ),
    "withdraw": Call(
        lambda c: c.space.withdraw("old($n)", owner="people"), _claims, after=_stands("old($n)", [])
    ),
    "hold": Call(lambda c: c.space.hold(Record("held", 1), ttl=60), after=_stands("held($n)", [(1,)])),
    "renew": Call(lambda c: c.made.renew(), _hold, _stands("held($n)", [(1,)])),
    "hold.put": Call(lambda c: c.made.put(Record("held", 2)), _hold, _stands("held($n)", [(2,)])),
    "release": Call(lambda c: c.made.release(), _hold, _stands("held($n)", [])),
    "publish": Call(_publish),
    "subscribe": Call(_subscribe, _topic),
    "completed": Call(_completed, _topic),
    "done": Call(lambda c: c.made.done(), _take, _is_idle, joins=True),
    "turn, done": Call(_turn, _take, _is_idle, joins=True),
    "extend": Call(lambda c: c.made.extend(), _take, lambda c: c.made.done(), joins=True),
    "again": Call(lambda c: c.made.again(), _take, _comes_again, joins=True),
    "block": Call(_fails, _take, _comes_again, joins=True),
    "key_order": Call(lambda c: c.jobs.key_order(), joins=True),
}
"""Calls that return what they would, whenever the connection is cut."""

IN_DOUBT: Final[dict[str, Call]] = {
    "end_topic": Call(lambda c: c.space.end_topic("kept"), _topic),
    "settle": Call(lambda c: c.space.request("settle", Map({"group": "w", "extend": ()})), joins=True),
    "stage": Call(
        lambda c: c.space.request("stage", Map({"key": ("k",), "operations": (("assert", 1),)})),
    ),
}
"""Calls that raise ``Broken`` unless the connection was cut before they were sent."""


async def _cut(proxy: Proxy, when: Cut, client: Client, act: Act) -> Any:
    """Calls, while the connection is cut; returns what the call returns."""
    result: list[Any] = []

    async def call() -> None:
        result.append(await act(client))

    lost, back = trio.Event(), trio.Event()

    def hear(event: dataspace.ConnectionEvent) -> None:
        (lost if event.change is dataspace.ConnectionChange.LOST else back).set()

    client.space.on_connection = hear
    with trio.fail_after(20):
        if when == "before sending":
            proxy.refusing = True
            proxy.cut()
            await lost.wait()
        else:
            proxy.hold("up" if when == "on its way" else "down")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                await trio.sleep(SENT_SECONDS)
                proxy.refusing = False
                if when != "before sending":
                    proxy.cut()
                    proxy.open("up" if when == "on its way" else "down")
        except BaseExceptionGroup as group:
            (error,) = group.exceptions
            raise error from None
        await back.wait()
    return result[0]


async def _run(url: str, proxy: Proxy, when: Cut, call: Call) -> Any:
    async with (
        dataspace.connect(url) as witness,
        dataspace.connect(proxy.url, grace=20) as space,
        space.consume(JOB, group="w") as jobs,
    ):
        client = Client(space, witness, None, jobs)
        await call.before(client)
        await space.sync()
        try:
            return await _cut(proxy, when, client, call.act)
        finally:
            with trio.CancelScope(shield=True):
                await call.after(client)


CUTS: Final[tuple[Cut, ...]] = ("before sending", "on its way", "before the answer")


@pytest.mark.parametrize("when", CUTS)
@pytest.mark.parametrize("name", SAFE)
async def test_a_call_that_is_safe_to_repeat_succeeds(url: str, proxy: Proxy, name: str, when: Cut) -> None:
    await _run(url, proxy, when, SAFE[name])


@pytest.mark.parametrize("when", CUTS)
@pytest.mark.parametrize("name", IN_DOUBT)
async def test_any_other_call_says_that_it_may_have_happened(
    url: str, proxy: Proxy, name: str, when: Cut
) -> None:
    if when == "before sending":
        await _run(url, proxy, when, IN_DOUBT[name])
        return
    with pytest.raises(Broken, match="so it may have taken effect"):
        await _run(url, proxy, when, IN_DOUBT[name])


@pytest.mark.parametrize("when", CUTS)
async def test_a_job_is_given_up_or_its_error_says_that_it_is_no_longer_here(
    url: str, proxy: Proxy, when: Cut
) -> None:
    call = Call(lambda c: c.made.dead("no"), _take, _is_dead)
    if when == "before the answer":
        with pytest.raises(DeliveryLost):
            await _run(url, proxy, when, call)
    else:
        await _run(url, proxy, when, call)


@pytest.mark.parametrize("tasks", [1, 3])
async def test_a_worker_whose_jobs_fail_while_the_daemon_is_away_goes_on(
    url: str, proxy: Proxy, tasks: int
) -> None:
    seen: list[tuple[object, int]] = []
    begun, ended = trio.Event(), trio.Event()
    async with dataspace.connect(url) as witness, dataspace.connect(proxy.url, grace=20) as space:
        async with space.consume(JOB, group="w", in_flight=tasks) as jobs, trio.open_nursery() as nursery:

            async def work(job: dataspace.Job) -> None:
                seen.append((job["id"], job.attempt))
                if job.attempt == 1:
                    if len(seen) == tasks:
                        proxy.refusing = True
                        proxy.cut()
                        nursery.start_soon(_serve_soon, proxy)
                        begun.set()
                    await begun.wait()
                    raise ZeroDivisionError
                if len(seen) == 2 * tasks:
                    ended.set()

            nursery.start_soon(lambda: jobs.run(work, tasks=tasks))
            for number in range(tasks):
                await witness.send(Record("job", number))
            with trio.fail_after(30):
                await ended.wait()
            nursery.cancel_scope.cancel()
    assert sorted(seen) == [(number, attempt) for number in range(tasks) for attempt in (1, 2)]


async def _serve_soon(proxy: Proxy) -> None:
    await trio.sleep(SENT_SECONDS)
    proxy.refusing = False


async def test_no_call_raises_a_group_of_one(url: str, proxy: Proxy, nursery: trio.Nursery) -> None:
    async def fails(*_args: object) -> None:
        raise ZeroDivisionError

    async with dataspace.connect(proxy.url, reconnect=False) as space:
        with pytest.raises(ZeroDivisionError):
            await space.react_until("never($x)", fails)
        async with space.consume(JOB, group="w", in_flight=3) as jobs:
            nursery.start_soon(_cut_soon, proxy)
            with pytest.raises(Broken):
                await jobs.run(fails, tasks=3)


async def _cut_soon(proxy: Proxy) -> None:
    await trio.sleep(SENT_SECONDS)
    proxy.cut()


async def test_a_change_of_space_is_told_of_what_changes_something(url: str, other: str) -> None:
    proxy = Proxy(url)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        async with dataspace.connect(proxy.url) as space:
            proxy.silent = True
            async with trio.open_nursery() as calls:

                async def put() -> None:
                    with pytest.raises(dataspace.AnotherSpace, match="its answer lost"):
                        await space.put("key", "a", 1, owner="people")

                async def sync() -> None:
                    assert await space.sync() >= 0

                calls.start_soon(put)
                calls.start_soon(sync)
                await proxy.move_to(other)
        nursery.cancel_scope.cancel()
