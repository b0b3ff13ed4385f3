"""Handles: the claims of one owner, by the numbers that it chose.

A client that chooses the keys of a table of small integers can choose them along the table's probes, so
that every look-up walks over all of them.  Handles are chosen by clients, and they are in the log, so the
next start would meet them as well.  So they are kept multiplied by a secret odd number: products of chosen
numbers are spread like any others, and an inverse gives the handle back.  Small tables of names and streams
need none of this, their sizes are limited.

Always: a handle is a number from 0 to 2^63-1, and so is its place.
"""

from __future__ import annotations

import secrets
from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Final, TypeAlias

from index.values.values import Value

NO_HANDLE: Final = 1 << 63
"""The first number that is no handle."""

FRESH: Final = range(1 << 31, 1 << 48)
"""The handles that the daemon itself chooses for durable owners: above the handles of a client that counts
from one, below the handles that our clients make up (``dataspace.client.space``)."""

ALL: Final = NO_HANDLE - 1
SECRET: Final = secrets.randbits(63) | 1
"""``handle * SECRET & ALL`` is the place of a handle."""

_INVERSE: Final = pow(SECRET, -1, NO_HANDLE)


def handle_at(place: Hashable) -> int:
    """Returns the handle that is kept at a place.

    >>> handle_at(7 * SECRET & ALL)
    7
    """
    assert isinstance(place, int)
    return place * _INVERSE & ALL


class Handles(MutableMapping[int, Value]):
    """Values by handle, in the order in which they came; costs as a dict.

    ``places`` is that dict, for code that must not pay for a call.
    """

    __slots__ = ("highest", "places", "size")

    def __init__(self, pairs: Iterable[tuple[int, Value]] = ()) -> None:
        self.places: dict[int, Value] = {handle * SECRET & ALL: value for handle, value in pairs}
        self.size = 0
        """Bytes of the claims, as a space counts them (``limits.size_of``)."""
        self.highest: int | None = None
        """Highest handle of ``FRESH`` so far; None until ``fresh()`` is first called."""

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[int]:
        return (place * _INVERSE & ALL for place in self.places)

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, int) and handle * SECRET & ALL in self.places

    def __getitem__(self, handle: int) -> Value:
        return self.places[handle * SECRET & ALL]

    def __setitem__(self, handle: int, value: Value) -> None:
        self.places[handle * SECRET & ALL] = value
        if self.highest is not None:
            self.raise_highest((handle,))

    def __delitem__(self, handle: int) -> None:
        del self.places[handle * SECRET & ALL]

    def fresh(self) -> int:
        """Returns the first of ``FRESH`` above all claimed handles; O(claims) the first time, then O(1).

        A client that shares its owner with publications goes on counting where it was, and must not find
        there what they have claimed meanwhile.
        """
        if self.highest is None:
            self.highest = FRESH.start - 1
            self.raise_highest(self)
        return self.highest + 1

    def raise_highest(self, handles: Iterable[int]) -> None:
        """Updates ``highest``, once ``fresh()`` was called; O(handles)."""
        if (highest := self.highest) is not None:
            self.highest = max(
                [handle for handle in handles if highest < handle < FRESH.stop], default=highest
            )

    def items(self) -> ItemsView[int, Value]:
        """Returns pairs of handle and value."""
        return _Items(self)

    def values(self) -> ValuesView[Value]:
        """Returns the values."""
        return self.places.values()

    @classmethod
    def at(cls, places: dict[int, Value]) -> Handles:
        """Returns the handles of these places, which are not copied."""
        handles = cls.__new__(cls)
        handles.places = places
        handles.size = 0
        handles.highest = None
        return handles

    def copy(self) -> Handles:
        """Returns a copy, at the cost of copying a dict."""
        handles = Handles.at(self.places.copy())
        handles.size = self.size
        return handles

    def __repr__(self) -> str:
        return f"Handles({dict(self.items())!r:.80})"


class ClaimPlaces(Mapping[Hashable, Value]):
    """Values by place where each is kept elsewhere: ``value`` returns the one at a place that is ``held``."""

    __slots__ = ("_held", "_value")

    def __init__(self, held: Mapping[Hashable, int], value: Callable[[Hashable], Value]) -> None:
        self._held = held
        self._value = value

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._held)

    def __getitem__(self, place: Hashable) -> Value:
        self._held[place]  # raises where it is not there
        return self._value(place)


Held: TypeAlias = Handles | dict[int, Value]
"""The claims of one owner; where claims are not numbered by clients, as with rules, a dict is enough."""


class _Items(ItemsView[int, Value]):
    """The pairs, without a look-up for each."""

    __slots__ = ()
    _mapping: Handles

    def __iter__(self) -> Iterator[tuple[int, Value]]:
        return ((place * _INVERSE & ALL, value) for place, value in self._mapping.places.items())
