"""Each verb of the table, asked of a daemon in each role that it can have, in virtual time.

Two daemons have one directory, or one store.  One of them is brought into a role, and is asked each verb by
an operator, who may do everything, and by a guest, who may do nothing; what is about a daemon, by the client
of the product as well.  The laws know no verb:

- A verb about a daemon is carried out by the daemon that was named, which alone changes or ends.
- Another verb is answered as the leader answers it, or refused with a code that sends the client elsewhere,
  or with a code of the role.
- A verb that only reads, and one that is refused, leaves each daemon as it was.

Always: there is an answer in time, which is not ``internal``; no daemon ends but by ``drain``.

``python -m tests.generated.roles`` prints what comes of each verb in each role.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import trio

import dataspace
from dataspace.client.session.uplink import send_whole
from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.topics import messages as forms
from dataspace.transport.sockets import Link, SocketLink
from dataspace.transport.tokens import narrow
from dataspace.wire import packets as p
from dataspace.wire.arguments import Names
from dataspace.wire.session import Role as Side, Session
from dataspace.wire.verbs import MEMBER, VERBS, RequestVerb, Subject, is_of_daemon
from index.values.values import Map, Record, Value
from server.config.model import Config
from server.config.rights import RIGHTS, Key, Rights
from server.connections.dispatch import SERVED
from server.daemon import serve as serving
from server.daemon.daemon import Daemon
from server.groups.space.part import GROUPS
from server.sessions.peer import PEERS
from server.topics.part import TOPICS
from tests.abuse.oracle import codes
from tests.generated.test_verbs import JOB, NAMED, NOT_HERE, SECRET, Stated, base, ordered
from tests.relay.store.memory import in_memory
from tests.server.peers import packed
from tests.simulation import members
from tests.simulation.cluster import Cluster, Member
from tests.simulation.daemons import Supervisor
from tests.simulation.disks import fault_of
from tests.simulation.entropy import virtual
from tests.simulation.hosts import Host, here
from tests.simulation.life import MEMORY, listened
from tests.simulation.machine import FOLLOWERS_PORT
from tests.simulation.network import Network, Weather
from tests.simulation.plan import FOLLOWS, LEADS, STANDS_BY, Plan
from tests.simulation.scheduling import run_ordered
from tests.simulation.seams import seams
from tests.simulation.world import PORT, World

SOON: Final = 60.0
"""Seconds after which something hangs."""

SETTLING: Final = 0.25
"""Seconds after which a follower has what its leader has."""

GUEST: Final = narrow(SECRET, Map({"name": "guest", "deny": Map(dict.fromkeys(RIGHTS, True))}))
KEYS: Final = (Key("owner", SECRET, Rights.read(Map())),)
CALM: Final = Weather(delay=0.0, split=0.0, buffer=1 << 20)
HERE: Final = p.ELSEWHERE | {p.TOPICS_ELSEWHERE}
"""Codes of a daemon that leads not what a verb is about."""

Heard = p.Answer | p.Denied | p.Bye
State = tuple[Value, ...]


class Connection:
    """One connection to a daemon of a scene."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._session = Session(Side.CLIENT, max_frame=64 << 20, max_elements=64 << 20)
        self._heard: list[p.Packet] = []
        self._answers: dict[int, Heard] = {}
        self.asked = 0
        """The number of the latest request."""
        self.number = 0
        """Of its session."""

    async def say(self, packet: p.Packet) -> None:
        """Sends a packet."""
        await send_whole(self._link, packed(packet))

    async def hear(self) -> p.Packet:
        """Returns the next packet that answers something; at the end a goodbye."""
        while True:
            while self._heard:
                heard = self._heard.pop(0)
                if not isinstance(heard, p.Reached | p.Ping):
                    return heard
            data = await self._link.receive()
            if not data:
                return p.Bye("closing", "the connection has ended")
            self._heard.extend(self._session.feed(data))

    async def greet(self, token: str, client: str, *, here: bool) -> None:
        """Says hello, as one who reads, or who asks about the daemon itself."""
        wanted: Stated = {"token": token, "here" if here else "read": True}
        await self.say(p.Hello(p.VERSION, client, client, Map(wanted)))
        welcome = await self.hear()
        assert isinstance(welcome, p.Welcome), welcome
        self.number = welcome.session

    async def ask(self, verb: str, stated: Stated, patience: float = SOON) -> Heard | None:
        """Returns what comes of a request, or a goodbye in place of that; None if nothing comes in time."""
        self.asked += 1
        with trio.move_on_after(patience):
            try:
                await self.say(p.Request(self.asked, verb, Map(stated)))
            except OSError:
                return p.Bye("closing", "the connection has ended")
            return await self.hear_answer(self.asked)
        return None

    async def hear_answer(self, number: int) -> Heard:
        """Returns what comes of a request, or a goodbye in place of that."""
        while number not in self._answers:
            heard = await self.hear()
            if isinstance(heard, p.Bye):
                return heard
            if isinstance(heard, p.Answer | p.Denied):
                self._answers[heard.number] = heard
        return self._answers.pop(number)

    async def close(self) -> None:
        """Ends it."""
        self._link.close()
        await trio.lowlevel.checkpoint()


