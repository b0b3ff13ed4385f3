"""Innocents: tenants that go about their work beside attackers, and a model of all that is theirs.

Each owns something that an attacker would like to have: turn numbers, staged operations, a lease, producers
of topics, a session that comes back, a named reader, rules.  ``step`` has each do one more piece of work,
which must be answered as if it were alone; an administrator observes the whole space meanwhile.

Always: after each step the facts of innocents are those of the model, and the history since the step before,
with the turns of innocents and all that the administrator was shown, breaks no promise of GUARANTEES.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from dataspace.codec import pack, unpack
from dataspace.kernel.actions import ASSERT, REPLACE
from dataspace.topics.messages import BATCH
from dataspace.wire import packets as p
from index.patterns.patterns import capture, discard
from index.values.values import Map, Record, Value
from tests.abuse.lines import Client
from tests.abuse.oracle import Oracle, Violation
from tests.abuse.tenants import ADMIN, ATTACKERS, INNOCENTS, SHARED, VAULT
from tests.guarantees.history import Turn, View
from tests.guarantees.notes import AS_A_READER, Notes, shown
from tests.guarantees.validators import broken, judged
from tests.server.processes import DaemonProcess

_AS_A_READER: Final = cast("Mapping[str, Value]", AS_A_READER)

LEASE: Final = "lease:600000:bank"
LAW: Final = "derived($x) <- of_law($x)."
GRACE: Final = 120_000
PASSING: Final = ("of_abel",)
"""Labels of facts that go with a session without grace, and so with a restart."""


class Watcher:
    """The administrator: it observes all facts and messages of the space ``main`` that are on disk."""

    def __init__(self, port: int, oracle: Oracle) -> None:
        self.client = Client(port, oracle, ADMIN, INNOCENTS[ADMIN].token, client="~admin")
        self._stream = self.client.open({"pattern": capture("x"), **_AS_A_READER})
        self._facts: Counter[bytes] = Counter()
        self.view = View(capture("x"))

    def facts(self, label: str) -> list[bytes]:
        """Returns the facts with a label, packed, in order."""
        begin = pack(Record(label))
        return sorted(each for each in self._facts if _label(each) == label or each == begin)

    def differences(self, model: Mapping[str, Sequence[Value]]) -> list[str]:
        """Returns how the facts with some labels differ from those of a model."""
        durable = self.client.request("sync")
        assert isinstance(durable, int)
        self.take_in()
        while self.view.upto < durable:
            self.client.wait()
            self.take_in()
        found = []
        for label, facts in model.items():
            there = self.facts(label)
            if sorted(map(pack, facts)) != there:
                found.append(f"facts {label} are {[unpack(each) for each in there]}, expected {facts}")
        return found

    def take_in(self) -> None:
        """Takes in what has happened."""
        self.client.drain()
        for told in self.client.told(self._stream):
            self.view.upto = told.number
            if not told.progress:
                self.view.epochs.append(shown(told))
            for (value,) in told.added:
                self._facts[pack(value)] += 1
            for (value,) in told.removed:
                self._facts[pack(value)] -= 1
                if self._facts[pack(value)] <= 0:
                    del self._facts[pack(value)]

    def count(self) -> int:
        """How many facts there are."""
        return len(self._facts)


def _label(packed: bytes) -> str:
    value = unpack(packed)
    return str(value.label) if isinstance(value, Record) else ""


class Innocents:
    """All innocent tenants of one daemon."""

    def __init__(self, daemon: DaemonProcess, oracle: Oracle) -> None:
        self._port = daemon.port
        self._oracle = oracle
        self._notes = Notes(daemon.data)
        self.judged: set[str] = set()
        """The validators that had something to judge."""
        self.round = 0
        self.model: dict[str, list[Value]] = {}
        self.watcher = Watcher(daemon.port, oracle)
        history = self._notes.history
        history.rights = {each.name: each.label for each in ATTACKERS.values()}
        history.secret = frozenset(each.label for each in INNOCENTS.values())
        history.strangers = True
        self._set_up_admin()
        self._set_up_robots()
        self._set_up_bank()
        self._set_up_press()
        self._set_up_sessions()
        self.step()

    def client(self, who: str, identity: str, **features: Any) -> Client:
        """Returns a new connection of an innocent tenant."""
        return Client(self._port, self._oracle, who, INNOCENTS[who].token, client=identity, **features)

    def mark(self, what: str, *seers: str) -> str:
        """Returns a mark that the administrator and these tenants may see."""
        return self._oracle.mark(what, ADMIN, *seers)

    # -- what they own ---------------------------------------------------------------------------------

    def _set_up_admin(self) -> None:
        """Plants marks; names in the status and in the catalogue are for those who may inspect."""
        admin, mark = self.watcher.client, self.mark
        shared = [Record(SHARED, n) for n in range(8)]
        law = Record("of_law", mark("law"))
        denied = Record("of_gagged", 0, mark("denied"))
        actions = [Record("rule", mark("rule", "inspector"), LAW), law, denied, *shared]
        self._turn(admin, *[(ASSERT, at, each) for at, each in enumerate(actions)], owner="laws")
        self.model |= {"of_law": [law], "derived": [Record("derived", *law.fields)], SHARED: list(shared)}
        admin.open({"pattern": Record(VAULT, mark("pattern"), discard())})
        admin.request("lease", owner=f"lease:600000:{mark('lease')}")
        admin.request("acknowledge", reader=mark("reader", "inspector"), epoch=1)
        admin.request("stage", key=(mark("key"),), operations=(("assert", Record("of_law", mark("row"))),))
        admin.request("join", topic=mark("topic", "inspector"))
        self._turn(admin, (ASSERT, 0, Record("of_admin", 0)), owner=mark("owner"))
        self.model["of_admin"] = [Record("of_admin", 0)]
        self.named = Client(self._port, self._oracle, ADMIN, INNOCENTS[ADMIN].token, client=mark("identity"))

    def _set_up_robots(self) -> None:
        self.robots = [self.client("robot", "robot-8"), self.client("robot", "owner:robot-9")]
        for robot, owner in zip(self.robots, ("robot-8", "robot-9"), strict=True):
            self._turn(robot, (ASSERT, 0, Record("of_robot", owner, 0)), owner=owner)

    def _set_up_bank(self) -> None:
        self.bank = self.client("bank", "~bank")
        secret = Record("of_bank", self.mark("fact", "bank"))
        leased = Record("of_bank", self.mark("leased", "bank"))
        self._turn(self.bank, (ASSERT, 0, secret), owner="bank")
        self.bank.request("lease", owner=LEASE)
        self._turn(self.bank, (ASSERT, 0, leased), owner=LEASE)
        self.bank.request("acknowledge", reader="bank-reader", epoch=1)
        self._acknowledged = 1
        self.model["of_bank"] = [secret, leased]
        self._stage()

    def _set_up_press(self) -> None:
        self.press = self.client("press", "~press")
        self.desks: dict[str, int] = {}
        self.read: dict[str, tuple[int, list[Value]]] = {}
        self.printed: list[bytes] = []
        for topic, more in (
            ("press", {}),
            ("ledger", {"durable": True, "name": "press-desk", "away": 60_000}),
        ):
            joined = self.press.request("join", topic=topic, retain=1 << 20, **more)  # type: ignore[arg-type]  # values
            assert isinstance(joined, Map)
            producer = joined["producer"]
            assert isinstance(producer, int)
            self.desks[topic] = producer
            self.read[topic] = (self.press.open({"kind": "topic", "topic": topic, "policy": "wait"}), [])

    def _set_up_sessions(self) -> None:
        self.abel = self.client("abel", "~abel")
        self.nomad = self.client("nomad", "~nomad", grace=GRACE)
        for each in (self.abel, self.nomad):
            fact = Record(f"of_{each.who}", self.mark("fact", each.who))
            self._turn(each, (ASSERT, 0, fact))
            self.model[f"of_{each.who}"] = [fact]

    def _turn(self, client: Client, *actions: tuple[Value, ...], owner: str = "") -> None:
        """Commits a turn of an innocent; notes it if the log names its client."""
        epoch = client.turn(*actions, owner=owner)
        if not client.identity.startswith("~"):
            self._notes.history.turns.append(Turn(client.identity, client.sequence, actions, epoch))

    def foreign(self) -> tuple[int, ...]:
        """Numbers of innocents that an attacker may have seen: sessions, producers."""
        lines = (self.nomad, self.abel, self.press, self.bank)
        return (*[each.welcome.session for each in lines], *self.desks.values())

    # -- what they do ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Has each of them do one more piece of work, and compares everything with the model."""
        self.round += 1
        self._move_robots()
        self._publish()
        self._print()
        self._come_back()
        self.bank.request("renew", owner=LEASE)
        self._acknowledge()
        self.named.settle()
        self.abel.settle()
        self.check()

    def _move_robots(self) -> None:
        now = self.round
        for robot, owner in zip(self.robots, ("robot-8", "robot-9"), strict=True):
            self._turn(robot, (REPLACE, now - 1, now, Record("of_robot", owner, now)), owner=owner)
        self.model["of_robot"] = [Record("of_robot", owner, now) for owner in ("robot-8", "robot-9")]

    def _stage(self) -> None:
        """Stages the batch that the next step publishes."""
        number = self.round + 1
        self.batch: list[Value] = [Record("of_batch", number, self.mark("staged", "bank")) for _ in range(2)]
        operations = tuple(("assert", each) for each in self.batch)
        self._admin_stages(("bank", "q", str(number % 3)), operations)

    def _admin_stages(self, key: tuple[str, ...], operations: tuple[Value, ...]) -> None:
        self.watcher.client.request("stage", key=key, operations=operations)

    def _publish(self) -> None:
        key = ("bank", "q", str(self.round % 3))
        self.watcher.client.request(
            "publish", keys=(key,), owner="batches", client="batcher", sequence=self.round, replace=True
        )
        self.model["of_batch"] = self.batch
        self._stage()

    def _print(self) -> None:
        """Sends an item to each topic, which its subscriber must be told, and nothing else."""
        for topic, producer in self.desks.items():
            at, item = self.round - 1, self.mark(topic, "press", "listener")
            self.press.number += 1
            steps = ((0, at, pack((item,))), (1, ((at, -1), (at + 1, 1))))
            self.press.say(p.Produce(self.press.number, producer, steps))
            answer = self.press.answer(self.press.number)
            if isinstance(answer, p.Denied):
                raise Violation(f"press: a step of its own producer was refused: {answer}")
            stream, items = self.read[topic]
            while len(items) < self.round:
                for message in cast("list[tuple[Value, ...]]", self.press.taken(stream)):
                    if message[0] == BATCH:
                        items.append(unpack(cast("bytes", message[3])))
                if len(items) < self.round:
                    self.press.wait()
            if items[-1] != (item,) or len(items) > self.round:
                raise Violation(
                    f"press: {items[self.round - 1 :]!r} came on {topic}, expected {item!r} alone"
                )

    def _come_back(self) -> None:
        welcome = self.nomad.welcome
        secret = welcome.features.get("secret")
        self.nomad.close(reset=self.round % 2 == 0)
        self.nomad = self.client("nomad", "~nomad", grace=GRACE, resume=(welcome.session, secret))
        if self.nomad.welcome.features.get("resumed") is not True:
            raise Violation(f"nomad: its session has gone: {self.nomad.welcome}")

    def _acknowledge(self) -> None:
        durable = self.watcher.client.request("sync")
        assert isinstance(durable, int)
        readers = self.status()["readers"]
        if not isinstance(readers, Map) or readers.get("bank-reader") != self._acknowledged:
            raise Violation(f"bank: of {readers!r} its reader is not at {self._acknowledged}")
        self._acknowledged = max(1, durable // 2)
        known = self.bank.request("acknowledge", reader="bank-reader", epoch=self._acknowledged)
        if not isinstance(known, Map) or known["epoch"] != self._acknowledged:
            raise Violation(f"bank: its reader is at {known!r}, expected {self._acknowledged}")

    # -- what must be true -----------------------------------------------------------------------------

    def check(self) -> None:
        """Raises ``Violation`` where facts of innocents differ from the model, or a promise is broken."""
        found = self.watcher.differences(self.model)
        history = self._notes.history
        history.views["~admin"] = self.watcher.view
        self._notes.read_log()
        found += broken(history)
        if found:
            raise Violation("; ".join(found))
        self.judged |= judged(history)
        self._notes.history = history.continued()
        self.watcher.view = self._notes.history.views["~admin"]

    def check_restarted(self, port: int) -> None:
        """Raises ``Violation`` unless what outlasts connections is there after a restart."""
        watcher = Watcher(port, self._oracle)
        kept = {label: self.model[label] for label in self.model if label not in PASSING}
        differences = watcher.differences({**kept, **dict.fromkeys(PASSING, ())})
        watcher.client.close()
        if differences:
            raise Violation(f"after a restart: {'; '.join(differences)}")

    def lines(self) -> list[Client]:
        """All their connections."""
        return [self.watcher.client, self.named, *self.robots, self.bank, self.press, self.abel, self.nomad]

    def status(self) -> Map:
        """Returns the status of the daemon, as the administrator sees it."""
        status = self.watcher.client.request("status")
        assert isinstance(status, Map)
        return status

    def close(self) -> None:
        """Ends all their connections."""
        for each in self.lines():
            each.close()
