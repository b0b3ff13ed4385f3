"""Each call of a client, with the daemon dead before each packet of it, and back after that.

A call runs once in virtual time to count what passes between client and daemon, and again for each of these
deliveries, before which the daemon is killed.  The calls, and what must hold after each however often it was
sent, are those of ``tests/server/sessions/test_lost_answers.py`` and some more.

The law: a call that is safe to repeat returns what it would, and has its effect once; any other one does so,
or raises one error that says that it may have happened.

``python -m tests.generated.deaths`` tries each call with a session that outlives the daemon or with one that
does not, by turns; ``--whole`` tries each with both, and with a failure of the power as well.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import itertools
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import trio

import dataspace
from dataspace import Record, RemoteSpace
from dataspace.client.completed import CompletedEpochs
from dataspace.client.epoch_streams import EpochStream
from dataspace.client.holds import Hold
from dataspace.client.jobs import Job, Jobs
from dataspace.client.locks import Held, Lock
from dataspace.client.observations import Observation
from dataspace.client.publications import Capability, Publication
from dataspace.client.session.named import NamedDaemon
from dataspace.client.subscriptions import Subscription
from dataspace.errors import DataspaceError
from index.values.values import Map
from tests.relay.store.memory import in_memory
from tests.server.sessions.test_lost_answers import (
    IN_DOUBT,
    JOB,
    SAFE,
    Act,
    Call,
    Client,
    _is_dead,
    _is_idle,
    _stands,
    _take,
)
from tests.simulation.daemons import Supervisor
from tests.simulation.disks import fault_of
from tests.simulation.entropy import BEGAN, virtual
from tests.simulation.hosts import Host
from tests.simulation.life import MEMORY, listened
from tests.simulation.network import Line, Network, Weather
from tests.simulation.plan import Plan
from tests.simulation.scheduling import run_ordered
from tests.simulation.seams import seams
from tests.simulation.world import URL, World

PATIENCE: Final = 60.0
CALM: Final = Weather(delay=0.0, split=0.0, buffer=1 << 20)


@dataclass
class Death:
    """When the daemon dies: before so many deliveries of the client, counted while it is armed."""

    at: int
    strike: Callable[[Line], None]
    is_armed: bool = False
    count: int = field(default=0)

    def before_delivery(self, line: Line) -> None:
        """Counts what passes between the client and the daemon."""
        if self.is_armed and line.hosts[0].name == "client":
            self.count += 1
            if self.count == self.at:
                self.strike(line)


def live(name: str, call: Call, at: int, grace: float, *, power: bool = False) -> tuple[int, str]:
    """Calls with a daemon that dies before a delivery; returns the count of them, and what is wrong."""
    plan = Plan(1, CALM, (), (), memory=True)
    above = MEMORY if MEMORY.is_dir() else None
    wrong: list[str] = []

    def strike(line: Line) -> None:
        supervisor.host.die(power=power)
        if not power:
            line.reset("the daemon has died")

    death = Death(at, strike)
    supervisor: Supervisor

    async def run() -> None:
        nonlocal supervisor
        async with trio.open_nursery() as nursery:
            world.network = Network(CALM, "deaths", nursery, world.trace, lambda *_: None)
            world.network.before_delivery = death.before_delivery
            supervisor = Supervisor(world)
            async with trio.open_nursery() as supervised:
                supervised.start_soon(supervisor.run)
                Host("witness", world.random("witness"), 1000).enter()
                async with dataspace.connect(URL, wait=PATIENCE) as witness:
                    Host("client", world.random("client"), 1001).enter()
                    await act(witness)
                supervisor.stop()
            nursery.cancel_scope.cancel()

    async def act(witness: dataspace.RemoteSpace) -> None:
        async with (
            dataspace.connect(URL, grace=grace) as space,
            space.consume(JOB, group="w", key="id", in_flight=2) as jobs,
        ):
            client = Client(space, witness, None, jobs)
            await call.before(client)
            await space.sync()
            death.is_armed = True
            with trio.move_on_after(PATIENCE) as scope:
                try:
                    await call.act(client)
                except DataspaceError as error:
                    if name not in DOUBTFUL or DOUBTFUL[name][1] not in str(error):
                        wrong.append(f"{error!r}")
                except Exception as error:  # noqa: BLE001  # each is judged
                    wrong.append(f"{error!r}")
            death.is_armed = False
            if scope.cancelled_caught:
                wrong.append(f"no answer within {PATIENCE:g} s")
            with trio.move_on_after(PATIENCE) as scope:
                try:
                    await call.after(client)
                except Exception as error:  # noqa: BLE001  # likewise
                    wrong.append(f"after it: {error!r}")
            if scope.cancelled_caught:
                wrong.append(f"after it nothing comes within {PATIENCE:g} s")

    with tempfile.TemporaryDirectory(prefix="deaths-", dir=above) as folder, contextlib.chdir(folder):
        world = World(plan, Path())
        with in_memory(fault_of), listened() as heard, virtual(), seams(lambda: world.network):
            run_ordered("deaths", run)
    return death.count, "; ".join([*wrong, *world.faults, *heard.said])


GRACES: Final = (20.0, 0.0)


# -- further calls -----------------------------------------------------------------------------------


def _once(pattern: str) -> Act:
    """Returns what checks that something appeared, or was sent, once in the whole log."""

    async def check(client: Client) -> None:
        upto, kinds = await client.witness.sync(), []
        async with client.witness.observe(pattern, after=0, upto=upto, quiet=True) as changes:
            async for change in changes:
                kinds.append(change.kind)
        assert sum(kind in ("+", "!") for kind in kinds) == 1, kinds

    return check


async def _people(client: Client) -> None:
    client.made = await client.space.assert_(Record("kept", 1), owner="people")


async def _there(client: Client) -> None:
    await client.witness.assert_(Record("there", 1), owner="people")


async def _meanwhile(client: Client, act: Callable[[], Awaitable[Any]]) -> Any:
    """Returns what a call returns, while another client asserts what it waits for."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_there, client)
        return await act()