class Scene:
    """Two daemons, and what is asked of them."""

    daemons: Supervisor

    def __init__(self, world: World) -> None:
        self.world = world
        self.serving: Final[dict[str, Daemon]] = {}
        """The present daemon of each host."""
        self.carried_out: Final[list[str]] = []
        """The hosts that were asked, in order."""
        self.without_rules = False
        self.kept_down: Final[set[int]] = set()
        self._numbers = itertools.count(1)
        self.topic = 0

    def host(self, at: int) -> Host:
        """Returns the host of a daemon."""
        found: Host = self._member(at).host
        return found

    def _member(self, at: int) -> Any:
        return self.daemons.members[at]  # type: ignore[attr-defined]  # of both kinds of clusters

    def daemon(self, at: int) -> Daemon:
        """Returns a daemon."""
        return self.serving[self.host(at).title]

    async def connect(self, at: int, token: str = SECRET, *, port: int = 0, here: bool = False) -> Connection:
        """Returns a connection to a daemon, once it listens."""
        with trio.fail_after(SOON):
            while True:
                try:
                    end: Any = await self.world.network.connect("", port or PORT + at)
                    break
                except OSError:
                    await trio.sleep(0.02)
            made = Connection(SocketLink(end))
            await made.greet(token, f"~asker{next(self._numbers)}", here=here)
            return made

    def state(self, *but: int) -> dict[int, State]:
        """Returns what a request that changes nothing leaves as it is, of each daemon but some."""
        return {at: self._state(at) for at in range(2) if at not in but and not self.host(at).is_dead}

    def _state(self, at: int) -> State:
        daemon = self.serving.get(self.host(at).title)
        if daemon is None or daemon.has_ended:
            return ("ended",)
        spaces = [
            (
                name,
                hosted.space.epoch,
                tuple(sorted(hosted.parts[GROUPS].by_name)),
                tuple(
                    [(each.name, each.epoch) for each in hosted.leading.log.readers] if hosted.leads else ()
                ),
                hosted.leads,
            )
            for name, hosted in daemon.spaces.items()
        ]
        clients = tuple(sorted(each.number for each in daemon.parts[PEERS].values() if not each.trusted))
        return (*spaces, clients, len(daemon.parts[TOPICS].catalogue), daemon.draining.wanted.is_set())

    async def prepare(self, made: Connection) -> None:
        """Makes what requests are about, at the leader."""
        await self._turn(made, 1, (ASSERT, 1, Record("job", 0)))
        await self._has(made, "take", {"group": "jobs", "pattern": JOB})
        await self._turn(made, 2, (SEND, Record("job", 1)))
        joined = await self._has(made, "join", {"topic": "t", "durable": True})
        assert isinstance(joined, Map)
        self.topic = int(str(joined["id"]))
        finished = (forms.FINISH, 0, pack(()), ((0, -1), (1, 1)))
        await made.say(p.Produce(1 << 40, joined["producer"], (finished,)))  # type: ignore[arg-type]  # a number
        heard = await made.hear()
        assert isinstance(heard, p.Answer), heard
        await self._has(made, "lease", {"owner": NAMED[Names.LEASE]})
        await trio.sleep(SETTLING)

    async def _turn(self, made: Connection, sequence: int, action: tuple[Value, ...]) -> None:
        await made.say(p.Turn(sequence, "main", "", (action,)))
        heard = await made.hear()
        assert isinstance(heard, p.Accepted), heard

    async def _has(self, made: Connection, verb: str, stated: Stated) -> Value:
        heard = await made.ask(verb, stated)
        assert isinstance(heard, p.Answer), heard
        return heard.value

    def config(self, config: Config) -> Config:
        """Returns the configuration of a daemon."""
        limits = replace(config.space_limits, rules=0) if self.without_rules else config.space_limits
        return replace(config, keys=KEYS, space_limits=limits)

    def named(self, verb: str, victim: Connection) -> Stated:
        """Returns the arguments of a request that are made for a scene."""
        match verb:
            case "end-session":
                return {"session": victim.number}
            case "publish":
                return {"client": "~publisher", "sequence": 1}
            case "topic-epochs" | "topic-number" | "topic-acknowledge":
                return {"id": self.topic}
        return {}

    def is_new(self) -> bool:
        """True once the first daemon serves in another process than at first."""
        return bool(self._member(0).starts > 1) and self.is_ready(0)

    def starts(self, at: int) -> int:
        """Returns how often a daemon was started."""
        return int(self._member(at).starts)

    async def beginning(self) -> None:
        """Returns once both daemons serve, and the second one has met the first."""
        with trio.fail_after(SOON):
            while not all(self.is_ready(at) for at in range(2)):  # noqa: ASYNC110  # they begin by themselves
                await trio.sleep(0.05)

    def is_ready(self, at: int) -> bool:
        """True once a daemon serves."""
        if not self._member(at).starts:
            return False
        daemon = self.serving.get(self.host(at).title)
        return (
            daemon is not None and not daemon.readiness.reason and (not daemon.followed or daemon.link.is_up)
        )


