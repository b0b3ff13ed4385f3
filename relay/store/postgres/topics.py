"""The tables of a journal in PostgreSQL: chains of topics, a row for each topic, and its named readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relay.store.header import SEAL
from relay.store.ports import KEY_BITS, ChainEnds, Names, Row, TopicHeads, TopicsMoment
from relay.store.postgres.tables import ENDS, NAMES, PUT_NAMES, PostgresChains, named, put, span

_NEWEST: Final = f"""
SELECT slot, {{columns}} FROM {{s}}.topics AS t LEFT JOIN LATERAL (
    SELECT segment, last, checksum FROM {{s}}.segments AS c
    WHERE c.space = t.space AND c.segment > t.slot << {KEY_BITS} AND c.segment < (t.slot + 1) << {KEY_BITS}
    ORDER BY segment DESC LIMIT 1
) AS newest ON true WHERE t.space = %(space)s ORDER BY slot
"""
_TOPICS: Final = "SELECT slot, seal, body FROM {s}.topics WHERE space = %(space)s"

_PUT_TOPICS: Final = """put_topics AS (
    INSERT INTO {s}.topics
    SELECT %(space)s, t.* FROM led, unnest(%(slots)b::int8[], %(seals)b::bytea[], %(bodies)b::bytea[]) AS t
    ON CONFLICT (space, slot) DO UPDATE SET seal = excluded.seal, body = excluded.body
)"""

_DROP: Final = """dropped AS (
    DELETE FROM {s}.segments AS s USING led, unnest(%(lows)b::int8[], %(highs)b::int8[]) AS d (low, high)
    WHERE s.space = %(space)s AND s.segment > d.low AND s.segment < d.high
), ended AS (
    DELETE FROM {s}.topics USING led WHERE space = %(space)s AND slot = ANY(%(ended)b::int8[])
), ended_readers AS (
    DELETE FROM {s}.topic_readers USING led WHERE space = %(space)s AND slot = ANY(%(ended)b::int8[])
)"""

_OF_NONE: Final = f"""of_none AS (
    DELETE FROM {{s}}.segments AS s USING led WHERE s.space = %(space)s AND NOT EXISTS (
        SELECT FROM {{s}}.topics AS t WHERE t.space = s.space AND t.slot = s.segment >> {KEY_BITS}
    )
)"""

_PUT_READER: Final = """put_reader AS (
    INSERT INTO {s}.topic_readers AS r SELECT %(space)s, %(slot)s, %(name)s, %(number)s, %(seen)s FROM led
    ON CONFLICT (space, slot, name) DO UPDATE
    SET number = greatest(r.number, excluded.number), seen = excluded.seen
)"""


class PostgresTopics(PostgresChains):
    """The tables of a journal."""

    def moment(self) -> TopicsMoment:
        with self._database.moment() as connection:
            names = named(self._ask(connection, NAMES))
            rows = self._ask(connection, _NEWEST.replace("{columns}", "segment, checksum"))
        for slot, segment, checksum in rows:
            if segment is not None:
                self._heads.setdefault(slot, (segment, checksum))
        return TopicsMoment(names, [(slot, checksum) for slot, _, checksum in rows])

    def version(self) -> int:
        rows = self._rows(f"{NAMES} AND name = '{SEAL}'")
        return int.from_bytes(rows[0][1][-8:]) if rows else 0

    def heads(self) -> TopicHeads:
        with self._database.moment() as connection:
            names = named(self._ask(connection, NAMES))
            question = _NEWEST.replace("{columns}", "seal, segment, last")
            return TopicHeads(names, self._ask(connection, question))

    def topic_moment(self, slot: int) -> tuple[Row | None, ChainEnds | None]:
        with self._database.moment() as connection:
            rows = self._ask(connection, f"{_TOPICS} AND slot = %(slot)s", slot=slot)
            ends = self._ask(connection, ENDS, **span(slot))
        return rows[0] if rows else None, ChainEnds(*ends[0]) if ends else None

    def totals(self) -> tuple[int, int]:
        question = (
            "SELECT coalesce(sum(entries), 0)::int8, coalesce(sum(changes), 0)::int8"
            " FROM {s}.segments WHERE space = %(space)s"
        )
        entries, changes = self._rows(question)[0]
        return entries, changes

    def topic(self, slot: int) -> Row | None:
        rows = self._rows(f"{_TOPICS} AND slot = %(slot)s", slot=slot)
        return rows[0] if rows else None

    def topics(self) -> list[Row]:
        return self._rows(_TOPICS)

    def write(
        self,
        segments: Sequence[Row],
        drops: Sequence[int],
        topics: Sequence[Row],
        ended: Sequence[int],
        names: Names,
    ) -> None:
        gone = set(ended)
        kept = [row for row in segments if row[0] >> KEY_BITS not in gone]
        ends = [*drops, *[(slot + 1) << KEY_BITS for slot in ended]]
        changes = ", ".join([_DROP, *([_PUT_TOPICS] if topics else []), PUT_NAMES])
        self._write_after(
            kept,
            changes,
            lows=[(each - 1) >> KEY_BITS << KEY_BITS for each in ends],
            highs=ends,
            ended=list(ended),
            **_columns(topics),
            **put(names),
        )
        for slot in ended:
            self._heads.pop(slot, None)
        if drops or ended:
            self._used = None

    def write_topics(self, topics: Sequence[Row], names: Names) -> None:
        changes = ", ".join([_OF_NONE, *([_PUT_TOPICS] if topics else []), PUT_NAMES])
        self._write(changes, **_columns(topics), **put(names))
        self._used = None

    def readers(self, slot: int) -> list[Row]:
        question = (
            "SELECT name, number, seen FROM {s}.topic_readers WHERE space = %(space)s AND slot = %(slot)s"
        )
        return self._rows(question, slot=slot)

    def put_reader(self, slot: int, name: str, number: int, seen: int) -> None:
        self._write(_PUT_READER, slot=slot, name=name, number=number, seen=seen)


def _columns(topics: Sequence[Row]) -> dict[str, list[object]]:
    """Returns rows of topics as ``_PUT_TOPICS`` takes them."""
    if not topics:
        return {}
    slots, seals, bodies = zip(*topics, strict=True)
    return {"slots": list(slots), "seals": list(seals), "bodies": list(bodies)}
