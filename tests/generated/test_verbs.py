"""Every verb with every argument, drawn from the table of verbs: each request is answered, or refused with a
code of WIRE.md.

Each argument is given right values, its bounds, one beyond, and values of other kinds.  It is left out where
it is needed, and a name is added that its verb does not have.  The daemon runs inside the test: an exception
that is no refusal ends the test.

Always: a request that is refused, or whose verb reads, leaves the space as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

import pytest
import trio

from dataspace.codec import pack
from dataspace.errors import ProtocolError
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.topics import messages as forms
from dataspace.transport.tokens import narrow
from dataspace.wire import packets as p
from dataspace.wire.arguments import HIGHEST, NEEDED, ArgumentKind, Names, RequestArgument
from dataspace.wire.verbs import MEMBER, VERBS, RequestVerb
from index.values.values import Map, Record, Value
from server.config.model import SpaceConfig
from server.config.rights import RIGHTS, Key, Rights
from server.groups.space.part import GROUPS
from server.topics.part import TOPICS
from tests.abuse.oracle import codes
from tests.server.streams.inside import Inside, Wire, inside

Stated = dict[str, Value]

SOON: Final = 60
"""Seconds after which something hangs."""

SECRET: Final = "the secret of the one who asks"
JOB: Final = Record("job", Record("$", "n", None, Record("_")))
ONE: Final = (("assert", Record("staged", 1)),)
JUNK: Final[tuple[Value, ...]] = (
    *(None, True, -2, 1 << 63, 1.5, float("nan"), "", "x", b"x", ("x",), (1, 2), ((1, 2, 3),), ((1,),)),
    *(Map({"x": 1}), Record("x"), datetime(2026, 1, 1, tzinfo=UTC)),
)
"""Values of every kind."""

NAMED: Final[dict[Names, Value]] = {
    Names.OWNER: "durable",
    Names.LEASE: "lease:60000:own",
    Names.CLIENT: "~writer",
    Names.READER: "reader",
    Names.GROUP: "jobs",
    Names.TOPIC: "t",
    Names.PRODUCER: "producer",
    Names.RULE: Record("job", 1),
}
RIGHT: Final[dict[ArgumentKind, tuple[Value, ...]]] = {
    ArgumentKind.EPOCH: (0,),
    ArgumentKind.TIME: (HIGHEST,),
    ArgumentKind.MILLISECONDS: (1,),
    ArgumentKind.SECONDS: (1, 0.5),
    ArgumentKind.TEXT: ("x",),
    ArgumentKind.FLAG: (False, True),
    ArgumentKind.MAP: (Map(),),
    ArgumentKind.SESSION: (1,),
    ArgumentKind.VALUE: (Record("job", 1), None),
    ArgumentKind.PATTERN: (JOB,),
    ArgumentKind.TOPIC_TIME: (7,),
    ArgumentKind.START: (None, 0, datetime.now(UTC)),
    ArgumentKind.PAIR: ((0, 1),),
    ArgumentKind.HINTS: ("", ("main",)),
    ArgumentKind.KEY: (("key",),),
    ArgumentKind.KEYS: ((pack(ONE),), ()),
    ArgumentKind.OPERATIONS: (ONE, ()),
    ArgumentKind.ROWS: (pack(ONE),),
    ArgumentKind.EXPECTATIONS: ((), ((0, Record("absent")),)),
    ArgumentKind.CELLS: ((),),
    ArgumentKind.DONE: ((),),
}
"""Right values of each kind whose values are not named by something."""

BESIDE: Final[dict[str, Stated]] = {
    "within": {"after": 0, "upto": 1},
    "acknowledge": {"epoch": 0},
    "stage": {"operations": ONE},
    "take": {"pattern": JOB},
    "join": {"durable": True},
    "topic-epochs": {"upto": 1},
    "group-alter": {"what": "resume"},
    "rules": {"about": Record("job", 1)},
}
"""What a verb needs beside the arguments that every request of it has."""

FORMS: Final[dict[tuple[str, str], Stated]] = {
    **{
        ("within", name): {"pattern": JOB, "as_of": 1, "low": 0}
        for name in ("pattern", "as_of", "low", "asserted", "owners")
    },
    ("group-alter", "options"): {"what": "alter"},
    ("group-alter", "to"): {"what": "seek"},
    ("group-alter", "why"): {"what": "pause"},
    ("group-alter", "pattern"): {"what": "retry"},
    ("index", "value"): {"form": "rows"},
    ("take", "topic"): {"group": "of a topic", "pattern": None},
    ("join", "age"): {"topic": "aging"},
    ("publish", "by"): {"keys": (pack((("assert", Record("job", 1)),)),)},
}
"""What a request needs for one of its arguments to have a meaning."""

SETTLED: Final = ("done", "again", "dead", "extend")
MADE: Final[dict[str, tuple[str, ...]]] = {
    "end-session": ("session",),
    "publish": ("client", "sequence", "done"),
    "settle": SETTLED,
    **dict.fromkeys(("topic-epochs", "topic-number", "topic-acknowledge"), ("id",)),
}
"""Arguments whose right values are made for each request (``World.prepare``)."""

NOT_HERE: Final = {"erase": "no-archive", "cluster": "no-cluster"}
"""Verbs that no daemon inside a test can carry out, with the code of their refusal."""

OF_CLUSTERS: Final = {"cluster": "needs PostgreSQL: tests/server/cluster/test_drained.py"}
"""Verbs that no daemon over a directory carries out, and what does it."""

LAST: Final = ("end-topic", "end-session", "drain")


def right(verb: str, name: str, argument: RequestArgument) -> tuple[Value, ...]:
    """Returns right values of an argument."""
    if argument.of is not None:
        return (NAMED[argument.of],)
    if argument.choices:
        return argument.choices
    if argument.kind is ArgumentKind.NUMBER:
        return (argument.default if isinstance(argument.default, int) else 1,)
    return RIGHT[argument.kind]


class Guest:
    """One connection that asks, and hears what comes of each request."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.session = 0
        self.granted = Map()
        self._numbers = itertools.count(1)

    @classmethod
    async def arrive(
        cls, made: Inside, client: str, *, token: str = "", trusted: bool = False, **features: Value
    ) -> Guest:
        """Returns a connection with a welcome; the hello names the ``features`` beside the token."""
        guest = cls(made.connect(trusted=trusted))
        wanted: Stated = {**({"token": token} if token else {}), **features}
        await guest.wire.say(p.Hello(p.VERSION, client, "", Map(wanted)))
        welcome = await guest.wire.hear()
        assert isinstance(welcome, p.Welcome), welcome
        guest.session, guest.granted = welcome.session, welcome.features
        return guest

    async def ask(self, verb: str, stated: Stated) -> p.Answer | p.Denied:
        """Returns what comes of a request."""
        await self.wire.say(p.Request(next(self._numbers), verb, Map(stated)))
        heard = None
        with trio.move_on_after(SOON):
            heard = await self.wire.hear()
            while isinstance(heard, p.Reached | p.Ping):
                heard = await self.wire.hear()
        assert isinstance(heard, p.Answer | p.Denied), (verb, stated, heard)
        return heard

    async def has(self, verb: str, stated: Stated) -> Value:
        """Returns the answer to a request that must be accepted."""
        heard = await self.ask(verb, stated)
        assert isinstance(heard, p.Answer), (verb, stated, heard)
        return heard.value


