"""Whatever is asked about something large, no step of the daemon is long, and no memory is uncounted or kept.

Every packet, request, route and page has a case here, about an owner, a lease, a log, a topic or a batch of
very many entries; one without a case fails the test.  Each case is carried out while the steps of the event
loop are counted; then it is pipelined from one connection and from many, some of which leave before they are
answered, while the resident memory is compared with the accounted memory.

The quick form counts the lines of Python of each step, so it says the same on every machine; in
``make torture`` there are 300 000 entries, and the CPU time of each step is measured.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.codec import pack
from dataspace.wire import packets as p
from index.patterns.patterns import DISCARD, capture
from index.values.values import Map, Value
from server.monitoring.pages import PATHS
from server.web.routes.table import DESCRIPTION
from tests.abuse.counted import CPU, FILE, LINES, OFF, Gauge
from tests.routes import ROUTES
from tests.server.peers import PLENTY, Peer, packed
from tests.server.processes import DaemonProcess
from tests.server.web.routes.callers import HttpDaemon

pytestmark = [pytest.mark.slow, pytest.mark.torture]

LONG: Final = "TORTURE_ROUNDS" in os.environ
ENTRIES: Final = 300_000 if LONG else 12_000
TIMES: Final = 200 if LONG else 4
CONNECTIONS: Final = 40 if LONG else 4
COUNTED: Final = 2
"""Requests of a case while steps are counted."""

SECONDS: Final = 10.0 if LONG else 0.2
"""How long a load lasts at most: who has no answer then leaves."""

MOST: Final = 7_000_000 if LONG else 9_000
"""Nanoseconds of CPU time, or lines, of one step at most: a slice of the lane is 5 ms, or 5 000 lines."""

WRITE: Final = 3_000_000 + MOST if LONG else 12 * MOST
"""What a step may do that packs what one connection is sent: two frames of 32 KiB at most."""

BODY: Final = 3_000_000 + MOST if LONG else 3 * MOST
"""What a step may do with one frame of a thousand values, whose size ``limits.frame_elements`` bounds."""

EPOCH: Final = 20 * MOST
"""What a step may do that reads an epoch of 4 096 facts from the log: as it was committed, in one step."""

SLACK: Final = 64 << 20

FACT: Final = Record("fact", capture("n"), DISCARD)
NOTHING: Final = Record("fact", capture("n"), "none of these")


@dataclass(frozen=True)
class World:
    """The large things of a daemon."""

    daemon: DaemonProcess
    gauge: Gauge
    port: int
    epoch: int
    topic: int


@dataclass(frozen=True)
class Case:
    """What a peer sends the n-th time, as bytes; ``before`` is sent first, and its answer is waited for.

    ``most`` is what one step may do; where that is more than a slice it is what SERVE.md states as one step.
    """

    sent: Callable[[int], Sequence[p.Packet]]
    before: p.Packet | None = None
    most: int = MOST


@dataclass(frozen=True)
class Web:
    """One request of HTTP."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    most: int = WRITE

    @property
    def data(self) -> bytes:
        words = "&".join([f"{name}={quote(value, safe='')}" for name, value in self.query.items()])
        body = b"" if self.body is None else json.dumps(self.body).encode()
        head = f"{self.method} {self.path}{'?' if words else ''}{words} HTTP/1.1\r\nHost: localhost\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        return f"{head}{kind}\r\n".encode() + body


def asked(verb: str, step: int = MOST, /, **arguments: Value) -> Case:
    """A case of a request, whose arguments are the same each time."""
    return Case(lambda n: [p.Request(n + 1, verb, Map(arguments))], most=step)


def numbered(verb: str, arguments: Callable[[int], dict[str, Value]]) -> Case:
    """A case of a request, with arguments by its number."""
    return Case(lambda n: [p.Request(n + 1, verb, Map(arguments(n)))])


def always(*sent: p.Packet) -> Case:
    """A case of packets that are the same each time."""
    return Case(lambda _: sent)


def stream(**spec: Value) -> Case:
    """A case of a stream that is opened."""
    return Case(lambda n: [p.Open(n + 1, Map(spec), PLENTY, PLENTY)], most=WRITE)


def turn(*fields: Value, actions: Sequence[tuple[Value, ...]] = ()) -> Case:
    """A case of a turn; ``fields`` follow its actions."""
    some: Sequence[tuple[Value, ...]] = actions or ((2, Record("said", 1)),)
    return Case(lambda n: [p.Turn(n + 1, "main", "", tuple(some), *fields)], most=2 * MOST)  # type: ignore[arg-type]  # in form


