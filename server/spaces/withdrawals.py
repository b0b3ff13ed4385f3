"""Withdrawals: the locks under which requests take back what an owner claims.

A withdrawal takes several slices of the lane, and two of one owner would look at the same claims.

Always: a lock exists only while a request holds it or waits for it.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import trio


class Withdrawals:
    """The owners from which something is withdrawn, each with a lock that exists while it is used."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def of(self, owner: str) -> trio.Lock:
        """Returns the lock of an owner."""
        return self._locks.setdefault(owner, trio.Lock())
