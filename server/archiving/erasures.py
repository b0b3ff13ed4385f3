"""Erasures that clients ask a daemon for: the process that archives does all waiting erasures together.

Always: an erasure is told to the process again until that answers, so a process that was killed does it once
more, which changes nothing further; an answer is given out once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple

import trio

from dataspace.codec import pack
from dataspace.errors import Refused
from index.values.values import Value

MOST: Final = 256
"""Erasures that may wait."""


class ErasureOrder(NamedTuple):
    """An erasure as the process is told of it; ``pattern`` is in hexadecimal digits of its msgpack."""

    number: int
    space: str
    pattern: str
    before: int
    by: str


@dataclass(slots=True)
class _Asked:
    order: ErasureOrder
    done: trio.Event = field(default_factory=trio.Event)
    counts: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


class Erasures:
    """The erasures of a daemon that are not answered yet."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str, int, str], _Asked] = {}
        self._numbers = count(1)

    def orders(self, spaces: Collection[str]) -> list[ErasureOrder]:
        """Returns what the process is to do in some spaces."""
        waiting = [each.order for each in self._asked.values() if not each.done.is_set()]
        return [each for each in waiting if each.space in spaces]

    def waiting(self, space: str) -> int:
        """Returns how many erasures in a space are not done yet."""
        return sum([each.order.space == space and not each.done.is_set() for each in self._asked.values()])

    def is_known(self, space: str, pattern: Value, before: int, by: str) -> bool:
        """True if the same was asked, and the answer not given yet."""
        return (space, pack(pattern).hex(), before, by) in self._asked

    async def ask(
        self, space: str, pattern: Value, before: int, by: str, wait: float
    ) -> Mapping[str, int] | None:
        """Returns the counts of an erasure once it is done; None if that is not within ``wait`` seconds.

        A request for the same waits for the same erasure.  Raises ``Refused`` with the reason if it failed.
        """
        packed = pack(pattern).hex()
        name = space, packed, before, by
        if name not in self._asked:
            self._check_room()
            self._asked[name] = _Asked(ErasureOrder(next(self._numbers), *name))
        asked = self._asked[name]
        with trio.move_on_after(wait):
            await asked.done.wait()
        if not asked.done.is_set():
            return None
        self._asked.pop(name, None)
        if asked.error:
            raise Refused("erasure-failed", asked.error)
        return asked.counts

    def _check_room(self) -> None:
        """Drops answers that nobody has taken, and refuses one erasure too many."""
        if len(self._asked) >= MOST:
            self._asked = {name: each for name, each in self._asked.items() if not each.done.is_set()}
        if len(self._asked) >= MOST:
            raise Refused("limit", f"{MOST} erasures wait, limit {MOST}")

    def on_answer(self, answer: Mapping[str, Any]) -> None:
        """Takes the answer of the process; a second answer to an erasure is ignored."""
        for asked in self._asked.values():
            if asked.order.number == answer["erasure"] and not asked.done.is_set():
                asked.counts, asked.error = answer.get("counts", {}), answer.get("error", "")
                asked.done.set()
