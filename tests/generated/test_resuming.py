"""What resumes checks what it resumes on: after a change of identity each door says so, or shows the state.

Readers of all doors read a history of facts and of topic items.  Then its daemon is restarted, loses what it
had not written, is restored to an earlier epoch, is made anew, forgets what is old, or has a topic made anew;
or the reader asks in another space.  The same numbers are used before and after, so that no number is refused
for being still to come.  Each reader goes on from its place.

The law: a reader is told, or begins with the state that there is, or has in the end what the history of the
present daemon has, in order.  It is told of nothing if nothing has changed.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.client import BulkClient
from dataspace.errors import AnotherSpace, Broken, Refused
from dataspace.transport.addresses import parse_listen
from index.patterns.text import parse_pattern
from relay.log import writer as retaining
from relay.log.retention import Retention
from server.cli.main import main
from server.config.model import Config, SpaceConfig
from server.connections.admission import spoken
from server.daemon.features import STREAMS
from server.daemon.serve import serve
from tests.routes import ROUTES
from tests.server.streams.test_readers import publish
from tests.server.web.routes.callers import EventSource

pytestmark = pytest.mark.slow

SOON: Final = 8.0
PATTERN: Final = "p($what)"
TURNS: Final = 5


class World:
    """A daemon with two spaces and a topic, and what its histories have."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self.data = folder / "data"
        self.backup = folder / "backup"
        self._nursery = nursery
        self._ending = self._ended = trio.Event()
        self._config = Config(
            ("tcp:127.0.0.1:0", "http:127.0.0.1:0"),
            self.data,
            spaces=(SpaceConfig("two", self.data / "two"),),
        )
        self.space = "main"
        """The space in which readers resume."""
        self.facts: dict[str, list[str]] = {"main": [], "two": []}
        self.items: list[str] = []

    async def start(self, **changed: Any) -> None:
        """Starts the daemon, at the same addresses each time."""
        self._config = replace(self._config, **changed)
        self._ending, self._ended = trio.Event(), trio.Event()

        async def run(task_status: Any) -> None:
            await serve(self._config, ending=self._ending, task_status=task_status)
            self._ended.set()

        listen = await self._nursery.start(run)
        self._config = replace(self._config, listen=tuple(listen))
        plain, web = map(parse_listen, listen)
        self.url, self.web_port = plain.url, web.port

    def http(self) -> HTTPConnection:
        """Returns a connection for one request."""
        return HTTPConnection("127.0.0.1", self.web_port, timeout=SOON)

    async def stop(self) -> None:
        """Ends the daemon in order."""
        self._ending.set()
        await self._ended.wait()

    async def fill(self, tag: str, count: int = TURNS) -> None:
        """Asserts facts in as many epochs in both spaces, and completes as many epochs of the topic."""
        names = [f"{tag}{number}" for number in range(count)]
        for space, facts in self.facts.items():
            async with dataspace.connect(self.url, space=space, owner="people") as writer:
                for name in names:
                    await writer.assert_(Record("p", name if space == "main" else f"{name} two"))
                    facts.append(name if space == "main" else f"{name} two")
        async with (
            dataspace.connect(self.url) as writer,
            writer.publish("t", durable=True) as publication,
        ):
            for name in names:
                begun = publication.time
                assert isinstance(begun, int)
                await publication.finish(name, then=begun + 1)
                self.items.append(name)
            await publication.flush()


@dataclass
class Got:
    """What a reader has."""

    items: list[str] = field(default_factory=list)
    begins: bool = False
    """True if it was shown a state in place of what it had."""
    told: str = ""


# -- doors -------------------------------------------------------------------------------------------


class Reader(ABC):
    """A reader of a door that resumes."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """The kinds of ``Open`` that it is."""
    route: str = ""
    of_topic = False
    is_sure = False
    """True if it is shown only what is on disk, which no crash takes back."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.got = Got()

    @abstractmethod
    async def read(self, nursery: trio.Nursery) -> None:
        """Reads all that there is, and keeps its place."""

    @abstractmethod
    async def resume(self) -> Got:
        """Goes on from its place until it has all, or is told."""

    @property
    def history(self) -> list[str]:
        """What the present daemon has for it."""
        return self.world.items if self.of_topic else self.world.facts[self.world.space]


class Observe(Reader):
    """Keeps the epoch and the identity of the space."""

    kinds: ClassVar[tuple[str, ...]] = ("observe",)

    async def read(self, nursery: trio.Nursery) -> None:
        await self._observe({"after": 0})

    async def resume(self) -> Got:
        await self._observe({"after": self._epoch, "identity": self._identity})
        return self.got

    async def _observe(self, place: dict[str, Any]) -> None:
        async with dataspace.connect(self.world.url, space=self.world.space) as space:
            upto = await space.sync()
            options: dict[str, Any] = {"upto": max(upto, place["after"]), "quiet": True, "policy": "wait"}
            assert space.welcome is not None
            try:
                async with space.observe(PATTERN, **place, **options) as changes:
                    async for change in changes:
                        self.got.items.append(str(change.captures[0]))
            except Refused as refusal:
                self.got.told = refusal.code
            self._epoch, self._identity = upto, space.welcome.space


