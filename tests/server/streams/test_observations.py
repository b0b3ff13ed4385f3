"""Streams of a space, driven without a socket: a peer that is a list, a real space and a real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataspace.errors import Refused
from dataspace.kernel.actions import SNAPSHOT
from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Record
from tests.server.streams.lists import Streams, streams

N = Record("n", capture())


def n(number: int) -> Record:
    return Record("n", number)


async def ended(s: Streams, number: int) -> str:
    """The code with which a stream fails, once it has."""
    while number not in s.peer.failed:
        await s.peer.woken.wait()
    return s.peer.failed[number]


async def test_a_live_stream_begins_with_the_state_and_goes_on_with_each_epoch(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        s.hosted.assert_(n(1), n(2))
        stream = s.open(1, N)
        assert s.take(stream) == [(1, 1000, SNAPSHOT, ((1,), (2,)), (), (), 1)]
        s.hosted.retract(*s.hosted.assert_(n(3)))
        assert s.take(stream) == [(2, 1001, 0, ((3,),), (), (), 2), (3, 1002, 0, (), (), ((3,),), 3)]


async def test_a_stream_announces_its_interest_and_shows_nothing_once_it_is_closed(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        stream = s.open(1, N)
        s.open(2, N, quiet=True)
        assert s.peer.own.patterns == {1: N}
        s.observations.close(stream)
        s.hosted.assert_(n(1))
        assert s.take(stream) == []


async def test_a_stream_from_an_epoch_reads_the_log_and_then_goes_live(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        for number in range(1, 4):
            s.hosted.assert_(n(number))
        await s.hosted.commits.wait_durable(3)
        stream = s.open(1, N, after=1)
        assert [value[3] for value in await s.collect(stream, 2)] == [((2,),), ((3,),)]
        s.hosted.assert_(n(4))
        assert [value[3] for value in await s.collect(stream, 1)] == [((4,),)]


async def test_a_stream_up_to_an_epoch_is_complete_there(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        s.hosted.assert_(n(1))
        s.hosted.assert_(n(2))
        stream = s.open(1, N, after=0, upto=2)
        assert [value[0] for value in await s.collect(stream, 2)] == [1, 2]
        while not stream.complete:
            await s.peer.woken.wait()
        assert stream.ending() == p.Done(1)


async def test_a_replay_in_columns_is_counted_in_the_system_space(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        s.hosted.assert_(n(1), n(2))
        s.hosted.assert_(n(3))
        stream = s.open(1, N, kind="columns", after=0, upto=2, durable=True)
        ((_, _, epochs, times, _, _, _, captures),) = await s.collect(stream, 1)
        assert (epochs, times, captures) == ((1, 2), (1000, 1001), ((1, 2, 3),))
        while not stream.complete:
            await s.peer.woken.wait()
        (fact,) = s.system.space.index.values()
        assert isinstance(fact, Record)
        assert fact.fields[:5] == ("1.7", "list", "main", 1, 3)
        s.observations.end("")
        assert not len(s.system.space.index)


async def test_an_epoch_to_come_is_refused(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        s.hosted.assert_(n(1))
        s.open(1, N, after=9)
        assert await ended(s, 1) == "epoch-ahead"


async def test_columns_need_an_end(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        s.open(1, N, kind="columns")
        assert await ended(s, 1) == "bad-request"


async def test_the_system_space_has_a_state_and_no_past(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        s.system.state([n(1)], [])
        assert [value[3] for value in s.take(s.open(1, N, space="system"))] == [((1,),)]
        with pytest.raises(Refused, match="keeps no log"):
            s.open(2, N, space="system", after=0)


async def test_streams_that_nothing_waits_in_are_said_to_be_at_the_newest_epoch(tmp_path: Path) -> None:
    async with streams(tmp_path) as s:
        idle, busy = s.open(1, N), s.open(2, Record("other", capture()))
        s.take(idle)
        s.take(busy)
        s.hosted.assert_(Record("other", 1))
        await s.hosted.commits.wait_durable(1)
        assert s.observations.reached() == [p.Reached(1, (1,))]
        assert s.observations.reached() == []