class Noted(Daemon):
    """A daemon that says which host it is on, and which verbs it is asked."""

    scene: Scene

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        host = here()
        assert host is not None  # daemons are on hosts
        self.scene.serving[host.title] = self
        served = self.parts[SERVED]
        served.verbs = {name: self._noted(host.name, verb) for name, verb in served.verbs.items()}

    def _noted(self, host: str, verb: Any) -> Any:
        async def asked(peer: Any, arguments: Map) -> Value:
            self.scene.carried_out.append(host)
            answer: Value = await verb(peer, arguments)
            return answer

        return asked


# -- roles -------------------------------------------------------------------------------------------


_OF_ANOTHER: Final = frozenset(["not-owner"])
"""What a daemon says that was restarted: the producers of topics were of the one before."""


@dataclass(frozen=True)
class Place:
    """A role of a daemon, and which of the two daemons has it."""

    name: str
    asked: int
    begin: Callable[[Scene], Awaitable[None]]
    leads: bool
    refusals: frozenset[str] = frozenset()
    """Codes with which a daemon of this role refuses what it would otherwise do."""
    end: Callable[[Scene], None] | None = None
    """Ends the role; what is to change something may be answered only then."""
    store: bool = False

    @property
    def is_new(self) -> bool:
        """True if a daemon of this role knows none of its earlier clients."""
        return self.refusals == _OF_ANOTHER


async def _nothing(_scene: Scene) -> None:
    await trio.lowlevel.checkpoint()


async def _lose_leader(scene: Scene) -> None:
    scene.kept_down.add(0)
    scene.host(0).die(power=False)
    while scene.daemon(1).link.is_up:  # noqa: ASYNC110  # it finds out by itself
        await trio.sleep(0.05)


async def _restart(scene: Scene) -> None:
    scene.host(0).die(power=False)
    while not scene.is_new():  # noqa: ASYNC110  # its supervisor starts it
        await trio.sleep(0.01)


async def _restart_without_rules(scene: Scene) -> None:
    scene.without_rules = True
    await _restart(scene)