def opened(*sent: p.Packet) -> Case:
    """A case of packets about a stream that is open, and has no credit."""
    spec = Map({"pattern": FACT, "quiet": True})
    return Case(lambda _: sent, before=p.Open(1, spec, 0, 0), most=WRITE)


ROWS: Final = pack(("assert", tuple([("staged", n, "x") for n in range(1_000)]), ()))
"""The rows of one batch: a request has a frame, which is limited."""


def packet_cases(world: World) -> dict[type[p.Packet], list[Case]]:
    """Cases by packet."""
    refused = {
        kind: [always(kind(*fields))]
        for kind, fields in {
            p.Welcome: (1, 1, "main", 1, 1, Map(), Map()),
            p.Accepted: (1, tuple(range(10_000))),
            p.Refusal: (1, "limit", ""),
            p.Reached: (1, tuple(range(10_000))),
            p.Answer: (1, tuple(range(10_000))),
            p.Denied: (1, "limit", ""),
            p.Available: (1, 1),
        }.items()
    }
    steps = tuple([(0, 0, pack((n,))) for n in range(2_000)])
    return {
        **refused,
        p.Hello: [always(p.Hello(1, "~again", "again", Map()))],
        p.Turn: [
            turn(((0, NOTHING),)),
            turn(((1, NOTHING, ()),)),
            turn(((1, FACT, tuple([(n,) for n in range(100)])),)),
            turn(((2, FACT, world.epoch),)),
            turn(((2, FACT, 1),)),
            turn(actions=((0, 1, Record("mine", 1)), (1, 1))),
        ],
        p.Open: [
            stream(quiet=True, pattern=FACT),
            stream(quiet=True, pattern=Record("leased", capture("n")), policy="wait"),
            stream(quiet=True, pattern=FACT, after=0),
            stream(quiet=True, pattern=NOTHING, after=0),
            stream(quiet=True, pattern=FACT, after=0, net=True),
            stream(quiet=True, pattern=FACT, as_of=world.epoch - 1),
            stream(quiet=True, pattern=FACT, pace=1_000),
            stream(quiet=True, pattern=FACT, kind="columns", after=0, upto=world.epoch, durable=True),
            stream(quiet=True, pattern=capture("all"), space="system"),
            stream(kind="topic", topic="large"),
            stream(kind="topic", topic="large", as_of=(0,)),
        ],
        p.Ask: [opened(p.Ask(1, 1, 1))],
        p.Peek: [opened(p.Peek(1, 1 << 40))],
        p.Abort: [
            Case(
                lambda n: [
                    p.Open(n + 1, Map({"pattern": FACT, "quiet": True}), 1, 1),
                    p.Abort(n + 1, "", True),
                ],
                most=WRITE,
            )
        ],
        p.Request: [asked("none")],  # by verb below
        p.Ping: [always(p.Ping(1))],
        p.Pong: [always(p.Pong(1))],
        p.Bye: [always(p.Bye("", ""))],
        p.Produce: [
            Case(
                lambda n: [p.Produce(n + 2, 0, steps[n % 10 :])],
                before=p.Request(1, "join", Map({"topic": "large", "durable": True})),
                most=BODY,
            )
        ],
        p.Offer: [Case(lambda n: [p.Offer(n + 1, Map({"kind": "stage", "key": ("offered", str(n))}))])],
        p.Values: [
            Case(
                lambda n: [
                    p.Offer(n + 1, Map({"kind": "stage", "key": ("offered", str(n))})),
                    p.Values(n + 1, 0, tuple([("assert", Record("offered", at)) for at in range(1_000)]), 0),
                ],
                most=BODY,
            )
        ],
        p.Done: [
            Case(
                lambda n: [
                    p.Offer(n + 1, Map({"kind": "stage", "key": ("offered", str(n))})),
                    p.Done(n + 1),
                ]
            )
        ],
        p.Error: [
            Case(
                lambda n: [
                    p.Offer(n + 1, Map({"kind": "stage", "key": ("offered", str(n))})),
                    p.Error(n + 1, "failed", "on purpose"),
                ]
            )
        ],
    }


