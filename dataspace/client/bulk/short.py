"""The short client: what a command does that asks for one thing, or commits one turn, and ends.

It adds turns and the present state to the bulk client, and loads no event loop: most of what a short command
takes is to load what it needs.

Always: a turn is on the daemon's disk once ``commit`` returned.  After a lost connection nothing is sent
again, so the error says whether it is known what became of the turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from dataspace.client.bulk.client import BulkClient
from dataspace.client.epochs.assembling import Assembler
from dataspace.errors import Broken, Refused, refusal_of
from dataspace.kernel.actions import Action
from dataspace.kernel.changes import EpochChanges
from dataspace.wire import packets as p
from dataspace.wire.observing import ObserveOptions
from dataspace.wire.outgoing import portions
from dataspace.wire.session import encode
from index.patterns.patterns import capture_names
from index.values.values import Value

if TYPE_CHECKING:
    from dataspace.kernel.expectations import Expectation


class ShortClient(BulkClient):
    """A connection for one request, one look at the state, or some turns; arguments as of ``BulkClient``."""

    _sequence = 0

    def state(self, pattern: Value, as_of: int | None = None) -> EpochChanges:
        """Returns an epoch, the current one or ``as_of``, with all matches under ``added``."""
        names = capture_names(pattern)
        if as_of is not None:
            options = ObserveOptions(pattern, as_of=as_of, upto=as_of, quiet=True)
        else:
            options = ObserveOptions(pattern, quiet=True)
        assembler = Assembler(names)
        with contextlib.closing(self._stream(options)) as values:
            for value in values:
                whole = assembler.feed(value)
                if whole is not None:
                    return whole
        if as_of is None:
            raise Broken(f"the daemon at {self.url} ended an observation before it said what matches")
        return EpochChanges(as_of, 0, as_of, names, [], [], [], 0)

    def commit(
        self, actions: Sequence[Action], owner: str = "", *, expected: Sequence[Expectation] = ()
    ) -> int:
        """Commits one turn, of the session or of a durable owner; returns its epoch.

        Raises ``Refused`` where nothing has happened, ``ExpectationFailed`` where what is ``expected`` does
        not hold.
        """
        turn = self._turn(actions, owner)._replace(expected=tuple([each.packed() for each in expected]))
        self.limits.check(encode(turn), turn.actions)
        self._sequence = turn.sequence
        for at in count(1):
            try:
                return self._committed(turn)
            except Refused as refusal:
                if not self._went_on(refusal, at=at):
                    raise
        raise AssertionError("counting has no end")

    def _committed(self, turn: p.Turn) -> int:
        self._send(turn)
        try:
            return self._accepted(turn.sequence)
        except Broken as lost:
            raise Broken(f"{lost}: the turn was sent, so it may have taken effect") from None

    def cut(self, actions: Sequence[Action], owner: str = "") -> list[Sequence[Action]]:
        """Returns the actions whole if the daemon takes them in one turn, else in as few as it surely takes.

        Raises ``Refused("limit")`` if one of them is too large or nested too deeply for any turn.
        """
        limits = self.limits
        if len(actions) <= limits.actions_per_turn:
            try:
                limits.check(encode(self._turn(actions, owner)), actions)
            except Refused:
                pass
            else:
                return [actions]
        return list(portions(actions, most=limits.actions_per_turn, size=limits.portion_bytes))

    def _turn(self, actions: Sequence[Action], owner: str) -> p.Turn:
        return p.Turn(self._sequence + 1, self.space, owner, tuple(actions))

    def _accepted(self, sequence: int) -> int:
        while True:
            packet, _ = self._receive()
            match packet:
                case p.Accepted(first, epochs) if first <= sequence < first + len(epochs):
                    return epochs[sequence - first]
                case p.Refusal(refused, code, text, found, url) if refused == sequence:
                    raise refusal_of(code, text, found, url)
                case _:
                    self._unasked(packet)
