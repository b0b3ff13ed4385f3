"""Since when facts have been there is the same wherever a log is read on: at a follower, after its take-over,
after a restore to any epoch, and in the archive."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from index.values.values import Record, Value
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.archiver import Archiver, RangeSizes, archived_segment
from relay.backup.backup import back_up, of_directory
from relay.backup.copies import CopyPace
from relay.backup.restore import RestoreWanted, restore
from relay.following.following import FollowedLog, Following
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.replay import state_at
from relay.log.retention import Retention
from relay.log.snapshots import RecoveredState
from relay.objects.objects import Objects
from relay.objects.opening import open_objects
from server.spaces.roles import difference
from server.spaces.windows import rebuild_windows, with_windows
from tests.server.spaces.test_since import START, TEXT, facts_of, snapshot, trim, turns
from tests.server.spaces.test_windows import Logged

pytestmark = pytest.mark.slow

DERIVED: Final = frozenset(["opened", "late", "hot", "gone", "tickets"])
END: Final = 2_000_000
"""Microseconds after the last turn, in which all rows that have to come or go by time do."""

History: TypeAlias = list[tuple[int, frozenset[Value], frozenset[Value]]]
"""The times at which derived facts come and go, and these facts."""


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def home(request: pytest.FixtureRequest) -> Iterator[str]:
    """The home of all logs that a test opens."""
    if request.param == "SQLite":
        yield request.param
        return
    postgres = request.getfixturevalue("postgres")
    from tests.relay.store.in_postgres import Stores, in_postgres  # they import psycopg

    with postgres.schema() as name:
        stores = Stores(postgres.url(name))
        with in_postgres(stores):
            yield request.param
        stores.close()


def noted(history: History, epoch: Epoch) -> None:
    added, removed = (
        frozenset(each for each in facts if isinstance(each, Record) and each.label in DERIVED)
        for facts in (epoch.added, epoch.removed)
    )
    if added or removed:
        history.append((epoch.time, added, removed))


class Twin:
    """A space without a log, which never stops, and what it has shown."""

    def __init__(self) -> None:
        self.space = Space("s", limits=SpaceLimits(rule_window=2.0))
        self.history: History = []
        self.space.submit_timed = lambda epoch: noted(self.history, epoch)

    def commit(self, actions: list[Action], time: int) -> None:
        self.space.until(time)
        noted(self.history, self.space.commit("durable:a", actions, time))

    def facts(self, time: int) -> set[Value]:
        self.space.until(time)
        return facts_of(self.space)

    def at(self, time: int) -> set[Value]:
        """Returns the derived facts that it had at a time."""
        found = set[Value]()
        for _, added, removed in self.history[: bisect_right(self.history, time, key=lambda each: each[0])]:
            found = (found | added) - removed
        return found


class Follower:
    """A space that follows a log, and what it has shown."""

    def __init__(self, place: Path) -> None:
        self.log = FollowedLog.open(place)
        self.space = Space("s", limits=SpaceLimits(rule_window=2.0))
        self.history: History = []
        self.has_jumped = False
        state = self.log.recover()
        self.space.restore(state.owners, state.epoch, state.time)
        state.owners = {}
        self.following = Following(
            self.log,
            state,
            apply=self._apply,
            flush=lambda: None,
            refusal=lambda: Refused("elsewhere", "a leader takes turns"),
            jump=self._jump,
        )

    def _apply(self, epoch: Epoch) -> None:
        self.space.follow(epoch)
        noted(self.history, epoch)

    def _jump(self, state: RecoveredState) -> None:
        self.has_jumped = True
        self.space.follow(Epoch(state.epoch, state.time, claims=difference(self.space, state.owners)))

    async def read(self) -> None:
        while await self.following._read_on():
            pass

    async def lead(self, place: Path) -> Logged:
        """Returns the space that makes turns from now on, as where a leader has ended."""
        await self.read()
        self.log.close()
        log = Log.open(place)
        made = Logged(log)
        made.space = self.space
        made.space.submit_timed = made.append
        made.space.epoch = max(made.space.epoch, log.next_epoch - 1)
        rebuild_windows(made.space, log)
        return made


def begin(log: Log) -> tuple[Logged, Twin]:
    one, twin = Logged(log), Twin()
    rule: list[Action] = [(ASSERT, 1, Record("rule", "r", TEXT))]
    one.commit(rule, START)
    twin.commit(rule, START)
    snapshot(one)
    return one, twin


def now_and_then(one: Logged, chosen: random.Random, time: int) -> None:
    """Writes a snapshot, and lets go what no window needs."""
    if chosen.random() < 0.3:
        snapshot(one)
        if chosen.random() < 0.7:
            trim(one, time)


async def test_a_follower_shows_the_same_at_the_same_instants_and_takes_over_with_it(
    home: str, tmp_path: Path
) -> None:
    take_overs = 0
    for seed in range(2):
        chosen, place = random.Random(seed), tmp_path / str(seed)
        (one, twin), time = begin(Log.open(place)), START
        follower = Follower(place)
        for later, actions in turns(chosen):
            time += later
            one.commit(actions, time)
            twin.commit(actions, time)
            now_and_then(one, chosen, time)
            if chosen.random() < 0.7:
                await follower.read()
                assert facts_of(follower.space) == facts_of(twin.space), (seed, time - START)
                if not follower.has_jumped:
                    assert follower.history == twin.history[-len(follower.history) or len(twin.history) :]
            if chosen.random() < 0.15:
                one.log.close()
                follower.has_jumped = False
                one = await follower.lead(place)
                take_overs += 1
                assert one.facts(time) == twin.facts(time), (seed, time - START)
                follower = Follower(place)
        time += END
        assert one.facts(time) == twin.facts(time), seed
        await follower.read()
        assert facts_of(follower.space) == facts_of(twin.space)
        for log in (one.log, follower.log):
            log.close()
    assert take_overs > 2


def restored(source: Path, target: Path, epoch: int | None) -> Logged:
    """Returns a space over a log that was backed up and restored, up to an epoch."""
    pace = CopyPace()
    back_up(of_directory(source), backup := target / "backup", pace)
    (data := target / "data").mkdir(parents=True)
    restore(backup, data, RestoreWanted(epoch), pace)
    one = Logged(Log.open(data))
    return one.again()


def test_a_restored_space_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    compared = 0
    for seed in range(3):
        chosen, place = random.Random(seed), tmp_path / str(seed)
        (one, _), time = begin(Log.open(place)), START
        told: list[tuple[int, list[Action]]] = [(START, [(ASSERT, 1, Record("rule", "r", TEXT))])]
        for later, actions in turns(chosen):
            time += later
            one.commit(actions, time)
            told.append((time, actions))
            if time < START + 1_500_000:
                now_and_then(one, chosen, time)
        assert one.log.past_epoch is not None  # as there is a snapshot, before which nothing is restored
        oldest, last = one.log.past_epoch, one.log.last
        ends = {epoch: one.log.time_of(epoch) for epoch in range(oldest, last + 1)}
        one.log.close()
        for epoch in chosen.sample(range(oldest, last + 1), min(4, last - oldest + 1)):
            at = ends[epoch]
            again, model = restored(place, tmp_path / f"{seed}-{epoch}", epoch), Twin()
            if max([when for when, _ in told].count(at), [*ends.values()].count(at)) > 1:
                again.log.close()
                continue  # several turns of one time, of which this may be any
            for when, actions in told:
                if when <= at:
                    model.commit(actions, when)
            model.space.until(at)
            for later in (0, 150_000, 400_000, END):
                assert again.facts(at + later) == model.facts(at + later), (seed, epoch, later)
            compared += 1
            again.log.close()
    assert compared > 6


def archived(log: Log, place: Path, objects: Objects) -> None:
    """Brings all of a log to its archive, lends it that, and notes it."""
    source = LogReader.open(place)
    archiver = Archiver(source, objects, "main", sizes=RangeSizes(changes=20))
    archiver.begin()
    while archiver.read():
        pass
    while archiver.close() is not None:
        pass
    source.close()
    archive = Archive(objects, ArchivePlace("main", log.identity))
    archive.refresh()
    own = archive.manifest.archive
    log.note_archived(archive.upto, archived_segment(log, archive), own, objects.shown)
    log.archive = archive


def test_the_archive_has_the_same_facts_at_the_same_instants(tmp_path: Path) -> None:
    pytest.importorskip("zstandard", reason="the extra `archive` is not installed")
    for seed in range(2):
        chosen, place = random.Random(seed), tmp_path / str(seed) / "data"
        (one, twin), time = begin(Log.open(place)), START
        objects = open_objects(tmp_path / str(seed) / "archive")
        for later, actions in turns(chosen):
            time += later
            one.commit(actions, time)
            twin.commit(actions, time)
            if chosen.random() < 0.3:
                snapshot(one)
                archived(one.log, place, objects)
                while one.log.trim(with_windows(Retention(age=0.0, archived=True), one.space), time).more:
                    pass
            if chosen.random() < 0.2:
                one = one.again()
                assert one.facts(time) == twin.facts(time), (seed, time - START)
        archived(one.log, place, objects)
        assert one.log.held_from > 1, "only the archive has the past"
        for epoch in chosen.sample(range(2, one.log.last + 1), 30):
            if one.log.time_of(epoch) == one.log.time_of(epoch + 1):
                continue
            at = one.log.time_of(epoch)
            facts = [each for each in state_at(one.log, epoch) if isinstance(each, Record)]
            assert {each for each in facts if each.label in DERIVED} == twin.at(at), (seed, epoch)
        one.log.close()