class Bulk(Reader):
    """Reads columns, as Spark does, which keeps the epoch and the identity that the frontier says."""

    kinds: ClassVar[tuple[str, ...]] = ("columns",)
    is_sure = True

    async def read(self, nursery: trio.Nursery) -> None:
        await trio.to_thread.run_sync(self._read, 0, "")

    async def resume(self) -> Got:
        await trio.to_thread.run_sync(self._read, self._epoch, self._identity)
        return self.got

    def _read(self, after: int, identity: str) -> None:
        with BulkClient(self.world.url, space=self.world.space) as link:
            frontier = link.frontier()
            if identity not in ("", frontier.space):
                self.got.told = "another space"
                return
            try:
                for block in link.columns(parse_pattern(PATTERN), after=after, upto=frontier.epoch):
                    self.got.items += [str(each) for each in block.columns[0]]
            except Refused as refusal:
                self.got.told = refusal.code
            self._epoch, self._identity = frontier.epoch, frontier.space


class Stays(Reader):
    """Observes over one connection after the other."""

    kinds: ClassVar[tuple[str, ...]] = ("observe",)
    options: ClassVar[dict[str, Any]] = {}

    async def read(self, nursery: trio.Nursery) -> None:
        begun = trio.Event()
        nursery.start_soon(self._run, begun)
        await begun.wait()

    async def _run(self, begun: trio.Event) -> None:
        self._changed, self._lost = trio.Event(), False
        async with (
            dataspace.connect(self.world.url) as space,
            space.observe(PATTERN, quiet=True, **self.options) as changes,
        ):
            try:
                while (epoch := await changes.next_epoch()) is not None:
                    self._take(epoch)
                    self._changed.set()
                    self._changed = trio.Event()
                    if len(self.got.items) == TURNS:
                        begun.set()
            except Refused as refusal:
                self.got.told = refusal.code
            except AnotherSpace:
                self.got.told = "another space"
            self._changed.set()

    def _take(self, epoch: Any) -> None:
        """Keeps what is shown: this is a state, whose changes are told."""
        self.got.begins = True
        for (what,) in epoch.removed:
            self.got.items.remove(str(what))
        self.got.items += [str(what) for (what,) in epoch.added]

    async def resume(self) -> Got:
        self.world.space = "main"  # it does not ask for another
        with trio.move_on_after(SOON):
            while not self.got.told and sorted(self.got.items) != sorted(self.history):
                await self._changed.wait()
        return self.got


class StaysForEach(Stays):
    """The same, of one that wants each epoch."""

    options: ClassVar[dict[str, Any]] = {"policy": "wait", "snapshot": False, "after": 0}

    def _take(self, epoch: Any) -> None:
        """Nothing is retracted, so what goes is the difference to the state of another space."""
        begun = self.got.begins
        super()._take(epoch)
        self.got.begins = begun or bool(epoch.removed)


class Events(Reader):
    """A page: keeps the id of the last event."""

    route = "/v1/spaces/{space}/observe"
    query: ClassVar[dict[str, object]] = {}

    async def read(self, nursery: trio.Nursery) -> None:
        await trio.to_thread.run_sync(self._read, "")

    async def resume(self) -> Got:
        await trio.to_thread.run_sync(self._read, self._last)
        return self.got

    def _open(self, last: str) -> EventSource:
        return EventSource(self.world, PATTERN, last=last, space=self.world.space, **self.query)  # type: ignore[arg-type]  # it has a port

    def _read(self, last: str) -> None:
        source = self._open(last)
        try:
            if source.status == 410:
                self.got.told = "epoch-lost"
                return
            assert source.status == 200, source.status
            for event in source:
                assert event.name == "message", event
                self._take(event.data, last)
                self._last = event.id
                if self.history and self.history[-1] in self.got.items:
                    return
        finally:
            source.close()

    def _take(self, data: Any, last: str) -> None:
        if last and data.get("state"):
            self.got.begins = True
            self.got.items.clear()
        self.got.items += [each["what"] for each in data.get("added", ())]


class EventsOfEach(Events):
    """One that wants each epoch."""

    query: ClassVar[dict[str, object]] = {"policy": "wait", "snapshot": False, "after": 0}


class EventsOfTopic(Events):
    """One of a topic."""

    route = "/v1/topics/{topic}/events"
    of_topic = is_sure = True

    def _open(self, last: str) -> EventSource:
        return EventSource(self.world, "", topic="t", last=last, after=0)  # type: ignore[arg-type]  # it has a port

    def _take(self, data: Any, last: str) -> None:
        self.got.items += data["items"]


class Completed(Reader):
    """Keeps the number of a completed epoch and the id of the topic."""

    of_topic = is_sure = True

    async def read(self, nursery: trio.Nursery) -> None:
        await self._read({})

    async def resume(self) -> Got:
        await self._read({"after": self._number, "id": self._id})
        return self.got

    async def _read(self, place: dict[str, Any]) -> None:
        async with dataspace.connect(self.world.url) as space:
            epochs = space.completed("t", **place)
            try:
                async for each in epochs:
                    self.got.items += map(str, each.items)
                    self._number = each.number
            except Refused as refusal:
                self.got.told = refusal.code
            self._id = epochs.id


