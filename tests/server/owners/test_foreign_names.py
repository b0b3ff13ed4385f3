"""What names something of another bearer changes nothing of it, and is refused or kept apart.

The tables have an entry for each packet, verb and kind of stream of a real daemon, so one that is added
without a look at whom its names belong to fails here.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest
import trio

from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.transport.tokens import narrow
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from dataspace.wire.session import ALL_HEARD
from index.values.values import Map, Record, Value
from server.config.model import Limits
from server.config.rights import Key, Rights
from server.connections.dispatch import SERVED
from server.groups.space.part import GROUPS
from server.topics.following import CONNECTION
from server.topics.part import TOPICS
from tests.relay.store.files import storage_of
from tests.server.peers import PLENTY
from tests.server.streams.inside import Inside, Wire, inside

OWNER, OTHER = "the secret of the owner", "the secret of the other"
FULL: dict[str, Value] = {
    "assert": True,
    "send": True,
    "observe": True,
    "durable": ("robot", "robots"),
    "topics": Map(dict.fromkeys(("publish", "subscribe", "retain", "end"), True)),
    "readers": ("nightly",),
    "groups": ("jobs",),
}
THEIRS: dict[str, Value] = {
    "assert": True,
    "send": True,
    "observe": True,
    "durable": ("theirs",),
    "topics": ("theirs",),
    "readers": ("theirs",),
}
SHARING: dict[str, Value] = {**THEIRS, "topics": ("t", "m")}
"""The same, but for a right to the topics of the owner."""

STRANGERS: Final = {
    "another token": (OTHER, THEIRS),
    "another caveat": (narrow(OWNER, Map({**THEIRS, "name": "other"})), THEIRS),
    "a caveat without a name": (narrow(OWNER, Map(THEIRS)), THEIRS),
    "one who may use the topics": (narrow(OWNER, Map({**SHARING, "name": "guest"})), SHARING),
}
LEASE: Final = "lease:60000:own"
KEPT: Final = f"{LEASE} @ token:owner/owner"
HUGE: Final = 1 << 62
ANYTHING: Final = Record("_")
NOT_THERE: Final = Record("not-there")
JOB: Final = Record("job", Record("$", "n", None, ANYTHING))
ONE: Final = (("assert", Record("harmless", 1)),)

NAMES_NOTHING: Final = "names nothing that could belong to anybody"
APART: Final = "apart"
"""Done for the stranger, under the same name but with nothing of the owner's in it."""

DENIED: Final = "not-allowed"

Case = tuple[dict[str, Value], str]


def publication(**more: Value) -> dict[str, Value]:
    told: dict[str, Value] = {"keys": (pack(ONE),), "owner": "theirs", "client": "theirs", "sequence": 1}
    return told | more