async def _fill_disk(scene: Scene) -> None:
    scene.daemons.volume.is_full = True
    made, daemon = await scene.connect(0), scene.daemon(0)
    await made.say(p.Turn(1, "main", "", ((ASSERT, 1, Record("unwritten")),)))
    await made.say(p.Request(1, "join", Map({"topic": "unwritten", "durable": True})))
    while not all(writer.full for _, writer in daemon.writers()):  # noqa: ASYNC110  # these two meet it
        await trio.sleep(0.05)


def _empty_disk(scene: Scene) -> None:
    scene.daemons.volume.is_full = False


async def _drain_leader(scene: Scene, at: int = 0) -> None:
    made = await scene.connect(at)
    heard = await made.ask("drain", {"within": 3_600_000, "reason": "a role"})
    assert isinstance(heard, p.Answer), heard
    await trio.sleep(1.0)  # those go who wait for nothing


async def _drain_follower(scene: Scene) -> None:
    await _drain_leader(scene, 1)


async def _cut_store(scene: Scene) -> None:
    scene.daemons.store.bar(scene.host(0).name)  # type: ignore[attr-defined]  # of a cluster over a store
    await trio.sleep(0.2)


def _mend_store(scene: Scene) -> None:
    scene.daemons.store.admit(scene.host(0).name)  # type: ignore[attr-defined]  # likewise


_AWAY: Final = frozenset(["closing", "not-owner", "no-lease"])
"""All verbs are asked at once, and over several connections: those of topics and of leases meet."""

PLACES: Final = (
    Place("leader", 0, _nothing, leads=True),
    Place("follower", 1, _nothing, leads=False),
    Place("follower without a leader", 1, _lose_leader, leads=False),
    Place("draining", 0, _drain_leader, leads=True),
    Place("draining follower", 1, _drain_follower, leads=False),
    Place("just restarted", 0, _restart, leads=True, refusals=_OF_ANOTHER),
    Place("without rules", 0, _restart_without_rules, leads=True, refusals=_OF_ANOTHER),
    Place("disk full", 0, _fill_disk, True, frozenset(["disk-full"]), _empty_disk),
    Place("store away", 0, _cut_store, True, _AWAY, _mend_store, store=True),
)


class _Kept(Member):
    """A daemon of a scene, which is started again as the scene says."""

    scene: Scene

    async def _live(self) -> None:
        while self._number in self.scene.kept_down:  # noqa: ASYNC110  # until the end of the scene
            await trio.sleep(0.05)
        await super()._live()

    def _config(self) -> Config:
        return self.scene.config(super()._config())


class _Pair(Cluster):
    """Two daemons over one directory."""

    def __init__(self, world: World, scene: Scene) -> None:
        self._scene = scene
        super().__init__(world)

    def _member(self, number: int, role: str) -> Member:
        made = _Kept(self, self._world, number, role)
        made.scene = self._scene
        return made


class _StoredMember(members.Member):
    """A daemon of a scene over a store."""

    scene: Scene

    def _config(self) -> Config:
        return self.scene.config(super()._config())


class _Stored(members.StoreCluster):
    """Two daemons over one store."""

    def __init__(self, world: World, scene: Scene) -> None:
        self._scene = scene
        super().__init__(world)

    def _member(self, number: int) -> members.Member:
        made = _StoredMember(self, self._world, number)
        made.scene = self._scene
        return made


