"""The tables of a store in PostgreSQL, and their making.

Bodies, seals and chains have the same formats as in SQLite.  Every table has the number of its space; the
journal of topics is a space without a name.

    store       the version of these tables, and the level of features in force
    members     the daemons that use the store, each with its lease and the highest level that it knows
    spaces      the spaces by name
    terms       who leads a space: the one row that each write holds while it commits; by name who
                led it last, and before that, and why that changed
    segments, meta, starts, snapshots, chunks, readers, topics, topic_readers, staged
    daemons, handovers      what is remembered of them (``daemons``); not in a store of earlier versions alone
"""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection, errors

from relay.store.errors import LogDamaged, LogFailed
from relay.store.levels import FIRST, LATEST, check_known

FORMAT: Final = 1

TABLES: Final = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.store (format int NOT NULL, level int NOT NULL);
INSERT INTO {schema}.store VALUES ({format}, {latest});
CREATE TABLE {schema}.members (
    nonce uuid PRIMARY KEY, number int GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL, url text NOT NULL, web text NOT NULL, version text NOT NULL,
    config bytea NOT NULL, beat bigint NOT NULL, until timestamptz NOT NULL,
    level int NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE {schema}.spaces (
    space int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, touched bigint NOT NULL
);
CREATE TABLE {schema}.terms (
    space int PRIMARY KEY, term bigint NOT NULL, nonce uuid, wanted text, since timestamptz NOT NULL,
    leader text, before text, why text
);
CREATE TABLE {schema}.segments (
    space int, segment bigint,
    first bigint NOT NULL, last bigint NOT NULL, entries bigint NOT NULL, changes bigint NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, checksum bytea NOT NULL, body bytea NOT NULL,
    term bigint NOT NULL, PRIMARY KEY (space, segment)
);
ALTER TABLE {schema}.segments ALTER body SET STORAGE EXTERNAL;
CREATE TABLE {schema}.meta (space int, name text, value bytea NOT NULL, PRIMARY KEY (space, name));
CREATE TABLE {schema}.starts (space int, first bigint, before bigint NOT NULL, PRIMARY KEY (space, first));
CREATE TABLE {schema}.snapshots (
    space int, snapshot bigint, segment bigint NOT NULL, epoch bigint NOT NULL, time bigint NOT NULL,
    chunks bigint, PRIMARY KEY (space, snapshot)
);
CREATE TABLE {schema}.chunks (
    space int, snapshot bigint, chunk bigint, checksum bytea NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (space, snapshot, chunk)
);
ALTER TABLE {schema}.chunks ALTER body SET STORAGE EXTERNAL;
CREATE TABLE {schema}.readers (
    space int, name text, epoch bigint NOT NULL, seen bigint NOT NULL, PRIMARY KEY (space, name)
);
CREATE TABLE {schema}.topics (
    space int, slot bigint, seal bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (space, slot)
);
CREATE TABLE {schema}.topic_readers (
    space int, slot bigint, name text, number bigint NOT NULL, seen bigint NOT NULL,
    PRIMARY KEY (space, slot, name)
);
CREATE TABLE {schema}.staged (
    space int, key bytea, part bigint, since double precision NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (space, key, part)
);
ALTER TABLE {schema}.staged ALTER body SET STORAGE EXTERNAL;
"""

ADDED: Final = """
CREATE TABLE {schema}.daemons (
    name text PRIMARY KEY, url text NOT NULL DEFAULT '', version text NOT NULL DEFAULT '',
    drained timestamptz, gone timestamptz, said text
) WITH (fillfactor = 50);
CREATE TABLE {schema}.handovers (
    space int PRIMARY KEY, term bigint NOT NULL, stopped timestamptz NOT NULL, served timestamptz
);
"""
"""What a store lacks that was made by an earlier version, whose daemons go on beside it."""

LEVELS: Final = """
SET LOCAL lock_timeout = '300ms';
ALTER TABLE {schema}.members ADD COLUMN IF NOT EXISTS level int NOT NULL DEFAULT {first};
ALTER TABLE {schema}.store ADD COLUMN IF NOT EXISTS level int NOT NULL DEFAULT {first};
"""
"""What tables lack that were made before there were levels; daemons from before go on with it.

All renewals would queue behind it where it waits for somebody's long transaction: it fails, and the start is
tried again.
"""

JOINS_WAIT: Final = """
SET LOCAL lock_timeout = '300ms';
LOCK TABLE {s}.members IN SHARE ROW EXCLUSIVE MODE
"""
"""Nobody joins before the transaction ends; it takes locks in the order in which a daemon that joins does."""

RAISE: Final = f"""
UPDATE {{s}}.store SET level = greatest(level, {LATEST});
ALTER TABLE {{s}}.members ALTER level DROP DEFAULT
"""
"""Raises the level; a daemon from before there were levels is no member any more, as it names none."""

LEVEL: Final = f"coalesce((to_jsonb(t) ->> 'level')::int, {FIRST})"
"""The level in a row ``t`` of tables that may lack it."""

STATED: Final = f"SELECT format, {LEVEL} FROM {{s}}.store AS t"

HAS: Final = """
SELECT count(*) FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON a.attrelid = c.oid
JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
WHERE n.nspname = %s AND c.relname = %s AND a.attname = %s
"""

_LOCK: Final = 0x6461_7461_7370_6163
"""Two daemons that make the tables at one moment do so one after the other."""


def quoted(name: str) -> str:
    """Returns an identifier for use in a statement."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def prepare(connection: Connection[Any], schema: str, place: str) -> None:
    """Makes the tables where there are none; ``LogDamaged`` for tables of another version."""
    for table, column, statements in (
        ("store", "format", TABLES),
        ("handovers", "space", ADDED),
        ("store", "level", LEVELS),
    ):
        if not _has(connection, schema, table, column):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                if not _has(connection, schema, table, column):
                    names = {"schema": quoted(schema), "format": FORMAT, "first": FIRST, "latest": LATEST}
                    connection.execute(statements.format(**names))
        check(connection, schema, place)


def check(connection: Connection[Any], schema: str, place: str) -> None:
    """Raises ``LogDamaged`` for tables of another version or a level that is not known, ``LogFailed`` where
    there are none."""
    question = STATED.replace("{s}", quoted(schema))
    try:
        found = connection.execute(question).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        raise LogFailed(f"there is no log in {place}: no daemon has used it yet") from None
    if found is None or found[0] != FORMAT:
        raise LogDamaged(
            f"the tables in {place} have version {found and found[0]}, this program has {FORMAT}; "
            "UPGRADE.md says which version reads them"
        )
    check_known(found[1], place)


def _has(connection: Connection[Any], schema: str, table: str, column: str) -> bool:
    # Not ``to_regclass``: after the wait for the lock it still answers as before.
    return connection.execute(HAS, (schema, table, column)).fetchone() == (1,)
