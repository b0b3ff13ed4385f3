"""Rows: what each statement of the product asks of a store, or changes in it, as plain Python.

A statement is known by its text, which is the product's own; nothing here reads SQL.  A fenced write is its
known parts, one after the other.  ``test_law`` runs the same on PostgreSQL and compares.

Always: a content is never changed; a write gives the changes that make another one of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import psycopg

from relay.store.header import SEAL
from relay.store.levels import LATEST
from relay.store.ports import KEY_BITS
from relay.store.postgres import fenced, members, schema, sizes, staged, tables, topics
from relay.store.postgres.tables import NAMES, OF_SPACE
from server.cluster.database import cluster_state as overview
from tests.simulation.store.remembered import REMEMBERED, is_drained, noted

Row: TypeAlias = tuple[Any, ...]
Content: TypeAlias = Mapping[str, Mapping[Any, Row]]
"""The rows of each table, by key."""
Change: TypeAlias = tuple[str, Any, Row | None]
"""A table, a key, and the row that is there afterwards, if any."""
Values: TypeAlias = Mapping[str, Any]

TABLES: Final = (
    "members", "spaces", "terms", "segments", "meta", "starts", "snapshots", "chunks", "readers", "topics",
    "topic_readers", "staged", "daemons", "handovers",
)  # fmt: skip

EMPTY: Final[Content] = {name: {} for name in TABLES}

SETTINGS: Final = ("on", "standby", 1)
"""What a store says of its durability: it has a synchronous standby."""


def changed(content: Content, changes: Iterable[Change]) -> Content:
    """Returns the content with some changes."""
    found = dict(content)
    for table, at, row in changes:
        rows: dict[Any, Row]
        if found[table] is content[table]:
            found[table] = dict(content[table])
        rows = found[table]  # type: ignore[assignment]  # a copy of ours
        if row is None:
            rows.pop(at, None)
        else:
            rows[at] = row
    return found


def named(database_text: str, schema_name: str) -> str:
    """Returns a statement as the product's constants have it."""
    return database_text.replace(schema_name, "{s}")


# -- questions ---------------------------------------------------------------------------------------------


def _segments(content: Content, v: Values) -> list[Row]:
    """Returns the segments of a space, in their order: the nine columns of each."""
    found = [(at, row) for (space, at), row in content["segments"].items() if space == v["space"]]
    return [row[:9] for _, row in sorted(found, key=lambda each: each[0])]


def _span(content: Content, v: Values) -> list[Row]:
    return [row for row in _segments(content, v) if v["low"] < row[0] < v["high"]]


def _one(content: Content, v: Values) -> list[Row]:
    row = content["segments"].get((v["space"], v["segment"]))
    return [row[:9]] if row else []


def _ends(content: Content, v: Values) -> list[Row]:
    rows = _span(content, v)
    return [(rows[0][0], rows[-1][0], rows[-1][2], rows[-1][7])] if rows else []


def _fetch(content: Content, v: Values) -> list[Row]:
    found: list[Row] = []
    before = 0
    for row in _span(content, v)[: v["most"]]:
        is_beyond = bool(found) and v["upto"] is not None and found[-1][1] > v["upto"]
        if before >= v["size"] or is_beyond:
            break
        found.append(row)
        before += len(row[8])
    return found


def _bisect(column: int) -> Callable[[Content, Values], list[Row]]:
    def bisect(content: Content, v: Values) -> list[Row]:
        rows, low, high = _segments(content, v), v["low"], v["high"]
        while low < high:
            middle = (low + high) // 2
            found = next((row for row in rows if row[0] >= middle), None)
            if found is None or found[column] >= v["least"]:
                high = middle
            else:
                low = middle + 1
        return [(low,)]

    return bisect


def _of(content: Content, table: str, v: Values) -> list[tuple[Row, Row]]:
    """Returns the rows of a table of one space, each with what its key has beside the space; in order."""
    found = [(at[1:], row) for at, row in content[table].items() if at[0] == v["space"]]
    return sorted(found, key=lambda each: each[0])


