"""JetStream as a peer of groups: a stream in a file, and members that pull from one durable consumer.

Each acknowledgement (``+ACK``) is waited for, up to a fetch at once.  ``nats-server`` writes its files at
once and syncs them every two minutes.
"""

from __future__ import annotations

import json
import os
from multiprocessing.connection import Connection
from typing import Any, Final

from bench._systems.nats import NatsLink

FETCH: Final = 100
STREAM: Final = {"name": "W", "subjects": ["job"], "storage": "file", "num_replicas": 1}
CONSUMER: Final = {
    "durable_name": "w",
    "ack_policy": "explicit",
    "ack_wait": 600 * 10**9,
    "max_ack_pending": 10_000,
}


class PullLink(NatsLink):
    """A connection that pulls, acknowledges, and asks the server's API."""

    def greet(self) -> None:
        self.jobs: list[bytes] = []
        self.acknowledged = 0
        self.answer: Any = None
        self.inbox = f"in.{os.getpid()}.{id(self)}".encode()
        super().greet()
        self.socket.sendall(b"SUB %s.* 1\r\n" % self.inbox)

    def _message(self, words: list[bytes], body: bytes) -> None:
        kind = words[1].rpartition(b".")[2]
        if kind == b"ack":
            self.acknowledged += 1
        elif kind == b"api":
            self.answer = json.loads(body)
        elif words[0] == b"MSG":
            self.jobs.append(words[3])

    def ask(self, subject: str, question: object = None) -> Any:
        """Returns the answer of the server's API."""
        self.answer, body = None, b"" if question is None else json.dumps(question).encode()
        self.socket.sendall(b"PUB %s %s.api %d\r\n%s\r\n" % (subject.encode(), self.inbox, len(body), body))
        self.wait(lambda: self.answer is not None)
        if "error" in self.answer:
            raise RuntimeError(self.answer["error"])
        return self.answer

    def fetch(self) -> None:
        """Requests the next fetch."""
        body = b'{"batch":%d,"expires":600000000000}' % FETCH
        self.socket.sendall(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.W.w %s.job %d\r\n%s\r\n" % (self.inbox, len(body), body)
        )

    def wait_acknowledged(self, count: int) -> None:
        """Waits until more than so many jobs are acknowledged."""
        self.wait(lambda: self.acknowledged > count)

    def put(self, n: int) -> bytes:
        raise NotImplementedError

    def watch(self) -> None:
        raise NotImplementedError

    def watch_key(self, n: int) -> bytes:
        raise NotImplementedError


def fill(port: str, count: int, body: bytes) -> None:
    """Makes the stream and its consumer, and publishes so many jobs."""
    link = PullLink(port)
    link.ask("$JS.API.STREAM.CREATE.W", STREAM)
    link.ask("$JS.API.CONSUMER.DURABLE.CREATE.W.w", {"stream_name": "W", "config": CONSUMER})
    for _ in range(count // FETCH):
        link.socket.sendall(b"PUB job %d\r\n%s\r\n" % (len(body), body) * FETCH)
    while link.ask("$JS.API.STREAM.INFO.W")["state"]["messages"] < count:
        pass


async def member(port: str, pipe: Connection) -> None:
    """Takes fetches, two at once, and waits until each job is acknowledged; until its process is ended."""
    link = PullLink(port)
    pipe.send("ready")
    pipe.recv()
    link.fetch()
    link.fetch()
    sent = 0
    while True:
        link.wait(lambda: bool(link.jobs))
        jobs, link.jobs = link.jobs, []
        acks = [b"PUB %s %s.ack 4\r\n+ACK\r\n" % (job, link.inbox) for job in jobs]
        link.socket.sendall(b"".join(acks))
        before, sent = sent, sent + len(acks)
        for _ in range(sent // FETCH - before // FETCH):
            link.fetch()
        link.wait_acknowledged(sent - FETCH)


def finish(port: str) -> None:
    """Returns when all jobs are acknowledged."""
    link = PullLink(port)
    while True:
        info = link.ask("$JS.API.CONSUMER.INFO.W.w")
        if info["num_pending"] == info["num_ack_pending"] == 0:
            return
