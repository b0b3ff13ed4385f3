"""A replay from any epoch gives exactly what a live observer was told from there on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.space import Space
from index.patterns.patterns import DISCARD, capture
from index.values.values import Record, Value, key, order_key
from relay.log.log import Log
from relay.log.replay import Live, Replay, state_at
from relay.log.segments import encode
from relay.log.snapshots import RecoveredState
from tests.relay.log.histories import Told, append, epoch, flight, lived

pytestmark = pytest.mark.usefixtures("home")

ANY = capture()
PATTERNS: Sequence[Value] = (
    Record("p", ANY, DISCARD),
    Record("p", DISCARD, capture("second")),
    Record("p", capture("a"), capture("b")),
    Record("p"),
    Record("q", 1, ANY),
    ANY,
)

Turns = list[tuple[str, list[Action]]]

atoms = st.sampled_from([1, 1.0, True, "1", None, -0.0, 0.0, 1 << 70])
facts = st.one_of(
    st.builds(lambda a, b: Record("p", a, b), atoms, atoms),
    st.builds(lambda a, b: Record("p", a, b, a), atoms, atoms),
    st.builds(lambda a, b: Record("q", a, (b,), Record("inner", b)), atoms, atoms),
    atoms,
)


@st.composite
def histories(draw: st.DrawFn, *, values: int = 6, actions_per_turn: int = 6) -> Turns:
    """Valid turns of two owners: they assert, replace, retract and send, often the same facts.

    The fewer values and actions, the more turns change claims and no fact: their entries are silent.
    """
    pool = draw(st.lists(facts, min_size=1, max_size=values))
    held: dict[str, list[int]] = {"durable:a": [], "session:1": []}
    fresh = 0
    turns: Turns = []
    for _ in range(draw(st.integers(0, 12))):
        owner = draw(st.sampled_from(sorted(held)))
        actions: list[Action] = []
        for _ in range(draw(st.integers(0, actions_per_turn))):
            fresh += 1
            value = draw(st.sampled_from(pool))
            verb = draw(st.sampled_from([ASSERT, ASSERT, RETRACT, REPLACE, SEND]))
            handles = held[owner]
            if verb == SEND:
                actions.append((SEND, value))
            elif verb == ASSERT or not handles:
                actions.append((ASSERT, fresh, value))
                handles.append(fresh)
            else:
                old = handles.pop(draw(st.integers(0, len(handles) - 1)))
                if verb == REPLACE:
                    actions.append((REPLACE, old, fresh, value))
                    handles.append(fresh)
                else:
                    actions.append((RETRACT, old))
        turns.append((owner, actions))
    return turns


@contextmanager
def logged(epochs: Sequence[Epoch], *, group: int, snapshot_after: int) -> Iterator[Log]:
    """A log of these epochs, ``group`` to a segment, with a snapshot after so many of them."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log.open(Path(directory))
        state = RecoveredState()
        for start in range(0, len(epochs), group):
            append(log, *epochs[start : start + group])
            for each in epochs[start : start + group]:
                state.apply(each)
            state.segment = log.last_segment
            if start <= snapshot_after < start + group:
                writer = log.snapshot(state)
                while writer.step():
                    pass
        yield log
        log.close()


def exactly(told: Sequence[Told]) -> list[object]:
    """What was told, with rows as their keys: Python would hold 1, 1.0 and True for the same."""
    return [(n, t, *[[key(row) for row in rows] for rows in lists]) for n, t, *lists in told]


@given(histories(), st.integers(1, 5), st.integers(-1, 12), st.data())
def test_it_tells_what_a_live_observer_was_told(
    turns: Turns, group: int, snapshot_after: int, data: st.DataObject
) -> None:
    space, epochs, witnesses = lived(turns, PATTERNS)
    after = data.draw(st.integers(0, space.epoch))
    upto = data.draw(st.integers(after, space.epoch))
    with logged(epochs, group=group, snapshot_after=snapshot_after) as log:
        for pattern, witness in zip(PATTERNS, witnesses, strict=True):
            expected = [told for told in witness.told if after < told[0] <= upto]
            assert exactly(list(Replay(log, pattern, after).epochs(upto))) == exactly(expected)