def _names(content: Content, v: Values, name: str | None = None) -> list[Row]:
    return [(*at, *row) for at, row in _of(content, "meta", v) if name in (None, at[0])]


def _size(content: Content, v: Values) -> list[Row]:
    bodies = [row[8] for row in _segments(content, v)] + [row[1] for _, row in _of(content, "chunks", v)]
    return [(sum(map(len, bodies)),)]


def _snapshots(content: Content, v: Values) -> list[Row]:
    return [(*at, *row) for at, row in _of(content, "snapshots", v)]


def _newest_snapshot(content: Content, v: Values) -> list[Row]:
    return [row for row in _snapshots(content, v) if row[4] is not None][-1:]


def _chunks(content: Content, v: Values) -> list[Row]:
    found = [(at, row) for at, row in _of(content, "chunks", v) if at[0] == v["snapshot"]]
    return [row for at, row in found if at[1] >= v["chunk"]][: v["most"]]


def _newest(content: Content, v: Values, *, seals: bool) -> list[Row]:
    found = []
    for (slot,), (seal, _) in _of(content, "topics", v):
        rows = _span(content, {**v, "low": slot << KEY_BITS, "high": (slot + 1) << KEY_BITS})
        segment, last, checksum = (rows[-1][0], rows[-1][2], rows[-1][7]) if rows else (None, None, None)
        found.append((slot, seal, segment, last) if seals else (slot, segment, checksum))
    return found


def _topics(content: Content, v: Values) -> list[Row]:
    return [(*at, *row) for at, row in _of(content, "topics", v)]


def _staged(content: Content, v: Values) -> list[tuple[bytes, int, float, bytes]]:
    return [(at[0], at[1], row[0], row[1]) for at, row in _of(content, "staged", v)]


def _total(rows: list[tuple[bytes, int, float, bytes]]) -> list[Row]:
    return [(len(rows), sum([len(row[0]) + len(row[3]) for row in rows]))]


def _store_sizes(content: Content, _v: Values) -> list[Row]:
    def size(table: str, column: int, space: int) -> int:
        return sum([len(row[column]) for at, row in content[table].items() if at[0] == space])

    return [
        (
            row[0],
            size("segments", 8, at) + size("chunks", 1, at) + size("topics", 1, at),
            size("staged", 1, at),
        )
        for at, row in sorted(content["spaces"].items())
    ]


def _look(content: Content, v: Values) -> list[Row]:
    row = content["terms"].get(v["led"])
    return [(int(row is not None and row[:2] == (v["term"], v["nonce"])),)]


