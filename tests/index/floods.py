"""Values that make a plain table slow, and how many steps a table takes for its keys: counts, not times.

Python's tables probe one slot after the other until one is free.  ``probes`` goes the same way with the same
hashes and counts; ``tests/index/test_floods.py`` holds the floods to what ordinary values cost, and
``bench/values.py`` times them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice, product
from random import Random
from typing import TypeAlias

from index.values.values import Map, Record, Value

Flood: TypeAlias = Callable[[int], list[Value]]

PERTURB_SHIFT = 5
"""As in CPython's ``dictobject.c``, from which the order of the slots is taken as well."""

PRIME = (1 << 61) - 1
"""Python's hash of an integer is its remainder by this."""


def probes(keys: Iterable[Hashable]) -> int:
    """How many slots are looked at when a table is filled with the keys, in a table of its final size."""
    hashes = [hash(key) for key in keys]
    size = table_size(len(hashes))
    taken, seen = bytearray(size), 0
    for value in hashes:
        for slot in slots(value, size):
            seen += 1
            if not taken[slot]:
                break
        taken[slot] = 1
    return seen


def table_size(count: int) -> int:
    """How many slots a table of so many keys has, at least."""
    size = 8
    while size * 2 // 3 < count:
        size *= 2
    return size


def slots(hashed: int, size: int) -> Iterator[int]:
    """The slots that are probed for a hash, one after the other."""
    perturb = hashed & (2**64 - 1)
    slot = perturb & (size - 1)
    while True:
        yield slot
        perturb >>= PERTURB_SHIFT
        slot = (slot * 5 + perturb + 1) & (size - 1)


def ordinary(count: int) -> list[Value]:
    """Integers as they come."""
    chance = Random(1)
    return [chance.getrandbits(40) for _ in range(count)]


def same_remainder(count: int) -> list[Value]:
    """Integers that all have the same hash in Python."""
    return [at * PRIME for at in range(count)]


def same_low_bits(count: int) -> list[Value]:
    """Integers that begin at the same slot of any table."""
    return [at << 32 for at in range(count)]


def chained(count: int) -> list[Value]:
    """Integers that have taken each slot that the later ones among them will look at.

    The slots of a table are gone through in an order of their own, ``5 * slot + 1``, once the high bits of a
    hash are used up.  So a run of small integers along that order is a wall, and whoever begins behind it
    follows it to its end.
    """
    size, chance = table_size(count), Random(1)
    wall = list(islice(slots(0, size), count * 39 // 40))
    taken, behind = frozenset(wall), list[int]()
    while len(wall) + len(behind) < count:
        one = chance.choice(wall[: len(wall) // 8]) + size * chance.getrandbits(8)
        if one >= size and one not in behind and all(slot in taken for slot in islice(slots(one, size), 100)):
            behind.append(one)
    return [*wall, *behind]


def minus_one_and_two(count: int) -> list[Value]:
    """Sequences of -1 and -2, which have the same hash in Python, as have those that hold them."""
    width = count.bit_length()
    return [row for row, _ in zip(product((-1, -2), repeat=width), range(count), strict=False)]


def nested_records(count: int) -> list[Value]:
    """Records of records of such sequences."""
    return [Record("p", Record("q", part), 1) for part in minus_one_and_two(count)]


def maps_of_floods(count: int) -> list[Value]:
    """Maps whose keys and values are such integers."""
    return [Map([(at * PRIME, -1 - (at & 1)), (-1, at << 32)]) for at in range(count)]


def labels(count: int) -> list[Value]:
    """Records whose labels are such integers."""
    return [Record(at * PRIME) for at in range(count)]


FLOODS: Sequence[Flood] = (
    same_remainder,
    same_low_bits,
    chained,
    minus_one_and_two,
    nested_records,
    maps_of_floods,
    labels,
)