def verb_cases(world: World) -> dict[str, list[Case]]:
    """Cases by verb."""
    topic: dict[str, Value] = {"topic": "large", "id": world.topic}
    lease = "lease:600000:large"
    published = 10 * MOST_OF_A_TURN if LONG else MOST_OF_A_TURN
    return {
        "status": [asked("status")],
        "drain": [asked("drain", reason=1)],  # refused; a daemon that drains is another test
        "cluster": [asked("cluster", name="one")],  # refused: its data is in a directory
        "erase": [asked("erase", pattern=FACT, before=1)],  # refused: there is no archive
        "sync": [asked("sync")],
        "index": [asked("index", form=form, most=1_000) for form in ("text", "mermaid", "dot", "rows")],
        "frontier": [asked("frontier"), asked("frontier", at=1)],
        "follow": [asked("follow", name="x", epochs=Map({str(n): n for n in range(64)}))],
        "within": [asked("within", after=0, upto=world.epoch, changes=1 << 40)],
        "acknowledge": [numbered("acknowledge", lambda n: {"reader": f"r{n % 8}", "epoch": world.epoch})],
        "who": [asked("who", pattern=FACT, most=10_000), asked("who", pattern=NOTHING, after=0)],
        "owners": [asked("owners", pattern=NOTHING), asked("owners", 2 * MOST, pattern=FACT, most=10_000)],
        "withdraw": [
            asked("withdraw", owner="large", pattern=NOTHING),
            asked("withdraw", owner=lease, pattern=NOTHING),
            asked("withdraw", MOST_OF_A_TURN, owner="going", pattern=Record("gone", DISCARD)),
        ],
        "lease": [asked("lease", owner=lease)],
        "renew": [asked("renew", owner=lease)],
        "release": [asked("release", MOST_OF_A_TURN, owner="lease:600000:going")],
        "stage": [numbered("stage", lambda n: {"key": ("many", str(n % 10)), "rows": ROWS})],
        "prepare": [asked("prepare", BODY, rows=ROWS)],
        "discard": [asked("discard", key=("many",)), asked("discard", key=("nothing",))],
        "publish": [
            Case(
                lambda n: [p.Request(n + 1, "publish", Map({**PUBLISHED, "sequence": n + 1}))], most=published
            ),
            *[
                asked(
                    "publish", 2 * MOST, **{**PUBLISHED, "client": "if", "sequence": 1, "expect": (expected,)}
                )
                for expected in ((0, FACT), (1, NOTHING, ((1,),)), (2, FACT, 1))
            ],
        ],
        "actors": [asked("actors", most=100, turns=100)],
        "rules": [
            asked("rules", ask=ask, about=about, form=form)
            for ask, about in (
                ("explain", None),
                ("why", Record("derived", 5)),
                ("why-not", Record("derived", -1)),
                ("graph", None),
                ("monotone", None),
                ("resume", "nothing"),
            )
            for form in ("text", "rows")
        ],
        "sessions": [asked("sessions", most=10_000)],
        "end-session": [asked("end-session", session=1 << 40)],
        "join": [numbered("join", lambda n: {"topic": "large", "durable": True, "name": f"joined{n % 8}"})],
        "lookup": [asked("lookup", topic="large", detail=True)],
        "end-topic": [asked("end-topic", topic="none")],
        "take": [asked("take", group="none")],
        "settle": [asked("settle", group="none")],
        "peek": [asked("peek", group="none"), asked("peek", MOST + MOST // 4, group="large", most=10_000)],
        "groups": [asked("groups"), asked("groups", out=True), asked("groups", group="large", out=True)],
        "group-alter": [asked("group-alter", group="none", what="pause")],
        "topic-frontier": [asked("topic-frontier", topic="large")],
        "topic-epochs": [asked("topic-epochs", **topic, after=0, upto=1)],
        "topic-number": [asked("topic-number", **topic, time=0)],
        "topic-acknowledge": [
            numbered("topic-acknowledge", lambda n: {**topic, "reader": f"r{n % 8}", "number": 1})
        ],
    }


MOST_OF_A_TURN: Final = 100 * MOST
"""What the turn of 4 096 claims may do in its one step, or the end of an owner."""

PUBLISHED: Final[dict[str, Value]] = {
    "keys": (ROWS,),
    "owner": "published",
    "client": "large",
    "replace": True,
}


def web_cases(world: World) -> dict[tuple[str, str], list[Web]]:
    """Cases by method and path of the table of routes, and of the pages beside it."""
    inside, facts = "/v1/spaces/main", {"pattern": "fact($n, _)"}
    nothing = {"pattern": 'fact($n, "none of these")'}
    said = {"@": "said", "fields": [1]}

    def get(path: str, *queries: dict[str, str]) -> list[Web]:
        return [Web("GET", path, query) for query in queries or ({},)]

    topic = "/v1/topics/large"
    cases = {
        "/facts": get(f"{inside}/facts", facts, nothing, facts | {"as_of": str(world.epoch - 1)}),
        "/observe": [
            Web("GET", f"{inside}/observe", facts),
            Web("GET", f"{inside}/observe", {"pattern": "$all", "after": "0", "net": "true"}, most=EPOCH),
        ],
        "/log": get(f"{inside}/log", facts, nothing, facts | {"who": "true"}),
        "/rules": get(f"{inside}/rules"),
        "/why": get(f"{inside}/why", {"fact": "derived(5)"}),
        "/why-not": get(f"{inside}/why-not", {"pattern": "derived(-1)"}),
        "/explain": get(f"{inside}/explain"),
        "/groups/{group}": [
            *get(f"{inside}/groups/none"),
            *get(f"{inside}/groups/large", {"most": "10000"}),
        ],
    }
    return {
        **{("GET", f"/v1/spaces/{{space}}{path}"): some for path, some in cases.items()},
        **{
            ("POST", f"/v1/spaces/{{space}}/groups/{{group}}/{verb}"): [
                Web("POST", f"{inside}/groups/none/{verb}", body={})
            ]
            for verb in ("take", "done", "again")
        },
        ("POST", "/v1/spaces/{space}/turns"): [
            Web("POST", f"{inside}/turns", body={"owner": "web", "actions": [{"send": said}] * 100}),
            Web(
                "POST",
                f"{inside}/turns",
                body={"owner": "web", "actions": [{"send": said}], "expect": [{"absent": facts["pattern"]}]},
            ),
        ],
        ("POST", "/v1/spaces/{space}/messages"): [
            Web("POST", f"{inside}/messages", body={"messages": [said] * 100})
        ],
        ("POST", "/v1/topics/{topic}"): [Web("POST", topic, body={"items": [1] * 1_000})],
        ("GET", "/v1/topics/{topic}/events"): get(f"{topic}/events", {"after": "0"}, {}),
        ("GET", "/v1/status"): get("/v1/status"),
        **{("GET", path): get(path) for path in (DESCRIPTION, *PATHS)},
    }


# -- the large things ---------------------------------------------------------------------------------


async def _fill(url: str) -> tuple[int, int]:
    """Makes an owner, a lease, a log, a topic and rows of a rule that are large; returns epoch and topic."""
    async with dataspace.connect(url, name="filling") as space:
        draft = space.draft()
        draft.assert_(Record("rule", "derived", "derived($n) <- few($n)."))
        await space.commit(draft)
        for owner, label in (("large", "fact"), ("lease:600000:large", "leased"), ("going", "gone")):
            if owner.startswith("lease:"):
                await space.request("lease", Map({"owner": owner}))
            await _assert_many(space, owner, label)
        for n in range(ENTRIES // 10):
            draft = space.draft()
            draft.send(Record("past", n))
            await space.submit(draft)
        await _assert_many(space, "few", "few", ENTRIES // 10)
        dividing = {"group": "large", "pattern": Record("job", capture("n")), "most": 10_000, "wait": 0}
        await space.request("take", Map({**dividing}))
        for start in range(0, ENTRIES // 4, 1_000):
            async with space.turn() as turn_:
                for n in range(start, start + 1_000):
                    turn_.send(Record("job", n))
        await space.sync()
        await space.request("take", Map({**dividing, "wait": 60_000}))
        async with space.publish("large", durable=True) as topic:
            for time_ in range(ENTRIES // 100):
                await topic.send(*range(100))
                await topic.advance(time_ + 1)
            found = await space.request("lookup", Map({"topic": "large"}))
        assert isinstance(found, Map) and isinstance(found["id"], int)
        return await space.sync(), found["id"]


async def _assert_many(space: dataspace.RemoteSpace, owner: str, label: str, count: int = ENTRIES) -> None:
    for sequence, start in enumerate(range(0, count, PIECE)):
        rows = tuple([(label, n, "x") for n in range(start, min(start + PIECE, count))])
        staged = Map({"key": ("filling", owner), "rows": pack(("assert", rows, ()))})
        await space.request("stage", staged)
        publishing = {"keys": (("filling", owner),), "owner": owner, "client": f"filling {owner}"}
        await space.request("publish", Map({**publishing, "sequence": sequence + 1, "discard": ("filling",)}))


PIECE: Final = 100
"""Facts of one epoch: one epoch is not what is large here."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    where = tmp_path_factory.mktemp("large")
    gauge = Gauge(where / "counted")
    os.environ[FILE] = str(where / "counted")
    daemon = HttpDaemon(where / "data")
    daemon.program = ("-m", "tests.abuse.counted")
    try:
        daemon.start()
    finally:
        del os.environ[FILE]
    try:
        epoch, topic = trio.run(_fill, daemon.url)
        yield World(daemon, gauge, daemon.web_port, epoch, topic)
    finally:
        status = daemon.stop()
    assert status == 0


# -- the peers ----------------------------------------------------------------------------------------


async def _answered(peer: Peer, wanted: int) -> None:
    """Returns when so many packets have come that end what was asked, or the daemon has hung up."""
    while wanted:
        packet = await peer.hear()
        if packet is None:
            return
        wanted -= isinstance(packet, p.Answer | p.Denied | p.Pong | p.Done | p.Error)


def _produced(packet: p.Packet, joined: p.Packet | None) -> p.Packet:
    """Returns the steps of a producer that has joined, at the time at which it may send."""
    assert isinstance(packet, p.Produce) and isinstance(joined, p.Answer) and isinstance(joined.value, Map)
    producer, at = joined.value["producer"], joined.value["time"]
    assert isinstance(producer, int)
    return p.Produce(packet.number, producer, tuple([(0, at, step[2]) for step in packet.steps]))  # type: ignore[index]  # steps


async def _ask(world: World, case: Case, times: int, *, stay: bool) -> None:
    """Sends a case so many times at once, and a ping; reads until the answers stop, or the daemon rests."""
    async with Peer(world.daemon.url) as peer:
        await peer.greet(f"~asks {time.monotonic_ns()}")
        if case.before is not None:
            await peer.say(case.before)
            answer: p.Packet | None = None
            if isinstance(case.before, p.Request):
                answer = await peer.hear()
                if not isinstance(answer, p.Answer):
                    pytest.fail(f"{case.before} was answered with {answer}")
        sent: list[p.Packet] = [packet for n in range(times) for packet in case.sent(n)]
        if sent and isinstance(sent[0], p.Produce):
            sent = [_produced(packet, answer) for packet in sent]
        ending = sum(isinstance(packet, p.Request | p.Produce | p.Abort) for packet in sent)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.shout, b"".join(map(packed, [*sent, p.Ping(1)])))
            await _answered(peer, ending + 1)
            if stay:
                nursery.start_soon(_answered, peer, 1 << 40)
                while await _works(world):
                    pass
                nursery.cancel_scope.cancel()


async def _browse(world: World, case: Web, times: int, *, stay: bool) -> None:
    """Sends a request so many times at once, and reads as long as something comes, or the daemon works."""
    async with await trio.open_tcp_stream("127.0.0.1", world.port) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, case.data * times)
        while True:
            with trio.move_on_after(0.05 if stay else 0.5) as quiet:
                got = await stream.receive_some(1 << 20)
                if not got:
                    return
            if quiet.cancelled_caught and not (stay and await _works(world)):
                return


async def _once(world: World, case: Case | Web, times: int, *, stay: bool = False) -> None:
    """Sends a case so many times at once; who stays leaves when the daemon has nothing more to do."""
    try:
        if isinstance(case, Web):
            await _browse(world, case, times, stay=stay)
        else:
            await _ask(world, case, times, stay=stay)
    except* (trio.BrokenResourceError, AssertionError):
        pass  # the daemon has hung up, as it may: what it does before is judged


# -- the judges ---------------------------------------------------------------------------------------


def _resident(world: World) -> int:
    with open(f"/proc/{world.daemon.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _judge_steps(world: World, case: Case | Web) -> str:
    """Returns what is wrong with the steps of the daemon while it carries out a case; empty if nothing."""
    if isinstance(case, Web):  # what is loaded once is no step of a case
        await _once(world, case, 1, stay=True)
    with trio.fail_after(60):  # what the case before has left to do is no step either
        while await _works(world):
            pass
    world.gauge.begin(CPU if LONG else LINES)
    with trio.move_on_after(60):
        await _once(world, case, COUNTED, stay=True)
    with trio.fail_after(60):
        while await _works(world):
            pass
    _, most, _, _, text = world.gauge.read()
    world.gauge.begin(OFF)
    return f"a step of {most}, not {case.most}: {text}" if most > case.most else ""


async def _works(world: World) -> bool:
    """Returns False if the daemon has had nothing to do for a while, however busy the machine is."""
    before = _consumed(world)
    for _ in range(5):
        await trio.sleep(0.01)
        if world.gauge.read()[3] or not _sleeps(world):
            return True
    return _consumed(world) - before > RESTING


RESTING: Final = 0.002
"""Seconds of CPU that a daemon takes in a twentieth of a second in which it does nothing, at most."""


def _consumed(world: World) -> float:
    """Returns the seconds of CPU that all threads of the daemon have taken."""
    return sum([int(text.split()[0]) / 1e9 for text in _threads(world, "schedstat")])


def _sleeps(world: World) -> bool:
    """True if no thread of the daemon runs, waits for a processor, or for a disk."""
    return all(text.rpartition(")")[2].split()[0] == "S" for text in _threads(world, "stat"))


def _threads(world: World, name: str) -> Iterator[str]:
    """Yields what the system says of each thread of the daemon that has not ended."""
    for each in Path(f"/proc/{world.daemon.process.pid}/task").glob(f"*/{name}"):
        with suppress(OSError):
            yield each.read_text()


async def _load(world: World, case: Case | Web, connections: int, ending: trio.CancelScope) -> None:
    """Pipelines a case from so many connections, and then cancels."""
    async with trio.open_nursery() as peers:
        for _ in range(connections):
            peers.start_soon(_once, world, case, TIMES // connections)
    ending.cancel()


async def _judge_memory(world: World, case: Case | Web) -> str:
    """Returns what is wrong with the memory while a case is pipelined, by one and by many, and after it."""
    before, worst = _resident(world), ""
    for connections in (1, CONNECTIONS) if LONG else (CONNECTIONS,):
        with trio.move_on_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_load, world, case, connections, nursery.cancel_scope)
                while True:
                    resident, accounted = _resident(world), world.gauge.read()[2]
                    if resident > 1.5 * accounted + SLACK:
                        worst = (
                            f"{resident >> 20} MiB, {accounted >> 20} accounted, {connections} connections"
                        )
                    await trio.sleep(0.02)
    with trio.move_on_after(60) as patience:
        while _resident(world) > before + SLACK or world.gauge.read()[3]:  # noqa: ASYNC110  # as above
            await trio.sleep(0.1)
    if patience.cancelled_caught:
        worst += f" {(_resident(world) - before) >> 20} MiB are not given back"
    return worst


async def _judge(world: World, name: str, cases: Sequence[Case | Web]) -> None:
    wrong = []
    for at, case in enumerate(cases):
        steps = await _judge_steps(world, case)
        if steps:  # the time of jobs of an earlier case may have been over just then
            steps = await _judge_steps(world, case)
        memory = await _judge_memory(world, case)
        wrong += [f"{name} {at}: {each}" for each in (steps, memory) if each]
        print(name, at, wrong)
        assert world.daemon.process.poll() is None, f"{name} {at} has ended the daemon"
    assert not wrong, "\n".join(wrong)


ANY: Final = World(DaemonProcess(Path()), None, 0, 2, 1)  # type: ignore[arg-type]  # to name the cases
PACKETS: Final = packet_cases(ANY)
VERBS: Final = verb_cases(ANY)
WEB: Final = web_cases(ANY)


async def test_every_packet_request_and_route_has_a_case(world: World) -> None:
    assert PACKETS.keys() == set(p.NUMBERS)
    async with dataspace.connect(world.daemon.url) as space:
        with pytest.raises(dataspace.Refused) as unknown:
            await space.request("none", Map())
    known = str(unknown.value).partition("known are ")[2].split(", ")
    assert known == sorted(VERBS)
    routes = {(row.method, row.path) for row in ROUTES} | {("GET", path) for path in (DESCRIPTION, *PATHS)}
    assert WEB.keys() == routes


@pytest.mark.parametrize("kind", PACKETS, ids=lambda kind: kind.__name__)
async def test_a_packet(world: World, kind: type[p.Packet]) -> None:
    await _judge(world, kind.__name__, packet_cases(world)[kind])


@pytest.mark.parametrize("verb", VERBS)
async def test_a_request(world: World, verb: str) -> None:
    await _judge(world, verb, verb_cases(world)[verb])


@pytest.mark.parametrize("route", WEB, ids=" ".join)
async def test_a_route(world: World, route: tuple[str, str]) -> None:
    await _judge(world, " ".join(route), web_cases(world)[route])