READS: Final[Mapping[str, Callable[[Content, Values], list[Any]]]] = {
    schema.STATED: lambda _content, _v: [(schema.FORMAT, LATEST)],
    schema.HAS: lambda *_: [(1,)],
    tables.ENDS: _ends,
    f"SELECT checksum {OF_SPACE} AND segment = %(segment)s": lambda c, v: [row[7:8] for row in _one(c, v)],
    f"SELECT last, until, checksum {OF_SPACE} AND segment = %(segment)s": lambda c, v: [
        (row[2], row[6], row[7]) for row in _one(c, v)
    ],
    f"SELECT segment, checksum {OF_SPACE} AND segment = ANY(%(segment)s)": lambda c, v: [
        (row[0], row[7]) for row in _segments(c, v) if row[0] in v["segment"]
    ],
    f"SELECT coalesce(sum(octet_length(body)), 0)::int8 {tables._SPAN}": lambda c, v: [
        (sum([len(row[8]) for row in _span(c, v)]),)
    ],
    f"SELECT count(*), coalesce(sum(changes), 0)::int8 {tables._SPAN}": lambda c, v: [
        (len(_span(c, v)), sum([row[4] for row in _span(c, v)]))
    ],
    tables._PORTION: lambda c, v: [(row[0], len(row[8])) for row in _span(c, v)],
    tables._SIZE: _size,
    tables._FETCH: _fetch,
    tables._BISECT.replace("{column}", "last"): _bisect(2),
    tables._BISECT.replace("{column}", "until"): _bisect(6),
    NAMES: _names,
    f"{NAMES} AND name = 'snapshot'": lambda c, v: _names(c, v, "snapshot"),
    f"{NAMES} AND name = '{SEAL}'": lambda c, v: _names(c, v, SEAL),
    tables._STARTS: lambda c, v: [(*at, *row) for at, row in _of(c, "starts", v)],
    tables._NEWEST_SNAPSHOT: _newest_snapshot,
    tables._CHUNKS: _chunks,
    "SELECT coalesce(max(snapshot), 0) + 1 FROM {s}.snapshots WHERE space = %(space)s": lambda c, v: [
        (max([row[0] for row in _snapshots(c, v)], default=0) + 1,)
    ],
    "SELECT name, epoch, seen FROM {s}.readers WHERE space = %(space)s": lambda c, v: [
        (*at, *row) for at, row in _of(c, "readers", v)
    ],
    topics._NEWEST.replace("{columns}", "segment, checksum"): lambda c, v: _newest(c, v, seals=False),
    topics._NEWEST.replace("{columns}", "seal, segment, last"): lambda c, v: _newest(c, v, seals=True),
    topics._TOPICS: _topics,
    f"{topics._TOPICS} AND slot = %(slot)s": lambda c, v: [
        row for row in _topics(c, v) if row[0] == v["slot"]
    ],
    "SELECT coalesce(sum(entries), 0)::int8, coalesce(sum(changes), 0)::int8"
    " FROM {s}.segments WHERE space = %(space)s": lambda c, v: [
        (sum([row[3] for row in _segments(c, v)]), sum([row[4] for row in _segments(c, v)]))
    ],
    "SELECT name, number, seen FROM {s}.topic_readers"
    " WHERE space = %(space)s AND slot = %(slot)s": lambda c, v: [
        (at[1], *row) for at, row in _of(c, "topic_readers", v) if at[0] == v["slot"]
    ],
    f"SELECT coalesce(max(part), 0) + 1 {staged._OF_SPACE} AND key = %(key)b": lambda c, v: [
        (max([part for key, part, _, _ in _staged(c, v) if key == v["key"]], default=0) + 1,)
    ],
    f"SELECT body {staged._OF_SPACE} AND key = %(key)b AND part = %(part)s": lambda c, v: [
        (row[3],) for row in _staged(c, v) if row[:2] == (v["key"], v["part"])
    ],
    f"SELECT key, since, body {staged._OF_SPACE} AND key = %(key)b AND part = %(part)s": lambda c, v: [
        (row[0], *row[2:]) for row in _staged(c, v) if row[:2] == (v["key"], v["part"])
    ],
    f"SELECT key, body {staged._OF_SPACE} "
    "AND (key = %(key)b OR (key >= %(low)b AND key < %(high)b)) ORDER BY key, part": lambda c, v: [
        (row[0], row[3]) for row in _staged(c, v) if row[0] == v["key"] or v["low"] <= row[0] < v["high"]
    ],
    f"SELECT DISTINCT key {staged._OF_SPACE} AND key >= %(low)b AND key < %(high)b": lambda c, v: [
        (key,) for key in dict.fromkeys([row[0] for row in _staged(c, v)]) if v["low"] <= key < v["high"]
    ],
    f"SELECT key, part {staged._OF_SPACE} ORDER BY key, part": lambda c, v: [
        row[:2] for row in _staged(c, v)
    ],
    f"{staged._TOTAL} AND key = ANY(%(keys)b::bytea[])": lambda c, v: _total(
        [row for row in _staged(c, v) if row[0] in v["keys"]]
    ),
    staged._TOTAL: lambda c, v: _total(_staged(c, v)),
    f"SELECT count(DISTINCT key), count(*) {staged._OF_SPACE}": lambda c, v: [
        (len({row[0] for row in _staged(c, v)}), len(_staged(c, v)))
    ],
    sizes._SIZES: _store_sizes,
    fenced.LOOK: _look,
    "SELECT name, space FROM {s}.spaces": lambda c, _v: [(row[0], at) for at, row in c["spaces"].items()],
}
"""What each question is answered with."""


# -- the parts of a fenced write ---------------------------------------------------------------------------