VERBS: Final[dict[str, str | list[Case]]] = {
    "sync": NAMES_NOTHING,
    "status": NAMES_NOTHING,
    "drain": NAMES_NOTHING,
    "cluster": NAMES_NOTHING,
    "erase": [({"pattern": ANYTHING, "before": 1}, DENIED)],
    "index": NAMES_NOTHING,
    "owners": NAMES_NOTHING,
    "who": NAMES_NOTHING,
    "frontier": NAMES_NOTHING,
    "follow": NAMES_NOTHING,
    "within": NAMES_NOTHING,
    "actors": NAMES_NOTHING,
    "rules": NAMES_NOTHING,
    "sessions": NAMES_NOTHING,
    "end-session": [({"session": number}, DENIED) for number in (1, 2, 3)],
    "prepare": NAMES_NOTHING,
    "acknowledge": [
        ({"reader": "nightly", "epoch": 1}, DENIED),
        ({"reader": "nightly", "forget": True}, DENIED),
    ],
    "renew": [({"owner": LEASE}, "no-lease"), ({"owner": KEPT}, "bad-request")],
    "lease": [({"owner": LEASE}, APART), ({"owner": KEPT}, "bad-request")],
    "release": [({"owner": LEASE}, APART), ({"owner": KEPT}, "bad-request")],
    "withdraw": [
        ({"owner": "robots", "pattern": ANYTHING}, DENIED),
        ({"owner": "robots @ token:owner/owner", "pattern": ANYTHING}, "bad-request"),
        ({"owner": KEPT, "pattern": ANYTHING}, "bad-request"),
        ({"owner": LEASE, "pattern": ANYTHING}, "no-lease"),
        ({"owner": "theirs", "pattern": ANYTHING}, APART),
    ],
    "stage": [({"key": ("batch", "1"), "operations": ONE}, APART)],
    "discard": [
        ({"key": ("batch", "1")}, APART),
        ({"key": ("batch",)}, APART),
        ({"key": ("nothing",), "close": ("batch",)}, APART),
    ],
    "publish": [
        (publication(keys=(("batch", "1"),)), "not-staged"),
        (publication(discard=("batch",), close=("batch", "1")), APART),
        (publication(owner="robots"), DENIED),
        (publication(owner="robots @ token:owner/owner"), "bad-request"),
        (publication(owner=KEPT), "bad-request"),
        (publication(owner=LEASE), APART),
        *[
            (publication(client=client, sequence=sequence, owner=owner), code)
            for client, code in [
                ("robot", DENIED),
                ("owner:robots", DENIED),
                ("~owner", APART),
                ("job", APART),
                ("job @ durable:robots", "bad-request"),
            ]
            for sequence in (2, HUGE)
            for owner in ("theirs", LEASE)
        ],
    ],
    "join": [
        ({"topic": "t", "durable": True, "name": "p", "away": 60000, "back": True}, "no-producer"),
        ({"topic": "t", "durable": True, "name": "p", "away": 60000}, APART),
        ({"topic": "m", "partition": 0}, APART),
    ],
    "lookup": [({"topic": "t"}, APART)],
    "topic-frontier": [({"topic": "t"}, APART)],
    "topic-epochs": [({"topic": "t", "id": 0, "after": 0, "upto": 9, "at": (0, 1)}, "no-topic")],
    "topic-number": [({"topic": "t", "id": 0, "time": 0}, "no-topic")],
    "topic-acknowledge": [({"reader": "nightly", "topic": "t", "id": 0, "number": 1}, DENIED)],
    "end-topic": [({"topic": "t"}, "not-owner"), ({"topic": "m"}, "not-owner")],
    "take": [({"group": "jobs"}, DENIED), ({"group": "jobs", "pattern": JOB}, DENIED)],
    "settle": [
        ({"group": "jobs", verb: ((epoch, 0, 1),)}, DENIED)
        for verb in ("done", "again", "dead", "extend")
        for epoch in (1, 2)
    ],
    "peek": [({"group": "jobs"}, APART)],
    "groups": [({"group": "jobs"}, APART), ({"group": "jobs", "out": True}, APART)],
    "group-alter": [
        ({"group": "jobs", "what": what}, DENIED) for what in ("pause", "alter", "retry", "delete")
    ],
}

TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TURNS: Final = [
    ("robots", DENIED),
    (LEASE, "no-lease"),
    (KEPT, "bad-request"),
    ("robots @ token:owner/owner", "bad-request"),
    (" @ token:owner/owner", "bad-request"),
]
HELLOS: Final = [
    ("robot", {}, DENIED),
    ("owner:robots", {}, DENIED),
    ("~owner", {}, DENIED),
    ("~owner", {"resume": (1, b"0123456789abcdef")}, DENIED),
    ("~owner @ token:owner/owner", {}, "bad-request"),
]
PACKETS: Final = {
    p.Hello: "HELLOS",
    p.Turn: "TURNS",
    p.Open: "OPENED",
    p.Offer: "OFFERED",
    p.Request: "VERBS",
    p.Produce: "below",
    p.Ask: "of a stream of the connection",
    p.Peek: "of a stream of the connection",
    p.Abort: "of a stream of the connection",
    p.Values: "of a stream of the connection",
    p.Available: "of a stream of the connection",
    p.Done: "of a stream of the connection",
    p.Error: "of a stream of the connection",
    p.Ping: NAMES_NOTHING,
    p.Pong: NAMES_NOTHING,
    p.Bye: NAMES_NOTHING,
}
OPENED: Final = {"observe": NAMES_NOTHING, "columns": NAMES_NOTHING, "topic": DENIED, "consume": DENIED}
OFFERED: Final = {"stage": APART}


