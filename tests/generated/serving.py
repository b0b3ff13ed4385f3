"""A daemon in a process of its own, and connections to it, of which every packet is written as wanted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dataspace.codec import pack, unpack
from dataspace.wire.frames import Cutter, frame
from dataspace.wire.packets import Bye, Hello, Packet, Ping, Pong, Welcome, read, written
from index.values.values import Map, Value
from tests import warm

PATIENCE: Final = 60.0
"""Seconds after which something hangs."""
TRIMS_EVERY: Final = 0.2
"""Seconds between two looks at what the logs may forget."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Lost(Exception):
    """A connection is over; the argument is the code of a goodbye, or empty."""


class Server:
    """A daemon with so many spaces, ``s0`` and on, and a directory that goes with it.

    As many, ``f0`` and on, forget what their named readers have acknowledged.
    """

    def __init__(self, spaces: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="door-"))
        named = [f"[spaces.s{at}]\n[spaces.f{at}]\nkeep_unread = true\n" for at in range(spaces)]
        (self.directory / "settings.toml").write_text("".join(named))
        self.socket = str(self.directory / "socket")
        self.web = 0
        self._said = (self.directory / "said").open("w+")
        self._cpu_before = 0.0
        try:
            self.start()
        except BaseException:  # also an end by a signal leaves no daemon behind
            self.close()
            raise

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        (self.directory / "socket").unlink(missing_ok=True)
        command = [*warm.PYTHON, "tests.planted.starting", "serve", "--data", f"{self.directory}/data"]
        command += ["--config", f"{self.directory}/settings.toml"]
        command += ["--listen", f"unix:{self.socket}", "--listen", "http:127.0.0.1:0"]
        environment = os.environ | {"TRIMS_EVERY": str(TRIMS_EVERY)}
        self.process = warm.Popen(
            command, stdout=subprocess.PIPE, stderr=self._said, text=True, env=environment
        )
        assert self.process.stdout is not None  # a pipe, as asked for
        lines = [self.process.stdout.readline() for _ in range(2)]
        if not all("listening on" in line for line in lines):
            self.process.kill()
            self.process.wait()
            raise Lost(f"the daemon does not start: {self.said()}")
        self.web = int(lines[1].partition(",")[0].rpartition(":")[2])

    def end(self, number: int) -> None:
        """Ends it by a signal, in good order or not."""
        self._cpu_before = self.cpu()
        self.process.send_signal(number)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Lost("the daemon does not end") from None
        assert self.process.stdout is not None  # as above
        self.process.stdout.close()

    def close(self) -> None:
        """Kills it, and deletes what it had."""
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        self._said.close()
        shutil.rmtree(self.directory)

    @property
    def is_running(self) -> bool:
        """True unless it has ended by itself."""
        return self.process.poll() is None

    def cpu(self) -> float:
        """Returns the seconds that it has taken, all its starts together."""
        if not self.is_running:
            return self._cpu_before
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return self._cpu_before + (int(fields[11]) + int(fields[12])) / TICKS

    def said(self) -> str:
        """Returns what it has written to its errors."""
        return Path(self._said.name).read_text(errors="replace")


class Connection:
    """One connection, which has said hello and was welcomed."""

    def __init__(self, path: str, identity: str, features: Mapping[str, Value]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._cutter = Cutter(1 << 26)
        self._packets: deque[Packet] = deque()
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise Lost(str(error)) from None
        self.write(Hello(1, identity, "program", Map(dict(features))))
        first = self.next()
        assert isinstance(first, Welcome), f"no welcome: {first}"
        self.welcome = first

    def write(self, *packets: Packet) -> None:
        """Sends packets in one write; what a connection that is over does not take is lost."""
        try:
            self._socket.sendall(b"".join(frame(pack(written(each))) for each in packets))
        except OSError:
            pass

    def next(self, seconds: float = PATIENCE) -> Packet:
        """Returns the next packet; raises ``Lost`` at the end, and ``TimeoutError`` if none comes in time."""
        end = time.monotonic() + seconds
        while True:
            while self._packets:
                packet = self._packets.popleft()
                if isinstance(packet, Bye):
                    raise Lost(packet.code)
                if not isinstance(packet, Ping):
                    return packet
                self.write(Pong(packet.number))
            self._socket.settimeout(max(end - time.monotonic(), 0.000_1))
            try:
                chunk = self._socket.recv(1 << 18)
            except TimeoutError:
                raise
            except OSError as error:
                raise Lost("") from error
            if not chunk:
                raise Lost("")
            self._packets += [read(unpack(body)) for body in self._cutter.feed(chunk)]

    def close(self) -> None:
        """Ends it without a goodbye."""
        self._socket.close()
