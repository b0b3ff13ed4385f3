"""Whatever comes and goes in whatever order, a subscriber sees each epoch whole or not at all."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from dataspace.topics.times import Maxima
from relay.topics.topic import Publisher
from tests.relay.topics.durable_machine import DurableMachine
from tests.relay.topics.machine import Machine

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))
ORDERS = [pytest.param(dimensions, id=f"dimensions{dimensions}") for dimensions in (0, 2)]
TRACES = 150 * ROUNDS


def run(seed: int, dimensions: int, partitions: int, *, retain: int = 0, overtaking: bool = False) -> Machine:
    machine = Machine(
        seed, dimensions=dimensions, partitions=partitions, retain=retain, overtaking=overtaking
    )
    for _ in range(120):
        machine.step()
    machine.settle()
    machine.check()
    return machine


@pytest.mark.parametrize("overtaking", [False, True], ids=["one-queue", "overtaking"])
@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("dimensions", ORDERS)
@pytest.mark.slow
def test_random_interleavings_keep_epochs_whole(
    dimensions: int, partitions: int, *, overtaking: bool
) -> None:
    did: Counter[str] = Counter()
    seen = 0
    for seed in range(TRACES):
        machine = run(seed, dimensions, partitions, overtaking=overtaking)
        did += machine.did
        seen += sum(len(each.seen) for each in machine.watchers)
    wanted = {"join", "send", "progress", "subscribe", "unsubscribe", "crash", "leave", "again", "rejoin"}
    assert not wanted - set(did) - {"rejoin"} and seen > TRACES  # the machine did what it is for
    assert overtaking or partitions == 1 or did["rejoin"]


@pytest.mark.parametrize("dimensions", ORDERS)
@pytest.mark.slow
def test_a_subscriber_that_resumes_from_what_is_retained_misses_nothing(dimensions: int) -> None:
    resumed = 0
    for seed in range(TRACES):
        machine = run(seed, dimensions, 2, retain=1 << 20)
        machine.check_resumed()
        resumed += machine.did["resume"]
    assert resumed > TRACES // 4


@pytest.mark.slow
def test_with_a_small_budget_it_is_refused_rather_than_served_by_half() -> None:
    resumed = 0
    for seed in range(TRACES):
        machine = run(seed, 2, 2, retain=1000)
        machine.check_resumed()
        resumed += machine.did["resume"]
    assert resumed


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("dimensions", ORDERS)
@pytest.mark.slow
def test_a_durable_topic_keeps_epochs_whole_over_restarts_and_for_those_who_read_its_past(
    dimensions: int, partitions: int
) -> None:
    did: Counter[str] = Counter()
    for seed in range(TRACES // 3):
        machine = DurableMachine(seed, dimensions=dimensions, partitions=partitions)
        for _ in range(120):
            machine.step()
        machine.settle()
        machine.check()
        machine.check_resumed()
        did += machine.did
    assert (
        min(did[each] for each in ("join", "send", "subscribe", "crash", "resume", "restart")) > TRACES // 6
    )


@pytest.mark.slow
def test_to_forget_the_completed_epochs_of_upper_would_break_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source's wording invites it; this is why ``upper`` keeps the maximal times ever seen."""
    monkeypatch.setattr(
        Publisher,
        "upper",
        property(lambda self: Maxima(each for each in self._upper if self.lower.less_equal(each))),
    )
    monkeypatch.setattr(
        Publisher,
        "snapshot",
        lambda self: type(PLAIN(self))(self.partition, tuple(self.lower), tuple(self.upper)),
    )
    broken = 0
    for seed in range(150):
        try:
            run(seed, 0, 3)
        except AssertionError:
            broken += 1
    assert broken


PLAIN = Publisher.snapshot
