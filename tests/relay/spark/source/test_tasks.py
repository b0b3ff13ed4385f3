"""A task's rows come once each and in order, however often the link breaks and however epochs are cut."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from dataspace.client.bulk.blocks import Block
from dataspace.client.bulk.frontiers import LogFrontier
from dataspace.errors import Broken, Refused, Unreachable
from relay.spark.common import connections
from relay.spark.common.connections import DaemonPeer
from relay.spark.common.options import stream_options
from relay.spark.common.schema import columns, inferred
from relay.spark.source.offsets import DataLoss, Span
from relay.spark.source.tasks import Task, rows

PATTERN = "p($n:int)"
Row = tuple[str, int, int, int]

EPOCHS = {number: [number * 10 + at for at in range(number % 4 + 1)] for number in range(1, 9)}
"""What is added in each epoch; the last of an epoch with several is removed again in it, as ``delete``."""

STATE = 3
ALL: list[Row] = [
    ("delete" if at == len(added) - 1 and at else "insert", value, number, 3 * at)
    for number, added in EPOCHS.items()
    for at, value in enumerate(added)
]


class Wire:
    """A link that breaks at random, and cuts epochs into other parts each time."""

    rng = random.Random()
    breaks = 0
    space = "s"
    oldest = 1

    def __init__(self, url: str, **_said: object) -> None:
        self.closed = False
        self.welcome = SimpleNamespace(space=Wire.space)

    def close(self) -> None:
        self.closed = True

    def frontier(self, *_asked: object) -> LogFrontier:
        return LogFrontier(max(EPOCHS), Wire.oldest, Wire.space)

    def columns(
        self,
        pattern: object,
        *,
        upto: int,
        after: int | None = None,
        as_of: int | None = None,
        **_asked: object,
    ) -> Iterator[Block]:
        if (as_of if after is None else after) < Wire.oldest - 1:  # type: ignore[operator]  # one is given
            raise Refused("epoch-gone", f"the oldest is {Wire.oldest}")
        if as_of is not None:
            state = [value for number in range(1, as_of + 1) for value in EPOCHS[number]]
            Wire.rng.shuffle(state)
            for value in state:
                yield from self._sent([(as_of, [value], [])], snapshot=True)
        held: list[tuple[int, list[int], list[int]]] = []
        for number in range((after if as_of is None else as_of) + 1, upto + 1):  # type: ignore[operator]  # as above
            added = EPOCHS[number]
            came, went = (added[:-1], added[-1:]) if len(added) > 1 else (added, [])
            cut = Wire.rng.randrange(len(came) + 1)
            if cut:  # the epoch is divided
                yield from self._sent([*held, (number, came[:cut], [])], more=cut < len(added))
                held = []
                if cut < len(added):
                    yield from self._sent([(number, came[cut:], went)], skipped=cut)
            else:
                held.append((number, came, went))
        if held:
            yield from self._sent(held)

    def _sent(
        self,
        epochs: list[tuple[int, list[int], list[int]]],
        *,
        snapshot: bool = False,
        more: bool = False,
        skipped: int = 0,
    ) -> Iterator[Block]:
        if Wire.breaks and Wire.rng.random() < 0.2:
            Wire.breaks -= 1
            raise Broken("cut")
        numbers = tuple([number for number, _, _ in epochs])
        added = tuple([len(came) for _, came, _ in epochs])
        removed = tuple([len(went) for _, _, went in epochs])
        values = tuple([value for _, came, went in epochs for value in [*came, *went]])
        none = (0,) * len(epochs)
        places = array("i")  # every third change of an epoch matches
        for at, (_, came, went) in enumerate(epochs):
            first = 0 if at else skipped
            places.extend(range(3 * first, 3 * (first + len(came) + len(went)), 3))
        packed = None if snapshot else places.tobytes()
        yield Block(snapshot, more, skipped, numbers, numbers, added, none, removed, (values,), places=packed)


@pytest.fixture(autouse=True)
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    connections.close_all()  # those of other tests are real
    monkeypatch.setattr(connections, "BulkClient", Wire)
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
    yield
    connections._idle.clear()
    connections._open.clear()
    Wire.breaks, Wire.space, Wire.oldest = 0, "s", 1


def task(span: Span, **options: str) -> Task:
    given = {"pattern": PATTERN, "url": "tcp://a:1", "arrowBatchRows": "3", **options}
    return Task(
        stream_options(given), columns(PATTERN, inferred(PATTERN)), DaemonPeer("tcp://a:1"), span, "s"
    )


def read(of: Task) -> list[Row]:
    return [
        (row["_change_type"], row["n"], row["_epoch"], row["_seq"])
        for batch in rows(of)
        for row in batch.drop_columns("_epoch_timestamp").to_pylist()
    ]


@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(0, 8), st.integers(0, 8))
def test_changes_come_once_and_in_order(seed: int, breaks: int, one: int, other: int) -> None:
    after, upto = sorted((one, other))
    Wire.rng.seed(seed)
    Wire.breaks = breaks
    assert read(task(Span(after, upto))) == [row for row in ALL if after < row[2] <= upto]


@given(st.integers(0, 10_000), st.integers(0, 12))
def test_a_state_comes_whole_and_sorted_before_the_changes_after_it(seed: int, breaks: int) -> None:
    Wire.rng.seed(seed)
    Wire.breaks = breaks
    made = read(task(Span(STATE, 8, as_of=STATE)))
    state = sorted(value for number in range(1, STATE + 1) for value in EPOCHS[number])
    assert made == [
        *[("insert", value, STATE, at) for at, value in enumerate(state)],
        *[row for row in ALL if row[2] > STATE],
    ]


def test_a_daemon_that_stays_away_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_url: str, **_said: object) -> Wire:
        raise Unreachable("nobody")

    monkeypatch.setattr(connections, "BulkClient", nobody)
    with pytest.raises(Unreachable, match="waited 0 s"):
        read(task(Span(0, 8), connectTimeout="0s"))


def test_another_space_behind_the_address_is_a_loss() -> None:
    Wire.space = "t"
    with pytest.raises(DataLoss, match="it is t, it was s"):
        read(task(Span(0, 8)))
    assert read(task(Span(0, 8), failOnDataLoss="false")) == []


def test_epochs_that_went_in_the_meantime_are_a_loss() -> None:
    Wire.oldest = 5
    with pytest.raises(DataLoss, match="the oldest is 5"):
        read(task(Span(2, 8)))
    tolerant = task(Span(2, 8), failOnDataLoss="false")
    assert read(tolerant) == [row for row in ALL if row[2] >= 5]
    assert read(replace(tolerant, span=Span(2, 3))) == []
