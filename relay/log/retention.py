"""Retention: how much of the past is kept, and for whom?

Three reasons let an epoch go: its age, the bytes of what came after it, and that every named reader is done
with it.  One reason keeps it: a named reader that is not.  A reader that never comes back must not fill the
disk, so what is held for readers is bounded in bytes, and a reader not heard of for long is passed over.

It is apart from the log because it only decides; what may not go for the log's own sake (whatever the newest
snapshot has not yet taken in) is decided there.

Always: without a reason given, everything is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.log.chain import Chain
from relay.log.holders import Readers


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept.  Ages are in seconds, sizes in bytes of the log's file that are in use.

    ``age``: epochs older than this may go.  ``size``: the oldest may go while the file has more than this in
    use, the newest snapshot included.
    ``acknowledged``: what every named reader is done with may go (nothing while there is no reader).
    ``reader_size``: what is held for readers that are not done, at most, beyond the other reasons.
    ``reader_age``: a reader that was not heard of for so long holds nothing back.
    """

    age: float | None = None
    size: int | None = None
    acknowledged: bool = False
    reader_size: int = 8 << 30
    reader_age: float = 7 * 86_400.0

    @property
    def endless(self) -> bool:
        """Whether nothing ever goes."""
        return self.age is None and self.size is None and not self.acknowledged

    def first_kept(self, chain: Chain, readers: Readers, now: int) -> int:
        """The ordinal of the first segment to be kept; ``now`` in microseconds.

        O(log segments + what may go).
        """
        alive = [each.epoch for each in readers if each.seen >= now - self.reader_age * 1e6]
        done = chain.beyond(min(alive)) if alive else None
        wanted = chain.first
        if self.age is not None:
            wanted = max(wanted, chain.since(int(now - self.age * 1e6)))
        if self.size is not None:
            wanted = max(wanted, _newest_of(chain, self.size))
        if done is None:
            return wanted
        if self.acknowledged:
            wanted = max(wanted, done)
        return min(wanted, max(done, _newest_of(chain, self.reader_size)))


def _newest_of(chain: Chain, size: int) -> int:
    """Where the newest segments of so many bytes begin."""
    excess = chain.used() - size
    return chain.portion(chain.last + 1, excess)[0] if excess > 0 else chain.first


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim did: the oldest epoch now held, bytes dropped, whether there is more to drop now.

    ``held_back`` is how many bytes could go as soon as there is a newer snapshot.
    """

    oldest: int
    bytes: int
    more: bool
    held_back: int