class Subscribed(Stays):
    """Subscribes to a topic over one connection after the other."""

    kinds: ClassVar[tuple[str, ...]] = ("topic",)
    of_topic = is_sure = True

    async def _run(self, begun: trio.Event) -> None:
        self._changed = trio.Event()
        async with dataspace.connect(self.world.url) as space:
            try:
                async with space.subscribe("t", as_of=0) as epochs:
                    while (epoch := await epochs.next_epoch()) is not None:
                        self.got.items += map(str, epoch.items)
                        self._changed.set()
                        self._changed = trio.Event()
                        if len(self.got.items) == TURNS:
                            begun.set()
                self.got.told = "its end"
            except Refused as refusal:
                self.got.told = refusal.code
            except Broken as error:
                self.got.told = type(error).__name__
            self._changed.set()


DOORS: Final = (
    Observe,
    Bulk,
    Stays,
    StaysForEach,
    Events,
    EventsOfEach,
    EventsOfTopic,
    Completed,
    Subscribed,
)


def test_each_door_with_a_place_is_among_them() -> None:
    kinds = spoken((), STREAMS)["kinds"]
    of_daemon = {"consume"}  # whose place is kept by the daemon, in the space itself
    assert {*dict(kinds.pairs())} - of_daemon == {each for door in DOORS for each in door.kinds}  # type: ignore[union-attr]  # a map
    streams = {row.path for row in ROUTES if "text/event-stream" in row.returns.values()}
    assert streams == {door.route for door in DOORS if door.route}


# -- changes -----------------------------------------------------------------------------------------


async def _restarted(world: World) -> None:
    await world.stop()
    await world.start()


async def _lost(world: World) -> None:
    """What was shown last is not there, as after a failure of the power."""
    await world.stop()
    shutil.rmtree(world.data)
    shutil.copytree(world.backup, world.data)
    _forget(world)
    await world.start()


def _forget(world: World) -> None:
    for each in (*world.facts.values(), world.items):
        del each[TURNS - 2 :]


async def _restored(world: World) -> None:
    await world.stop()
    shutil.rmtree(world.data)
    assert await trio.to_thread.run_sync(main, ["restore", f"{world.backup}.copy", str(world.data)]) == 0
    _forget(world)
    await world.start()


async def _made_anew(world: World) -> None:
    await world.stop()
    shutil.rmtree(world.data)
    for each in (*world.facts.values(), world.items):
        each.clear()
    await world.start()


async def _let_go(world: World) -> None:
    """The epochs that the readers had not seen are no longer in the log."""
    await world.stop()
    await world.start(retention=Retention(age=0.0))

    await world.fill("gone")

    def happen() -> None:
        with BulkClient(world.url) as link:
            begun = link.frontier().epoch
            publish(link, 1, 40)
            while link.frontier().oldest < begun:
                pass

    await trio.to_thread.run_sync(happen)


async def _topic_made_anew(world: World) -> None:
    async with dataspace.connect(world.url) as space:
        await space.end_topic("t")
    world.items.clear()


async def _other_space(world: World) -> None:
    await trio.lowlevel.checkpoint()
    world.space = "two"


CHANGES: Final[dict[str, Callable[[World], Awaitable[None]]]] = {
    "none": _restarted,
    "lost": _lost,
    "restored": _restored,
    "made anew": _made_anew,
    "let go": _let_go,
    "topic made anew": _topic_made_anew,
    "other space": _other_space,
}


@pytest.mark.parametrize("change", CHANGES)
async def test_no_reader_goes_on_in_another_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(retaining.retain, "__kwdefaults__", {"every": 0.01})
    with trio.fail_after(4 * SOON):
        async with trio.open_nursery() as nursery:
            world = World(tmp_path, nursery)
            await world.start()
            await world.fill("old", TURNS - 2)
            shutil.copytree(world.data, world.backup, ignore=shutil.ignore_patterns("*.sock", "*-shm"))
            backing = ["backup", f"{world.backup}.copy", "--data", str(world.data)]
            assert await trio.to_thread.run_sync(main, backing) == 0
            await world.fill("older", 2)
            readers = [door(world) for door in DOORS if change != "lost" or not door.is_sure]
            for reader in readers:
                await reader.read(nursery)
                assert reader.got == Got(reader.history[:], begins=reader.got.begins), reader
            before = {reader: reader.got.items[:] for reader in readers}
            await CHANGES[change](world)
            await world.fill("new")
            wrong = []
            for reader in readers:
                got = await reader.resume()
                is_whole = got.items == reader.history
                is_state = got.begins and sorted(got.items) == sorted(reader.history)
                if not (got.told or is_whole or is_state) or (got.told and change == "none"):
                    wrong.append((type(reader).__name__, before[reader], got, reader.history))
                world.space = "two" if change == "other space" else "main"
            assert not wrong, "\n".join(map(str, wrong))
            nursery.cancel_scope.cancel()
