"""Daemons and clients in processes of their own, to be killed.

Always: no daemon outlives the process that has started it, whatever failed there, unless that was killed.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import trio

from tests import warm
from tests.ports import free_port

PATIENCE = 60.0
"""Seconds in which a daemon must end once it was told to."""

STARTING = ("-m", "tests.planted.starting")
"""The program of a daemon whose pauses of five seconds a test sets: ``TRIMS_EVERY``, ``SPREADS_EVERY``."""

_running: set[DaemonProcess] = set()


class DaemonProcess:
    """A daemon on a port that stays the same when it is started again."""

    def __init__(
        self,
        data: Path | str,
        *more: str,
        program: Sequence[str] = ("-m", "dataspace"),
        host: str = "127.0.0.1",
    ) -> None:
        """``data`` is a directory, or the address of a store; ``more`` are further words of its command line.

        ``program`` is what Python runs; it listens at ``host``.
        """
        self.data = Path(data)
        self.place = str(data)
        self.program = program
        self.more = more
        self.host = host
        self.port = 0
        self.errors = ""
        self.environment: dict[str, str] = {}
        """For its next start, in addition to that of the test."""
        self.process: subprocess.Popen[str]
        self._said: IO[str]

    @property
    def url(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    def start(self, *, fault: str = "") -> None:
        """Starts it and waits until it listens; ``fault`` is where it is to be killed."""
        self.port = self.port or free_port(self.host)
        command = [sys.executable, *self.program, "serve", "--data", self.place]
        command += ["--listen", f"tcp:{self.host}:{self.port}"]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  until its end is read; a pipe would fill
        self.process = warm.Popen(
            [*command, *self.more],
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=os.environ | {"DATASPACE_FAULT": fault} | self.environment,
        )
        _running.add(self)
        assert self.process.stdout is not None  # a pipe, as asked for
        line = self.process.stdout.readline()
        if "listening on" not in line:
            self.wait()
            raise AssertionError(f"the daemon did not start: {line}{self.errors}")

    def wait(self) -> int:
        """Waits for its end; what it said on stderr is in ``errors``.

        A daemon that does not end is killed, and ``TimeoutExpired`` raised.
        """
        try:
            self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            _running.discard(self)
        if not self._said.closed:
            self._said.seek(0)
            self.errors = self._said.read()
            self._said.close()
            sys.stderr.write(self.errors)  # which a test that fails shows
        return self.process.returncode

    def kill(self) -> None:
        """Ends it at once."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Ends it in good order; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()


def follower(data: Path, *more: str) -> DaemonProcess:
    """A daemon that follows the one of a directory."""
    return DaemonProcess(data, "--follow", str(data), *more)


def stand_by(data: Path) -> DaemonProcess:
    """A daemon that follows the one of a directory, and leads after it."""
    return follower(data, "--stand-by")


@contextmanager
def running(*daemons: DaemonProcess) -> Iterator[None]:
    """Starts daemons, and ends them in good order, stopped ones as well."""
    for each in daemons:
        each.start()
    try:
        yield
    finally:
        for each in daemons:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGCONT)
                each.stop()


async def command(*words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, with what it finds on its standard input, while other tasks go on."""
    return await trio.to_thread.run_sync(lambda: warm.run(*words, said=said))


@atexit.register
def _kill_all() -> None:
    """Kills the daemons that a test or a fixture which failed has left running."""
    for each in _running:
        each.process.kill()
        each.process.wait()