def _put_segments(content: Content, v: Values, term: int) -> list[Change]:
    rows = zip(*[v[name] for name in tables._COLUMNS.split(", ")], strict=True)
    found: list[Change] = [("segments", (v["space"], row[0]), (*row, term)) for row in rows]
    for _, at, _ in found:
        if at in content["segments"]:
            raise psycopg.errors.UniqueViolation(f"duplicate key {at}")
    return found


def _put_names(_content: Content, v: Values, _term: int) -> list[Change]:
    return [
        ("meta", (v["space"], name), (value,)) for name, value in zip(v["names"], v["values"], strict=True)
    ]


def _gone(content: Content, table: str, is_gone: Callable[[Any, Row], bool]) -> list[Change]:
    return [(table, at, None) for at, row in content[table].items() if is_gone(at, row)]


def _drop(content: Content, v: Values, _term: int) -> list[Change]:
    return [
        *_gone(content, "segments", lambda at, _: at[0] == v["space"] and v["low"] < at[1] < v["high"]),
        *_gone(content, "starts", lambda at, _: at[0] == v["space"] and at[1] < v["oldest"]),
    ]


def _complete(content: Content, v: Values, _term: int) -> list[Change]:
    space, number = v["space"], v["snapshot"]
    row = content["snapshots"].get((space, number))
    return [
        *([("snapshots", (space, number), (*row[:3], v["chunks"]))] if row else []),
        *_gone(content, "chunks", lambda at, _: at[0] == space and at[1] < number),
        *_gone(content, "snapshots", lambda at, _: at[0] == space and at[1] < number),
    ]


def _drop_incomplete(content: Content, v: Values, _term: int) -> list[Change]:
    space = v["space"]
    gone = {at for at, row in content["snapshots"].items() if at[0] == space and row[3] is None}
    return [
        *_gone(content, "chunks", lambda at, _: at[:2] in gone),
        *_gone(content, "snapshots", lambda at, _: at in gone),
    ]


def _drop_of_topics(content: Content, v: Values, _term: int) -> list[Change]:
    space, spans, ended = v["space"], list(zip(v["lows"], v["highs"], strict=True)), v["ended"]
    return [
        *_gone(
            content,
            "segments",
            lambda at, _: at[0] == space and any(low < at[1] < high for low, high in spans),
        ),
        *_gone(content, "topics", lambda at, _: at[0] == space and at[1] in ended),
        *_gone(content, "topic_readers", lambda at, _: at[0] == space and at[1] in ended),
    ]


def _of_no_topic(content: Content, v: Values, _term: int) -> list[Change]:
    space, slots = v["space"], {at[1] for at in content["topics"] if at[0] == v["space"]}
    return _gone(content, "segments", lambda at, _: at[0] == space and at[1] >> KEY_BITS not in slots)


def _put_topics(_content: Content, v: Values, _term: int) -> list[Change]:
    rows = zip(v["slots"], v["seals"], v["bodies"], strict=True)
    return [("topics", (v["space"], slot), (seal, body)) for slot, seal, body in rows]


def _put_topic_reader(content: Content, v: Values, _term: int) -> list[Change]:
    at = v["space"], v["slot"], v["name"]
    before = content["topic_readers"].get(at)
    return [("topic_readers", at, (max(v["number"], before[0] if before else 0), v["seen"]))]


def _append_staged(content: Content, v: Values, _term: int) -> list[Change]:
    at = v["space"], v["key"], v["part"]
    if at in content["staged"]:
        raise psycopg.errors.UniqueViolation(f"duplicate key {at}")
    return [("staged", at, (v["since"], v["body"]))]