class World:
    """A daemon with a fact, a job, a group, a durable topic, a lease and a reader."""

    def __init__(self, made: Inside, owner: Guest) -> None:
        self.made = made
        self.owner = owner
        self.topic = 0
        self._turns = itertools.count(1)
        self._writers = itertools.count(1)

    async def settle(self) -> None:
        """Makes all that is there."""
        await self.turn((ASSERT, 1, Record("job", 0)))
        await self.prepare("group-alter")
        made = await self._join()
        finished = (forms.FINISH, 0, pack(()), ((0, -1), (1, 1)))
        await self.owner.wire.say(p.Produce(1 << 40, made["producer"], (finished,)))  # type: ignore[arg-type]  # a number
        assert isinstance(await self.owner.wire.hear(), p.Answer)

    async def _join(self) -> Map:
        made = await self.owner.has("join", {"topic": "t", "durable": True})
        assert isinstance(made, Map)
        self.topic = int(str(made["id"]))
        return made

    async def turn(self, action: tuple[Value, ...]) -> None:
        """Carries out a turn of the owner."""
        await self.owner.wire.say(p.Turn(next(self._turns), "main", "", (action,)))
        assert isinstance(await self.owner.wire.hear(), p.Accepted)

    async def prepare(self, verb: str, name: str = "") -> Stated:
        """Makes what requests of a verb use up; returns the arguments that such a request needs for that."""
        match verb:
            case "settle" if name in SETTLED:
                return {name: (await self._taken(),)}
            case "take" | "settle" | "group-alter" | "groups":
                await self.owner.ask("take", {"group": "jobs", "pattern": JOB})
                await self.turn((SEND, Record("job", next(self._turns))))
            case "renew" | "release":
                await self.owner.has("lease", {"owner": NAMED[Names.LEASE]})
            case "end-topic":
                await self._join()
            case "end-session":
                return {"session": (await Guest.arrive(self.made, "~ended", token=SECRET)).session}
            case "publish":
                done = {"done": (("jobs", await self._taken()),)} if name == "done" else {}
                return {"client": f"~writer-{next(self._writers)}", "sequence": 1, **done}
            case "topic-epochs" | "topic-number" | "topic-acknowledge":
                return {"id": self.topic}
        return {}

    async def _taken(self) -> tuple[int, ...]:
        """Returns a job that the owner has."""
        await self.owner.ask("take", {"group": "jobs", "pattern": JOB})
        await self.turn((SEND, Record("job", next(self._turns))))
        taken = await self.owner.has("take", {"group": "jobs", "wait": 60_000})
        assert isinstance(taken, Map)
        ((epoch, position, _, token, *_),) = cast("tuple[tuple[int, ...]]", taken["jobs"])
        return epoch, position, token

    def state(self) -> Value:
        """Returns what a request that changes nothing leaves as it is."""
        hosted, topics = self.made.hosted, self.made.daemon.parts[TOPICS].catalogue
        return (
            hosted.space.epoch,
            tuple(sorted(hosted.parts[GROUPS].by_name)),
            tuple([(each.name, each.epoch) for each in hosted.leading.log.readers]),
            len(topics),
        )