async def _asserting(client: Client) -> None:
    async with client.space.asserting(Record("here", 1)):
        pass


async def _gone(client: Client) -> None:
    while await client.witness.matches("here($n)"):  # noqa: ASYNC110  # asked as anybody would
        await trio.sleep(1.0)


async def _expecting(client: Client) -> None:
    async with client.space.turn(expect=[dataspace.absent("new($n)")]) as turn:
        turn.assert_(Record("new", 1), owner="people")


async def _submit(client: Client) -> None:
    draft = client.space.draft()
    draft.send(Record("new", 1))
    ticket = await client.space.submit(draft)
    await client.space.drain(PATIENCE)
    await ticket.wait()


async def _lock(client: Client) -> None:
    async with client.space.lock("l", ttl=30.0) as lock:
        lock.check()


async def _elect(client: Client) -> None:
    async with client.space.elect("l", "me", ttl=30.0) as lock:
        lock.check()


async def _lock_after_another(client: Client) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_give_up, client.made)
        await _lock(client)


async def _give_up(held: Any) -> None:
    await trio.sleep(0.1)
    await held.release()


async def _held_by_another(client: Client) -> None:
    client.made = client.witness.lock("l", ttl=30.0).lock
    await client.made.acquire()


async def _free(client: Client) -> None:
    async with client.witness.lock("l", ttl=30.0, timeout=PATIENCE):
        pass


async def _observe(client: Client) -> None:
    async with client.space.observe("there($n)") as changes:
        seen: list[Any] = []
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_there, client)

                def note(change: Any) -> None:
                    seen.append(change.captures)
                    scope.cancel()

                await changes.each(note)
    assert seen == [(1,)], seen


async def _next_epoch(client: Client) -> None:
    async with client.space.observe("there($n)") as changes:

        async def read() -> None:
            while (epoch := await changes.next_epoch()) is not None and not epoch.added:
                pass
            assert epoch is not None and [*epoch.added] == [(1,)], epoch

        await _meanwhile(client, read)