class Guest:
    """One connection that asks, and hears what comes of it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._numbers = itertools.count(1)

    @classmethod
    async def arrive(cls, made: Inside, token: str, client: str, **more: Value) -> Guest:
        guest = cls(made.connect(trusted=False))
        welcome = await guest.greet(token, client, **more)
        assert isinstance(welcome, p.Welcome), welcome
        return guest

    async def greet(self, token: str, client: str, **more: Value) -> p.Packet | None:
        wanted = dict(Wanted(token=token, grace=60.0).packed().pairs())
        for name, value in more.items():
            wanted[name] = value
        await self.wire.say(p.Hello(p.VERSION, client, "", Map(wanted)))
        return await self.wire.hear()

    async def ask(self, verb: str, told: dict[str, Value]) -> str:
        """What comes of a request: its code, or that it was answered."""
        number = next(self._numbers)
        await self.wire.say(p.Request(number, verb, Map(told)))
        return await self.outcome()

    async def turn(
        self, sequence: int, *actions: tuple[Value, ...], owner: str = "", form: str = "plain"
    ) -> str:
        if form == "shared":
            mine = ((0, 1 << 40 | sequence, Record("mine", sequence)),)
            await self.wire.say(p.Turn(sequence, "main", "", mine, (), ((owner, actions),)))
        elif form == "conditional":
            await self.wire.say(p.Turn(sequence, "main", owner, actions, ((0, NOT_THERE),)))
        elif form == "traced":
            await self.wire.say(p.Turn(sequence, "main", owner, actions, traceparent=TRACEPARENT))
        else:
            await self.wire.say(p.Turn(sequence, "main", owner, actions))
        return await self.outcome()

    async def outcome(self) -> str:
        match await self.wire.hear():
            case p.Denied(_, code, _) | p.Refusal(_, code, _) | p.Error(_, code, _):
                return code
            case p.Answer() | p.Accepted() | p.Done():
                return APART
            case p.Ask():
                return await self.outcome()
            case other:
                raise AssertionError(other)


class World:
    """A daemon, and all that one bearer has in it."""

    def __init__(self, made: Inside) -> None:
        self.made = made
        self.session: Guest
        self.robot: Guest

    async def settle(self) -> None:
        token = narrow(OWNER, Map({**FULL, "name": "owner"}))
        self.session = mine = await Guest.arrive(self.made, token, "~owner")
        self.robot = await Guest.arrive(self.made, token, "robot")
        done = [
            await mine.turn(1, (ASSERT, 1, Record("present", "owner"))),
            await mine.ask("lease", {"owner": LEASE}),
            await mine.turn(2, (ASSERT, 1, Record("leased", 1)), owner=LEASE),
            await mine.ask(
                "stage", {"key": ("batch", "1"), "operations": (("assert", Record("secret", 42)),)}
            ),
            await mine.ask("publish", publication(owner="robots", client="job")),
            await self.robot.turn(1, (ASSERT, 1, Record("robot", 1)), owner="robots"),
            await mine.ask("acknowledge", {"reader": "nightly", "epoch": 1}),
            await mine.ask("join", {"topic": "t", "durable": True, "name": "p", "away": 60000}),
            await mine.ask("join", {"topic": "m"}),
            await mine.ask("take", {"group": "jobs", "pattern": JOB}),
        ]
        assert done == [APART] * len(done)
        self._entries = {name: self.made.daemon.parts[TOPICS].catalogue.find(name) for name in ("t", "m")}
        self._owners = self.made.hosted.space.owners()
        self._clients = {
            name: self.made.hosted.clients.get(name) for name in (self.passing, "robot", self.job)
        }
        self._staged = self._rows()

    job: Final = "job @ durable:robots"
    passing: Final = "~owner @ token:owner/owner"

    def _rows(self) -> list[tuple[object, ...]]:
        staged = storage_of(self.made.hosted.leading.staging)
        return staged.rows("SELECT key, part, body FROM staged ORDER BY key, part")

    def state(self) -> dict[str, object]:
        """All that is the owner's now."""
        hosted, topics = self.made.hosted, self.made.daemon.parts[TOPICS].catalogue
        step_log = self._entries["t"].step_log
        assert step_log is not None
        return {
            "claims": {owner: dict(hosted.space.claims(owner).items()) for owner in self._owners},
            "numbers": {
                name: (hosted.clients.get(name), each.sequence) for name, each in self._clients.items()
            },
            "logged": {name: hosted.leading.log.clients.get(name) for name in self._clients},
            "leases": KEPT in hosted.leases._running,
            "staged": [row for row in self._rows() if row in self._staged],
            "readers": [(each.name, each.epoch) for each in hosted.leading.log.readers],
            "topics": {name: topics.is_listed(each) for name, each in self._entries.items()},
            "producer": step_log.members[step_log.named("p @ token:owner/owner") or 0].steps,
            "attached": list(self.session_producers()),
            "groups": {
                name: (each.options, asdict(each.core.counts), each.state.read)
                for name, each in hosted.parts[GROUPS].by_name.items()
            },
            "sessions": [hosted.sessions._by_client[name].connection for name in (self.passing, "robot")],
        }

    def session_producers(self) -> list[int]:
        connection = self.made.hosted.sessions._by_client[self.passing].connection
        return list(connection.feeder(CONNECTION)._producers)  # type: ignore[union-attr]  # a connection

    async def goes_on(self) -> None:
        """Fails unless the owner can go on with everything where it was."""
        hosted, mine = self.made.hosted, self.session
        assert await self.robot.turn(2, (ASSERT, 2, Record("robot", 2)), owner="robots") == APART
        assert await mine.turn(3, (ASSERT, 2, Record("leased", 2)), owner=LEASE) == APART
        assert await mine.ask("publish", publication(owner="robots", client="job", sequence=2)) == APART
        told = publication(keys=(("batch", "1"),), owner="robots", client="job", sequence=3)
        assert await mine.ask("stage", {"key": ("batch", "2"), "operations": ONE}) == APART, "it was closed"
        assert await mine.ask("publish", told) == APART
        assert await mine.ask("renew", {"owner": LEASE}) == APART
        assert [*hosted.space.claims("durable:robots").values()].count(Record("secret", 42)) == 1
        assert await self.robot.turn(3, (RETRACT, 2), owner="robots") == APART
        assert await mine.ask("release", {"owner": LEASE}) == APART
        assert KEPT not in hosted.leases._running


