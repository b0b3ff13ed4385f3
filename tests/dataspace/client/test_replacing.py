"""A change of an observation by a key knows what it replaces: in its own epoch, one for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest
import trio.testing
from hypothesis import given, strategies as st

from dataspace.client.observations import Observation
from dataspace.client.typed import TypedObservation
from dataspace.errors import UsageError
from dataspace.kernel.actions import SNAPSHOT
from dataspace.kernel.changes import Change, EpochChanges, KeyedChange
from dataspace.wire import packets as p
from index.values.values import Record, Value, keys
from tests.dataspace.client.pipes import Daemon
from tests.dataspace.client.test_live import PATTERN, Row, Sender, epoch
from tests.dataspace.client.test_observations import connected

ROWS: Final[st.SearchStrategy[Any]] = st.lists(
    st.tuples(st.sampled_from([1, 1.0, True, "a"]), st.integers(0, 3)), max_size=6, unique_by=keys
)


def paired(added: Sequence[Row], removed: Sequence[Row]) -> list[tuple[str, Row, Row | None]]:
    """The same, as it is explained: the first of a key that comes replaces the first that goes."""
    left = [*range(len(removed))]
    pairs: dict[int, Row] = {}
    changes: list[tuple[str, Row, Row | None]] = []
    for row in added:
        at = next((at for at in left if keys(removed[at][:1]) == keys(row[:1])), None)
        if at is None:
            changes.append(("+", row, None))
        else:
            left.remove(at)
            pairs[at] = row
            changes.append(("+", row, removed[at]))
    return [*changes, *[("-", row, pairs.get(at)) for at, row in enumerate(removed)]]


def shown(change: Change) -> tuple[str, Row, Row | None]:
    assert isinstance(change, KeyedChange)
    other = change.replaces or change.replaced_by
    if other is not None:
        assert isinstance(other, KeyedChange) and other.epoch == change.epoch
        back = other.replaces or other.replaced_by
        assert back is not None and (back.kind, back.captures) == (change.kind, change.captures)
        assert {change.kind, other.kind} == {"+", "-"}
    return change.kind, change.captures, None if other is None else other.captures


@given(ROWS, ROWS)
def test_pairs_are_made_in_the_order_of_the_epoch(added: list[Row], removed: list[Row]) -> None:
    changes = EpochChanges(3, 0, 3, ("device", "celsius"), added, (), removed)
    changes.by = (0,)
    assert repr([*map(shown, changes)]) == repr(paired(added, removed))
    assert [*map(shown, changes.listed())] == [*map(shown, changes)]


@given(ROWS, ROWS, ROWS, st.sampled_from([0, 7]), st.booleans())
def test_the_list_of_changes_is_what_iteration_gives(
    added: list[Row], messages: list[Row], removed: list[Row], lost: int, snapshot: bool
) -> None:
    made = EpochChanges(3, 0, 2, ("a", "b"), added, messages, removed, SNAPSHOT if snapshot else 0, lost)
    for changes in (
        made,
        EpochChanges(3, 0, 3, ("a", "b"), added[:1], (), ()),
        EpochChanges(3, 0, 3, ("a",), (), (), ()),
    ):
        assert [*map(fields, changes.listed())] == [*map(fields, changes)]


def fields(change: Change) -> tuple[Any, ...]:
    return change.kind, change.captures, change.epoch, change.micros, change.named, change.snapshot


class Pair(NamedTuple):
    device: str
    celsius: int


EPOCHS: Final[tuple[Value, ...]] = (
    epoch(1, ("d1", 1), ("d2", 1), flags=SNAPSHOT),
    epoch(2, ("d1", 2), ("d3", 1), removed=(("d1", 1), ("d2", 1)), messages=(("d1", 9),)),
    epoch(3, ("d2", 5)),
    Record("lost", 3, 4, 5),
    epoch(9, ("d2", 6), removed=(("d2", 5),), first=6),
)
SEEN: Final = [
    *[("+", "d1", None), ("+", "d2", None)],
    *[("+", "d1", 1), ("+", "d3", None), ("!", "d1", None), ("-", "d1", 2), ("-", "d2", None)],
    ("+", "d2", None),  # what went in an epoch before is not replaced
    ("?", 3, None),
    *[("+", "d2", 5), ("-", "d2", 6)],  # a difference over several epochs counts as one
]


@pytest.mark.parametrize("way", ["for", "each", "epochs", "typed"])
async def test_all_ways_of_reading_know_it(way: str) -> None:
    daemon, seen = Daemon(), list[Any]()

    def note(change: Any) -> None:
        other = change.replaces or change.replaced_by
        if isinstance(change, Change):
            seen.append((change.kind, change.captures[0], other and other.celsius))
        else:
            at = change.lost or change.row.device
            seen.append((change.kind, at, other and other.row.celsius))

    async with connected(daemon) as space, trio.open_nursery() as nursery:
        row: Any = Pair if way == "typed" else None
        changes: Any = space.observe(PATTERN, policy="drop", by="device", row=row)
        assert isinstance(changes, TypedObservation if way == "typed" else Observation)
        changes.open()

        async def read() -> None:
            if way == "each":
                await changes.each(note)
            elif way == "epochs":
                async for whole in changes.epochs():
                    for change in whole:  # type: ignore[union-attr]  # untyped
                        note(change)
            else:
                async for change in changes:
                    note(change)

        nursery.start_soon(read)
        sender = Sender(daemon, await daemon.hear(p.Open))
        assert "by" not in sender.opened.spec
        await sender.say(*EPOCHS)
        daemon.say(p.Done(sender.opened.stream))
        await trio.testing.wait_all_tasks_blocked()
    assert seen == SEEN


async def test_without_a_key_it_is_said_what_is_missing() -> None:
    plain = Change("+", ("d1", 1), 1, 0, ("device", "celsius"), False)
    with pytest.raises(AttributeError, match=r"only with observe\(…, by=…\) a change has replaces"):
        _ = plain.replaces
    assert Change("+", ("x",), 1, 0, ("replaces",), False).replaces == "x", "a capture of that name is one"
    async with connected(Daemon()) as space:
        with pytest.raises(UsageError, match="by names captures, each once: device, celsius; not what"):
            space.observe(PATTERN, by="what")
