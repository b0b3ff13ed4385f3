"""Runs a command beside a server of PostgreSQL of its own: ``python -m tests.postgres COMMAND…``.

``{store}`` in its words is the address of an empty store there.  It ends with the command's exit code, and
with 2 where there is no PostgreSQL.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from tests.postgres.programs import NONE, programs

MISSING: Final = 2


def main(words: Sequence[str]) -> int:
    """The program; its exit code."""
    if programs() is None:
        print(NONE, file=sys.stderr)
        return MISSING
    from tests.postgres.servers import Servers  # it imports psycopg

    with closing(Servers()) as servers:
        store = servers.new().start().url("dataspace")
        with subprocess.Popen([each.replace("{store}", store) for each in words]) as child:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts the command itself
            signal.signal(signal.SIGTERM, lambda *_: child.terminate())
            return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
