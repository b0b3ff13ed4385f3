"""What may be out: how many items a second, and how many at once, fairly divided among members.

Always: within any time t a bucket gives no more than its burst and rate × t; the shares of members that want
more differ by one at most, and those that want less get what they want.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from typing import Final

from relay.groups.members import GroupMember, GroupOptions

BURST_SECONDS: Final = 0.1
"""A bucket holds what comes in so many seconds, and one token at least."""

SLACK: Final = 1e-6
"""The part of a token that rounding may take away."""


MOST_OUT: Final = 1 << 62
"""What may be out of a group without a limit."""


class TokenBucket:
    """Tokens that come at a rate, in tokens a second of a monotonic clock; full at the beginning.

    >>> bucket = TokenBucket(2.0, now=10.0)
    >>> bucket.take(10.0), bucket.take(10.1), bucket.next_at, bucket.take(10.5)
    (True, False, 10.5, True)
    """

    __slots__ = ("_at", "_left", "_most", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate: Final = rate
        self._most: Final = max(1.0, rate * BURST_SECONDS)
        self._left = self._most
        self._at = now

    def has(self, now: float) -> bool:
        """True if there is a token."""
        if now > self._at:
            self._left = min(self._most, self._left + (now - self._at) * self.rate)
            self._at = now
        return self._left >= 1.0 - SLACK

    def take(self, now: float) -> bool:
        """Takes a token; returns False if there is none."""
        if not self.has(now):
            return False
        self._left -= 1.0
        return True

    @property
    def next_at(self) -> float:
        """When there is a token next, if none is taken before."""
        return self._at + max(0.0, 1.0 - self._left) / self.rate


def shares(wanted: Iterable[int], most: int) -> tuple[int, int]:
    """Divides ``most`` among members that want so many: returns how many each may have, and how many members
    may have one more.  O(members × log members).

    >>> shares([100, 100, 100], 10), shares([1, 100], 10), shares([2, 2], 10)
    ((3, 1), (9, 0), (2, 0))
    """
    ascending, left, level = sorted(wanted), most, 0
    for place, want in enumerate(ascending):
        count = len(ascending) - place
        if (want - level) * count > left:
            more, extra = divmod(left, count)
            return level + more, extra
        left -= (want - level) * count
        level = want
    return level, 0


class Bound:
    """What each member may have during one pass of handing out.

    The shares are of the members that may get anything; what others still have counts for the whole group.
    """

    __slots__ = ("_active", "_extra", "_level", "_most", "_out")

    def __init__(self, options: GroupOptions, members: Collection[GroupMember], out: Sized) -> None:
        """``out`` is all that is out."""
        standing = [each for each in members if each.is_standing]
        self._out = out
        self._active = standing[0] if standing and options.exclusive else None
        self._most = options.most_out or MOST_OUT
        mine = sum([len(each.out) for each in standing])
        left = max(0, self._most - (len(out) - mine))
        self._level, self._extra = shares([each.in_flight for each in standing], left)
        self._extra -= sum([len(each.out) > self._level for each in standing])

    def allows(self, member: GroupMember) -> bool:
        """True if a member may have one more."""
        out, mine = len(self._out), len(member.out)
        if self._active is not None and (member is not self._active or out > mine):
            return False
        return out < self._most and (mine < self._level or (mine == self._level and self._extra > 0))

    def note(self, member: GroupMember) -> None:
        """Notes that a member has got one more."""
        self._extra -= len(member.out) == self._level + 1