@given(histories(), st.integers(1, 5), st.integers(-1, 12), st.data())
def test_its_bag_is_what_an_observer_would_see_at_that_epoch(
    turns: Turns, group: int, snapshot_after: int, data: st.DataObject
) -> None:
    space, epochs, _ = lived(turns, ())
    at = data.draw(st.integers(0, space.epoch))
    then = Space("then")
    for (owner, actions), made in zip(turns, epochs, strict=True):
        if made.number <= at:
            then.commit(owner, actions, 0)
    with logged(epochs, group=group, snapshot_after=snapshot_after) as log:
        for pattern in PATTERNS:
            rows = Replay(log, pattern, at).bag()
            assert sorted(map(key, rows), key=repr) == sorted(map(key, then.matches(pattern)), key=repr)
        facts = sorted(state_at(log, at), key=order_key)
        assert [key(each) for each in facts] == [
            key(row[0]) for row in sorted(then.matches(ANY), key=lambda row: order_key(row[0]))
        ]


@given(histories(), st.integers(1, 4), st.data())
def test_it_can_be_left_off_and_gone_on_with_anywhere(turns: Turns, group: int, data: st.DataObject) -> None:
    space, epochs, witnesses = lived(turns, PATTERNS)
    cuts = sorted(data.draw(st.lists(st.integers(0, space.epoch), max_size=4)))
    with logged(epochs, group=group, snapshot_after=-1) as log:
        for pattern, witness in zip(PATTERNS, witnesses, strict=True):
            batches: list[Told] = []
            for after, upto in zip([0, *cuts], [*cuts, space.epoch], strict=True):
                batches.extend(Replay(log, pattern, after).epochs(upto))
            assert exactly(batches) == exactly(witness.told)


@given(histories(), st.data())
def test_it_goes_over_to_the_live_feed_without_gap_or_double(turns: Turns, data: st.DataObject) -> None:
    space, epochs, witnesses = lived(turns, PATTERNS)
    written = data.draw(st.integers(0, len(epochs)))
    durable = max([0, *[each.number for each in epochs[:written]]])
    after = data.draw(st.integers(0, durable))
    pending = [each for each in epochs[written:] if each.number > durable]
    live = Live(space.epoch, list(space.index.values()), pending)
    with logged(epochs[:written], group=2, snapshot_after=-1) as log:
        for pattern, witness in zip(PATTERNS, witnesses, strict=True):
            replay = Replay(log, pattern, after, live=live)
            told = [*replay.epochs(durable), *replay.tail(pending)]
            assert exactly(told) == exactly([each for each in witness.told if each[0] > after])


def test_a_cursor_is_left_for_who_goes_on(log: Log) -> None:
    append(log, *[epoch(n, flight(n)) for n in range(1, 9)])
    list(Replay(log, ANY, 0).epochs(4))
    assert log.cursors.find(key(ANY), 6) == (4, log.cursors.find(key(ANY), 4)[1])  # type: ignore[index]
    first = Replay(log, ANY, 4)
    assert [told[0] for told in first.epochs(8)] == [5, 6, 7, 8]
    assert len(Replay(log, ANY, 4).bag()) == 4, "going on from a cursor must not change it"


def test_a_replay_that_is_left_in_the_middle_goes_on_there(log: Log) -> None:
    append(log, *[epoch(n, flight(n)) for n in range(1, 6)])
    replay = Replay(log, ANY, 0)
    for told in replay.epochs(5):
        if told[0] == 3:
            break
    assert replay.at == 3
    assert [told[0] for told in replay.epochs(5)] == [4, 5]


def test_silent_epochs_are_not_told(log: Log) -> None:
    log.append([encode(epoch(1, flight(1))), encode(Epoch(1, 10, silent=True))])
    assert [told[0] for told in Replay(log, ANY, 0).epochs(1)] == [1]


def test_an_epoch_that_is_gone_is_refused_with_the_oldest(log: Log) -> None:
    log.held_from = 7
    with pytest.raises(Refused, match="epochs after 5 are wanted, the oldest held is 7"):
        Replay(log, ANY, 5)
