"""The setting decides what is shown, then a follower; and what was refused is said when it may be known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import pytest
import trio
import trio.testing

from dataspace.errors import Refused
from dataspace.kernel.actions import SEND
from dataspace.kernel.space import Space
from dataspace.wire.packets import Refusal
from index.values.values import Map, Record
from relay.delivery.gate import DurableGate
from relay.delivery.memory import MemoryBudget
from relay.log.log import Log
from relay.log.writer import GroupCommit
from relay.store.errors import LogFailed
from server.spaces.visibility import Visibility

EXPECTATION = Refusal(1, "expectation", "it does not hold", Map({"count": 1}))


class Home:
    """A space with a log that is written when ``commits.close`` is called."""

    def __init__(self, log: Log, setting: str | None) -> None:
        self.space = Space("main")
        self.gate = DurableGate(MemoryBudget())
        self.commits = GroupCommit(log, gate=self.gate)
        self.visibility = Visibility(self.space, self.commits, self.gate, setting)
        self.said: list[Refusal] = []

    def turn(self) -> None:
        self.space.commit("o", [(SEND, Record("n", 1))], 1, submit=self.commits.submit)

    def refuse(self, refusal: Refusal) -> None:
        self.visibility.refuse(self.said.append, refusal)


@contextmanager
def home(tmp_path: Path, setting: str | None = "durable") -> Iterator[Home]:
    log = Log.open(tmp_path)
    try:
        yield Home(log, setting)
    finally:
        log.close()


def test_the_setting_decides_and_without_one_a_follower(tmp_path: Path) -> None:
    for steps in permutations(["durable", "committed", None, "follow"]):
        with home(tmp_path, None) as made:
            setting, followed = None, False
            for step in steps:
                if step == "follow":
                    made.visibility.follow()
                    followed = True
                else:
                    made.visibility.change_setting(step)
                    setting = step
                expected = setting or ("durable" if followed else "committed")
                assert made.visibility.in_force == expected
                assert made.gate.closed == (expected == "durable")


@pytest.mark.parametrize("setting", ["durable", "committed"])
async def test_facts_in_a_refusal_wait_for_their_epoch_and_other_reasons_do_not(
    tmp_path: Path, setting: str
) -> None:
    with home(tmp_path, setting) as made:
        made.refuse(EXPECTATION)
        assert made.said == [EXPECTATION], "nothing is on its way to the disk"
        made.turn()
        limit = Refusal(2, "limit", "too much")
        made.refuse(EXPECTATION)
        made.refuse(limit)
        assert made.said[1:] == ([limit] if setting == "durable" else [EXPECTATION, limit])
        assert made.visibility.newest == (0 if setting == "durable" else 1)
        await made.commits.close()
        assert sorted(made.said) == sorted([EXPECTATION, EXPECTATION, limit])
        assert made.visibility.newest == 1
        await made.visibility.wait()


async def test_an_answer_waits_until_the_present_epoch_is_on_disk(tmp_path: Path) -> None:
    with home(tmp_path) as made:
        await made.visibility.wait()
        made.turn()
        waited = trio.Event()

        async def wait() -> None:
            await made.visibility.wait()
            waited.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert not waited.is_set()
            await made.commits.close()
        assert waited.is_set()


async def test_while_the_disk_is_full_what_is_not_on_it_is_refused(tmp_path: Path) -> None:
    with home(tmp_path) as made:
        made.commits.full = LogFailed("no space", full=True)
        stuck = [made.visibility.is_stuck]
        await made.visibility.wait()
        made.turn()
        assert [*stuck, made.visibility.is_stuck] == [False, True], "before, all that there was is on disk"
        with pytest.raises(Refused) as refused:
            await made.visibility.wait()
        assert refused.value.code == "disk-full"
        made.refuse(EXPECTATION)
        assert [each.code for each in made.said] == ["disk-full"]
        assert not made.said[0].found
        made.commits.full = None
        await made.commits.close()
