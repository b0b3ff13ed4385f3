"""The past is the same from wherever it is told: every stream equals the rows of the log.

A machine lives the life of a daemon whose disk is held back and let go at random: turns of durable owners, of
leases, of sessions and of publications, many of which claim what is claimed already and so change nothing
that can be seen.  In between it opens streams of every kind, and switches what observers are shown.  What
each was told must be what a naive reader of the log's own entries would say, and on disk while only that is
shown.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings, strategies as st

from dataspace.kernel.actions import (
    ASSERT,
    CONFLATED,
    MORE,
    PROGRESS,
    REPLACE,
    RETRACT,
    SEND,
    SNAPSHOT,
    Action,
)
from dataspace.kernel.changes import Epoch
from dataspace.wire import packets as p
from index.patterns.patterns import DISCARD, capture
from index.patterns.readers import match_reader
from index.patterns.skeletons import skeleton
from index.values.values import Record, Value, keys
from relay.log.reader import LogReader
from tests.server.peers import PLENTY, opening
from tests.server.streams.inside import Inside, Wire, inside

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))

ANY: Final = capture()
PATTERNS: Final[Sequence[Value]] = (
    Record("v", capture("a"), DISCARD),
    Record("v", DISCARD, capture("b")),
    Record("v", capture("a"), capture("b")),
    ANY,
)
OWNERS: Final = ("durable:a", "durable:b", "lease:1:a", "session:99")

Row = tuple[Value, ...]
Step = tuple[Any, ...]


# -- what may happen ----------------------------------------------------------------------------------

_small: Final = st.integers(0, 2)
_deed: Final = st.tuples(st.sampled_from("aaarps"), _small, _small, st.integers(0, 9))
_turns: Final = st.tuples(
    st.just("turn"), st.sampled_from(OWNERS), st.lists(_deed, min_size=1, max_size=3), st.booleans()
)
_back: Final = st.none() | st.integers(-1, 6)
_specs: Final = st.fixed_dictionaries(
    {
        "pattern": st.integers(0, len(PATTERNS) - 1),
        "after": _back,
        "as_of": st.none() | _back,
        "upto": _back,
        "durable": st.booleans(),
        "quiet": st.booleans(),
        "snapshot": st.booleans(),
        "net": st.sampled_from([False, False, True]),
        "progress": st.booleans(),
        "columns": st.sampled_from([False, False, True]),
        "late": st.booleans(),
        "wait": st.booleans(),
    }
)
_steps: Final = st.one_of(
    _turns,
    _turns,
    st.tuples(st.just("hold")),
    st.tuples(st.just("release")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("pause")),
    st.tuples(st.just("open"), _specs),
    st.tuples(st.just("open"), _specs),
    st.tuples(st.just("end"), st.sampled_from(OWNERS)),
    st.tuples(st.just("show"), st.sampled_from(("durable", "durable", "committed", None))),
)
_lives: Final = st.lists(st.lists(_steps, max_size=24), min_size=1, max_size=2)


# -- what a naive reader of the log would say ---------------------------------------------------------


class Oracle:
    """The entries of a log, and what any stream over them must tell."""

    def __init__(self, epochs: Sequence[Epoch]) -> None:
        self._epochs = [each for each in epochs if not each.silent]

    def rows(self, pattern: Value, at: int) -> Counter[Any]:
        """How many facts there are with each captures after an epoch."""
        match, counted = match_reader(skeleton(pattern)), Counter[Any]()
        for each in self._epochs:
            if each.number <= at:
                counted.update(keys(row) for row in map(match, each.added) if row is not None)
                counted.subtract(keys(row) for row in map(match, each.removed) if row is not None)
        assert min(counted.values(), default=0) >= 0
        return +counted

    def told(self, pattern: Value, after: int, upto: int) -> list[Any]:
        """Each epoch in (after, upto]: what was the first of its kind, the messages, what was the last."""
        match, counted = match_reader(skeleton(pattern)), self.rows(pattern, after)
        told = []
        for each in self._epochs:
            if after < each.number <= upto:
                came, said, went = [
                    [keys(row) for row in map(match, values) if row is not None]
                    for values in (each.added, each.messages, each.removed)
                ]
                first = [row for row in came if not counted[row] and not counted.update([row])]
                _count_rest(counted, came, first)
                last = []
                for row in went:
                    counted[row] -= 1
                    if not counted[row]:
                        last.append(row)
                if first or said or last:
                    told.append((each.number, first, said, last))
        return told

    def messages(self, pattern: Value, after: int, upto: int) -> list[Any]:
        """All messages in (after, upto]."""
        return [row for _, _, said, _ in self.told(pattern, after, upto) for row in said]


def _count_rest(counted: Counter[Any], came: Sequence[Any], first: Sequence[Any]) -> None:
    """Counts those that came and were not the first of their kind."""
    rest = Counter(came)
    rest.subtract(first)
    counted.update(+rest)


# -- one stream ---------------------------------------------------------------------------------------


@dataclass
class Stream:
    """One opened stream, and all that was heard of it."""

    number: int
    spec: dict[str, Any]
    asked: dict[str, int]
    end: str
    state: tuple[int, list[Any]] | None = None
    net: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    over: str = ""
    seen_end: bool = False

    @property
    def pattern(self) -> Value:
        at: int = self.spec["pattern"]
        return PATTERNS[at]

    def hear(self, packet: p.Packet) -> None:
        """Takes in one packet that is about this stream."""
        match packet:
            case p.Values(_, _, values, _):
                for value in values:
                    self._take(value)
            case p.Done():
                self.over = "done"
            case p.Error(_, code, text):
                self.over = code
                assert code in ("epoch-ahead", "bad-request"), f"{code}: {text} {self.spec} {self.asked}"

    def _take(self, value: Any) -> None:
        if self.spec["columns"]:
            self._take_block(value)
            return
        number, _, flags, came, said, went, first = value
        lists = [[keys(tuple(row)) for row in rows] for rows in (came, said, went)]
        self.seen_end = self.seen_end or any(self.end in repr(row) for row in came)
        if flags & SNAPSHOT:
            self._take_state(number, lists[0])
        elif flags & PROGRESS:
            self.marks.append(number)
        elif flags & CONFLATED:
            assert not self.told and not flags & MORE
            self.net.append((first, number, *lists))
        else:
            self.told.append((number, *lists))

    def _take_state(self, number: int, rows: list[Any]) -> None:
        before = [] if self.state is None else self.state[1]
        self.state = (number, before + rows)

    def _take_block(self, value: Any) -> None:
        flags, skipped, numbers, _, added, sent, removed, columns = value
        assert not skipped and not flags & MORE, "blocks of this test are small"
        rows = [keys(tuple(row)) for row in zip(*columns, strict=True)]
        at = 0
        for number, *counts in zip(numbers, added, sent, removed, strict=True):
            lists = []
            for count in counts:
                lists.append(rows[at : at + count])
                at += count
            if flags & SNAPSHOT:
                self._take_state(number, lists[0])
            else:
                self.told.append((number, *lists))
        assert at == len(rows)

    # -- afterwards -----------------------------------------------------------------------------------

    def check(self, oracle: Oracle, newest: int) -> None:
        """Everything that was heard is what a naive reader of the log would say."""
        if self.over in ("epoch-ahead", "bad-request"):
            assert not (self.told or self.net or self.state)
            return
        wanted = self.asked.get("as_of", self.asked.get("after"))
        start = self.state[0] if self.state is not None else wanted
        if start is None:  # nothing says where it began, but what it tells first
            start = self.net[0][0] - 1 if self.net else self.told[0][0] - 1 if self.told else newest
        if wanted is not None:
            assert start == wanted
        upto = self.asked.get("upto", newest)
        if self.state is not None:
            assert sorted(map(repr, self.state[1])) == sorted(map(repr, oracle.rows(self.pattern, start)))
        if self.net:
            start = self._check_net(oracle, start, upto)
        elif self.spec["net"]:
            start = self._end_of_nothing(oracle, start, upto)
        told = [each for each in self.told if "upto" in self.asked or each[0] <= newest]
        assert told == oracle.told(self.pattern, start, max(start, upto)), self
        assert self.marks == sorted(self.marks)

    def _end_of_nothing(self, oracle: Oracle, start: int, upto: int) -> int:
        """Returns where a net difference ended that is not told, as all of its rows came and went again."""
        end = self.told[0][0] - 1 if self.told else max(start, upto)
        before, after = (set(oracle.rows(self.pattern, at)) for at in (start, end))
        said = any(sent for _, _, sent, _ in oracle.told(self.pattern, start, end))
        return start if said or before != after else end

    def _check_net(self, oracle: Oracle, start: int, upto: int) -> int:
        """The differences lead from one state to the other, and lose no message; where the last one ends."""
        rows, messages = set(oracle.rows(self.pattern, start)), []
        for _, _, came, said, went in self.net:
            assert not rows.intersection(came) and rows.issuperset(went)
            rows = rows.union(came).difference(went)
            messages += said
        end = int(self.net[-1][1])
        assert end <= upto or "upto" not in self.asked
        assert rows == set(oracle.rows(self.pattern, end))
        assert messages == oracle.messages(self.pattern, start, end)
        return end


# -- one life -----------------------------------------------------------------------------------------


class Life:
    """One daemon, one peer, and the steps that are drawn."""

    def __init__(self, daemon: Inside, wire: Wire, number: int) -> None:
        self._daemon = daemon
        self._hosted = daemon.hosted
        self._wire = wire
        self._fresh = number * 100_000
        self._end_name = f"end {number}"  # something that every stream without an end hears
        self._pinged = self._ponged = self.newest = 0
        self._shown = 0  # before only what is on disk was to be shown
        self.streams: dict[int, Stream] = {}

    async def run(self, steps: Sequence[Step]) -> None:
        """All steps, and the end that every stream comes to."""
        for name, *args in steps:
            await getattr(self, f"_{name}")(*args)
        await self._pause()  # all streams are opened by now
        self._daemon.release()
        # Every end that was asked for comes to pass.
        last = max([each.asked.get("upto", 0) for each in self.streams.values()], default=0)
        while self._hosted.space.epoch <= last:
            self._commit("durable:a", [(SEND, "tick")])
        self._commit("durable:a", [(ASSERT, self._handle(), Record("v", self._end_name, self._end_name))])
        self.newest = self._hosted.space.epoch
        for stream in self.streams.values():
            await self._wire.say(p.Ask(stream.number, PLENTY, PLENTY))
        await self._listen(lambda: all(each.over or each.seen_end for each in self.streams.values()))
        await self._hosted.commits.wait_durable(self.newest)

    async def _listen(self, enough: Callable[[], bool]) -> None:
        """Hears everything until it is enough."""
        with trio.fail_after(60):
            while not enough():
                packet = await self._wire.hear()
                assert packet is not None and not isinstance(packet, p.Bye), packet
                if isinstance(packet, p.Pong):
                    self._ponged = packet.number
                elif isinstance(packet, p.Values | p.Done | p.Error):
                    self._check_shown(packet)
                    self.streams[packet.stream].hear(packet)

    def _check_shown(self, packet: p.Packet) -> None:
        """Nothing comes that is to be kept until it is on disk."""
        hosted = self._hosted
        if not isinstance(packet, p.Values) or hosted.visibility.in_force != "durable":
            return
        if not self.streams[packet.stream].spec["columns"]:
            numbers: list[Any] = [value[0] for value in packet.values]  # type: ignore[index]  # as in WIRE.md
            assert max(numbers) <= max(self._shown, hosted.commits.durable)

    # -- steps ----------------------------------------------------------------------------------------

    async def _show(self, setting: str | None) -> None:
        showing = self._hosted.visibility
        if showing.in_force != "durable":
            self._shown = self._hosted.space.epoch
        showing.change_setting(setting)
        self._hosted.flush()

    async def _turn(self, owner: str, deeds: Sequence[Any], publication: bool) -> None:
        held = list(self._hosted.space.all_claims().get(owner, {}))
        actions: list[Action] = []
        for verb, a, b, which in deeds:
            fact = Record("v", a, b)
            if verb == "s":
                actions.append((SEND, fact))
            elif verb == "a" or not held:
                actions.append((ASSERT, self._handle(), fact))
            elif verb == "r":
                actions.append((RETRACT, held.pop(which % len(held))))
            else:
                actions.append((REPLACE, held.pop(which % len(held)), self._handle(), fact))
        self._commit(owner, actions, publication=publication)

    async def _end(self, owner: str) -> None:
        self._hosted.end_owners([owner])

    async def _hold(self) -> None:
        self._daemon.hold()

    async def _release(self) -> None:
        self._daemon.release()

    async def _settle(self) -> None:
        self._daemon.release()
        await self._hosted.commits.wait_durable(self._hosted.space.epoch)

    async def _pause(self) -> None:
        """Lets everything that was asked for begin, as far as it does not wait for the disk."""
        self._pinged += 1
        await self._wire.say(p.Ping(self._pinged))
        await self._listen(lambda: self._ponged == self._pinged)
        await trio.testing.wait_all_tasks_blocked()

    async def _snapshot(self) -> None:
        self._hosted.leading.commits.snapshot_soon()

    async def _open(self, spec: dict[str, Any]) -> None:
        newest = self._hosted.space.epoch
        asked = {
            name: max(0, newest - spec[name]) for name in ("after", "as_of", "upto") if spec[name] is not None
        }
        stream = Stream(len(self.streams) + 1, spec, asked, self._end_name)
        self.streams[stream.number] = stream
        flags = {name: spec[name] for name in ("durable", "snapshot", "net", "progress")}
        await self._wire.say(
            opening(
                stream.number,
                stream.pattern,
                items=0 if spec["late"] else PLENTY,
                quiet=spec["quiet"],
                kind="columns" if spec["columns"] else "observe",
                **flags,
                **asked,
            )
        )
        if spec["wait"]:
            await self._pause()

    # -- parts ----------------------------------------------------------------------------------------

    def _handle(self) -> int:
        self._fresh += 1
        return self._fresh

    def _commit(self, owner: str, actions: list[Action], *, publication: bool = False) -> None:
        self._hosted.commit(owner, actions, publication=publication)
        self._hosted.flush()


def live(lives: Sequence[Sequence[Step]]) -> None:
    """Runs the lives one after the other over one directory, and compares afterwards."""

    async def main() -> None:
        for number, steps in enumerate(lives, 1):
            async with inside(data) as daemon:
                wire = daemon.connect()
                await wire.greet()
                life = Life(daemon, wire, number)
                await life.run(steps)
                oracle = Oracle(list(daemon.hosted.log.read(0)))
                for stream in life.streams.values():
                    stream.check(oracle, life.newest)

    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        trio.run(main)
        reader = LogReader.open(data)
        reader.verify()
        reader.close()


@pytest.mark.slow
@pytest.mark.torture
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100 * ROUNDS or 25)
@given(_lives)
def test_every_stream_equals_the_rows_of_the_log(lives: list[list[Step]]) -> None:
    live(lives)


PLAIN: Final = dict.fromkeys(["durable", "snapshot", "net", "progress", "columns", "late", "wait"], False) | {
    "pattern": 0,
    "quiet": True,
    "after": None,
    "as_of": None,
    "upto": None,
}


def _claimed(fact: int, owner: str = "durable:a") -> Step:
    return "turn", owner, [("a", fact, 0, 0)], False


def _written(count: int) -> list[Step]:
    """So many facts, each in a segment of its own: what holds now is nearer than the beginning."""
    return [step for fact in range(count) for step in (_claimed(fact), ("settle",))]


def _opened(**spec: Any) -> Step:
    return "open", {**PLAIN, **spec}


@pytest.mark.parametrize("columns", [False, True], ids=["epochs", "columns"])
def test_a_claim_that_changes_nothing_waits_for_the_disk_while_the_past_is_read(columns: bool) -> None:
    """It has the number of an epoch that is on disk; the state is not that of the epoch before it."""
    again = _opened(after=1, upto=0, columns=columns, durable=True)
    live([[*_written(8), ("hold",), _claimed(7, "durable:b"), again, ("pause",), ("settle",), again]])


def test_a_fact_that_is_replaced_did_not_vanish_before_it_was_there() -> None:
    replaced: Step = ("turn", "durable:a", [("p", 20, 0, 7)], False)
    begun = [*_written(8), replaced, ("settle",), ("hold",), _claimed(0, "durable:b")]
    live([[*begun, _opened(as_of=1, snapshot=True), _opened(after=1, upto=0), ("pause",)]])


def test_a_net_difference_ends_where_the_stream_does() -> None:
    live([[_claimed(0), _claimed(1), _claimed(2), ("settle",), _opened(after=2, upto=1, net=True)]])


def test_a_state_in_columns_is_of_an_epoch_that_is_on_disk() -> None:
    late = _opened(as_of=0, upto=1, columns=True, durable=True)
    live([[_claimed(0), ("settle",), ("hold",), _claimed(1), late, ("pause",)]])


@pytest.mark.parametrize("opened", [{}, {"snapshot": True}, {"after": 1}, {"after": 1, "net": True}])
@pytest.mark.parametrize("switched", [False, True])
def test_what_is_kept_from_a_stream_comes_when_it_is_on_disk(opened: dict[str, Any], switched: bool) -> None:
    turns = [("turn", "durable:a", [("a", 1, at, 0)], False) for at in range(4)]
    show, spec = ("show", "durable"), ("open", PLAIN | {"wait": True} | opened)
    before = [turns[0], ("hold",), turns[1], show] if switched else [show, turns[0], ("hold",), turns[1]]
    live(
        [[*before, spec, ("pause",), turns[2], ("pause",), ("show", None), ("pause",), show, turns[3], spec]]
    )