@asynccontextmanager
async def world(folder: Path, stranger: dict[str, Value]) -> AsyncIterator[World]:
    keys = (Key("owner", OWNER), Key("other", OTHER, Rights.read(Map(stranger))))
    with trio.fail_after(60):
        async with inside(folder, keys=keys) as made:
            settled = World(made)
            await settled.settle()
            yield settled


def may_use_topics(rights: dict[str, Value]) -> bool:
    return rights is SHARING


def expected(verb: str, told: dict[str, Value], code: str, rights: dict[str, Value]) -> str:
    """What the stranger hears: of topics, nothing at all without a right to them."""
    if "topic" in told and not may_use_topics(rights):
        return DENIED
    return code


async def test_the_tables_have_all_that_a_client_can_say(tmp_path: Path) -> None:
    async with inside(tmp_path) as made:
        assert set(made.daemon.parts[SERVED].verbs) == set(VERBS)
        wire = made.connect()
        await wire.say(p.Hello(p.VERSION, "~peer", "", Map({"spoken": True})))
        welcome = await wire.hear()
        assert isinstance(welcome, p.Welcome)
        spoken = welcome.features["spoken"]
        assert isinstance(spoken, Map)
        assert set(spoken["kinds"]) == set(OPENED)  # type: ignore[arg-type]
        assert set(spoken["offers"]) == set(OFFERED)  # type: ignore[arg-type]
    assert set(ALL_HEARD) == set(PACKETS)