async def _epochs(client: Client) -> None:
    changes, seen = client.space.observe("there($n)"), []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_there, client)
            stream = changes.epochs()
            await stream.peek()

            def note(epoch: Any) -> None:
                seen.extend(epoch.added)
                if seen:
                    scope.cancel()

            await stream.each(note)
    await changes.aclose()
    assert seen == [(1,)], seen


async def _deliveries(client: Client) -> None:
    draft = client.space.draft()
    draft.deliveries = await client.jobs.deliveries(client.made)
    await client.space.commit(draft)


async def _react(client: Client) -> None:
    found = await _meanwhile(client, lambda: client.space.react_until("there($n)", trio.sleep_forever))
    assert found == (1,), found


async def _first(client: Client) -> None:
    found = await _meanwhile(client, lambda: client.space.first("there($n)", timeout=PATIENCE))
    assert found == (1,), found


async def _past(client: Client) -> None:
    rows = await client.space.query("there($n)", as_of=await client.space.sync())
    assert [*rows] == [(1,)], rows
    await client.space.epoch_at(datetime.fromtimestamp(BEGAN, UTC) + timedelta(hours=1))


async def _items(client: Client) -> None:
    async with client.witness.publish("kept", durable=True) as publication:
        await publication.finish(1, then=1)
        await publication.finish(2, then=2)
        await publication.flush()


async def _read_topic(client: Client) -> None:
    async with client.space.subscribe("kept", as_of=0) as epochs:
        found = [await epochs.next_epoch() for _ in range(2)]
    assert [each.items for each in found if each is not None] == [(1,), (2,)], found


async def _read_events(client: Client) -> None:
    async with client.space.subscribe("kept", as_of=0) as epochs:
        await epochs.next_event()


async def _publish_away(client: Client) -> None:
    async with client.space.publish("kept", durable=True, name="p", away=PATIENCE) as publication:
        await publication.send(1)
        await publication.advance(1)
        more = await publication.hold(2)
        await more.downgrade(3)
        await more.release()
        await publication.finish(2, then=4)
        await publication.flush()
        await publication.release()


async def _items_once(client: Client) -> None:
    found = [each.items async for each in client.witness.completed("kept") if each.items]
    assert found == [(1,), (2,)], found


async def _take_two(client: Client) -> None:
    for number in range(2):
        await client.witness.send(Record("job", number))
    client.made = [await client.jobs.next_job() for _ in range(2)]


async def _next_job(client: Client) -> None:
    job = await client.jobs.next_job()
    await job.done()


async def _work(client: Client) -> None:
    with trio.CancelScope() as scope:

        async def work(_job: Any) -> None:
            await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: client.jobs.run(work, tasks=2))
            await _is_idle(client)
            scope.cancel()


async def _send_job(client: Client) -> None:
    await client.witness.send(Record("job", 1))


async def _join(client: Client) -> None:
    async with client.space.consume("other($id)", group="other"):
        pass


async def _connect(_client: Client) -> None:
    async with dataspace.connect(URL, wait=PATIENCE) as space:
        await space.sync()


async def _hold_on(client: Client) -> None:
    held = await client.space.hold(Record("held", 1), ttl=6.0, renew=True)
    await trio.sleep(8.0)
    await held.release()


async def _give_back(client: Client) -> None:
    await client.jobs.extend(*client.made)
    await client.jobs.settle("again", client.made[0], blame=False)
    await client.jobs.done(client.made[1])
    await _next_job(client)


