"""Callers from outside: a daemon that listens for HTTP in a process of its own, and plain clients of it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from index.values.jsons import to_json
from index.values.values import Record, Value
from tests.server.processes import DaemonProcess

SECONDS: Final = 30.0
"""How long a read may take before a test fails."""


class HttpDaemon(DaemonProcess):
    """A daemon with a port for HTTP beside the other, both the same when it is started again."""

    def __init__(self, data: Path, *more: str) -> None:
        super().__init__(data)
        self.web_port = 0
        self._own = more

    def start(self, *, fault: str = "") -> None:
        self.more = ("--listen", f"http:127.0.0.1:{self.web_port}", *self._own)
        super().start(fault=fault)
        assert self.process.stdout is not None  # a pipe
        said = self.process.stdout.readline()
        self.web_port = int(said.split("http:127.0.0.1:")[1].split(",")[0])

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends one request on a connection of its own, and reads the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.web_port, timeout=SECONDS)
        try:
            return ask(connection, method, path, body, token=token, headers=headers)
        finally:
            connection.close()

    def get(self, path: str, *, token: str = "", **query: object) -> Answer:
        """Sends a GET whose parameters are given by name; ``from_`` is ``from``."""
        return self.call("GET", with_query(path, **query), token=token)

    def turn(self, *actions: Mapping[str, object], owner: str = "tests", **more: object) -> Answer:
        """Commits actions in the space ``main``."""
        return self.call("POST", "/v1/spaces/main/turns", {"owner": owner, "actions": actions, **more})

    def put(self, *facts: Record, owner: str = "tests") -> int:
        """Asserts facts in one turn, and returns its epoch."""
        epoch = self.turn(*[{"assert": to_json(fact)} for fact in facts], owner=owner).json()["epoch"]
        assert isinstance(epoch, int)
        return epoch


@dataclass(frozen=True)
class Answer:
    """What came for a request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        """The body as JSON; a status that is no success fails the test."""
        assert 200 <= self.status < 300, (self.status, self.body)
        return json.loads(self.body)

    def problem(self) -> tuple[int, str, str]:
        """Status, code and text of a problem, whose form is checked."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        said = json.loads(self.body)
        assert said["status"] == self.status and said["title"], said
        return self.status, said["code"], said["detail"]

    def lines(self) -> list[Any]:
        """The lines of the body, each as JSON."""
        assert self.status == 200, self.body
        return [json.loads(line) for line in self.body.splitlines()]


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str = "",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Sends a request and reads its answer; what is no text is sent as JSON."""
    sent = dict(headers or {})
    if token:
        sent["Authorization"] = f"Bearer {token}"
    if body is not None and not isinstance(body, bytes):
        sent.setdefault("Content-Type", "application/json")
        body = json.dumps(body).encode()
    connection.request(method, path, body, sent)
    got = connection.getresponse()
    return Answer(got.status, got.headers, got.read())


def with_query(path: str, **query: object) -> str:
    """A path with parameters; ``from_`` is ``from``, and flags are as JSON has them."""
    words = [f"{name.rstrip('_')}={quote(_said(value), safe='')}" for name, value in query.items()]
    return f"{path}?{'&'.join(words)}" if words else path


def _said(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def record(label: str, *fields: Value) -> object:
    """A record as JSON."""
    return to_json(Record(label, *fields))


@dataclass(frozen=True)
class Event:
    """One server-sent event; ``id`` is the last one that was said, as in browsers."""

    id: str
    name: str
    data: Any

    @property
    def number(self) -> int:
        """The number in the id, which has the identity of what was read behind it."""
        number, _, identity = self.id.partition("-")
        assert len(identity) >= 8, self.id
        return int(number)


class EventSource:
    """A reader of server-sent events that follows the rules of browsers (WHATWG), line by line."""

    def __init__(
        self,
        daemon: HttpDaemon,
        pattern: str,
        *,
        last: str = "",
        token: str = "",
        topic: str = "",
        space: str = "main",
        **query: object,
    ) -> None:
        """Observes a pattern, or subscribes to a topic."""
        path = with_query(f"/v1/spaces/{space}/observe", pattern=pattern, **query)
        if topic:
            path = with_query(f"/v1/topics/{topic}/events", **query)
        headers = {"Accept": "text/event-stream"}
        headers |= {"Last-Event-ID": last} if last else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = http.client.HTTPConnection("127.0.0.1", daemon.web_port, timeout=SECONDS)
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()
        self.status = self.response.status
        self.last = last
        self.comments = 0

    def __enter__(self) -> Self:
        assert self.status == 200, self.response.read()
        assert self.response.headers["content-type"] == "text/event-stream"
        assert self.response.headers["cache-control"] == "no-store"
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self.response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        """The events until the end of the stream, or of the daemon; one that is not whole is none."""
        name, data, at = "", list[str](), self.last
        while True:
            try:
                line = self.response.readline()
            except (http.client.HTTPException, ConnectionError):
                return
            if not line.endswith(b"\n"):
                return
            field, _, value = line[:-1].decode().partition(":")
            value = value.removeprefix(" ")
            if line == b"\n":
                self.last = at
                if data:
                    yield Event(at, name or "message", json.loads("\n".join(data)))
                name, data = "", []
            elif not field:
                self.comments += 1
            elif field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id":
                at = value
            else:
                assert field == "retry" and value.isdecimal(), line

    def next(self) -> Event:
        """The next event."""
        return next(iter(self))


def raw(daemon: HttpDaemon, request: bytes, *, window: int = 0) -> socket.socket:
    """A plain connection on which a request was sent; ``window`` is what the kernel keeps of the answer."""
    connected = socket.socket()
    if window:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    connected.settimeout(SECONDS)
    connected.connect(("127.0.0.1", daemon.web_port))
    connected.sendall(request)
    return connected


def ended(process: subprocess.Popen[str]) -> bool:
    """True once a process is no more."""
    return process.poll() is not None
