"""Turn numbers: which turns of each client have been applied, however often they are sent.

A client numbers its turns.  When a connection is lost between a turn and its acceptance, the client
cannot know whether the turn took effect, and sends it again; the answer must then be the old epoch, and
nothing may happen twice.  The newest number of each identity is in the log; the epochs of the last few
turns are kept here as well, so that a whole window of them can be answered.

Identities that begin with ``~`` are *passing*: chosen at random by a client that connects again after a
lost connection, but never after a restart.  Of those that are not connected only the latest are kept.

Always: a turn is applied only if its number is higher than any before it from the same identity; memory
is bounded by the identities that are not passing, plus those limits.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Final

from dataspace.errors import Refused

WINDOW: Final = 4096
"""Turns of one identity whose epochs are remembered, at least; at most twice as many, 8 bytes each."""

PASSED: Final = 1024
"""Passing identities that are remembered after their connection has ended."""

PASSING: Final = "~"


class Client:
    """One identity: its newest turn, and the epochs of the latest ones."""

    __slots__ = ("_epochs", "_first", "name", "sequence")

    def __init__(self, name: str, sequence: int = 0, epoch: int = 0) -> None:
        self.name = name
        self.sequence = sequence
        self._first = sequence
        self._epochs = array("q", [epoch] if sequence else [])

    def applied(self, sequence: int, epoch: int) -> None:
        """Notes that a turn has become an epoch; O(1) amortised."""
        skipped = sequence - self.sequence - 1
        if skipped > WINDOW or not self._epochs:
            self._first, self._epochs = sequence, array("q")
        else:
            self._epochs.extend([0] * skipped)
        self._epochs.append(epoch)
        self.sequence = sequence
        if len(self._epochs) > 2 * WINDOW:
            del self._epochs[:WINDOW]
            self._first += WINDOW

    def epoch_of(self, sequence: int) -> int | None:
        """The epoch that a turn became, 0 if it was not applied, None unless it is among the latest.

        For turns up to the highest that was applied.
        """
        at = sequence - self._first
        return self._epochs[at] if 0 <= at < len(self._epochs) else None

    @property
    def first_epoch(self) -> int | None:
        """The epoch of the oldest turn that is remembered: those before it are in the log up to there."""
        return next((epoch for epoch in self._epochs if epoch), None)


def refusal(sequence: int, epoch: int | None) -> Refused:
    """What to answer to an old turn that was not applied (epoch 0), or that is not known any more (None)."""
    if epoch == 0:
        text = f"turn {sequence} was refused or never came, and a later one was applied: send it anew"
        return Refused("not-applied", text)
    text = f"turn {sequence} is older than what the log retains: whether it was applied is not known"
    return Refused("old-sequence", text)


class Clients:
    """Every identity that has numbered turns; ``logged`` is the log's own table, kept equal."""

    __slots__ = ("_known", "_logged", "_passed")

    def __init__(self, logged: MutableMapping[str, tuple[int, int]]) -> None:
        self._known = {name: Client(name, sequence, epoch) for name, (sequence, epoch) in logged.items()}
        self._logged = logged
        self._passed: OrderedDict[str, None] = OrderedDict(
            (name, None) for name in logged if name.startswith(PASSING)
        )
        self._forget_passed()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Client:
        """Returns the identity of this name, a new one if it was never seen (or is forgotten)."""
        self._passed.pop(name, None)
        client = self._known.get(name)
        if client is None:
            client = self._known[name] = Client(name)
        return client

    def left(self, client: Client) -> None:
        """Notes that a connection of this identity has ended."""
        if not client.sequence:
            self._known.pop(client.name, None)
        elif client.name.startswith(PASSING):
            self._passed[client.name] = None
            self._forget_passed()

    def _forget_passed(self) -> None:
        while len(self._passed) > PASSED:
            name, _ = self._passed.popitem(last=False)
            self._known.pop(name, None)
            self._logged.pop(name, None)