MORE: Final[dict[str, Call]] = {
    "send": Call(lambda c: c.space.send(Record("new", 1)), after=_once("new($n)")),
    "submit": Call(_submit, after=_once("new($n)")),
    "replace": Call(lambda c: c.space.replace(c.made, Record("kept", 2)), _people, _once("kept(2)")),
    "retract": Call(lambda c: c.space.retract(c.made), _people, _stands("kept($n)", [])),
    "asserting": Call(_asserting, after=_gone),
    "turn": Call(_expecting, after=_once("new($n)")),
    "lock": Call(_lock, after=_free),
    "lock of another": Call(_lock_after_another, _held_by_another, _free),
    "elect": Call(_elect, after=_free),
    "each": Call(_observe),
    "next_epoch": Call(_next_epoch),
    "react_until": Call(_react),
    "first": Call(_first),
    "query, as_of": Call(_past, _there),
    "next_epoch of a topic": Call(_read_topic, _items),
    "next_event": Call(_read_events, _items),
    "publish, away": Call(_publish_away, after=_items_once),
    "done of two": Call(lambda c: c.jobs.done(*c.made), _take_two, _is_idle, joins=True),
    "deliveries": Call(_deliveries, _take_two, _is_idle, joins=True),
    "epochs": Call(_epochs),
    "some of two": Call(_give_back, _take_two, _is_idle, joins=True),
    "next_job": Call(_next_job, _send_job, _is_idle, joins=True),
    "peek": Call(lambda c: c.space.peek("w"), _send_job, joins=True),
    "cause": Call(lambda c: c.made.cause(), _take, joins=True),
    "run": Call(_work, _send_job, _is_idle, joins=True),
    "consume": Call(_join),
    "connect": Call(_connect),
    "hold, renew": Call(_hold_on, after=_stands("held($n)", [])),
    "named": Call(lambda c: c.space.named.request("status", Map())),
}
DOUBTFUL: Final[dict[str, tuple[Call, str]]] = {
    **{name: (call, "so it may have taken effect") for name, call in IN_DOUBT.items()},
    "publish": (SAFE["publish"], "before the answer"),
    "stage, pulled": (Call(lambda c: c.space.stage(("k",), [("assert", 1)])), "lost"),
    "dead": (Call(lambda c: c.made.dead("no"), _take, _is_dead, joins=True), "is no longer here"),
}
"""Calls that may raise an error that says what is not known."""

CALLS: Final = {**SAFE, **MORE, **{name: call for name, (call, _) in DOUBTFUL.items()}}

OF_CLIENTS: Final = (
    *(RemoteSpace, Job, Jobs, Publication, Capability, Hold, Lock, Held, Observation, Subscription),
    *(EpochStream, CompletedEpochs, NamedDaemon),
)
"""The classes whose coroutines are called."""


def coroutines() -> set[str]:
    """Returns the names of all public coroutines of the client."""
    return {
        f"{kind.__name__}.{name}"
        for kind in OF_CLIENTS
        for name, value in vars(kind).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }


@contextlib.contextmanager
def noted(begun: set[str]) -> Iterator[None]:
    """Notes the coroutines that are begun within the block."""
    with contextlib.ExitStack() as held:
        for kind in OF_CLIENTS:
            for name in dict(vars(kind)):
                title = f"{kind.__name__}.{name}"
                if title in COROUTINES:
                    held.enter_context(patch.object(kind, name, _noting(vars(kind)[name], title, begun)))
        yield


def _noting(real: Any, title: str, begun: set[str]) -> Any:
    @functools.wraps(real)
    async def called(*args: Any, **options: Any) -> Any:
        begun.add(title)
        return await real(*args, **options)

    return called


COROUTINES: Final = coroutines()


def main() -> int:
    """Tries all calls; returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.generated.deaths", description=__doc__)
    parser.add_argument("--whole", action="store_true", help="each call in each way")
    parser.add_argument("names", nargs="*", help="calls")
    options = parser.parse_args()
    wrong: list[str] = []
    begun: set[str] = set()
    lives, graces = 0, itertools.cycle(GRACES)
    for name in options.names or CALLS:
        ways = [(next(graces), False)]
        if options.whole:
            ways = [(grace, power) for grace in GRACES for power in (False, True)]
        for grace, power in ways:
            with noted(begun):
                most, said = live(name, CALLS[name], 0, grace)
            found = {0: said} | {
                at: live(name, CALLS[name], at, grace, power=power)[1] for at in range(1, most + 1)
            }
            way = f"{name}, grace {grace:g}{', power' if power else ''}"
            print(f"{way}: {most} deliveries", flush=True)
            wrong += [f"{way}, dead before {at} of {most}: {said}" for at, said in found.items() if said]
            lives += most + 1
    if not options.names and (unseen := COROUTINES - begun):
        wrong.append(f"never called: {sorted(unseen)}")
    print(*[f"WRONG {each}" for each in wrong], f"{lives} lives", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