@pytest.mark.slow
@pytest.mark.parametrize("who", STRANGERS)
async def test_no_request_reaches_what_belongs_to_another(who: str, tmp_path: Path) -> None:
    token, rights = STRANGERS[who]
    async with world(tmp_path, rights) as there:
        stranger, before = await Guest.arrive(there.made, token, "~stranger"), there.state()
        for verb, cases in VERBS.items():
            for told, code in cases if isinstance(cases, list) else []:
                wanted = expected(verb, told, code, rights)
                assert (await stranger.ask(verb, told), verb, told) == (wanted, verb, told)
                assert there.state() == before, (verb, told)
        await there.goes_on()


@pytest.mark.slow
@pytest.mark.parametrize("who", STRANGERS)
async def test_no_turn_or_stream_reaches_what_belongs_to_another(who: str, tmp_path: Path) -> None:
    token, rights = STRANGERS[who]
    async with world(tmp_path, rights) as there:
        stranger, before = await Guest.arrive(there.made, token, "~stranger"), there.state()
        for at, (owner, code) in enumerate(TURNS, 1):
            actions = ((ASSERT, 9, Record("forged", 1)), (RETRACT, 1))
            for action, form in itertools.product(actions, ("plain", "conditional", "shared", "traced")):
                said = await stranger.turn(HUGE + at, action, owner=owner, form=form)
                assert said == code
                assert there.state() == before, owner
        spec: dict[str, Value] = {"kind": "stage", "key": ("batch", "1")}
        await stranger.wire.say(p.Offer(1, Map(spec)), p.Done(1))
        assert await stranger.outcome() == OFFERED["stage"]
        if not may_use_topics(rights):
            await stranger.wire.say(p.Open(3, Map({"kind": "topic", "topic": "t"}), PLENTY, PLENTY))
            assert await stranger.outcome() == OPENED["topic"]
        for producer in there.session_producers():
            await stranger.wire.say(p.Produce(1, producer, ((2,),)))
            assert await stranger.outcome() == "no-producer"
        told = Map({"kind": "consume", "group": "jobs"})
        await stranger.wire.say(p.Open(5, told, PLENTY, PLENTY))
        assert await stranger.outcome() == OPENED["consume"]
        assert there.state() == before
        await there.goes_on()


@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize(("client", "more", "code"), HELLOS)
async def test_no_hello_takes_the_place_of_another(
    client: str, more: dict[str, Value], code: str, who: str, tmp_path: Path
) -> None:
    token, rights = STRANGERS[who]
    async with world(tmp_path, rights) as there:
        before = there.state()
        guest = Guest(there.made.connect(trusted=False))
        said = await guest.greet(token, client, **more)
        assert isinstance(said, p.Bye)
        assert said.code == code
        assert there.state() == before
        await there.goes_on()


async def test_a_wrong_secret_ends_no_session_even_of_the_same_bearer(tmp_path: Path) -> None:
    token = narrow(OWNER, Map({**FULL, "name": "owner"}))
    async with world(tmp_path, THEIRS) as there:
        before = there.state()
        for number in (1, 2, 77):
            said = await Guest(there.made.connect(trusted=False)).greet(
                token, "~owner", resume=(number, b"0123456789abcdef")
            )
            assert isinstance(said, p.Bye)
            assert (said.code, "come back without resume" in said.text) == (DENIED, True)
        assert there.state() == before
        await there.goes_on()


