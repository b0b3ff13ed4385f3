"""A snapshot in parts is the snapshot, each row once, whatever the limits and the kills, on either side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from relay.archive.archiver import Archiver, RangeSizes, archive_all
from relay.log.reader import LogReader
from relay.objects.opening import open_objects
from relay.spark.cold import archives
from relay.spark.common import connections
from relay.spark.common.options import read_options, stream_options
from relay.spark.common.schema import inferred
from relay.spark.source.offsets import Json
from relay.spark.source.source import ChangesReader, ChangesStream
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.test_mistakes import trim

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PATTERNS = ["fact($n:int, $s:str)", "fact(_, $s:str)"]
SIZES = (1, 7, 40)
LIMITS = (1, 3, 40, 1000)

Row = tuple[object, ...]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.spark.source.shares.LEAST_ROWS", 2)


@dataclass
class Query:
    """A query without Spark's JVM: what Spark keeps of one, and the calls that it makes."""

    options: dict[str, object]
    ends: list[Json] = field(default_factory=list)
    batches: list[list[Row]] = field(default_factory=list)
    source: ChangesStream | None = None

    def begin(self, **options: object) -> None:
        """A new process, with other options perhaps; it knows the ends of batches alone."""
        self.options |= {"pollTimeout": "1ms", **options}
        given = stream_options({name: str(value) for name, value in self.options.items()})
        self.source = ChangesStream(given, inferred(given.pattern))

    def start(self, batch: int) -> Json:
        assert self.source is not None
        text = self.ends[batch - 1] if batch else self.source.initialOffset()
        return json.loads(json.dumps(text))  # type: ignore[no-any-return]

    def plan(self) -> bool:
        """Plans one more batch; False if there is none."""
        assert self.source is not None
        start = self.start(len(self.ends))
        end = self.source.latestOffset(start, ReadMaxRows(1))
        if end == start:
            return False
        self.ends.append(json.loads(json.dumps(end)))
        return True

    def rows(self, batch: int, upto: int | None = None) -> list[Row]:
        """The rows of a batch, or of its first partitions alone."""
        assert self.source is not None
        parts = self.source.partitions(self.start(batch), self.ends[batch])
        riding = self.source.getCache({}, {}) if type(self.source) is not ChangesStream else None
        read = riding if riding is not None else (b for p in parts[:upto] for b in self.source.read(p))
        return [tuple(row.values()) for each in read for row in each.to_pylist()]

    def run(self, batches: int = 1_000) -> None:
        for _ in range(batches):
            if not self.plan():
                return
            self.batches.append(self.rows(len(self.ends) - 1))

    @property
    def all(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("shares")) as daemon:
        for size in SIZES:
            facts = [f'+fact{size}({at}, "{at % 29}")' for at in range(size)]
            daemon.turn(*facts[: size // 2 + 1])
            if facts[size // 2 + 1 :]:
                daemon.turn(*facts[size // 2 + 1 :])
        yield daemon


def counted(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


def shown(rows: list[Row]) -> list[Row]:
    """Rows without their place in the epoch."""
    return [row[:-1] for row in rows]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_any_size_under_any_limit(world: Daemon, pattern: str) -> None:
    for size, limit, parts in product(SIZES, LIMITS, (1, 3)):
        wanted: dict[str, object] = {"url": world.url, "pattern": pattern.replace("fact", f"fact{size}")}
        whole = Query({**wanted})
        whole.begin()
        whole.run()
        query = Query({**wanted, "maxChangesPerTrigger": limit, "minPartitions": parts})
        query.begin()
        query.run()
        assert counted(shown(query.all)) == counted(shown(whole.all)), (size, limit, parts)
        count = len(whole.all)
        assert [len(each) for each in query.batches] == [limit] * (count // limit) + [count % limit] * bool(
            count % limit
        )
        assert sorted(row[-1] for row in query.all) == list(range(count))  # type: ignore[type-var]
        again = [query.rows(at) for at in range(len(query.ends))]
        assert again == query.batches
        if limit == 3 and parts == 1:
            assert counted(shown(read_state(world, wanted["pattern"], 3))) == counted(shown(whole.all))


def read_state(daemon: Daemon, pattern: object, parts: int) -> list[Row]:
    """A state as a batch, in several tasks."""
    given = {"url": daemon.url, "pattern": str(pattern), "asOfEpoch": "latest", "minPartitions": str(parts)}
    options = read_options(given)
    reader = ChangesReader(options, inferred(options.pattern))
    made = reader.partitions()
    read = [[tuple(row.values()) for each in reader.read(part) for row in each.to_pylist()] for part in made]
    assert sum(map(bool, read)) > 1 or sum(map(len, read)) <= 2
    return [row for part in read for row in part]


def archive(daemon: Daemon, place: Path) -> None:
    with closing(LogReader.open(daemon.data)) as log:
        archiver = Archiver(log, open_objects(place), "main", sizes=RangeSizes(changes=20))
        archiver.begin()
        archive_all(archiver, lambda _: None)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_whatever_is_killed_and_wherever_the_epoch_is(
    own_daemon: Daemon, tmp_path: Path, pattern: str
) -> None:
    """The query and the daemon are killed; limits change; the epoch goes to the archive and from the disk."""
    place = tmp_path / "archive"
    for first in (0, 15):
        own_daemon.turn(*[f'+fact({at}, "{at % 19}")' for at in range(first, first + 15)])
    wanted: dict[str, object] = {"url": own_daemon.url, "pattern": pattern, "archive": place}
    whole = Query({**wanted})
    whole.begin()
    whole.run()
    expected = counted(shown(whole.all))
    queries = [
        Query({**wanted, "maxChangesPerTrigger": limit, "minPartitions": parts})
        for limit, parts in product((1, 4), (1, 3))
    ]

    def all_go_on(batches: int, **options: object) -> None:
        for query in queries:
            query.begin(**options)
            done = len(query.batches)
            if len(query.ends) > done:  # it was planned, and read in part
                query.batches.append(query.rows(done))
            query.run(batches)
            query.plan()
            query.rows(len(query.ends) - 1, upto=1)

    all_go_on(0)
    own_daemon.turn('-fact(3, "3")', '+fact(77, "new")')
    all_go_on(1)
    own_daemon.kill()
    own_daemon.start()
    all_go_on(1, maxChangesPerTrigger=2)
    archive(own_daemon, place)
    all_go_on(1)
    trim(own_daemon)
    connections.close_all()
    archives._open.clear()
    all_go_on(1, maxChangesPerTrigger=3, minPartitions=2)
    alone = [
        Query({**query.options, "url": ""}, [*query.ends], [*query.batches])
        for query in queries
        if "low" in str(query.ends[-1])
    ]
    assert alone
    all_go_on(1_000)
    changes = [r for r in queries[0].all if r[-3] != 2]
    assert {row[-3] for row in changes} == {3}
    for query in queries:
        last = [row for row in query.all if row[-3] == 2]
        assert counted(shown(last)) == expected
        assert sorted(row[-1] for row in last) == list(range(len(expected)))  # type: ignore[type-var]
        assert counted([r for r in query.all if r[-3] != 2]) == counted(changes)
    for query in alone:
        query.begin()
        query.batches.append(query.rows(len(query.ends) - 1))
        query.run()
        assert counted(shown([row for row in query.all if row[-3] == 2])) == expected


def test_a_state_in_parts_that_is_gone_is_a_loss(own_daemon: Daemon) -> None:
    own_daemon.turn(*[f'+fact({at}, "{at}")' for at in range(9)])
    wanted: dict[str, object] = {"url": own_daemon.url, "pattern": PATTERNS[0], "maxChangesPerTrigger": 2}
    query = Query(wanted)
    query.begin()
    query.run(2)
    own_daemon.turn("+later(1)")
    own_daemon.turn("+later(2)")
    trim(own_daemon)
    with pytest.raises(Exception, match="epochs 2 to 2 are gone"):
        query.run(1)
