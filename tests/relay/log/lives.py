"""A log that is written, copied into snapshots and trimmed, with what held after each of its segments."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from dataspace.kernel.actions import ASSERT
from index.values.values import key
from relay.log.log import Log
from relay.log.snapshots import RecoveredState
from tests.relay.log.histories import append, lived
from tests.relay.log.test_replay import Turns, histories
from tests.relay.log.test_retention import EVERYTHING, LATE, write_snapshot

State = tuple[object, object]


def claims_of(state: RecoveredState) -> State:
    """What owners claim and what clients have sent, in a form that distinguishes 1 from True."""
    owners = {
        owner: {handle: key(value) for handle, value in claims.items()}
        for owner, claims in state.owners.items()
    }
    return owners, dict(state.clients)


class History:
    """A log in which a space's epochs are written one by one, with what held after each."""

    def __init__(self, log: Log, turns: Turns) -> None:
        self.log = log
        self._left = lived(turns, ())[1]
        self._state = RecoveredState()
        self._after = [(0, 0, claims_of(self._state))]  # segments, their last epochs, and what held then

    def write(self, count: int) -> None:
        """Appends entries, silent ones among them, as one segment."""
        now, self._left = self._left[:count], self._left[count:]
        append(self.log, *now)
        for each in now:
            self._state.apply(each)
            self._after.append((self.log.last_segment, each.number, claims_of(self._state)))

    def snapshot(self, _: int) -> None:
        write_snapshot(self.log, self._state)

    def trim(self, _: int) -> None:
        """Deletes what may go: all before the newest snapshot, and that only."""
        while self.log.trim(EVERYTHING, LATE).more:
            pass

    def state(self, segment: int, epoch: int | None = None) -> State:
        """What held after an epoch, or after the last, where the log ends with a segment.

        Silent entries have the number of the epoch before them, so a number alone does not say it.
        """
        held = [
            state for at, number, state in self._after if at <= segment and (epoch is None or number <= epoch)
        ]
        return held[-1]


shared_claims = histories(values=2, actions_per_turn=2)
"""Turns of which many only claim what is claimed already, or end one of several claims."""

lives = st.lists(
    st.tuples(
        st.sampled_from([History.write, History.write, History.snapshot, History.trim]), st.integers(1, 3)
    ),
    max_size=8,
)
"""What happens to a log: entries are written, snapshots are made, and epochs go."""

CLAIMED_AGAIN: Final[Turns] = [
    ("durable:a", [(ASSERT, 1, "x")]),
    ("durable:a", [(ASSERT, 2, "x")]),
    ("durable:a", [(ASSERT, 3, "y")]),
]
TRIMMED: Final = [
    (History.write, 1),
    (History.snapshot, 1),
    (History.write, 1),
    (History.trim, 1),
    (History.write, 1),
]
"""With these turns: the second claim comes after the snapshot, and of its number no epoch is retained."""
