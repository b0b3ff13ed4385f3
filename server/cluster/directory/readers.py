"""Readers: followers that a daemon starts itself, with addresses for readers that all of them share.

The daemon opens the sockets and accepts nothing on them.  Each follower inherits them, and the follower with
the fewest connections accepts next (``Share``).  So a client that connects while a follower ends, or before
one runs, is accepted by another one or a moment later, and TCP, TLS, HTTP and Unix sockets need one way only.

A follower of this kind is the same command again, with the same configuration but other addresses.  It holds
the end of a pipe to the daemon.  The system closes the pipe with the daemon, however the daemon ends.  A byte
in it makes the follower read its configuration again: a SIGHUP would end a process that is still starting.

Always: no such follower leads, nor outlives its daemon by more than the time to stop; a follower that ends is
started again.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import IO, Final, TextIO

import trio

from dataspace.transport.addresses import parse_listen
from server.children import keep_running, running
from server.cluster.directory.home import directory_of
from server.config.model import Cluster, Config, Inherited
from server.connections.listeners import (
    NOT_THERE,
    CannotListen,
    Listener,
    context_for,
    mapped,
    open_listener,
)
from server.extras import check_extras
from server.pauses import Pauses

VARIABLE: Final = "DATASPACE_INHERITED"
"""The variable of the environment that has the numbers of the inherited descriptors."""

OPEN_SECONDS: Final = 5.0
"""How long an address is tried that the followers of a killed daemon may still have."""

LOOK_SECONDS: Final = 0.05
"""How often it looks whether something is so by now."""

PAUSES: Final = (0.1, 10.0, 30.0)
"""Seconds until a follower that has ended is started again: twice as many each time, between the first two;
as few as at first where it has run for longer than the third."""

PATIENCE: Final = 0.8
"""The part of the daemon's time to stop in which a follower must end before it is killed."""


class FollowerProcesses:
    """The followers of a daemon that it starts itself, and the sockets for their clients."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._listeners: list[Listener] = []
        self._pipes: dict[int, int] = {}
        """The pipe to each follower that runs, by its number."""
        self._file: IO[bytes] | None = None
        self._counts = memoryview(b"")
        """The numbers in the file, of connections of each follower."""

    @property
    def count(self) -> int:
        """The number of followers."""
        return self._config.followers

    @property
    def addresses(self) -> list[str]:
        """The addresses for readers."""
        return [each.name for each in self._listeners]

    async def open(self) -> None:
        """Opens the sockets; raises ``CannotListen``, and ``UsageError`` for what followers cannot serve."""
        config = self._config
        if not config.followers:
            return
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  until ``close``
        self._file.write(struct.pack("=Q", NOT_THERE) * config.followers)
        self._file.flush()
        self._counts = mapped(self._file.fileno())
        addresses = [parse_listen(each) for each in config.readers]
        check_extras(replace(config, listen=config.readers))
        context_for(config, addresses)
        until = trio.current_time() + OPEN_SECONDS
        for address in addresses:
            while True:
                try:
                    self._listeners.append(open_listener(address, None, config.socket_mode))
                    break
                except CannotListen:
                    if trio.current_time() > until:
                        raise
                await trio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """Closes the sockets."""
        while self._listeners:
            self._listeners.pop().close()
        if self._file is not None:
            self._file.close()

    def hang_up(self) -> None:
        """Makes each follower read its configuration again."""
        for pipe in self._pipes.values():
            with suppress(OSError):  # it has ended, or so much waits that it reads the configuration anyway
                os.write(pipe, b"\n")

    async def run(self, ending: trio.Event) -> None:
        """Keeps the followers running until the event, or until cancelled, and then ends them."""
        async with trio.open_nursery() as nursery:
            for number in range(1, self._config.followers + 1):
                nursery.start_soon(self._keep, number)
            await ending.wait()
            self.close()  # so that no client waits for a follower that does not come
            nursery.cancel_scope.cancel()

    async def wait_accepting(self) -> None:
        """Waits until each follower accepts clients."""
        while NOT_THERE in self._counts:  # noqa: ASYNC110  other processes write there
            await trio.sleep(LOOK_SECONDS)

    async def _keep(self, number: int) -> None:
        run, name = partial(self._run_one, number), f"follower-{number}"
        await keep_running(name, run, Pauses(*PAUSES), event="follower-ended")

    async def _run_one(self, number: int) -> trio.Process:
        """Runs a follower until it ends; ends it when cancelled."""
        alive, pipe = os.pipe()
        os.set_blocking(pipe, False)
        self._pipes[number] = pipe
        try:
            sockets = {each.name: each.socket.fileno() for each in self._listeners}
            assert self._file is not None  # as it is opened
            inherited = Inherited(number, alive, self._file.fileno(), sockets)
            async with running(
                [sys.executable, *sys.orig_argv[1:]],
                PATIENCE * self._config.stop_seconds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(alive, inherited.counts, *sockets.values()),
                env=os.environ | {VARIABLE: json.dumps(asdict(inherited))},
                process_group=0,  # so that Ctrl-C ends the daemon, which ends its followers
            ) as process:
                await process.wait()
            return process
        finally:
            self._counts[number - 1] = NOT_THERE  # so that no other one waits for it, once it writes no more
            del self._pipes[number]
            os.close(alive)
            os.close(pipe)


# -- in the follower -----------------------------------------------------------------------------------


def inheritance(environment: MutableMapping[str, str]) -> Inherited | None:
    """Returns what a daemon has passed to this process, and removes the variable; None if there is none."""
    said = environment.pop(VARIABLE, "")
    return Inherited(**json.loads(said)) if said else None


def config_of_reader(config: Config, inherited: Inherited | None) -> Config:
    """Returns the configuration of a daemon, as changed if another daemon has started it as its follower."""
    if inherited is None:
        return config
    return replace(
        config,
        listen=tuple(inherited.sockets),
        inherited=inherited,
        followers=0,
        readers=(),
        follow=replace(config.follow, data=directory_of(config)),
        cluster=Cluster(),
        admin=None,
        trace=None,
    )


def follow_daemon(inherited: Inherited, stop_seconds: float) -> None:
    """Starts a thread that ends this process once the daemon has ended, and passes on its hang-ups."""
    threading.Thread(target=_watch, args=(inherited.alive, stop_seconds), name="daemon", daemon=True).start()


def _watch(alive: int, stop_seconds: float) -> None:
    waits = False
    while True:
        readable, _, _ = select.select([alive], [], [], LOOK_SECONDS if waits else None)
        if readable:
            if not os.read(alive, 64):
                break
            waits = True
        if waits and signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
            waits = False
            os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_seconds)  # the loop may stand still, and see no signal
    os._exit(1)


class NamedLines(io.TextIOBase):
    """Writes the lines of a follower to another text, with its number and process: before each line, or
    within a line that is a JSON object."""

    def __init__(self, to: TextIO, number: int) -> None:
        self._to = to
        self._text = f"follower-{number}[{os.getpid()}]: "
        self._json = f'{{"follower": {number}, "process": {os.getpid()}, '
        self._rest = ""
        self._lock = threading.Lock()

    def write(self, text: str, /) -> int:
        """Writes the lines that are whole."""
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if lines:
                self._to.write("".join(map(self._named, lines)))
                self._to.flush()
        return len(text)

    def flush(self) -> None:
        """Does nothing: each line is flushed."""

    def fileno(self) -> int:
        """Returns the descriptor of the other text."""
        return self._to.fileno()

    def _named(self, line: str) -> str:
        return f"{self._json}{line[1:]}\n" if line.startswith("{") else f"{self._text}{line}\n"
