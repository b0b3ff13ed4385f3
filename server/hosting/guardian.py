"""The daemon's side of an actor in a process of its own.

The process is a client like any other, over a socket that it inherits, so that its facts are retracted
however it ends.  For the supervisor it is an actor: its guardian runs the process in a linked task, which
ends with the process and raises the reason of its crash.

Always: no process outlives its guardian; each start of an actor is one process; a process that does not
report for the time that it is allowed is killed, and has crashed.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.actors.engine.turns import Turn
from dataspace.codec import pack, unpack_own
from dataspace.errors import DataspaceError
from dataspace.running.actors import Outside
from dataspace.transport.sockets import SocketLink
from dataspace.wire.frames import Cutter, frame
from index.values.values import Map
from server.children import ending
from server.config.hosted import HostedActor
from server.config.model import Config
from server.hosting import process as program
from server.parts import PartKey
from server.sessions.peer import Peer

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link


class Serve(Protocol):
    """Serves a process that the daemon has started, without a token."""

    def __call__(self, link: Link) -> Peer:
        """Serves the peer at the other end in a task of its own."""


SERVE: Final = PartKey[Serve]("serve")
"""Serves the processes of hosted actors."""

MAX_REPORT: Final = 64 << 10
REPORT_SECONDS: Final = 5.0
PERIODS: Final = 8
"""Checks of a process for a report within the time that it is allowed."""
START_SECONDS: Final = 60.0
"""Seconds that the first report may take at least: a process that loads modules does not hang."""


class ProcessEnded(DataspaceError):
    """The process of an isolated actor ended with an error."""


class Guardian:
    """One actor in a process of its own, through all its restarts."""

    def __init__(
        self, config: Config, settings: HostedActor, serve: Serve, crashed: Callable[[str], object]
    ) -> None:
        """Calls ``crashed`` with each crash that the process survives: a crash of an actor spawned in it."""
        self._config = config
        self._serve = serve
        self._settings = settings
        self._crashed = crashed
        self.process: int | None = None
        """The number of the process, while there is one."""
        self.actors = self.turns = self.facets = self.stalls = 0
        self.stuck = False
        """True while one of its turns lasts longer than the limit of the watchdog."""
        self._signs = 0
        self._term = 0
        self._hang = config.hang_seconds if settings.hang is None else settings.hang
        self._before = (0, 0)
        self._crash = ""

    def guard(self, turn: Turn) -> None:
        """Runs the first turn of the guardian: its task ends, or crashes, when the process does."""
        self._term = turn.term
        turn.task(self._live)

    async def _live(self, _outside: Outside) -> None:
        """Runs the process once; raises ``ProcessEnded`` unless it ended without an error."""
        self._before, self._crash, self._signs = (self.turns, self.stalls), "", 0
        process, connection = self._start()
        self.process = process.pid
        try:
            async with trio.open_nursery() as nursery:
                reported = trio.Event()
                nursery.start_soon(self._read_reports, process, reported)
                nursery.start_soon(self._await_silence, process)
                order = frame(pack(self._order()))
                await trio.to_thread.run_sync(_send_order, process, order, abandon_on_cancel=True)
                code = await _wait_ended(process)
                with trio.move_on_after(REPORT_SECONDS):  # its last report may not have arrived yet
                    await reported.wait()
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await _wait_ended(process)
                with trio.move_on_after(REPORT_SECONDS):  # its last packets are read, its facts retracted
                    await connection.tasks.ended.wait()
            connection.cancel()
            self.process, self.actors, self.facets, self.stuck = None, 0, 0, False
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None  # set by Popen
                pipe.close()
        if code:
            raise ProcessEnded(self._crash or f"its process {process.pid} {ending(code)}")

    def _start(self) -> tuple[subprocess.Popen[bytes], Peer]:
        """Starts the process, from this thread: on Linux it lives as long as the thread that started it."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        program.__name__,
                        str(os.getpid()),
                        str(theirs.fileno()),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                    bufsize=0,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
        except OSError:
            ours.close()
            raise
        assert process.stdout is not None  # set by Popen
        os.set_blocking(process.stdout.fileno(), False)
        return process, self._serve(SocketLink(ours))

    async def _await_silence(self, process: subprocess.Popen[bytes]) -> None:
        """Kills a process that has not reported for too long.

        It is checked several times in that time, and must have been silent each time: a daemon that did not
        run for a while has not read the reports.
        """
        hang = self._hang
        allowed, silent, reported = max(hang, START_SECONDS), 0.0, 0
        while silent < allowed:
            await trio.sleep(hang / PERIODS)
            silent += hang / PERIODS
            if self._signs != reported:
                allowed, silent, reported = hang, 0.0, self._signs
        self._crash = f"its process {process.pid} gave no sign of life for {allowed:g} s and was killed"
        process.kill()

    def _order(self) -> Map:
        """Returns what to run, and how."""
        settings, config = self._settings, self._config
        return Map(
            {
                "run": settings.run,
                "name": settings.title,
                "space": settings.space,
                "term": self._term,
                "arguments": settings.arguments,
                "stall": config.stall_seconds,
                "signs": self._hang / PERIODS,
                "trace": None if config.trace is None else str(config.trace),
                "verbose": config.verbose,
                "log_format": config.logging.format,
                "log_level": config.logging.level,
            }
        )

    async def _read_reports(self, process: subprocess.Popen[bytes], reported: trio.Event) -> None:
        """Reads the reports of the process, until it has ended or sends something malformed."""
        assert process.stdout is not None  # set by Popen
        cutter, pipe = Cutter(MAX_REPORT), process.stdout.fileno()
        while cutter.refusal is None:
            await trio.lowlevel.wait_readable(pipe)
            chunk = os.read(pipe, MAX_REPORT)
            if not chunk:
                break
            for body in cutter.feed(chunk):
                self._take(unpack_own(body))
        reported.set()

    def _take(self, report: object) -> None:
        match report:
            case ("counts", int(signs), int(actors), int(turns), int(facets), int(stalls), bool(stuck)):
                self._signs, self.actors, self.stuck = signs, actors, stuck
                self.turns = self._before[0] + turns
                self.facets = facets
                self.stalls = self._before[1] + stalls
            case ("child", str(text)):
                self._crashed(text)
            case ("crash", str(text)):
                self._crash = text


def _send_order(process: subprocess.Popen[bytes], order: bytes) -> None:
    """Writes what to run; in a thread, since it may exceed the buffer of a pipe, and be read late."""
    assert process.stdin is not None  # set by Popen
    try:
        process.stdin.write(order)
    except BrokenPipeError:
        pass  # it has ended already, as its exit code will show


async def _wait_ended(process: subprocess.Popen[bytes]) -> int:
    """Returns the exit code of a process; a thread of its own waits for it, since there may be many
    processes."""
    limiter = trio.CapacityLimiter(math.inf)
    return await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True, limiter=limiter)
