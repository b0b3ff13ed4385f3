"""A daemon whose next write to the log waits while a file exists: the program of a ``DaemonProcess``.

The environment variable ``HELD`` names the file; beside it, with ``.now``, is one as long as a write waits.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relay.log.log import Log
from relay.log.writer import GroupCommit
from server.cli.main import main

HELD = Path(os.environ["HELD"])


def holding(append: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that waits before it appends, in the thread of the writer."""

    def held(*arguments: Any) -> Any:
        while HELD.exists():
            HELD.with_suffix(".now").touch()
            time.sleep(0.01)
        return append(*arguments)

    return held


if __name__ == "__main__":
    GroupCommit._may_write_here = lambda *_: False  # type: ignore[method-assign]  # else nothing goes on meanwhile
    Log.append = holding(Log.append)  # type: ignore[method-assign]
    main(sys.argv[1:])
