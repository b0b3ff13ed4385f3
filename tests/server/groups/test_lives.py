"""Whatever is killed, no item of a group is lost, and none is done twice: random lives over a real log.

Each life sends items and retracts facts, hands items to members, reports them as done in turns that also
assert a result, gives them back, lets members leave, and is killed at any moment: then what was not written
is gone, and another life goes on from what is on disk.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.wire.consuming import ConsumeOptions
from index.patterns.text import parse_pattern
from index.values.values import Record, Value
from relay.groups import memory
from relay.groups.members import JobDelivery
from server.groups.space import feeding, groups, reading
from server.groups.space.definitions import joined
from server.groups.space.group import StreamMember, WorkGroup
from server.groups.space.reading import read_behind
from tests.server.groups.spaces import BareSpace

PATTERN = parse_pattern("job($who, $id)")


class Life:
    """One life of a daemon with two members; ``key`` has the items of one sender done in order."""

    def __init__(self, bare: BareSpace, chance: random.Random, *, key: bool) -> None:
        self.bare = bare
        self.chance = chance
        self.key = key
        self.out: dict[int, JobDelivery] = {}
        self.members: list[StreamMember] = []
        self.group: WorkGroup

    async def begin(self) -> None:
        options = ConsumeOptions("w", PATTERN, key="who" if self.key else None, attempts=0)
        self.group = await joined(self.bare.groups, options)
        for number in range(2):
            self.join(number)

    def join(self, number: int) -> None:
        def give(_group: WorkGroup, delivery: JobDelivery) -> None:
            assert delivery.token not in self.out
            assert all(each.item.at != delivery.item.at for each in self.out.values()), "out to two members"
            self.out[delivery.token] = delivery

        def mark(value: Value) -> None:
            if isinstance(value, tuple) and value[0] == "revoked":
                self.out.pop(value[1], None)  # type: ignore[arg-type]  # a token

        member = StreamMember(("session", number), self.chance.choice((1, 2, 5)), "me", give, mark)
        self.bare.groups.join(self.group, member, "session", ())
        self.members.append(member)

    def act(self, expected: set[float], number: int) -> None:
        """Does one random thing; ``expected`` are the items that must have a result in the end."""
        groups, chance, space = self.bare.groups, self.chance, self.bare.space
        match chance.choice(("send", "send", "many", "assert", "done", "done", "again", "leave", "retract")):
            case "many":
                numbers = [number + each / 8 for each in range(1, 8)]
                self.bare.commit(
                    "boss", [(SEND, Record("job", chance.choice("ab"), each)) for each in numbers]
                )
                expected.update(numbers)
            case "send":
                self.bare.commit("boss", [(SEND, Record("job", chance.choice("ab"), number))])
                expected.add(number)
            case "assert":
                self.bare.commit("boss", [(ASSERT, number, Record("job", chance.choice("ab"), number))])
                expected.add(number)
            case "done" if self.out:
                some = chance.sample(sorted(self.out), chance.randint(1, min(3, len(self.out))))
                self.done([self.out[token] for token in some])
            case "again" if self.out:
                delivery = self.out.pop(chance.choice(sorted(self.out)))
                groups.fail(self.group, delivery, reason="no", blame=chance.random() < 0.5)
            case "leave":
                member = self.members.pop(chance.randrange(len(self.members)))
                for token in list(member.out):
                    self.out.pop(token)
                groups.leave(self.group, member, blame=chance.random() < 0.5)
                self.join(number + 10)
            case "retract" if handles := list(space.claims("boss")):
                handle = chance.choice(handles)
                fact = space.claims("boss")[handle]
                assert isinstance(fact, Record)
                expected.discard(fact.fields[1])  # it may be done all the same
                self.bare.commit("boss", [(RETRACT, handle)])
        self.bare.now += 20_000
        groups.tick()
        groups.deliver()

    def done(self, deliveries: list[JobDelivery]) -> None:
        """Reports deliveries as done in the turn that asserts their results."""
        groups = self.bare.groups
        flat = tuple([part for each in deliveries for part in (*each.item.at, each.token)])
        try:
            settled = groups.judge([("w", flat)], "me")
        except Refused as refusal:
            assert refusal.code == "out-of-order" and self.key
            return
        actions: list[Action] = []
        for each in deliveries:
            fact = each.item.value
            assert isinstance(fact, Record)
            handle = self.bare.space.fresh_handle("results") + len(actions)
            actions.append((ASSERT, handle, Record("result", *fact.fields)))
            del self.out[each.token]
        self.bare.commit("results", actions, notes=groups.notes(settled))
        groups.settled(settled)
        with pytest.raises(Refused, match="not-yours"):
            groups.judge([("w", flat)], "me")


@contextmanager
def killed(bare: BareSpace, directory: Path, number: int) -> Iterator[Path]:
    """A copy of a directory as it is now, without what is still to be written."""
    copy = directory.with_name(f"life{number}")
    with bare.own_log._writing:  # a thread may be about to write
        shutil.copytree(directory, copy)
    yield copy


async def settle(life: Life) -> None:
    """Works until nothing is undone."""
    with trio.fail_after(20):
        while (
            life.group.state.undone or not life.group.state.is_live or life.bare.leading.commits.backlog_bytes
        ):
            for delivery in sorted(life.out.values(), key=lambda each: each.item.at):
                if delivery.token in life.out:
                    life.done([delivery])
            life.bare.now += 31_000_000
            life.bare.groups.tick()
            await trio.sleep(0.002)


@pytest.mark.parametrize("key", [False, True], ids=["any order", "with a key"])
@pytest.mark.parametrize("seed", range(6))
async def test_no_item_is_lost_and_none_is_done_twice(tmp_path: Path, seed: int, key: bool) -> None:
    await live(tmp_path, random.Random(seed), key=key, lives=4, steps=40)


@pytest.mark.parametrize("key", [False, True], ids=["any order", "with a key"])
@pytest.mark.parametrize("seed", range(6))
async def test_nor_where_all_is_too_much_for_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, key: bool
) -> None:
    """Each flush offers two rows at once, and each step hands out one item; a queue of few bytes is full, and
    so is a small memory."""
    for module, name, value in [
        (feeding, "AT_ONCE", 2),
        (feeding, "STEP", 1),
        (feeding, "WAITING_BYTES", 1_000 if seed % 3 == 2 else 1 << 20),
        (groups, "HANDED", 1),
        (memory, "LEAST", 1_500),
        (reading, "PORTION_LEAST", 600),
        (reading, "TAKEN", 1),
    ]:
        monkeypatch.setattr(module, name, value)
    await live(
        tmp_path,
        random.Random(seed),
        key=key,
        lives=4,
        steps=40,
        room=1_000 if seed % 2 else None,
        snapshots=0.3,
    )


async def live(
    tmp_path: Path,
    chance: random.Random,
    *,
    key: bool,
    lives: int,
    steps: int,
    room: int | None = None,
    snapshots: float = 0.02,
) -> None:
    """Lives so many lives; with ``room`` the items of groups have so many bytes of memory.

    A snapshot comes with the chance ``snapshots`` in each step.
    """
    directory, sent, number = tmp_path / "life0", set[float](), 0
    directory.mkdir()
    for turn in range(lives):
        bare = BareSpace(directory)
        bare.groups.items.limit = room or bare.groups.items.limit
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bare.commits.run)
            nursery.start_soon(read_behind, bare.groups)
            nursery.start_soon(reading.feed_on, bare.groups)
            life = Life(bare, chance, key=key)
            await life.begin()
            expected = set(sent)
            for _ in range(chance.randint(1, steps)):
                number += 1
                life.act(expected, number)
                if chance.random() < 0.3:
                    await trio.lowlevel.checkpoint()
                if chance.random() < 0.1:
                    await trio.sleep(0.003)
                if chance.random() < snapshots:
                    bare.leading.commits.snapshot_soon()
            if turn + 1 < lives:
                while bare.leading.commits._begun or bare.own_log.is_busy:  # noqa: ASYNC110  # no event says so
                    await trio.sleep(0.001)
                with killed(bare, directory, turn + 1) as copy:
                    directory = copy
                present = BareSpace(Path(shutil.copytree(directory, f"{directory}-look")))
                sent = set(_items(present))
            else:
                await settle(life)
                claims = bare.space.claims("results").values()
                results = [value.fields[1] for value in claims if isinstance(value, Record)]
                assert len(results) == len(set(results)), "an item was done twice"
                assert expected <= set(results), "an item was lost"
                assert bare.groups.items.used == life.group.core.held == 0, "what is done takes no memory"
            nursery.cancel_scope.cancel()


def _items(bare: BareSpace) -> Iterator[float]:
    """The items that are on disk, but for facts that have gone."""
    for epoch in bare.own_log.read(0):
        for value in (*epoch.added, *epoch.messages):
            if not isinstance(value, Record) or value.label != "job":
                continue
            number = value.fields[1]
            if isinstance(number, int | float) and (value in epoch.messages or bare.space.index.count(value)):
                yield number