PARTS: Final[Mapping[str, Callable[[Content, Values, int], list[Change]]]] = {
    tables.INSERT_SEGMENTS: _put_segments,
    tables.PUT_NAMES: _put_names,
    tables._PUT_START: lambda _c, v, _t: [("starts", (v["space"], v["first"]), (v["before"],))],
    tables._DROP: _drop,
    tables._BEGIN_SNAPSHOT: lambda _c, v, _t: [
        ("snapshots", (v["space"], v["snapshot"]), (v["segment"], v["epoch"], v["time"], None))
    ],
    tables._PUT_CHUNK: lambda _c, v, _t: [
        ("chunks", (v["space"], v["snapshot"], v["chunk"]), (v["checksum"], v["body"]))
    ],
    tables._COMPLETE: _complete,
    tables._DROP_INCOMPLETE: _drop_incomplete,
    tables._PUT_READER: lambda _c, v, _t: [("readers", (v["space"], v["name"]), (v["epoch"], v["seen"]))],
    tables._DELETE_READER: lambda _c, v, _t: [("readers", (v["space"], v["name"]), None)],
    topics._PUT_TOPICS: _put_topics,
    topics._DROP: _drop_of_topics,
    topics._OF_NONE: _of_no_topic,
    topics._PUT_READER: _put_topic_reader,
    staged._APPEND: _append_staged,
    staged._DELETE: lambda c, v, _t: _gone(
        c, "staged", lambda at, _: at[0] == v["space"] and at[1] in v["keys"]
    ),
    staged._PURGE: lambda c, v, _t: _gone(
        c, "staged", lambda at, row: at[0] == v["space"] and row[0] < v["before"]
    ),
}
"""What each part changes, under a term."""


FOLLOWS: Final = fenced._FOLLOWS

_SEGMENT: Final = "\nINSERT INTO {s}.segments SELECT $4"

_OF_SEGMENT: Final = ("led", "term", "nonce", "space", *tables._COLUMNS.split(", "), "previous", "sums")
"""The names that the values of ``SEGMENT`` have in other statements."""


def segment_values(given: Sequence[bytes]) -> dict[str, Any]:
    """Returns the values of ``SEGMENT`` as those of a statement that may write several."""
    kinds: dict[int, Callable[[bytes], object]] = {
        23: int_of,
        20: int_of,
        2950: lambda raw: UUID(bytes=raw),
        17: bytes,
    }
    values = [kinds[kind](raw) for kind, raw in zip(fenced.TYPES, given, strict=True)]
    found = dict(zip(_OF_SEGMENT, values, strict=True))
    return {name: value if at < 4 else [value] for at, (name, value) in enumerate(found.items())}


def int_of(raw: bytes) -> int:
    """Returns a number as PostgreSQL has it in binary."""
    return int.from_bytes(raw, signed=True)


class FencedWrite:
    """One statement of a ``FencedWriter``."""

    def __init__(self, text: str, v: Values) -> None:
        self.values: Final = v
        of_segment = text.startswith(_SEGMENT)
        lead, _, rest = text.partition(") AS lead" if of_segment else "), ")
        self.locks: Final = "FOR SHARE" in lead
        self._compares: Final = [name for name in ("term", "nonce") if f"{name} = " in lead]
        self._follows: Final = "EXISTS" in rest if of_segment else rest.startswith(FOLLOWS)
        self._parts: Final = []
        if of_segment:
            self._parts.append(PARTS[tables.INSERT_SEGMENTS])
            return
        rest = rest.removeprefix(FOLLOWS if self._follows else fenced._UNCONDITIONAL)
        while rest != fenced._OUTCOME:
            rest = rest.removeprefix(", ")
            known = next((part for part in PARTS if rest.startswith(part)), None)
            if known is None:
                raise NotImplementedError(f"the simulated store does not know {rest!r}")
            self._parts.append(PARTS[known])
            rest = rest.removeprefix(known)

    @staticmethod
    def is_one(text: str) -> bool:
        """True for a statement with a fence."""
        return text.startswith(("\nWITH lead AS MATERIALIZED (", _SEGMENT))

    def begin(self, content: Content) -> tuple[int, int, int]:
        """Returns the rows of ``lead`` and ``led``, and the term, as of a content."""
        v = self.values
        row = content["terms"].get(v["led"])
        found = dict(zip(("term", "nonce"), row or (), strict=False))
        if row is None or any(found[name] != v[name] for name in self._compares):
            return 0, 0, 0
        if self._follows:
            for segment, checksum in zip(v["previous"], v["sums"], strict=True):
                there = content["segments"].get((v["space"], segment))
                if there is None or there[7] != checksum:
                    return 1, 0, row[0]
        return 1, 1, row[0]

    def changes(self, content: Content, term: int) -> list[Change]:
        """Returns what it changes.  Raises ``UniqueViolation``."""
        return [each for part in self._parts for each in part(content, self.values, term)]


