"""Meta: what a log knows of itself, under one seal.

A few named numbers that everything else is read by: which epoch is the oldest, which numbers may have been
given out, where the newest snapshot stands, and at which numbers the log was opened.  They are apart from the
segments because they change in place, and so cannot be chained.

Always: what is read is what was put last, or ``LogDamaged``; a log from before there was a seal is read as
it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from dataspace.codec import pack
from relay.log.chain import refuse
from relay.log.segments import CHECKSUM_BYTES
from relay.store.storage import Storage

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS starts (first INTEGER PRIMARY KEY, before INTEGER NOT NULL);
"""

SEAL: Final = "seal"


def read_meta(storage: Storage, found: Callable[[str], None] = refuse) -> dict[str, Any]:
    """All of it by name; O(starts).  Damage goes to ``found``; if that returns, it is read as it is."""
    with storage.reading() as connection:
        connection.execute("BEGIN")  # a writer must not come between the names and their seal
        try:
            meta = dict(connection.execute("SELECT name, value FROM meta"))
            altered = meta.get(SEAL, b"") not in (b"", _seal(connection))
        finally:
            connection.execute("COMMIT")
    if altered:
        found(f"{storage.path}: what the log knows of itself was altered")
    meta.pop(SEAL, None)
    return meta


def put_meta(connection: sqlite3.Connection, **named: object) -> None:
    """Puts some of it, after all else in a transaction that touches ``starts``; O(starts)."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", named.items())
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SEAL, _seal(connection)))


def _seal(connection: sqlite3.Connection) -> bytes:
    meta = connection.execute("SELECT name, value FROM meta WHERE name <> ? ORDER BY name", (SEAL,))
    starts = connection.execute("SELECT first, before FROM starts ORDER BY first")
    body = pack((tuple(meta.fetchall()), tuple(starts.fetchall())))
    return blake2b(body, digest_size=CHECKSUM_BYTES, person=b"meta").digest()