def base(row: RequestVerb, name: str = "") -> Stated:
    """Returns a right request, in which an argument has a meaning."""
    needed = {
        at: right(row.name, at, each)[0] for at, each in row.arguments.items() if each.default is NEEDED
    }
    return {**needed, **BESIDE.get(row.name, {}), **FORMS.get((row.name, name), {})}


def bounds(argument: RequestArgument) -> Iterator[tuple[Value, bool]]:
    """Yields values at the bounds of an argument, and beyond, each with whether it may be read."""
    match argument.kind:
        case ArgumentKind.TEXT:
            yield "x" * int(argument.most), True
            yield "x" * (int(argument.most) + 1), False
        case ArgumentKind.CELLS:
            yield (), True
            yield ((0, 0, 0),) * int(argument.most), True
            yield ((0, 0, 0),) * (int(argument.most) + 1), False
        case ArgumentKind.SECONDS | ArgumentKind.MILLISECONDS | ArgumentKind.NUMBER | ArgumentKind.EPOCH:
            least, most = int(argument.least), int(argument.most)
            yield from [(least, argument.fits(least)), (most, True), (most + 1, argument.is_cut)]
            yield HIGHEST + 1, False
        case _:
            pass


def fits(argument: RequestArgument, value: Value) -> bool:
    """True if a value may be read."""
    try:
        return argument.fits(value) or value is argument.default
    except ProtocolError:
        return False