async def test_what_a_bearer_stages_belongs_to_those_it_was_narrowed_from(tmp_path: Path) -> None:
    token = narrow(OWNER, Map({**FULL, "name": "owner"}))
    task = narrow(token, Map({"assert": ("row(_)",), "name": "task"}))
    async with world(tmp_path, THEIRS) as there:
        worker = await Guest.arrive(there.made, task, "~task")
        rows = (("assert", Record("row", 1)),)
        assert await worker.ask("stage", {"key": ("job", "0"), "operations": rows}) == APART
        assert await worker.ask("discard", {"key": ("batch", "1")}) == APART
        told = publication(keys=(("job", "0"), ("batch", "1")), owner="robots", client="job", sequence=2)
        assert await there.session.ask("publish", told) == APART
        assert Record("row", 1) in there.made.hosted.space.claims("durable:robots").values()


async def test_who_publishes_must_have_the_rights_to_what_was_staged(tmp_path: Path) -> None:
    """A token that is renewed under its name is the same bearer, and may have fewer rights."""
    wide = narrow(OWNER, Map({**FULL, "name": "owner"}))
    less = narrow(OWNER, Map({"assert": ("harmless(_)",), "durable": ("robots",), "name": "owner"}))
    async with world(tmp_path, THEIRS) as there:
        renewed = await Guest.arrive(there.made, less, "~renewed")
        told = publication(keys=(("batch", "1"),), owner="robots")
        assert await renewed.ask("publish", told) == DENIED
        again = await Guest.arrive(there.made, wide, "~wide")
        assert await again.ask("publish", told) == APART


async def test_a_lease_and_an_identity_are_their_maker_s_after_a_restart_as_well(tmp_path: Path) -> None:
    token, (other, _) = narrow(OWNER, Map({**FULL, "name": "owner"})), STRANGERS["another caveat"]
    async with world(tmp_path, THEIRS) as there:
        assert there.made.hosted.space.claims(KEPT)
    keys, limits = (
        (Key("owner", OWNER),),
        Limits(grace_seconds=0.0),
    )  # else its maker has a session
    async with inside(tmp_path, limits, keys=keys) as made:
        stranger = Guest(made.connect(trusted=False))
        said = await stranger.greet(other, "~owner")
        assert isinstance(said, p.Welcome)
        assert said.sequence == 0
        assert await stranger.turn(HUGE, (ASSERT, 1, Record("present", "stranger"))) == APART
        assert made.hosted.clients.get(World.passing).sequence == 2
        assert await stranger.ask("renew", {"owner": LEASE}) == "no-lease"
        assert await stranger.ask("release", {"owner": LEASE}) == APART
        owner = await Guest.arrive(made, token, "~again")
        assert await owner.ask("renew", {"owner": LEASE}) == APART
        assert made.hosted.space.claims(KEPT)


async def test_without_tokens_names_are_as_they_are_stated(tmp_path: Path) -> None:
    async with inside(tmp_path) as made:
        guest = await Guest.arrive(made, "", "~guest")
        assert await guest.ask("lease", {"owner": LEASE}) == APART
        assert await guest.turn(1, (ASSERT, 1, Record("leased", 1)), owner=LEASE) == APART
        assert await guest.ask("publish", publication(owner="robots", client="job")) == APART
        assert {LEASE, "durable:robots"} <= set(made.hosted.space.owners())
        assert made.hosted.clients.get("job").sequence == 1
        assert await guest.turn(2, (ASSERT, 1, Record("x", 1)), owner="robots @ token:owner") == "bad-request"


async def test_an_identity_that_two_tokens_list_is_one_session_s_at_a_time(tmp_path: Path) -> None:
    also = narrow(OWNER, Map({"durable": ("robot",), "name": "also"}))
    async with world(tmp_path, THEIRS) as there:
        before = there.state()
        said = await Guest(there.made.connect(trusted=False)).greet(also, "robot")
        assert isinstance(said, p.Bye)
        assert (said.code, said.text) == (DENIED, "'robot' has connected with another token")
        assert there.state() == before
        await there.goes_on()