# -- members and terms -------------------------------------------------------------------------------------

MEMBER: Final = ("number", "name", "url", "web", "version", "config", "beat", "until")
NAME, URL, WEB, VERSION, CONFIG, BEAT, UNTIL = range(1, 8)

Answer: TypeAlias = tuple[list[Any], list[Change]]


def _join(content: Content, v: Values, now: float, number: int) -> Answer:
    if v["nonce"] in content["members"]:
        return [], []
    said = (v["name"], v["url"], v["web"], v["version"], v["config"])
    return [], [("members", v["nonce"], (number, *said, 0, now + v["lease"]))]


def _renew(content: Content, v: Values, now: float, _number: int) -> Answer:
    row = content["members"].get(v["nonce"])
    if row is None or row[UNTIL] <= now:
        return [], []
    others = [
        each
        for nonce, each in content["members"].items()
        if each[UNTIL] > now and nonce != v["nonce"] and each[URL] not in ("", v["url"])
    ]
    differing = [
        each[URL] for each in others if each[VERSION] == v["version"] and each[CONFIG] != v["config"]
    ]
    namesakes = [each[URL] for each in others if each[NAME] == v["name"]]
    renewed = (
        *row[:URL], v["url"], v["web"], row[VERSION], v["config"], row[BEAT] + 1, now + v["lease"],
    )  # fmt: skip
    time = round(now * 1_000_000)
    answer = (row[BEAT] + 1, sorted(differing), sorted(namesakes), time, LATEST, *SETTINGS)
    return [answer], [("members", v["nonce"], renewed)]


def _confirm(content: Content, v: Values, _now: float, _number: int) -> Answer:
    row = content["members"].get(v["nonce"])
    return [] if row is None or row[BEAT] < v["beat"] else [(None,)], []


def _forget(content: Content, v: Values, now: float, _number: int) -> Answer:
    used = {row[1] for row in content["terms"].values()}
    return [], _gone(content, "members", lambda at, row: row[UNTIL] < now - v["kept"] and at not in used)


def _name(content: Content, v: Values, _now: float, number: int) -> Answer:
    if any(row[0] == v["name"] for row in content["spaces"].values()):
        return [], []
    return [], [("spaces", number, (v["name"], 0))]


def _first_term(content: Content, v: Values, now: float, _number: int) -> Answer:
    first = 0, None, None, now, None, None, None
    return [], [] if v["space"] in content["terms"] else [("terms", v["space"], first)]


def _standings(content: Content, v: Values, now: float, _number: int) -> Answer:
    found = []
    for space, (term, nonce, wanted, *_) in content["terms"].items():
        if space in v["spaces"]:
            row = content["members"].get(nonce)
            said = (
                (row[NAME], row[URL], row[WEB], row[BEAT], row[UNTIL] - now) if row else (None,) * 4 + (-1.0,)
            )
            meant = [row for row in content["members"].values() if row[NAME] == wanted]
            lives = any(row[UNTIL] > now and row[URL] for row in meant) and not is_drained(content, wanted)
            found.append((space, term, nonce, wanted, *said, lives))
    return found, []


def _living(content: Content, _v: Values, now: float, _number: int) -> Answer:
    return [(row[NAME],) for row in content["members"].values() if row[UNTIL] > now and row[URL]], []


def _others(content: Content, v: Values, now: float, _number: int) -> Answer:
    rows = content["members"].items()
    return [(at, row[NAME]) for at, row in rows if at != v["nonce"] and row[UNTIL] > now], []


def _want(content: Content, v: Values, _now: float, _number: int) -> Answer:
    row = content["terms"].get(v["space"])
    if row is None or row[1] is None:
        return [], []
    return [], [("terms", v["space"], (*row[:2], v["wanted"], *row[3:]))]


