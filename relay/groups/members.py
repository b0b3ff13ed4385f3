"""Members of a group, deliveries to them, and the options and counts of a group.

``core.py`` says who gets what.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from relay.groups.state import Item

Rank: TypeAlias = tuple[int, ...]
"""The order of items that are ready: their names, where there are levels behind the negative level."""

LONGEST_BACKOFF: Final = 30.0
"""Seconds to which the wait of a failed item doubles at most, unless the first wait is longer."""

LEVELS: Final = 16
"""How many levels of priority there are."""

MEMBER_BYTES: Final = 4 << 20
"""About how many bytes of items may be out to one member; one item of any size may."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options of a group; ``ack_within`` and ``backoff`` in seconds, 0 ``attempts`` mean no limit.

    ``paused`` says why nothing is handed out; it is empty while the group runs.  ``topic`` is the durable
    topic whose items are divided; without one they are the facts and messages of the space.  At most
    ``most_out`` items are out (0: no limit), and ``rate`` a second are handed out (0: no limit).
    ``exclusive``: to one member at a time.  ``kinds`` are those of the items, ``priority`` is the capture
    that has their level.
    """

    key: str | None = None
    ack_within: float = 30.0
    attempts: int = 5
    window: int = 10_000
    backoff: float = 0.1
    paused: str = ""
    topic: str = ""
    backoffs: tuple[float, ...] = ()
    """How long an item waits after each failed attempt, the last for all further ones; empty: ``backoff``,
    and twice as long each time.  An older daemon, which does not know it, goes by ``backoff``, its first."""
    most_out: int = 0
    rate: float = 0.0
    exclusive: bool = False
    kinds: str = "+!"
    priority: str | None = None

    def wait(self, attempts: int) -> float:
        """Returns the seconds that an item waits after so many failed attempts.

        >>> GroupOptions().wait(3), GroupOptions(backoff=60.0).wait(3), GroupOptions(backoffs=(1, 9)).wait(3)
        (0.4, 60.0, 9)
        """
        if self.backoffs:
            return self.backoffs[min(attempts, len(self.backoffs)) - 1]
        return min(self.backoff * 2.0 ** min(attempts - 1, 30), max(self.backoff, LONGEST_BACKOFF))


ALWAYS: Final = frozenset(("key", "ack_within", "attempts", "window", "backoff", "paused"))
"""The options that each definition has; it has another one only where that is not as usual, so that a group
without those has the definition that it always had."""

USUAL: Final = GroupOptions()


class GroupMember:
    """One member of a group; ``holder`` says whose it is, ``principal`` who may settle what it has."""

    __slots__ = (
        "holder",
        "in_flight",
        "is_alone",
        "is_brief",
        "is_ending",
        "is_in_row",
        "is_quiet",
        "keyed",
        "out",
        "principal",
        "size",
    )

    def __init__(self, holder: Hashable, in_flight: int = 1, principal: object = None) -> None:
        self.holder = holder
        self.principal = principal
        self.in_flight = in_flight
        self.out: dict[int, JobDelivery] = {}
        self.size = 0
        """About how many bytes are out to the member."""
        self.keyed: list[tuple[Rank, Item]] = []
        """Items that only this member gets, since it has earlier ones of their key."""
        self.is_quiet = False
        """True after a deadline passed, until the member says anything: it gets nothing meanwhile."""
        self.is_ending = False
        """True once its connection is gone: it gets nothing, and keeps what it has until its session ends."""
        self.is_brief = False
        """True for a request: once it is ending, it is a member until its last item is settled."""
        self.is_alone = False
        """True while it has an item in its last attempt, beside which it gets nothing, or waits for one."""

        self.is_in_row = False
        """True while it is among the members to which its group hands out next."""

    def clear(self) -> None:
        """Takes everything from the member."""
        self.out, self.keyed, self.size = {}, [], 0
        self.is_alone = self.is_quiet = self.is_in_row = False

    @property
    def is_standing(self) -> bool:
        """True if it may get items, as far as its connection and its deadlines are concerned."""
        return not (self.is_quiet or self.is_ending)

    @property
    def credit(self) -> int:
        """How many more items the member may have."""
        if self.is_quiet or self.is_ending or self.is_alone or self.size >= MEMBER_BYTES:
            return 0
        return self.in_flight - len(self.out)


class JobDelivery:
    """One item that is out: its deadline is infinite until the member has taken it."""

    __slots__ = ("attempt", "deadline", "item", "member", "token")

    def __init__(self, item: Item, member: GroupMember, token: int) -> None:
        self.item = item
        self.member = member
        self.token = token
        self.attempt = item.attempts + 1
        self.deadline = float("inf")

    @property
    def is_taken(self) -> bool:
        """True if the program has taken the item."""
        return self.deadline != float("inf")


@dataclass(slots=True)
class GroupCounts:
    """Counts since the start; ``expired`` and ``ended`` are deliveries that a deadline or the end of a
    session took back, ``gone`` facts that had gone, ``lost`` epochs that were deleted unread."""

    delivered: int = 0
    done: int = 0
    again: int = 0
    expired: int = 0
    ended: int = 0
    gone: int = 0
    dead: int = 0
    refused: int = 0
    adopted: int = 0
    lost: int = 0

    def add(self, other: GroupCounts) -> None:
        """Adds the counts of another group."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
