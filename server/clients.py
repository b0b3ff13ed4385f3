"""Clients: which turns of each identity have been applied, however often they are sent?

A client numbers its turns.  When a connection is lost between a turn and its acceptance, the client
cannot know whether the turn took effect, and sends it again; the answer must then be the old epoch, and
nothing may happen twice.  The newest number of each identity is in the log; the epochs of the last few
turns are kept here as well, so that a whole window of them can be answered.

Always: a turn is applied only if its number is higher than any before it from the same identity.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

WINDOW: Final = 4096
"""Turns of one identity whose epochs are remembered."""


class Client:
    """One identity: its newest turn, and the epochs of the latest ones."""

    __slots__ = ("epochs", "name", "sequence")

    def __init__(self, name: str, sequence: int = 0, epoch: int = 0) -> None:
        self.name = name
        self.sequence = sequence
        self.epochs: OrderedDict[int, int] = OrderedDict()
        if sequence:
            self.epochs[sequence] = epoch

    def applied(self, sequence: int, epoch: int) -> None:
        """Notes that a turn has become an epoch; O(1)."""
        self.sequence = sequence
        self.epochs[sequence] = epoch
        if len(self.epochs) > WINDOW:
            self.epochs.popitem(last=False)


class Clients:
    """Every identity that the daemon knows, from the log and since."""

    __slots__ = ("_known",)

    def __init__(self, logged: Mapping[str, tuple[int, int]]) -> None:
        self._known = {name: Client(name, sequence, epoch) for name, (sequence, epoch) in logged.items()}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Client:
        """The identity of this name, new if it was never seen."""
        client = self._known.get(name)
        if client is None:
            client = self._known[name] = Client(name)
        return client

    def forget_unused(self, client: Client) -> None:
        """Drops an identity that never sent a turn, so that mere visitors leave nothing behind."""
        if not client.sequence:
            self._known.pop(client.name, None)