# -- asking ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What came of one verb in one role, for one who asks."""

    place: Place
    row: RequestVerb
    who: str
    heard: Heard | None
    before: dict[int, State]
    after: dict[int, State]
    leader: Heard | None = None
    """What the leader says to the same, where another daemon was asked."""

    @property
    def outcome(self) -> str:
        """The code of a refusal or of a goodbye, ``answer``, or ``late``."""
        if self.heard is None:
            return "late"
        return "answer" if isinstance(self.heard, p.Answer) else self.heard.code

    def faults(self, usual: str) -> list[str]:
        """Returns what is wrong with it, where a leader in no special role has the ``usual`` outcome."""
        said = f"{self.place.name}: {self.row.name} of the {self.who}: {self.heard!r:.200}"
        return [f"{said}: {each}" for each in self._faults(usual)]

    def _faults(self, usual: str) -> Iterator[str]:
        row, outcome = self.row, self.outcome
        if outcome == "late":
            if self.place.end is None or not row.changes:
                yield "it has no answer"
            return
        is_about_daemon = row.subject is Subject.DAEMON
        if outcome not in _DOCUMENTED:
            yield f"{outcome!r} is no code of WIRE.md for {type(self.heard).__name__}"
        changed = {at for at in self.before if self.before[at] != self.after.get(at)}
        if (not row.changes or outcome != "answer") and changed:
            yield f"nothing was to change, and {sorted(changed)} did"
        if is_about_daemon and changed - {self.place.asked}:
            yield f"it is about {self.place.asked}, and {sorted(changed)} changed"
        is_its_own = is_about_daemon or row.subject is Subject.STATE or self.place.leads
        if outcome != usual and outcome not in (self.place.refusals if is_its_own else HERE):
            yield f"a leader says {usual!r}"
        if not is_about_daemon and isinstance(self.heard, p.Answer):
            if not self.place.leads and row.changes:
                yield "it leads nothing, and has answered"
            if isinstance(self.leader, p.Answer) and self.leader.value != self.heard.value:
                yield f"its leader says {self.leader.value!r:.300}"


_DOCUMENTED: Final = {"answer", *codes()["Denied"], *codes()["Bye"]} - {"internal"}


ROWS: Final = [row for row in ordered() if row.name != "drain"]
"""The verbs that are asked in each role; ``drain`` ends it."""


async def _ask_each(scene: Scene, place: Place) -> list[Cell]:
    """Asks one verb after the other."""
    tokens = (GUEST, SECRET, SECRET)
    guest, operator, victim = [await _standing(scene, place.asked, token) for token in tokens]
    await scene.prepare(operator if place.asked == 0 else await scene.connect(0))
    leader = await scene.connect(0)
    member = await scene.connect(0, "", port=FOLLOWERS_PORT)
    await place.begin(scene)
    if place.is_new:
        guest, operator, victim = [await scene.connect(place.asked, token) for token in tokens]
        member = await scene.connect(0, "", port=FOLLOWERS_PORT)
    await trio.sleep(SETTLING)
    cells, late = [], []
    patience = SOON if place.end is None else 2.0
    for row in ROWS:
        for who, connection in (("guest", guest), ("operator", operator), ("member", member)):
            if who == "member" and not (MEMBER in row.rights and place.leads):
                continue
            stated = base(row) | scene.named(row.name, victim)
            before = scene.state()
            heard = await connection.ask(row.name, stated, patience)
            await trio.sleep(SETTLING)
            after, others = scene.state(), None
            if place.asked and not row.changes and not scene.kept_down:
                others = await leader.ask(row.name, stated)
            cells.append(Cell(place, row, who, heard, before, after, others))
            if heard is None:
                late.append((connection, connection.asked, row))
    if place.end is not None:
        place.end(scene)
        for connection, number, row in late:
            await _hear_late(scene, connection, number, row)
    elif "draining" not in place.name:
        await _ask_by_client(scene, place)
    return cells


async def _hear_late(scene: Scene, connection: Connection, number: int, row: RequestVerb) -> None:
    """Hears what comes of a request once its role has ended."""
    with trio.move_on_after(SOON):
        heard = await connection.hear_answer(number)
        if not isinstance(heard, p.Answer):
            scene.world.faults.append(f"{row.name} has waited for the end of the role, and is told {heard}")
        return
    scene.world.faults.append(f"{row.name} is not answered after the end of the role")


async def _ask_at_once(scene: Scene, place: Place) -> list[Cell]:
    """Asks all verbs at once, each over a connection of its own, since the daemon leads not much longer."""
    standing = [await _standing(scene, place.asked, SECRET) for _ in range(len(ROWS) + 1)]
    victim = standing.pop()
    await scene.prepare(standing[-1])
    before, cells = scene.state(), []
    await place.begin(scene)

    async def ask(row: RequestVerb, connection: Connection) -> None:
        stated = base(row) | scene.named(row.name, victim)
        heard = await connection.ask(row.name, stated)
        cells.append(Cell(place, row, "operator", heard, before, before))

    async with trio.open_nursery() as nursery:
        for row, connection in zip(ROWS, standing, strict=True):
            nursery.start_soon(ask, row, connection)
    assert place.end is not None  # the store comes back
    place.end(scene)
    await scene.beginning()
    return cells


