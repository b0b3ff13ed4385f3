"""A stream does not pass over in silence what was erased from its archive since it began."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.states import erased_at
from dataspace.errors import Refused
from index.patterns.text import parse_pattern
from relay.archive.archive import only_archive
from relay.archive.archiver import Archiver, RangeSizes, archive_all
from relay.archive.erasure.erasing import erase
from relay.log.reader import LogReader
from relay.objects.opening import open_objects
from relay.spark.cold import archives
from relay.spark.source.erasures import RowsErased
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.source.test_shares import Query

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PATTERN = "seen($n:int, $s:str)"


class World:
    """A daemon with eight archived epochs, each in a range of its own; person 1 comes in 2 and goes in 6."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.daemon, self.place = daemon, folder / "archive"
        for at in range(8):
            person = {1: ['+seen(1, "p")'], 5: ['-seen(1, "p")']}.get(at, [])
            daemon.turn(f'+seen({10 + at}, "x")', *person)
        with closing(LogReader.open(daemon.data)) as log:
            archiver = Archiver(log, open_objects(self.place), "main", sizes=RangeSizes(changes=1))
            archiver.begin()
            archive_all(archiver, lambda _: None)

    def erase(self, pattern: str) -> int:
        archive = only_archive(open_objects(self.place), "main")
        done = erase(archive, parse_pattern(pattern), time.time_ns() // 1000, "test")
        archives._open.clear()  # as if ten seconds had passed
        return done.rows

    def query(self, **options: object) -> Query:
        made = Query({"pattern": PATTERN, "archive": self.place, "startingEpoch": "earliest", **options})
        made.begin()
        return made


@pytest.fixture
def world(own_daemon: Daemon, tmp_path: Path) -> World:
    return World(own_daemon, tmp_path)


def people(query: Query) -> list[tuple[object, object]]:
    return [(row[2], row[3]) for row in query.all if row[0] == 1]


@pytest.mark.parametrize("alone", [True, False])
def test_a_removal_that_was_erased_fails_the_query_that_read_the_fact(world: World, *, alone: bool) -> None:
    url = {} if alone else {"url": world.daemon.url}
    query = world.query(maxEpochsPerTrigger=3, **url)
    query.run(1)
    assert people(query) == [("insert", 2)]
    assert world.erase('seen(1, "p")') == 2
    for _ in range(2):  # it fails again when it is started again
        query.begin()
        with pytest.raises(RowsErased, match=r"rows of epochs 4 to 6 were erased at .*failOnErasure=false"):
            query.plan()
            query.rows(len(query.ends) - 1)
        del query.ends[1:]
    query.begin(failOnErasure="false")
    query.run(1)
    query.begin(failOnErasure="true")  # what it went on after is known now
    query.run()
    assert people(query) == [("insert", 2)]
    assert len(query.all) == 9


def test_a_batch_that_is_run_again_must_be_the_same(world: World) -> None:
    query = world.query(maxEpochsPerTrigger=8)
    assert query.plan()
    assert len(query.rows(0)) == 10
    world.erase('seen(1, "p")')
    query.begin()
    with pytest.raises(RowsErased, match="epochs 1 to 8"):
        query.rows(0)
    query.begin(failOnErasure="false")
    assert len(query.rows(0)) == 8


def test_other_epochs_and_earlier_erasures_do_not_matter(world: World) -> None:
    """A query that begins after an erasure has whole lives of facts; so has one that has read them."""
    world.erase('seen(1, "p")')
    query = world.query(maxEpochsPerTrigger=3)
    query.run(2)
    assert '"erased"' in str(query.ends[0]).replace("'", '"')
    assert world.erase('seen(1, "p")') == 0
    query.begin()
    query.run()
    assert [row[0] for row in query.all] == [*range(10, 18)]


def test_a_daemon_with_an_archive_says_what_was_erased(tmp_path: Path) -> None:
    """A stream that reads from the daemon alone fails as well."""
    place = tmp_path / "archive"
    with Daemon(tmp_path / "daemon", "--archive", str(place)) as daemon:
        world = World(daemon, tmp_path)
        query = Query({"pattern": PATTERN, "url": daemon.url, "startingEpoch": "earliest"})
        query.begin(maxEpochsPerTrigger=3)
        query.run(1)
        daemon.stop()
        assert world.erase('seen(1, "p")') == 2
        daemon.start()
        later = Query({"pattern": PATTERN, "url": daemon.url, "startingEpoch": "earliest"})
        later.begin()
        later.run()
        assert len(later.all) == 8
        query.begin()
        with pytest.raises(RowsErased, match="rows of epochs 4 to 6 were erased at"):
            query.plan()
            query.rows(1)
        query.begin(failOnErasure="false")
        assert people(query) == [("insert", 2)]
        query.batches.append(query.rows(1))
        query.run()
        assert len(query.all) == 9
        with BulkClient(daemon.url) as link:
            assert erased_at(link, 0, 8) > 0
            with pytest.raises(Refused, match="erased must be two epochs"):
                link.request("frontier", {"erased": (1, "x")})
