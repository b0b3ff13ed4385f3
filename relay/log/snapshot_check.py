"""Explaining: does the newest snapshot hold what the epochs say, and nothing else?

A snapshot is a copy of what a daemon had in memory.  Whatever a defect left there would be a fact from then
on, in no epoch, and every checksum of it would be right.  So the snapshot is computed once more from the
epochs: all of it if they are retained from the first one on; otherwise every claim that the retained epochs
have touched, and the earlier rest is taken on trust.

Always: nothing here changes anything; memory is bounded by the snapshot and the claims that the epochs touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dataspace.kernel.epochs import Claims
from index.patterns.text import unparse
from index.values.values import Value, same
from relay.log.segments import Segment
from relay.log.snapshots import RecoveredState

MOST: Final = 20
"""Differences that are described; the others are counted."""

Place = tuple[str, int]
"""An owner and a handle of its."""


class Explained:
    """What the epochs say that owners claim, as far as they say."""

    def __init__(self, snapshot: RecoveredState | None, *, whole: bool) -> None:
        """``whole`` if the epochs to come are all epochs of the log since its beginning."""
        self._snapshot = snapshot
        self._whole: Final = whole
        self._claimed: dict[Place, Value] = {}
        self._ended: set[Place] = set()
        self._found: list[str] = []

    def take_in(self, segment: Segment) -> None:
        """Takes in the next segment; O(its claims), and O(snapshot) where the snapshot was made before it."""
        if self._snapshot is not None and segment.ordinal > self._snapshot.segment:
            self._compare()
        for epoch in segment.epochs():
            for change in epoch.claims:
                self._apply(epoch.number, change)

    def _apply(self, number: int, change: Claims) -> None:
        owner = change.owner
        for handle, value in change.asserted:
            self._claimed[owner, handle] = value
            self._ended.discard((owner, handle))
        for handle in change.retracted:
            place = owner, handle
            known = place in self._claimed
            if known:
                del self._claimed[place]
            elif self._whole or place in self._ended:
                self._found.append(f"epoch {number} ends claim {handle} of {owner}, which no epoch begins")
            if not self._whole:
                self._ended.add(place)

    def differences(self) -> Iterator[str]:
        """Yields what is odd in the epochs, and wrong in the snapshot, in words; O(claims)."""
        self._compare()
        yield from self._found[:MOST]
        if len(self._found) > MOST:
            yield f"{len(self._found) - MOST} more claims that differ between epochs and snapshot"

    def _compare(self) -> None:
        """Compares the snapshot with the epochs up to it, once."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._found += self._wrong(snapshot)

    def _wrong(self, snapshot: RecoveredState) -> Iterator[str]:
        said = f"snapshot after epoch {snapshot.epoch}"
        for owner, claims in snapshot.owners.items():
            for handle, value in claims.items():
                place = owner, handle
                what = f"{owner} claims {unparse(value):.200} under handle {handle}"
                if place in self._claimed:
                    if not same(self._claimed[place], value):
                        yield f"{said}: {what}, but the epochs say {unparse(self._claimed[place]):.200}"
                elif place in self._ended:
                    yield f"{said}: {what}, but the epochs end that claim"
                elif self._whole:
                    yield f"{said}: {what}, but no epoch does"
        for (owner, handle), value in self._claimed.items():
            if handle not in snapshot.owners.get(owner, ()):
                what = f"{owner} claims {unparse(value):.200} under handle {handle}"
                yield f"{said}: by the epochs {what}, but it is not there"