def _take(content: Content, v: Values, now: float, _number: int) -> Answer:
    row, member = content["terms"].get(v["space"]), content["members"].get(v["nonce"])
    if row is None or row[:2] != (v["term"], v["before"]) or member is None or member[UNTIL] <= now:
        return [], []
    taken = row[0] + 1, v["nonce"], None, now, member[NAME], row[4], v["why"]
    return [(row[0] + 1,)], [("terms", v["space"], taken)]


def _give_up(content: Content, v: Values, _now: float, _number: int) -> Answer:
    row = content["terms"].get(v["space"])
    if row is None or row[:2] != (v["term"], v["nonce"]):
        return [], []
    return [], [("terms", v["space"], (row[0], None, v["wanted"] or row[2], *row[3:]))]


def _view(content: Content, now: float) -> tuple[list[Row], ...]:
    """Returns what the columns of a ``StoreView`` answer."""
    rows = [row for row in content["members"].values() if row[UNTIL] > now - 86_400]
    rows.sort(key=lambda row: (row[NAME], -row[0]))
    spaces = []
    for space, (name, _) in content["spaces"].items():
        if (term := content["terms"].get(space)) is None:
            continue
        row, nonce = content["members"].get(term[1]), None if term[1] is None else str(term[1])
        led = (row[NAME], row[URL], row[UNTIL] - now) if row else (None, None, -1.0)
        more = (row[WEB], row[BEAT]) if row else (None, None)
        if name:
            newest = max([at for of, at in content["segments"] if of == space], default=None)
            written = None if newest is None else str(newest)
        else:
            seal = content["meta"].get((space, SEAL))
            written = None if seal is None else seal[0].hex()
        spaces.append((name, term[0], *led, *term[3:], nonce, term[2], *more, written))
    members_seen: list[Row] = [
        (*row[NAME:CONFIG], row[UNTIL] - now, row[CONFIG].hex(), row[UNTIL], LATEST) for row in rows
    ]
    return members_seen, sorted(spaces, key=lambda each: str(each[0])), *noted(content)


def _renew_and_view(content: Content, v: Values, now: float, number: int) -> Answer:
    answers, changes = _renew(content, v, now, number)
    return [(*each, *_view(content, now)) for each in answers], changes


def _leave(_content: Content, v: Values, _now: float, _number: int) -> Answer:
    return [], [("members", v["nonce"], None)]


def _barrier(content: Content, v: Values, _now: float, _number: int) -> Answer:
    name, touched = content["spaces"][v["space"]]
    return [], [("spaces", v["space"], (name, touched + 1))]


PLAIN: Final[Mapping[str, Callable[[Content, Values, float, int], Answer]]] = {
    members._JOIN: _join,
    members._RENEW: _renew,
    members._CONFIRM: _confirm,
    members._FORGET: _forget,
    members._NAME: _name,
    members._SPACE: lambda c, v, *_: ([(at,) for at, row in c["spaces"].items() if row[0] == v["name"]], []),
    members._FIRST_TERM: _first_term,
    members._STANDINGS: _standings,
    members._LIVING: _living,
    members._WANT: _want,
    members._NUMBER: lambda c, v, *_: ([row[:1] for at, row in c["members"].items() if at == v["nonce"]], []),
    members._TAKE: _take,
    members._GIVE_UP: _give_up,
    members._OTHERS: _others,
    f"{members._RENEW}, {overview.VIEW}": _renew_and_view,
    f"SELECT {overview.VIEW}": lambda c, _v, now, _: ([_view(c, now)], []),
    members._LEAVE: _leave,
    **REMEMBERED,
    fenced._BARRIER: _barrier,
}
"""What statements answer and change without a fence; they get the time, and a number that is new."""

NUMBERED: Final = (members._JOIN, members._NAME)
"""Statements that use up a number."""

EXCLUSIVE: Final = (members._TAKE, members._GIVE_UP, members._WANT)
"""Statements that wait for all that have locked the row of a term."""

SYNCHRONOUS: Final = (fenced._BARRIER, members._CONFIRM)
"""Statements whose commit waits for the standby, beside the fenced ones."""
