"""A daemon whose disk breaks when it is told to: ``breaking.py ORDER serve …``.

Once there is a file ORDER, every operation that it names, such as ``sync log.sqlite-wal``, fails.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from server.cli.main import main
from tests.relay.log.disk import Event, hook_sqlite

CODES = {
    "read": sqlite3.SQLITE_IOERR_READ,
    "write": sqlite3.SQLITE_IOERR_WRITE,
    "sync": sqlite3.SQLITE_IOERR_FSYNC,
}


def _broken(event: Event, order: Path) -> int:
    told = order.exists() and order.read_text() == f"{event[0]} {event[1]}"
    return CODES.get(event[0], 0) if told else 0


if __name__ == "__main__":
    where = Path(sys.argv[1])
    hook_sqlite(lambda event: _broken(event, where), reads=True)
    sys.exit(main(sys.argv[2:]))
