"""A fuzzer of whole sessions: attackers of all kinds beside innocents, on a daemon in a process of its own.

    python -m tests.abuse --packets 1000000 --seed 1

Some connections are open at a time, each with a ``Script``.  One after the other sends a bundle of packets,
now and then damaged, torn or followed by the end of the connection; its next one goes out once the daemon
has acted on this one, so bundles of different connections meet.  After some bundles all innocents do a
piece of work.

Always: what a seed sends depends on the seed and on the answers, not on time; after a run nothing of the
attackers is left in the daemon but what their tokens let them keep.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dataspace.wire import packets as p
from dataspace.wire.session import encode
from tests.abuse.generating import Script
from tests.abuse.innocents import Innocents
from tests.abuse.lines import Line
from tests.abuse.oracle import Oracle, Violation
from tests.abuse.tenants import ATTACKERS, INNOCENTS, configuration
from tests.server.processes import DaemonProcess

logger = logging.getLogger("abuse")

OPEN: Final = 6
"""Connections of attackers at a time."""

EVERY: Final = 25
"""Bundles between two steps of the innocents."""

REPEATED: Final = 0.3
"""Share of packets that another attacker has sent before."""

GROWTH: Final = 256 << 20
"""Bytes of memory by which a daemon may grow in a run, whatever its length."""

LEFT: Final = 30.0
"""Seconds after which nothing of lost connections may be left."""

STREAMS: Final = 4
"""Streams that innocents have open."""

SETTINGS: Final = """
grace = "2m"
[log]
keep_bytes = "64MiB"
keep_for_readers = "1s"
"""


class Attack:
    """One connection of an attacker."""

    def __init__(self, port: int, oracle: Oracle, script: Script, source: str) -> None:
        self.script = script
        self.greeted = False
        self.line = Line(port, oracle, script.tenant.name, source=source)

    def bundle(self, chance: random.Random, corpus: deque[bytes]) -> list[bytes]:
        """Returns the frames of some packets, the first of which is mostly a hello.

        Some are requests that other attackers have sent before, which are in the corpus.
        """
        frames = [] if self.greeted or chance.random() < 0.01 else [encode(self.script.hello())]
        self.greeted = True
        count, by = chance.choice((1, 4, 16, 40, 60)), f"by-{self.script.tenant.name}".encode()
        while len(frames) < count:
            if corpus and chance.random() < REPEATED:
                frames.append(chance.choice(corpus))
                continue
            packet = self.script.packet()
            frames.append(encode(packet))
            if isinstance(packet, p.Request | p.Produce) and by not in frames[-1]:
                corpus.append(frames[-1])  # without facts, which say who made them
        return frames

    def settle(self) -> None:
        """Waits until the daemon has acted on what was sent, and takes in what it answered."""
        if self.greeted:
            self.line.settle()
        for packet in self.line.heard:
            self.script.hear(packet)
        self.line.heard.clear()


class Fuzzing:
    """One daemon, its innocents and its attackers."""

    def __init__(self, place: Path, seed: int, *, every: int = EVERY, options: Sequence[str] = ()) -> None:
        self.seed = seed
        self.every = every
        self.packets = self.bundles = self.connections = self.cuts = self.damaged = 0
        self.peak = 0
        self.by: Counter[str] = Counter()
        self.oracle = Oracle()
        self.judged: set[str] = set()
        """The validators that had something to judge."""
        self._chance = random.Random(seed)
        self._journal: deque[tuple[str, list[bytes]]] = deque(maxlen=2 * every)
        place.mkdir(parents=True, exist_ok=True)
        config = place / "config.toml"
        config.write_text(configuration((*INNOCENTS.values(), *ATTACKERS.values()), SETTINGS))
        config.chmod(0o600)
        self.daemon = DaemonProcess(place / "data", "--config", str(config), *options)
        self._attacks: list[Attack] = []
        self._corpus: deque[bytes] = deque(maxlen=1_000)

    def run(self, packets: int) -> None:
        """Sends so many packets; raises ``Violation`` with the seed and the way to see it again."""
        try:
            with self._daemon():
                innocents = Innocents(self.daemon, self.oracle)
                try:
                    self._run(innocents, packets)
                finally:
                    for line in (*innocents.lines(), *[each.line for each in self._attacks]):
                        line.close()
            with self._daemon():
                innocents.check_restarted(self.daemon.port)
        except Violation as violation:
            raise Violation(f"{violation}\n{self._again(packets)}") from violation

    @contextlib.contextmanager
    def _daemon(self) -> Iterator[None]:
        """Runs the daemon, which must end in good order, without a defect in what it logged."""
        self.daemon.start()
        try:
            yield
        finally:
            status = self.daemon.stop()
        if status != 0 or "Traceback" in self.daemon.errors:
            raise Violation(f"the daemon ended with {status}: {self.daemon.errors[-4000:]}")

    def _run(self, innocents: Innocents, packets: int) -> None:
        at_first, due = self._memory(), self.every
        while self.packets < packets:
            self._attack(innocents)
            if self.bundles >= due:
                due = self.bundles + self.every
                for each in self._attacks:
                    each.settle()
                innocents.step()
                self._watch_memory(at_first)
        for each in self._attacks:
            each.line.close(reset=True)
        innocents.step()
        self._check_left(innocents)
        self.judged = innocents.judged

    # -- one bundle ------------------------------------------------------------------------------------

    def _attack(self, innocents: Innocents) -> None:
        """Has one attacker send a bundle."""
        chance = self._chance
        while len(self._attacks) < OPEN:
            tenant = ATTACKERS[chance.choice(sorted(ATTACKERS))]
            script = Script(tenant, random.Random(chance.getrandbits(64)), innocents.foreign())
            # of many addresses, since each token that is refused delays the next one of its address
            source = f"127.1.{chance.randrange(256)}.{chance.randrange(1, 255)}"
            self._attacks.append(Attack(self.daemon.port, self.oracle, script, source))
            self.connections += 1
        attack = chance.choice(self._attacks)
        attack.settle()
        self._attacks = [each for each in self._attacks if not each.line.over]
        if attack not in self._attacks:
            return
        frames = attack.bundle(chance, self._corpus)
        self.packets += len(frames)
        self.bundles += 1
        self.by[attack.script.tenant.name] += len(frames)
        self._journal.append((attack.script.tenant.name, frames))
        self._send(attack, b"".join(frames))
        self._attacks = [each for each in self._attacks if not each.line.over]
        innocents.watcher.take_in()

    def _send(self, attack: Attack, text: bytes) -> None:
        chance, line = self._chance, attack.line
        kind = chance.random()
        if kind < 0.02 and text:  # one bit is wrong
            at = chance.randrange(len(text))
            line.send(text[:at] + bytes([text[at] ^ 1 << chance.randrange(8)]) + text[at + 1 :])
            self.damaged += 1
            line.finish()  # it may be within a frame that never ends
            return
        if kind > 0.96:  # the line breaks at any byte
            line.send(text[: chance.randrange(len(text) + 1)])
            self.cuts += 1
            line.close(reset=chance.random() < 0.5)
            return
        if kind > 0.94:  # some bytes, and the rest later
            at = chance.randrange(len(text) + 1)
            line.send(text[:at])
            line.drain()
            text = text[at:]
        line.send(text)

    # -- the daemon ------------------------------------------------------------------------------------

    def _memory(self) -> int:
        """Returns the bytes of memory that the daemon has."""
        if self.daemon.process.poll() is not None:
            raise Violation(f"the daemon has ended with {self.daemon.process.returncode}")
        status = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def _watch_memory(self, at_first: int) -> None:
        now = self._memory()
        self.peak = max(self.peak, now)
        if now > at_first + GROWTH:
            raise Violation(f"the daemon has grown from {at_first >> 20} to {now >> 20} MiB")

    def _check_left(self, innocents: Innocents) -> None:
        """Waits until nothing is left of the attackers' connections."""
        wanted = {"sessions": len(innocents.lines()), "streams": STREAMS}
        until = time.monotonic() + LEFT
        while True:
            status = innocents.status()
            there = {name: status[name] for name in wanted}
            if there == wanted:
                return
            if time.monotonic() > until:
                raise Violation(f"of the attackers' connections remains {there}, expected {wanted}")
            innocents.watcher.take_in()

    def report(self) -> str:
        """Returns what was done and what came of it, as text."""
        lines = [
            f"seed {self.seed}: {self.packets} packets in {self.bundles} bundles over {self.connections}"
            f" connections, {self.cuts} cut, {self.damaged} damaged; {self.oracle.received} bytes searched;"
            f" memory of the daemon at most {self.peak >> 20} MiB",
            "packets by tenant: " + ", ".join(f"{who} {count}" for who, count in self.by.most_common()),
            "answers: " + ", ".join(f"{what} {count}" for what, count in self.oracle.answers.most_common()),
        ]
        return "\n".join(lines)

    def _again(self, packets: int) -> str:
        sent = "\n".join(
            f"  {who}: {b''.join(frames).hex()}"[:2000] for who, frames in list(self._journal)[-3:]
        )
        return (
            f"seed {self.seed}, packet {self.packets}, step after {self.every} bundles; again: "
            f"python -m tests.abuse --seed {self.seed} --packets {packets} --every {self.every}\n{sent}"
        )
