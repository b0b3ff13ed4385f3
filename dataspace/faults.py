"""Faults: named points where a test can have this process killed.

A crash is only worth testing at the instant where it hurts: before a write, after it, between the write
and its acknowledgement.  Code that has such instants calls ``reach`` with their names; the environment
variable ``DATASPACE_FAULT=name:count`` kills the process with SIGKILL when that name is reached for the
count-th time, after saying so on stderr, so that a test can tell that its fault did strike.

Always: without the variable, ``reach`` does nothing and costs one test of a constant.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from dataspace.errors import UsageError

VARIABLE: Final = "DATASPACE_FAULT"


def _ignore(_name: str) -> None:
    """What ``reach`` is when no fault is wanted."""


def _striking(wish: str) -> Callable[[str], None]:
    wanted, _, count = wish.rpartition(":")
    if not wanted or not count.isdecimal() or int(count) < 1:
        raise UsageError(f"{VARIABLE}={wish!r}, expected name:count with a count from 1")
    left = int(count)

    def strike(name: str) -> None:
        nonlocal left
        if name != wanted:
            return
        left -= 1
        if not left:
            print(f"fault reached: {name}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    return strike


reach: Final[Callable[[str], None]] = _striking(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _ignore
"""Reports that the named point is reached; see above for the consequences."""
