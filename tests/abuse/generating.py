"""What an attacker sends: packets that are right, nearly right, or wrong, of every kind and verb.

A ``Script`` belongs to one connection.  It knows the names that all know, the numbers that the connection
was given, and nothing that is secret.  What it makes depends on its seed and on what was answered, never on
time.

Always: each fact, message and batch that it makes says which tenant made it (``tagged``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain
from typing import Final

from dataspace.codec import pack
from dataspace.wire import packets as p
from dataspace.wire.arguments import NEEDED, ArgumentKind, Names, RequestArgument
from dataspace.wire.verbs import VERBS
from index.values.values import Map, Record, Value
from tests.abuse import tenants as known
from tests.abuse.palette import BIG, JUNK, Palette
from tests.abuse.tenants import Tenant, tagged


class Script(Palette):
    """What one connection of one tenant sends; ``heard`` takes in what it was answered."""

    def __init__(self, tenant: Tenant, chance: random.Random, foreign: tuple[int, ...] = ()) -> None:
        """``foreign`` are numbers of others that it got to know: sessions, producers, topics."""
        super().__init__(tenant, chance)
        self.sequence = 0
        self.stream = 0
        self.number = 0
        self.offered: list[int] = []
        self.producers = list(foreign)
        self.topics = list(foreign)
        self.epoch = 0

    # -- what it learns -------------------------------------------------------------------------------

    def hear(self, packet: p.Packet) -> None:
        """Notes the numbers in an answer."""
        match packet:
            case p.Welcome():
                self.sequence, self.epoch = packet.sequence, packet.epoch
            case p.Accepted(_, epochs):
                self.epoch = max(self.epoch, *epochs)
            case p.Answer(_, Map() as value):
                for name, numbers in (("producer", self.producers), ("id", self.topics)):
                    found = value.get(name)
                    if found.__class__ is int:
                        numbers.append(found)
                        del numbers[:-8]
            case _:
                pass

    # -- packets --------------------------------------------------------------------------------------

    def hello(self) -> p.Hello:
        """Returns a hello, mostly one that is admitted."""
        chance, features = self.chance, dict[str, Value]()
        if self.tenant.token:
            features["token"] = self.tenant.token
        if self.tenant.space != "main":
            features["space"] = self.tenant.space
        if self.seldom(0.15) or not self.tenant.token:
            features["token"] = self.token()
        if chance.random() < 0.4:
            features["grace"] = chance.choice((0, 1, 200, 60_000, 1 << 62))
        if chance.random() < 0.3:
            features["resume"] = (self.foreign_number(), chance.randbytes(16))
        if chance.random() < 0.2:
            features["attempt"] = (chance.choice(BIG), chance.choice((b"", b"a", b"b")))
        if self.seldom(0.05):
            features["space"] = chance.choice(known.SPACES)
        if self.seldom(0.05):
            features[chance.choice(("heartbeat", "spoken", "space", "token", "nothing"))] = chance.choice(
                JUNK
            )
        version = 1 if chance.random() < 0.98 else chance.choice(BIG)
        return p.Hello(version, self.identity(), f"by-{self.tenant.name}", Map(features))

    def packet(self) -> p.Packet:
        """Returns the next packet."""
        return self.chance.choices(_KINDS, _WEIGHTS)[0](self)

    def _turn(self) -> p.Packet:
        """Returns a turn of any length; some say of which trace they are a part, or try to."""
        made = self._untraced()
        if self.chance.random() >= 0.3:
            return made
        return made._replace(traceparent=self._traceparent())

    def _traceparent(self) -> str:
        chance = self.chance
        trace, span = chance.randbytes(16).hex(), chance.randbytes(8).hex()
        if chance.random() < 0.5:
            return f"00-{trace}-{span}-0{chance.randrange(2)}"
        return chance.choice(
            (
                "",
                f"00-{'0' * 32}-{span}-01",
                f"00-{trace}-{span}-01-more",
                f"ff-{trace}-{span}-01",
                f"01-{trace}-{span}-01-{'x' * chance.choice((1, 500, 5000))}",
                f"00-{trace.upper()}-{span}-01",
                trace,
                "\x00\n\u202e",
            )
        )

    def _untraced(self) -> p.Turn:
        chance = self.chance
        self.sequence += 1
        sequence = (
            self.sequence if chance.random() < 0.9 else chance.choice((*BIG, max(0, self.sequence - 3)))
        )
        actions = tuple(self._action() for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 8))))
        owner = "" if chance.random() < 0.5 else self.owner()
        space = self.tenant.space if chance.random() < 0.95 else chance.choice(known.SPACES)
        if chance.random() < 0.8:
            return p.Turn(sequence, space, owner, actions)
        expected = tuple(self._expectation() for _ in range(chance.choice((0, 1, 1, 2, 300))))
        if chance.random() < 0.5:
            return p.Turn(sequence, space, owner, actions, expected)
        others = tuple(
            ("" if chance.random() < 0.2 else self.owner(), tuple(self._action() for _ in range(2)))
            for _ in range(chance.choice((0, 1, 1, 2, 20)))
        )
        return p.Turn(sequence, space, owner, actions, expected[:2], others)

    def _expectation(self) -> tuple[Value, ...]:
        chance = self.chance
        match chance.randrange(3):
            case 0:
                return (0, self.pattern())
            case 1:
                rows = tuple((self.value(),) for _ in range(chance.randrange(3)))
                return (1, self.pattern(), rows)
        return (2, self.pattern(), chance.choice((0, self.epoch, max(0, self.epoch - 20), *BIG)))

    def _action(self) -> tuple[Value, ...]:
        chance = self.chance
        verb = chance.choice((0, 0, 0, 1, 1, 2, 3))
        first, second = self._handle(), self._handle()
        match verb:
            case 0:
                return (0, first, self.value())
            case 1:
                return (1, first)
            case 2:
                return (2, self.value())
        return (3, first, second, self.value())

    def _handle(self) -> int:
        return self.chance.randrange(32) if self.chance.random() < 0.9 else self.chance.choice(BIG)

    def _open(self) -> p.Packet:
        chance = self.chance
        self.stream += chance.choice((1, 1, 1, 1, 2))
        credit = chance.choice((0, 1, 4, 64, 1 << 60))
        return p.Open(
            self.stream, Map(self._varied(self._spec())), credit, chance.choice((0, 1, 4096, 1 << 60))
        )

    def _spec(self) -> dict[str, Value]:
        chance = self.chance
        if chance.random() < 0.25:
            spec: dict[str, Value] = {"kind": "topic", "topic": self.topic()}
            if chance.random() < 0.5:
                spec["as_of"] = (chance.choice(BIG),)
            if chance.random() < 0.2:
                spec["policy"] = "wait"
            return spec
        spec = {"pattern": self.pattern()}
        for name in ("snapshot", "durable", "quiet", "net", "progress"):
            if chance.random() < 0.3:
                spec[name] = chance.random() < 0.7
        for name in ("after", "as_of", "upto"):
            if chance.random() < 0.1:
                spec[name] = chance.choice((0, self.epoch, max(0, self.epoch - chance.randrange(200)), *BIG))
        if chance.random() < 0.2:
            spec["policy"] = chance.choice(("wait", "conflate", "fail", "drop"))
        if chance.random() < 0.1:
            spec["pace"] = chance.choice((0, 1, 20, 60_000, 60_001))
        if chance.random() < 0.1:
            spec |= {"kind": "columns", "durable": True, "upto": self.epoch}
            if chance.random() < 0.5:
                spec |= {
                    "captures": tuple(range(chance.randrange(3))),
                    "places": True,
                    "asserted": chance.random() < 0.5,
                }
        if chance.random() < 0.1:
            spec["space"] = chance.choice(known.SPACES)
        return spec

    def _ask(self) -> p.Packet:
        return p.Ask(self._stream(), self.chance.choice(BIG), self.chance.choice(BIG))

    def _peek(self) -> p.Packet:
        return p.Peek(self._stream(), self.chance.choice(BIG))

    def _abort(self) -> p.Packet:
        return p.Abort(self._stream(), "", self.chance.random() < 0.5)

    def _stream(self) -> int:
        return self.chance.randint(1, max(1, self.stream)) if self.stream else 0

    def _request(self) -> p.Packet:
        self.number += 1
        verb = self.chance.choice(_VERBS)
        arguments = self._varied(self._arguments(verb))
        return p.Request(self.number, verb, Map(arguments))

    def _produce(self) -> p.Packet:
        self.number += 1
        producer = self.chance.choice(self.producers) if self.producers else self.chance.choice(BIG)
        return p.Produce(
            self.number, producer, tuple(self._step() for _ in range(self.chance.choice((1, 1, 2, 4))))
        )

    def _step(self) -> Value:
        chance = self.chance
        time, changes = (
            chance.choice((0, 1, 2, 3, *BIG)),
            ((chance.randrange(4), 1), (chance.randrange(3), -1)),
        )
        items = pack(tuple(Record(*tagged(self.tenant.name, "item", n)) for n in range(chance.randrange(3))))
        if self.seldom(0.03):
            items = chance.choice((b"", b"\xc1", b"\x01"))
        step: tuple[Value, ...] = chance.choice(
            (
                (0, time, items),
                (1, changes),
                (5, time, items, changes),
                (2,),
                (3, "on purpose"),
                (4,),
                (0, time),
            )
        )
        return chance.choice(JUNK) if self.seldom(0.02) else step

    def _offer(self) -> p.Packet:
        self.stream += 1
        self.offered.append(self.stream)
        return p.Offer(self.stream, Map(self._varied({"kind": "stage", "key": self.key()})))

    def _values(self) -> p.Packet:
        if not self.offered:
            return self._offer()
        values = tuple(self.operation() for _ in range(self.chance.randrange(4)))
        first = 0 if self.chance.random() < 0.95 else self.chance.choice(BIG)
        return p.Values(self.offered.pop(), first, values, 0)

    def _done(self) -> p.Packet:
        stream = self._stream()
        return p.Done(stream) if self.chance.random() < 0.7 else p.Error(stream, "failed", "on purpose")

    def _ping(self) -> p.Packet:
        return p.Ping(self.chance.choice(BIG[:8]))

    def _odd(self) -> p.Packet:
        """What ends a session: a packet of the daemon, or one that may not come now."""
        number = self.chance.choice(BIG)
        return self.chance.choice(
            (
                p.Bye("", ""),
                self.hello(),
                p.Accepted(1, (1,)),
                p.Reached(number, (1,)),
                p.Done(number),
                p.Answer(number, None),
                p.Available(self._stream(), number),
                p.Pong(number),
                p.Bye("limit", "no"),
            )
        )

    # -- arguments of requests --------------------------------------------------------------------------

    def _varied(self, right: dict[str, Value]) -> dict[str, Value]:
        """Returns arguments as they are, or with one that is missing, of another kind, or too many."""
        chance = self.chance
        if chance.random() < 0.85 or not right:
            return right
        name = chance.choice(sorted(right))
        match chance.randrange(3):
            case 0:
                del right[name]
            case 1:
                right[name] = chance.choice(JUNK)
            case _:
                right[chance.choice(("space", "close", "key", "x", name.upper()))] = chance.choice(JUNK)
        return right

    def _arguments(self, verb: str) -> dict[str, Value]:
        """Returns arguments as the table of verbs has them: all that are needed, and some of the others."""
        known = VERBS[verb].arguments if verb in VERBS else {}
        return {name: self._drawn(name, each) for name, each in known.items() if self._is_stated(each)}

    def _is_stated(self, argument: RequestArgument) -> bool:
        if argument.default is NEEDED:
            return True
        is_needed_mostly = argument.default is None and argument.kind in _MOSTLY
        return self.chance.random() < (0.8 if is_needed_mostly else 0.25)

    def _drawn(self, name: str, argument: RequestArgument) -> Value:
        """Returns a value of the kind of an argument, and from the names that it is of."""
        chance = self.chance
        if argument.choices:
            return chance.choice(argument.choices)
        if argument.of is not None:
            return _NAMES[argument.of](self)
        if name == "id":
            return chance.choice(self.topics) if self.topics else 1
        if (
            argument.kind is ArgumentKind.NUMBER
            and isinstance(argument.default, int)
            and chance.random() < 0.5
        ):
            return argument.default
        return _DRAWN[argument.kind](self)

    def _epoch(self) -> Value:
        chance = self.chance
        return chance.choice((0, self.epoch, max(0, self.epoch - chance.randrange(20)), *BIG))

    def _keys(self) -> Value:
        chance = self.chance
        return tuple(
            self.key() if chance.random() < 0.7 else self.rows() for _ in range(chance.randint(1, 2))
        )

    def _cells(self) -> tuple[tuple[int, ...], ...]:
        """Returns deliveries that may be out, to whomever, or are still to come."""
        chance, epoch = self.chance, self.epoch + self.chance.choice((-3, 0, 1, 9))
        return tuple((epoch, chance.randrange(3), chance.randrange(30)) for _ in range(chance.randrange(3)))


_MOSTLY: Final = (ArgumentKind.NUMBER, ArgumentKind.EPOCH, ArgumentKind.OPERATIONS)
"""Arguments of these kinds are needed by one form of their verb if they have no default."""

_NAMES: Final[dict[Names, Callable[[Script], Value]]] = {
    Names.OWNER: Script.owner,
    Names.LEASE: Script.lease_name,
    Names.CLIENT: Script.identity,
    Names.READER: lambda script: script.chance.choice(known.READERS),
    Names.GROUP: lambda script: script.chance.choice(("jobs", "none")),
    Names.TOPIC: Script.topic,
    Names.PRODUCER: lambda script: script.chance.choice(known.PRODUCERS),
    Names.RULE: lambda script: script.chance.choice((script.value(), script.pattern(), "law")),
}

_DRAWN: Final[dict[ArgumentKind, Callable[[Script], Value]]] = {
    ArgumentKind.NUMBER: lambda script: script.chance.choice((*range(1, 40), *BIG)),
    ArgumentKind.EPOCH: Script._epoch,
    ArgumentKind.TIME: lambda script: script.chance.choice(BIG),
    ArgumentKind.MILLISECONDS: lambda script: script.chance.choice((0, 1, 20)),
    ArgumentKind.SECONDS: lambda script: script.chance.choice((0, 0.5, 10, 1e9)),
    ArgumentKind.TEXT: lambda script: script.chance.choice(("", "so it is", "../lock", "tcp://127.0.0.1:1")),
    ArgumentKind.FLAG: lambda script: script.chance.random() < 0.5,
    ArgumentKind.MAP: lambda script: Map(
        {script.chance.choice(("main", "attempts", "window", "key")): script.chance.choice((3, *BIG, "x"))}
    ),
    ArgumentKind.VALUE: Script.value,
    ArgumentKind.PATTERN: Script.pattern,
    ArgumentKind.TOPIC_TIME: lambda script: script.chance.choice(BIG),
    ArgumentKind.SESSION: lambda script: script.chance.choice((script.chance.randrange(1, 30), "0.3")),
    ArgumentKind.START: lambda script: script.chance.choice((None, 0, script.epoch, *BIG)),
    ArgumentKind.PAIR: lambda script: (0, script.chance.choice(BIG)),
    ArgumentKind.HINTS: lambda script: script.chance.choice(("", "../lock", "log.sqlite", ("main",))),
    ArgumentKind.KEY: Script.key,
    ArgumentKind.KEYS: Script._keys,
    ArgumentKind.OPERATIONS: lambda script: tuple(
        script.operation() for _ in range(script.chance.randrange(4))
    ),
    ArgumentKind.ROWS: Script.rows,
    ArgumentKind.EXPECTATIONS: lambda script: tuple(
        script._expectation() for _ in range(script.chance.randrange(3))
    ),
    ArgumentKind.CELLS: Script._cells,
    ArgumentKind.DONE: lambda script: (("jobs", tuple(chain.from_iterable(script._cells()))),),
}

_PACKETS: Final[dict[Callable[[Script], p.Packet], float]] = {
    Script._turn: 30,
    Script._request: 40,
    Script._open: 8,
    Script._ask: 3,
    Script._peek: 1,
    Script._abort: 4,
    Script._produce: 6,
    Script._offer: 1,
    Script._values: 2,
    Script._done: 1,
    Script._ping: 1,
    Script._odd: 0.3,
}
_KINDS: Final = tuple(_PACKETS)
_WEIGHTS: Final = tuple(_PACKETS.values())
_VERBS: Final = (*VERBS, "no-such-verb")