async def _ask_by_client(scene: Scene, place: Place) -> None:
    """Has the client of the product ask about the daemon that it names, and end that in the end."""
    name, other = scene.host(place.asked).name, scene.starts(1 - place.asked)
    victim = await scene.connect(place.asked)
    async with dataspace.connect(
        f"tcp://127.0.0.1:{PORT + place.asked}", token=SECRET, timeout=SOON
    ) as space:
        if not scene.kept_down:
            await space.send(Record("moved"))  # the leader takes it, and the client goes there
        for row in VERBS.values():
            if is_of_daemon(row.name):
                scene.carried_out.clear()
                await space.request(row.name, Map(base(row) | scene.named(row.name, victim)))
                if set(scene.carried_out) != {name}:
                    scene.world.faults.append(f"{row.name} for {name} was asked of {scene.carried_out}")
    starts = scene.starts(place.asked)
    with trio.fail_after(SOON):
        while scene.starts(place.asked) == starts:  # noqa: ASYNC110  # it has ended, and is started again
            await trio.sleep(0.05)
    if scene.starts(1 - place.asked) != other:
        scene.world.faults.append(f"drain of {name} has ended the other daemon")


async def _standing(scene: Scene, at: int, token: str) -> Connection:
    """Returns a connection that a drain waits for."""
    made = await scene.connect(at, token)
    await made.say(p.Request(1 << 40, "frontier", Map({"after": 1 << 40, "wait": 60_000})))
    return made


def live(place: Place) -> tuple[list[Cell], list[str]]:
    """Returns what comes of each verb in a role, and what else is wrong."""
    roles = (STANDS_BY, STANDS_BY) if place.store else (LEADS, FOLLOWS)
    plan = Plan(1, CALM, (), (), memory=True, roles=roles, store=place.store)
    cells: list[Cell] = []
    above = MEMORY if MEMORY.is_dir() else None

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            world.network = Network(CALM, "roles", nursery, world.trace, lambda *_: None)
            scene.daemons = _Stored(world, scene) if place.store else _Pair(world, scene)
            async with trio.open_nursery() as supervised:
                supervised.start_soon(scene.daemons.run)
                Host("asker", world.random("asker"), 1000).enter()
                await scene.beginning()
                cells.extend(await (_ask_at_once if place.store else _ask_each)(scene, place))
                scene.kept_down.clear()
                scene.daemons.stop()
            nursery.cancel_scope.cancel()

    with tempfile.TemporaryDirectory(prefix="roles-", dir=above) as folder, contextlib.chdir(folder):
        world = World(plan, Path())
        Noted.scene = scene = Scene(world)
        with (
            in_memory(fault_of),
            patch.object(serving, "Daemon", Noted),
            listened() as heard,
            virtual(),
            seams(lambda: world.network),
        ):
            run_ordered("each role", run)  # an order in which all refusals of the places are met
    return cells, [*world.faults, *heard.said]


def main() -> int:
    """Prints what comes of each verb in each role; returns 1 if anything is wrong."""
    usual: dict[tuple[str, str], str] = {}
    wrong: list[str] = []
    for place in PLACES:
        cells, faults = live(place)
        wrong += [f"{place.name}: {each}" for each in faults]
        for cell in cells:
            at = cell.row.name, cell.who
            wrong += cell.faults(usual.setdefault(at, cell.outcome))
            print(f"{place.name:26} {cell.row.name:18} {cell.who:9} {cell.outcome}")
        unseen = place.refusals - {cell.outcome for cell in cells}
        wrong += [f"{place.name}: no verb was refused with {each}" for each in sorted(unseen)]
    for row in ROWS:
        asked = usual[row.name, "member" if MEMBER in row.rights else "operator"]
        if asked != NOT_HERE.get(row.name, "answer"):
            wrong.append(f"{row.name}: a leader in no special role says {asked!r}")
    print(*[f"WRONG {each}" for each in wrong], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
