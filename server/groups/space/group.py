"""One group of a space: its definition, its state, and the items that it has read.

It divides facts and messages of the space, or the items of a durable topic of the daemon.

Always: ``core`` hands out only items that are on disk; the pattern and the key of a group do not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Final, TypeGuard, TypeVar

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT, Action
from index.patterns.events import Captures
from index.patterns.patterns import capture_names, matcher, skeleton
from index.values.values import Map, Record, Value, key as key_of
from relay.groups.core import GroupCore
from relay.groups.members import ALWAYS, LEVELS, USUAL, GroupMember, GroupOptions, JobDelivery
from relay.groups.memory import ItemMemory, item_bytes
from relay.groups.state import At, GroupState, Item, is_dead, whole_before
from relay.store.levels import GROUP_OPTIONS, PARKED_JOBS, check_level
from relay.topics.steps import StepLog
from server.spaces.space import HostedSpace

T = TypeVar("T")

OWNER: Final = "group:"
"""The prefix of the owners of groups."""

MOST_POSTPONED: Final = 100_000
"""Items that may wait until they are due beside those of the window."""

WINDOW_BYTES: Final = 16 << 20
"""About how many bytes of undone items a group takes into memory; one item of any size it does."""

ANY: Final = object()
"""The place of groups whose pattern matches values of several classes."""


class StreamMember(GroupMember):
    """A member of a group that a stream feeds; ``give`` sends a delivery, ``mark`` a mark.

    ``session`` is the number of its session, by which operators know it.
    """

    __slots__ = ("give", "mark", "owner", "session")

    def __init__(
        self,
        holder: Hashable,
        in_flight: int,
        principal: object,
        give: Callable[[WorkGroup, JobDelivery], None],
        mark: Callable[[Value], None],
        session: str = "",
    ) -> None:
        super().__init__(holder, in_flight, principal)
        self.session = session
        self.owner = ""
        """The owner of its session, once it has joined; empty for a request."""
        self.give = give
        self.mark = mark


class WorkGroup:
    """One group of a space."""

    __slots__ = (
        "_hosted",
        "_key",
        "_memory",
        "_priority",
        "awaited",
        "begun",
        "cannot_read",
        "core",
        "dead",
        "defined",
        "failure",
        "step_log",
        "kinds",
        "matches",
        "name",
        "names",
        "opens",
        "opens_late",
        "pattern",
        "pending",
        "pending_at",
        "pending_bytes",
        "pending_index",
        "pending_to",
        "root",
        "state",
        "unnoted",
        "unparked",
    )

    def __init__(
        self,
        state: GroupState,
        pattern: Value,
        options: GroupOptions,
        hosted: HostedSpace,
        memory: ItemMemory,
    ) -> None:
        """``memory`` is shared by the items of all groups of the space."""
        self.name = state.name
        self.state = state
        self.pattern = pattern
        form = skeleton(pattern)
        self.root = form.shape[0][1] if form.shape else None
        self.names = capture_names(pattern)
        self.matches: Callable[[Value], Captures | None] = matcher(pattern)
        self._hosted = hosted
        self._memory = memory
        self._key = options.key
        self._priority = options.priority
        self.kinds = options.kinds
        """Which rows it divides: ``+``, ``-`` and ``!``, as changes have them."""
        self.begun = 0
        """The epoch at which the daemon began to lead it; 0 for a group that was made since."""
        self.core = self._new_core(options)
        self.dead = 0
        """How many dead letters there are."""
        self.defined = 0
        """The epoch of its definition, which may still be on its way to the disk."""
        self.opens = self.opens_late = 0.0
        """When it begins to hand out, in trio's time, after a start; and if members are awaited."""
        self.awaited: set[str] = set()
        """The owners of sessions that may come back as members."""
        self.failure = ""
        """Why the daemon has stopped it: it reads nothing and hands out nothing until it is resumed."""
        self.pending: deque[Item] = deque()
        """Items that were read from the log and are not taken yet."""
        self.pending_bytes = 0
        """About how many bytes of memory those take."""
        self.pending_to = whole_before(state.read)
        """The epoch to which the log or the topic was read for ``pending``."""
        self.pending_at: tuple[int, int] | None = None
        self.pending_index = 0
        """Where to read on within the next epoch of the topic, and how many of its items were read."""
        self.step_log: StepLog | None = None
        """The topic that is divided, as it was seen last."""
        self.unnoted = 0
        """About how many bytes of the topic were read since the log says how far."""
        self.cannot_read = ""
        """Why it cannot read on now, if so."""
        self.unparked = -1
        """How many items were postponed when none of them could be parked."""

    def settled_at(self, now: float) -> float:
        """Returns when the group begins to hand out, after a start: members that come back before keep what
        they had.  A time in the past once it does."""
        if self.awaited and self.opens_late > now:
            return self.opens_late
        return self.opens

    def _new_core(self, options: GroupOptions, first: int = 0) -> GroupCore:
        index = self._hosted.space.index
        for item in self.state.undone.values():
            item.size = 0 if item.is_parked else item.size or len(pack(item.value))
            item.token = 0
        return GroupCore(
            self.state,
            term=self._hosted.term,
            options=options,
            holds=lambda value: bool(index.count(value)),
            key_at=None if options.key is None else self._key_at,
            level_at=None if options.priority is None else self._level_at,
            first=first,
            memory=self._memory,
            handed_before=self._handed_before,
        )

    def begin_anew(self, first: int, options: GroupOptions | None = None) -> None:
        """Begins where the state says, with tokens from ``first`` on; members stay, and have nothing."""
        self.forget_pending()
        self.core.close()
        before, self.core = self.core, self._new_core(options or self.options, first)
        self.core.counts = before.counts
        for member in before.members.values():
            member.clear()
            self.core.join(member)
        self.pending_to = whole_before(self.state.read)
        self.pending_at, self.pending_index, self.unnoted = None, 0, 0

    def read(self, items: Iterable[Item]) -> None:
        """Adds items that were read from the log, which the group takes when it has room."""
        for item in items:
            self.pending.append(item)
            self._hold_pending(item_bytes(item))

    def next_pending(self) -> Item:
        """Removes the oldest of those, and returns it."""
        item = self.pending.popleft()
        self._hold_pending(-item_bytes(item))
        return item

    def forget_pending(self) -> None:
        """Removes all of those; they are read again."""
        self.pending.clear()
        self._hold_pending(-self.pending_bytes)

    def _hold_pending(self, size: int) -> None:
        self.pending_bytes += size
        self.core.hold(size)

    @property
    def room(self) -> int:
        """About how many bytes of memory the group may take for further items, beside the pending ones."""
        return self.core.room + self.pending_bytes

    def _handed_before(self, at: At) -> bool:
        """True if an earlier daemon can have handed out an item, which was there before the start."""
        if not self.options.topic:
            return at[0] <= self.begun
        return self.begun > 0 and (self.step_log is None or at[0] <= self.step_log.completed_durable)

    def _key_at(self, value: Value) -> Hashable:
        row = self.matches(value)
        assert row is not None and self._key is not None  # the value is an item, the group has a key
        return key_of(row[self.names.index(self._key)])

    def _level_at(self, value: Value) -> int:
        """Returns the priority of a value: no integer is 0, and one out of bounds the nearest level."""
        row = self.matches(value)
        assert row is not None and self._priority is not None  # as above
        level = row[self.names.index(self._priority)]
        return max(0, min(LEVELS - 1, level)) if isinstance(level, int) and level.__class__ is int else 0

    def enter_again(self, items: Iterable[At]) -> None:
        """Queues items again, which the state has as undone."""
        for at in items:
            item = self.state.undone[at]
            item.stays = True
            item.size = len(pack(item.value))
            self.core.enter(item)

    @property
    def options(self) -> GroupOptions:
        """The options of the group, as its definition has them."""
        return self.core.options

    @property
    def oldest(self) -> Item | None:
        """The oldest undone item that was read."""
        return next(iter(self.state.undone.values()), None)

    @property
    def oldest_seconds(self) -> float:
        """The age of that item; 0 if all are done."""
        oldest = self.oldest
        return 0.0 if oldest is None else max(0.0, (self._hosted.clock() - oldest.time) / 1e6)

    @property
    def behind(self) -> int:
        """How many epochs on disk the group has not read."""
        if self.options.topic:
            return 0 if self.step_log is None else max(0, self.step_log.completed_durable - self.pending_to)
        return 0 if self.state.is_live else max(0, self._hosted.commits.durable - self.state.read[0])

    def park(self, item: Item) -> None:
        """Leaves the place of a postponed item alone in memory, once such items are half of the window, or
        the group holds half of the memory that it may have now."""
        core = self.core
        half = (
            core.postponed >= self.options.window // 2
            or core.size >= WINDOW_BYTES // 2
            or self.room <= core.held
        )
        if half and self._parks:
            self.park_at_once(item)

    @property
    def _parks(self) -> bool:
        """True if each daemon of the store reads what a snapshot has of parked items."""
        return self._hosted.level >= PARKED_JOBS

    def park_at_once(self, item: Item) -> bool:
        """Leaves the place of an item alone in memory, if that may be; returns whether it may."""
        is_right = self.core.may_park(item, self._hosted.clock())
        if is_right:
            self.core.park(item)
        return is_right

    @property
    def is_stuck(self) -> bool:
        """True if the group is full, and of items alone that wait for long: other groups came after them,
        and left it less memory."""
        core = self.core
        is_over = core.has_ready or core.out or core.postponed == self.unparked
        return not is_over and core.may_park_any and self._parks and self.is_full

    @property
    def wants_values(self) -> bool:
        """True if values of parked items are due, and there is room for them, or nothing else is ready."""
        core = self.core
        if not core.to_read:
            return False
        return not core.has_ready or (core.size < WINDOW_BYTES and self.room > 0)

    @property
    def is_full(self) -> bool:
        """True if as many items are undone as the group takes at once, or as the memory of all allows.

        Those that wait until they are due do not count to the window, else an hour of failures would fill it.
        """
        undone, postponed = len(self.state.undone), self.core.postponed
        return (
            undone >= self.options.window + min(postponed, MOST_POSTPONED)
            or self.core.size >= WINDOW_BYTES
            or self.core.room + self.pending_bytes <= 0
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """Items of one group that a turn takes for done."""

    group: WorkGroup
    at: tuple[At, ...]
    items: tuple[Item, ...]


def check_disk(hosted: HostedSpace) -> None:
    """Raises ``Refused`` while the disk is full: notes about a group would wait for space."""
    commits = hosted.commits
    if commits.full is not None:
        raise Refused("disk-full", f"the disk is full, and groups do not change: {commits.full}")


def place_of(group: WorkGroup) -> Hashable:
    """Returns the class of the values that a group may divide; ``ANY`` for several."""
    return ANY if group.root is None else group.root


def defines(fact: Value, name: str) -> TypeGuard[Record]:
    """True if a fact defines the group of a name."""
    return (
        isinstance(fact, Record)
        and fact.label == "group"
        and len(fact.fields) == 3
        and fact.fields[0] == name
    )


def stated(options: GroupOptions) -> Map:
    """Returns options as a definition has them: of those that not each group has, what is not as usual."""
    usual, values = asdict(USUAL), asdict(options)
    return Map({name: value for name, value in values.items() if name in ALWAYS or value != usual[name]})


def check_options(hosted: HostedSpace, options: GroupOptions, before: GroupOptions = USUAL) -> None:
    """Raises ``Refused`` for new options that an older daemon of the store would pass over."""
    had, has = asdict(before), asdict(options)
    if later := [name for name in has if has[name] != had[name] and name not in {*ALWAYS, "topic"}]:
        named = {"backoffs": "a list of backoff"}.get(later[0], later[0])
        check_level(hosted.level, GROUP_OPTIONS, f"{named} of a group")


def redefine(hosted: HostedSpace, group: WorkGroup, options: GroupOptions) -> None:
    """Changes the options of a group, in its definition and from now on; raises ``Refused``."""
    fact = Record("group", group.name, group.pattern, stated(options))
    hosted.commit(OWNER + group.name, defining(hosted, group.name, fact))
    group.core.options = options


def defining(hosted: HostedSpace, name: str, fact: Record) -> list[Action]:
    """Returns the actions that make a fact the only definition of a group, whatever defines it before."""
    owner = OWNER + name
    before = [(RETRACT, handle) for handle, _ in definitions_of(hosted, name)]
    return [*before, (ASSERT, hosted.space.fresh_handle(owner), fact)]


def definitions_of(hosted: HostedSpace, name: str) -> list[tuple[int, Record]]:
    """Returns the facts that define a group, with their handles, the newest last.

    There is one, but in logs of earlier versions, which could make a group twice.
    """
    claims = hosted.space.claims(OWNER + name).items()
    return [(handle, fact) for handle, fact in claims if defines(fact, name)]


def group_of(state: GroupState, fact: Record, hosted: HostedSpace, memory: ItemMemory) -> WorkGroup:
    """Returns the group that a fact defines."""
    group = WorkGroup(state, fact.fields[1], options_of(fact), hosted, memory)
    group.dead = dead_letters(hosted, state.name)
    return group


def options_of(fact: Record) -> GroupOptions:
    """Returns the options that a definition has."""
    given = fact.fields[2]
    assert isinstance(given, Map)  # the daemon has written it
    known = GroupOptions.__dataclass_fields__
    return GroupOptions(**{str(n): value for n, value in given.pairs() if n in known})  # type: ignore[arg-type]  # as above


def dead_letters(hosted: HostedSpace, name: str) -> int:
    """Returns how many dead letters a group has; O(its facts)."""
    return sum(map(is_dead, hosted.space.claims(OWNER + name).values()))
