"""Processes: the daemon and the replay run as what they are, programs of their own.

So the demo measures the daemon's memory and not its own, the three clients share the machine with Spark as
strangers would, and killing one of them is a thing that can be tried.

Always: whatever was started here is gone when its ``with`` block ends, however it ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataspace import Unreachable
from dataspace.transport.addresses import can_listen_for_web

_ADDRESS: Final = re.compile(r"tcp:(?://)?([\w.\[\]:-]+:\d+)")
_PAGE: Final = re.compile(r"inspector at (http://\S+:(\d+)/)")
PATIENCE: Final = 60.0
"""Seconds that a program gets to come up, or to go down when asked."""


class Program:
    """A child process that writes to a log file and ends with its ``with`` block.

    ``environment`` is added to this process's own each time it is started.
    """

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self.log: Final = log
        self._command: Final = [sys.executable, "-m", module, *arguments]
        self.environment: dict[str, str] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._from = 0

    def start(self) -> None:
        """Starts the program, or starts it again after it ended; its words are appended to the log."""
        with self.log.open("ab") as log:
            self._from = log.tell()
            # A session of its own, so that Ctrl-C reaches the demo alone and the end keeps its order.
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._running.pid

    def poll(self) -> int | None:
        """The exit code once it has ended."""
        return self._running.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        return self._running.wait(timeout)

    def said(self) -> str:
        """What it wrote since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, without a moment to prepare for it."""
        self._running.kill()
        self._running.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not heard in time; nothing if it has ended."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # Ctrl-C while it comes up, for instance
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, "not started"
        return self._child


class Daemon(Program):
    """``dataspace serve`` on a free port of its own, which it keeps when it is started again.

    With ``inspected`` it also has a page for browsers, if what that needs is installed.  Of several daemons
    over one directory, or over the ``store`` of that address, each has a ``number``; the first one leads, the
    others follow it and stand by.
    """

    def __init__(
        self,
        folder: Path,
        *more: str,
        port: int = 0,
        inspected: bool = False,
        number: int = 1,
        store: str = "",
    ) -> None:
        """``more`` are further words of its command line."""
        super().__init__("dataspace", log=folder / ("daemon.log" if number == 1 else f"daemon-{number}.log"))
        self._more = more
        self.number: Final = number
        self._store = store
        self.follows = number > 1
        """Whether it follows another daemon of its directory the next time it is started."""
        self.data: Final = folder / "data"
        self.port = port
        self.page = ""
        """The address of its page; empty where it has none."""
        self._web_port: int | None = 0 if inspected and can_listen_for_web() else None

    def start(self) -> None:
        """Starts it and waits until it listens; raises ``Unreachable`` with its last words if it does not."""
        listen = f"tcp:127.0.0.1:{self.port}"
        data = ["--data", self._store or str(self.data)]
        if self.follows and not self._store:
            data = ["--follow", str(self.data), "--stand-by"]
        self._command[3:] = ["serve", "--listen", listen, *data, *self._more]
        if self._web_port is not None:
            self._command[3:] += ["--listen", f"http:127.0.0.1:{self._web_port}"]
        super().start()
        end = time.monotonic() + PATIENCE
        while (found := _ADDRESS.search(self.said())) is None or not self._has_page():
            if self.poll() is not None or time.monotonic() > end:
                raise Unreachable(f"the daemon did not come up:\n{self.said()[-2000:]}")
            time.sleep(0.02)
        self.port = int(found[1].rpartition(":")[2])

    def _has_page(self) -> bool:
        """Notes where its page is; False if it should have one and has not said so yet."""
        if self._web_port is None:
            return True
        found = _PAGE.search(self.said())
        if found is not None:
            self.page, self._web_port = found[1], int(found[2])
        return found is not None

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


class Peak:
    """The most resident memory that a program was seen with, in bytes; starts over for each process."""

    def __init__(self) -> None:
        self.bytes = 0

    def look(self, pid: int) -> int:
        """Looks once more, and answers with the most so far; on Linux the kernel keeps the true peak."""
        self.bytes = max(self.bytes, _kernel_peak(pid) or _sampled(pid))
        return self.bytes


def _kernel_peak(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def _sampled(pid: int) -> int:
    """What ``ps`` says now, where there is no /proc."""
    try:
        answer = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    except OSError:
        return 0
    return int(answer.stdout or 0) * 1024