Cell = tuple[str, Stated, bool]
"""The argument that a request is about, the request, and whether it may be read."""


def cells(row: RequestVerb) -> Iterator[Cell]:
    """Yields requests of a verb."""
    yield "", base(row), True
    yield "nonsense", {**base(row), "nonsense": 1}, False
    for name, argument in row.arguments.items():
        usual = base(row, name)
        if argument.default is NEEDED:
            yield name, {at: each for at, each in usual.items() if at != name}, False
        for value in right(row.name, name, argument):
            made = {name: value} if name not in MADE.get(row.name, ()) else {}
            yield name, {at: each for at, each in usual.items() if at != name} | made, True
        for value, is_right in bounds(argument):
            yield name, {**usual, name: value}, is_right
        for value in JUNK:
            if not fits(argument, value):
                yield name, {**usual, name: value}, False


@asynccontextmanager
async def world(folder: Path, *spaces: str) -> AsyncIterator[World]:
    """Yields a world whose owner may do everything, with further spaces of these names."""
    keys = (Key("owner", SECRET, Rights.read(Map())),)
    further = tuple([SpaceConfig(name, folder / name) for name in spaces])
    with trio.fail_after(5 * SOON):
        async with inside(folder, keys=keys, spaces=further) as made:
            for hosted in made.daemon.spaces.values():
                made.daemon.peers.start_soon(hosted.run)
            settled = World(made, await Guest.arrive(made, "~owner", token=SECRET))
            await settled.settle()
            yield settled


def ordered() -> list[RequestVerb]:
    """Returns the rows of the table, those last that end something."""
    return sorted(VERBS.values(), key=lambda row: LAST.index(row.name) if row.name in LAST else -1)


async def test_each_argument_of_each_verb_is_accepted_or_refused_as_the_table_says(tmp_path: Path) -> None:
    documented = codes()["Denied"]
    async with world(tmp_path) as there:
        trusted = await Guest.arrive(there.made, "~follower", trusted=True)
        for row in ordered():
            for name, stated, is_right in cells(row):
                known = await there.prepare(row.name, name)
                request = stated | {
                    at: made for at, made in known.items() if at != name or (is_right and at not in stated)
                }
                before = there.state()
                asker = trusted if MEMBER in row.rights else there.owner
                heard = await asker.ask(row.name, request)
                said = row.name, name, repr(request)[:200], repr(heard)[:300]
                if isinstance(heard, p.Denied):
                    assert heard.code in documented and heard.code != "internal", said
                    assert is_right or heard.code in ("bad-request", "malformed"), said
                else:
                    assert is_right, said
                if isinstance(heard, p.Denied) or not row.changes:
                    assert there.state() == before, said


def is_any(verb: str, name: str) -> bool:
    """True if an argument may be any value, or absent, so that the table refuses none."""
    argument = VERBS[verb].arguments[name]
    return argument.default is not NEEDED and all(fits(argument, each) for each in JUNK)


@pytest.mark.parametrize("denied", RIGHTS)
async def test_a_verb_is_denied_without_a_right_that_the_table_lists_and_no_other(
    tmp_path: Path, denied: str
) -> None:
    token = narrow(SECRET, Map({"name": "guest", "deny": Map({denied: True})}))
    async with world(tmp_path) as there:
        guest = await Guest.arrive(there.made, "~guest", token=token)
        for row in ordered():
            if row.name == "drain" and denied != "administer":
                continue
            request = base(row) | await there.prepare(row.name)
            before = there.state()
            heard = await guest.ask(row.name, request)
            is_denied = isinstance(heard, p.Denied) and heard.code == "not-allowed"
            assert is_denied == (denied in row.rights or MEMBER in row.rights), (row.name, request, heard)
            assert not is_denied or there.state() == before, (row.name, request)
