"""The memory of the daemon: the accounted bytes, the limit, and the bytes that go back to the system.

The system shows the memory of a process, and not the used part: after a large retraction most of the memory
may be fragments.  So growth is refused by the accounted bytes, which fall with every retraction; the resident
bytes are stated beside them.

Always: beyond the limit nothing that grows is taken in, and beyond a reserve no further stream, while reading
and retracting go on; ``malloc_trim`` runs in a thread, since it may take long.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from dataspace.errors import Refused
from server.pauses import Pauses

SHARE: Final = 0.5
"""What the daemon may account for by default: a part of the memory of the machine, or control group."""

WAITING_SHARE: Final = 0.5
"""The share of the accounted memory that may wait for all observers at most."""

READERS_SHARE: Final = 1 / 16
"""What further streams may take beyond ``limits.memory``, as a share of it: a full daemon can be read."""

REFRESH: Final = 0.25
"""Seconds after which all is added up again; what turns add in between is added at once."""

TRIM_BYTES: Final = 32 << 20
"""Bytes that must be resident beyond the accounted, and a third of those, before memory is given back."""

TRIM_SECONDS: Final = 5.0
MOST_TRIM_SECONDS: Final = 300.0
"""Seconds between two times at which memory is given back: each time twice as many, until much is let go."""


def memory_limit(stated: int) -> int:
    """Returns the bytes that a daemon may account for: 0 stands for ``SHARE`` of what there is."""
    return stated or int(SHARE * available())


def waiting_limit(stated: int, memory: int) -> int:
    """Returns the bytes that may wait for all observers, of so many that the daemon may account for."""
    return min(stated, int(WAITING_SHARE * memory))


class Memory:
    """The memory of one daemon: the bytes of its start, and the parts that grow with clients."""

    def __init__(self, limit: int, base: int, measure: Callable[[], Mapping[str, int]]) -> None:
        """``limit`` is in bytes; 0 is ``SHARE`` of what the machine, or the control group, has.

        ``base`` are the bytes of the start; ``measure`` returns the bytes of each part.
        """
        self.limit = memory_limit(limit)
        self.base: Final = base
        self._measure = measure
        self.parts: dict[str, int] = {"start": base}
        """The bytes of each part at the last ``refresh``."""
        self.used = base
        self.trims = 0
        """How often memory was given back to the system."""
        self._highest = 0
        self._next_trim, self._pauses = 0.0, Pauses(TRIM_SECONDS, MOST_TRIM_SECONDS)

    def admit(self, _facts: int, size: int) -> None:
        """Counts so many more bytes until the next ``refresh``; raises ``Refused`` if those are too many."""
        self._admit(size, self.limit)

    def admit_reader(self, _facts: int, size: int) -> None:
        """As ``admit``, for a stream or an interest, for which there is a reserve beyond the limit."""
        self._admit(size, self.limit + int(READERS_SHARE * self.limit))

    def _admit(self, size: int, most: int) -> None:
        if self.used + size > most:
            self.refresh()
            if self.used + size > most:
                raise Refused(
                    "limit",
                    f"{self.used + size} bytes of memory in use, the limit is limits.memory={self.limit}; "
                    "retract or end something: reading and retracting go on",
                )
        self.used += size

    def refresh(self) -> None:
        """Adds up what is in use."""
        self.parts = {"start": self.base, **self._measure()}
        self.used = sum(self.parts.values())

    async def run(self) -> None:
        """Adds up, and gives back what is not in use, until cancelled."""
        while True:
            self.refresh()
            if self._is_trim_due() and resident_bytes() > self.used + self.used // 3 + TRIM_BYTES:
                await trio.to_thread.run_sync(give_back)
                self.trims += 1
                self._next_trim = trio.current_time() + self._pauses.next()
            await trio.sleep(REFRESH)

    def _is_trim_due(self) -> bool:
        """True if it is time to look whether memory can be given back; soon where much was let go."""
        self._highest = max(self._highest, self.used)
        if self._highest - self.used > TRIM_BYTES:
            self._highest = self.used
            self._pauses.forget()
            self._next_trim = min(self._next_trim, trio.current_time() + TRIM_SECONDS)
        return trio.current_time() >= self._next_trim


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes; 0 where the system does not report it."""
    try:
        with open("/proc/self/statm") as file:  # a line of the kernel's, not a file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def available() -> int:
    """Returns the memory of the machine, or of the control groups of this process, which may have less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _group_limits(own: Path, root: Path) -> list[int]:
    """Returns the limits of the groups that a process is in, of either version."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / controllers, "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            try:
                found.append(int((top / folder / name).read_text()))
            except (OSError, ValueError):
                pass  # no such group within this container, or "max"
    return found


def give_back() -> None:
    """Gives free memory back to the system; does nothing where the C library cannot."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # such as musl, or another system
        return
    trim(0)
