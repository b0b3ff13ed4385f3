"""Whatever is killed, no item of a topic is lost to its group, and none is done twice: random lives over a
real log and a real journal, whose retention deletes what the group says that it has read."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from index.values.values import Record
from server.groups.space.definitions import joined
from server.groups.space.topics import read_topics
from tests.server.groups.spaces import BareSpace
from tests.server.groups.test_lives import Life, killed
from tests.server.groups.topics import NAME, BareTopics

PATTERN = parse_pattern("job($who, $id)")
ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
RETAIN = 1_500
"""Bytes: about a dozen batches."""


class TopicLife(Life):
    """One life of a daemon with two members of a group that divides a topic."""

    def __init__(self, bare: BareSpace, topics: BareTopics, chance: random.Random, *, key: bool) -> None:
        super().__init__(bare, chance, key=key)
        self.topics = topics
        self.batches = 0

    async def begin(self) -> None:
        key = "who" if self.key else None
        options = ConsumeOptions("w", PATTERN, key=key, attempts=0, topic=NAME, begin=1)
        self.group = await joined(self.bare.groups, options)
        for number in range(2):
            self.join(number)

    def publish(self, expected: set[int], number: int) -> None:
        """Sends one item, or passes to the next epoch."""
        if self.chance.random() < 0.4 or self.batches > 4:
            self.topics.advance()
            self.batches = 0
            return
        self.batches += 1
        self.topics.send(Record("none"), Record("job", self.chance.choice("ab"), number))
        expected.add(number)


async def settle(life: TopicLife) -> None:
    """Works until nothing is undone."""
    topics, group = life.topics, life.group
    topics.advance()
    with trio.fail_after(30):
        while (
            not topics.is_idle
            or group.pending_to < topics.step_log.completed_durable
            or group.pending
            or group.state.undone
            or life.bare.leading.commits.backlog_bytes
        ):
            for delivery in sorted(life.out.values(), key=lambda each: each.item.at):
                if delivery.token in life.out:
                    life.done([delivery])
            life.bare.now += 31_000_000
            life.bare.groups.tick()
            life.bare.groups.deliver()
            await trio.sleep(0.002)


@pytest.mark.parametrize("key", [False, True], ids=["any order", "with a key"])
@pytest.mark.parametrize("seed", range(4))
async def test_no_item_is_lost_and_none_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, key: bool
) -> None:
    await live(tmp_path, monkeypatch, random.Random(seed), key=key, lives=4, steps=60)


@pytest.mark.slow
@pytest.mark.torture(long=True)
@pytest.mark.skipif(not ROUNDS, reason="for make torture")
@pytest.mark.parametrize("seed", range(100, 100 + max(1, ROUNDS)))
async def test_many_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    await live(tmp_path, monkeypatch, random.Random(seed), key=seed % 2 == 0, lives=6, steps=200)


async def live(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    *,
    key: bool,
    lives: int,
    steps: int,
) -> None:
    monkeypatch.setattr("server.groups.space.topics.NOTED_AFTER", chance.choice((1, 300, 1_000)))
    monkeypatch.setattr("server.groups.space.topics.PORTION_BYTES", chance.choice((200, 2_000)))
    monkeypatch.setattr("relay.groups.state.NOTED_ITEMS", chance.choice((1, 4, 100)))
    window, directory, sent, number = chance.choice((3, 20, 1_000)), tmp_path / "life0", set[int](), 0
    directory.mkdir()
    for turn in range(lives):
        bare = BareSpace(directory)
        topics = BareTopics(directory, bare, retain=RETAIN)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bare.commits.run)
            nursery.start_soon(topics.writer.run)
            nursery.start_soon(read_topics, bare.groups)
            life = TopicLife(bare, topics, chance, key=key)
            await life.begin()
            object.__setattr__(life.group.options, "window", window)
            expected = set(sent)
            for _ in range(chance.randint(1, steps)):
                number += 1
                if chance.random() < 0.5:
                    life.publish(expected, number)
                else:
                    life.act(set(), 1_000_000 + number)  # what the space has is nothing to this group
                if chance.random() < 0.3:
                    await trio.lowlevel.checkpoint()
                if chance.random() < 0.2:
                    await trio.sleep(0.003)
                if chance.random() < 0.02:
                    bare.leading.commits.snapshot_soon()
            if turn + 1 < lives:
                while bare.leading.commits._begun or bare.own_log.is_busy or not topics.is_idle:  # noqa: ASYNC110  # no event says so
                    await trio.sleep(0.001)
                with killed(bare, directory, turn + 1) as copy:
                    directory = copy
                sent = expected  # all of that is on disk
            else:
                await settle(life)
                claims = bare.space.claims("results").values()
                results = [value.fields[1] for value in claims if isinstance(value, Record)]
                assert len(results) == len(set(results)), "an item was done twice"
                assert set(results) == expected, "an item was lost, or is none"
                assert not bare.groups.by_name["w"].core.counts.lost
            nursery.cancel_scope.cancel()
