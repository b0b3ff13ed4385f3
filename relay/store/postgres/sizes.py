"""The bytes that the spaces of a store take in PostgreSQL."""

from __future__ import annotations

from typing import Final

from relay.store.postgres.database import Database

_SIZES: Final = """
SELECT s.name,
    (SELECT coalesce(sum(octet_length(body)), 0)::int8 FROM {s}.segments AS t WHERE t.space = s.space)
    + (SELECT coalesce(sum(octet_length(body)), 0)::int8 FROM {s}.chunks AS t WHERE t.space = s.space)
    + (SELECT coalesce(sum(octet_length(body)), 0)::int8 FROM {s}.topics AS t WHERE t.space = s.space),
    (SELECT coalesce(sum(octet_length(body)), 0)::int8 FROM {s}.staged AS t WHERE t.space = s.space)
FROM {s}.spaces AS s
"""


def store_sizes(database: Database, topics: str, home: str) -> dict[str, dict[str, int]]:
    """Returns the bytes of each space by part, where durable topics, which are a space, count for ``home``.

    O(segments): bodies are not read, but their lengths are.
    """
    found: dict[str, dict[str, int]] = {}
    for name, log, staged in database.rows(_SIZES, {}):
        if name == topics:
            found.setdefault(home, {})["topics"] = log
        else:
            found.setdefault(name, {}).update(log=log, staged=staged)
    return found
