"""The supervisor that started the daemon: is told when it is ready, that it is alive, and when it ends.

systemd's protocol is a datagram to ``$NOTIFY_SOCKET`` (sd_notify(3)), so no library is needed.  Other
supervisors get a line on a descriptor that they named, as s6 has it.  The watchdog is fed from the event
loop: a loop that stands still feeds nothing, and the daemon is started again.

Always: without a supervisor nothing is sent; a supervisor that does not listen any more ends nothing; child
processes of the daemon do not inherit the variables.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping, Sequence
from typing import Final, Self

import trio

from dataspace.errors import UsageError

logger = logging.getLogger("dataspace")

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Supervisor:
    """Where a daemon reports what it does; ``watchdog`` is in seconds, 0 for none."""

    def __init__(self, address: str = "", watchdog: float = 0.0, ready_fd: int | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog = watchdog
        self._ready_fd = ready_fd

    @classmethod
    def of(cls, environment: MutableMapping[str, str], ready_fd: int | None = None) -> Self:
        """Returns the supervisor of this process, and removes its variables; ``UsageError`` for a closed
        descriptor."""
        address, every, process = (environment.pop(name, "") for name in VARIABLES)
        meant = process in ("", str(os.getpid()))
        if ready_fd is not None:
            _check(ready_fd)
        return cls(address, int(every) / 1e6 if every.isdecimal() and meant else 0.0, ready_fd)

    def ready(self, addresses: Sequence[str]) -> None:
        """Reports that the daemon listens: on these addresses, one per line for ``--ready-fd``."""
        self._notify(f"READY=1\nSTATUS=listening on {', '.join(addresses)}")
        descriptor, self._ready_fd = self._ready_fd, None
        if descriptor is None:
            return
        try:
            with os.fdopen(descriptor, "w") as file:
                file.writelines(f"{address}\n" for address in addresses)
        except OSError as error:
            logger.warning("cannot report on descriptor %d that it is ready: %s", descriptor, error.strerror)

    def stopping(self) -> None:
        """Reports that the daemon ends."""
        self._notify("STOPPING=1\nSTATUS=saying goodbye to clients")

    async def feed(self) -> None:
        """Feeds the watchdog twice within its time, until cancelled."""
        while self._watchdog:
            self._notify("WATCHDOG=1")
            await trio.sleep(self._watchdog / 2)

    def _notify(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sending:
                sending.sendto(state.encode(), self._address)
        except OSError as error:
            logger.warning("cannot notify the supervisor: %s", error.strerror)


def _check(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        raise UsageError(
            f"--ready-fd {descriptor} is no open descriptor; open it for the daemon, such as with "
            f"{descriptor}>FILE in a shell"
        ) from None
