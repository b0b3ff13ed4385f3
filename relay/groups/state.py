"""The durable state of groups: how far each has read, and which items before that are not done.

A group divides the facts and messages that match a pattern among its members, or the items of a durable
topic.  An *item* is one row of the log, named by its epoch and its position among the rows of that epoch; of
a topic it is named by the number of the completed epoch, and its index there.  The log has notes about
groups, which this file writes and applies as a register; snapshots have a checkpoint of each group.  The
members that work on items are not here: ``core.py`` has them in memory.

Always: every item up to ``read`` is done or in ``undone``; an item beyond ``read`` is done only if it is in
``above``.  So no item is lost, whatever a checkpoint was written between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

from dataspace.steps import batched
from index.values.values import Record, Value
from relay.log.notes import Fields, Note, Register, RegisterRows

At: TypeAlias = tuple[int, int]
"""The name of an item: its epoch, and its position among the rows of that epoch."""

END: Final = 1 << 62
"""A position behind all rows of an epoch."""

DONE: Final = "group-done"
"""The kind of note that has items that are done: the group, then epoch and position of each."""

AGAIN: Final = "group-again"
"""The kind of note about a failed or postponed item: group, epoch, position, failed attempts, when it is due
in microseconds since 1970 (0: at once)."""

GROUP: Final = "group"
"""The kind of note that replaces the state of a group: its checkpoint."""

GROUP_ENDED: Final = "group-ended"
"""The kind of note that ends groups."""

UNDONE: Final = "group-undone"
"""The kind of note that has items that are undone again: the group, then each as in a checkpoint."""

PARKED: Final = "group-parked"
"""The kind of note, in snapshots alone, that has the parked items of a group: the group, then in one array
epoch, position, time, failed attempts, when it is due, and the digest of the value for each.  An older
program, which would lose them, does not read such a log."""

READ: Final = "group-read"
"""The kind of note that moves the read position of the group of a topic: the group, epoch and position, and
the items up to there that are undone and that no note or checkpoint before had, each as in a checkpoint."""

WITH_ITEMS: Final = frozenset((GROUP, UNDONE, READ))
"""The kinds of notes that have items with their values."""

DEAD: Final = "dead"
"""The label of dead letters."""

PARKED_CELLS: Final = 6

ENDING: Final = 2
"""What stands in a checkpoint in the place of ``is_message`` for an ending."""

NOTED_ITEMS: Final = 256
NOTED_BYTES: Final = 1 << 20
"""Items that one ``READ`` note has at most, and about how many bytes; one item of any size it may have."""


class Item:
    """One item that is not done; ``token`` is 0 while no member has it.

    ``attempts`` counts failed deliveries; before ``due``, in microseconds since 1970, it is not handed out.
    ``origin`` is of an item of a topic: the time of its epoch there, and why a producer of that crashed.
    ``is_ending`` of a fact that went: that is an event, as a message is, so ``is_message`` is true as well.
    """

    __slots__ = (
        "at",
        "attempts",
        "due",
        "given",
        "holder",
        "is_ending",
        "is_message",
        "is_parked",
        "key",
        "level",
        "origin",
        "size",
        "stays",
        "time",
        "token",
        "value",
    )

    def __init__(
        self,
        at: At,
        time: int,
        value: Value,
        size: int = 0,
        *,
        is_message: bool,
        is_ending: bool = False,
        attempts: int = 0,
        due: int = 0,
        origin: tuple[Value, str] | None = None,
    ) -> None:
        """``size`` is about how many bytes it has."""
        self.at = at
        self.time = time
        self.value = value
        self.is_message = is_message
        self.is_ending = is_ending
        self.is_parked = False
        """True while ``value`` is its digest: it waits for long, and its row is read again then."""
        self.stays = False
        """True if its value may be in no row any more."""
        self.level = 0
        """Its priority, where the group has one."""
        self.attempts = attempts
        self.due = due
        self.token = 0
        self.given = 0
        """The token of its last delivery since the start of the daemon; 0 if there was none."""
        self.holder: object = None
        """The principal that it was given to then."""
        self.key: Any = None
        """What decides which items are worked on in order; None where the group has no key."""
        self.size = size
        self.origin = origin

    @property
    def kind(self) -> Value:
        """``"fact"``, ``"message"``, ``"ending"``, or of a topic ``("item", time, crashed)``."""
        if self.origin is not None:
            return ("item", *self.origin)
        if self.is_ending:
            return "ending"
        return "message" if self.is_message else "fact"

    @classmethod
    def of_kind(cls, at: At, time: int, value: Value, kind: Any) -> Item:
        """Returns the item whose ``kind`` this was."""
        origin = (kind[1], kind[2]) if isinstance(kind, tuple) else None
        return cls(at, time, value, is_message=kind != "fact", is_ending=kind == "ending", origin=origin)

    def __lt__(self, other: Item) -> bool:
        return self.at < other.at

    def packed(self) -> Fields:
        """Returns the item as it is in a checkpoint.  An older program reads an ending as a message, which is
        handed out whatever holds: that is right for it too."""
        kind = ENDING if self.is_ending else self.is_message
        packed = (*self.at, self.time, self.attempts, self.due, kind, self.value)
        return packed if self.origin is None else (*packed, self.origin)

    @classmethod
    def of(cls, packed: Any) -> Item:
        """Returns the item that ``packed`` was made of."""
        epoch, position, time, attempts, due, kind, value, *origin = packed
        item = cls((epoch, position), time, value, is_message=bool(kind), attempts=attempts, due=due)
        item.is_ending = kind == ENDING
        item.origin = origin[0] if origin else None
        return item


class GroupState:
    """The durable state of one group; ``least`` is the lowest token that is valid.

    ``topic`` is the identity of the topic whose items are divided, 0 for facts and messages of the space.
    """

    __slots__ = (
        "above",
        "failed",
        "is_live",
        "least",
        "name",
        "noted",
        "parked_after",
        "read",
        "saved",
        "topic",
        "undone",
    )

    def __init__(self, name: str, read: At = (0, END), least: int = 0, topic: int = 0) -> None:
        self.name = name
        self.topic = topic
        self.read = self.noted = read
        """``noted`` is how far of that the log says."""
        self.least = least
        self.undone: dict[At, Item] = {}
        self.above: set[At] = set()
        """Items beyond ``read`` that are done."""
        self.failed: dict[At, tuple[int, int]] = {}
        """Failed attempts of items beyond ``read``, and when they are due."""
        self.saved = whole_before(read)
        """The epoch after which the log or the topic is needed: the read position of the newest checkpoint on
        disk."""
        self.parked_after: int | None = None
        """An epoch after which all parked items came, None if there are none: the log keeps their rows."""
        self.is_live = False
        """True if every epoch on disk is read: then ``GroupStates.fed`` says how far, for all such groups."""

    def become(self, other: GroupState) -> None:
        """Takes over the state that a checkpoint has, all of it."""
        self.is_live = False
        for name in ("topic", "least", "undone", "above", "failed", "saved", "noted", "read", "parked_after"):
            setattr(self, name, getattr(other, name))

    def is_undone(self, at: At) -> bool:
        """True if an item is not done; of an item beyond ``read`` this does not say that it exists."""
        return at in self.undone or (at > self.read and at not in self.above)

    def done(self, at: At) -> None:
        """Notes that an item is done."""
        if self.undone.pop(at, None) is None and at > self.read:
            self.above.add(at)
            self.failed.pop(at, None)

    def postpone(self, at: At, attempts: int, due: int) -> None:
        """Notes the failed attempts of an item, and when it is due."""
        item = self.undone.get(at)
        if item is not None:
            item.attempts, item.due = attempts, due
        elif at > self.read:
            self.failed[at] = (attempts, due)

    def revive(self, items: Iterable[Item]) -> None:
        """Notes that items up to ``read`` are undone again; O(undone items), which stay in order."""
        undone = sorted([*self.undone.values(), *[each for each in items if each.at not in self.undone]])
        self.undone = {each.at: each for each in undone}

    def take(self, item: Item) -> bool:
        """Reads the next item, beyond all before; returns False if that is done already."""
        at = item.at
        if at in self.above:
            self.read = at  # before the item leaves ``above``, else it would be read again after an error
            self.above.discard(at)
            return False
        if (failed := self.failed.get(at)) is not None:
            item.attempts, item.due = failed
        self.undone[at] = item
        self.read = at  # once it is among the undone ones, else it would be lost with an error between
        self.failed.pop(at, None)
        return True

    def park(self, item: Item, digest: bytes) -> None:
        """Keeps the digest of an item in place of its value."""
        item.value, item.size, item.is_parked = digest, 0, True
        before = item.at[0] - 1
        self.parked_after = before if self.parked_after is None else min(self.parked_after, before)

    @property
    def parked(self) -> list[Item]:
        """The parked items; O(undone items) if there may be any."""
        if self.parked_after is None:
            return []
        found = [item for item in self.undone.values() if item.is_parked]
        self.parked_after = min([item.at[0] for item in found]) - 1 if found else None
        return found

    def forget_above(self) -> None:
        """Forgets which items were done before they were read, as far as they are read."""
        self.above = {at for at in self.above if at > self.read}

    def unread(self) -> None:
        """Forgets items beyond ``read``, which an error has left there: they are read again."""
        self.undone = {at: item for at, item in self.undone.items() if at <= self.read}

    def pass_to(self, at: At, items: Iterable[Item]) -> None:
        """Reads up to a position of a topic: these items are undone, and the others are done.

        Does nothing where that was read already.
        """
        if at <= self.read:
            return
        for item in items:
            if item.at > self.read and item.at not in self.above:
                self.undone[item.at] = item
        self.above = {each for each in self.above if each > at}
        self.failed = {each: more for each, more in self.failed.items() if each > at}
        self.noted = at
        self.saved = whole_before(at)
        self.read = at  # the last: until then the note can be taken in again

    def read_note(self) -> Fields | None:
        """Returns the fields of a ``READ`` note about a running group; None if nothing is to be noted.

        A note of limited size may not reach the read position.  O(undone items).
        """
        items, size, upto = list[Item](), 0, self.read
        for item in self.undone.values():
            if item.at <= self.noted:
                continue
            if items and (len(items) >= NOTED_ITEMS or size + item.size > NOTED_BYTES):
                upto = (item.at[0], item.at[1] - 1) if item.at[1] else (item.at[0] - 1, END)
                break
            items.append(item)
            size += item.size
        if upto <= self.noted:
            return None
        self.noted = upto
        return (self.name, *upto, *[each.packed() for each in items])

    def checkpoint(self, fed: int) -> Fields:
        """Returns the fields of a ``GROUP`` note, without what is parked; O(undone items)."""
        read = (fed, END) if self.is_live and fed >= self.read[0] else self.read
        undone = tuple([item.packed() for item in self.undone.values() if not item.is_parked])
        above = tuple([part for at in sorted(self.above) if at > read for part in at])
        failed = tuple([(*at, *more) for at, more in sorted(self.failed.items()) if at > read])
        fields = (self.name, *read, self.least, undone, above, failed)
        return (*fields, self.topic) if self.topic else fields


class GroupStates(dict[str, GroupState], Register):
    """The groups of a space, by their names; ``fed`` is the epoch to which live groups have read."""

    KINDS = frozenset((DONE, AGAIN, GROUP, GROUP_ENDED, UNDONE, READ, PARKED))

    fed = 0

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, str] = {}
        """Groups with a note that could not be taken in, and why; their state may lack what it says."""

    def apply(self, kind: str, fields: Any) -> None:
        """Does what a note about groups says; O(its items).

        A note that was taken in by half is taken in again.  A note that cannot be taken in at all makes its
        group one of ``refused``, and neither the start of the daemon nor the notes of other groups fail.
        """
        try:
            self._apply(kind, fields)
        except Exception:  # noqa: BLE001  # a fence around the notes of one group, as the docstring says
            try:
                self._apply(kind, fields)
            except Exception as error:  # noqa: BLE001  # as above
                self.refused[str(fields[0]) if fields else ""] = (
                    f"a note {kind!r} cannot be taken in: {error!r}"
                )

    def _apply(self, kind: str, fields: Any) -> None:
        if kind == DONE:
            name, *cells = fields
            if (group := self.get(name)) is not None:
                for at in _items(cells):
                    group.done(at)
        elif kind == AGAIN:
            name, epoch, position, attempts, due = fields
            if (group := self.get(name)) is not None:
                group.postpone((epoch, position), attempts, due)
        elif kind == GROUP:
            self._replace(fields)
        elif kind == UNDONE:
            name, *items = fields
            if (group := self.get(name)) is not None:
                group.revive([Item.of(packed) for packed in items])
        elif kind == READ:
            name, epoch, position, *items = fields
            if (group := self.get(name)) is not None:
                group.pass_to((epoch, position), [Item.of(packed) for packed in items])
        elif kind == PARKED:
            name, cells = fields
            if (group := self.get(name)) is not None:
                for epoch, position, time, attempts, due, digest in batched(cells, PARKED_CELLS):
                    at = epoch, position
                    item = Item(at, time, None, is_message=not digest, attempts=attempts, due=due)
                    group.undone[at] = item
                    group.park(item, digest)
        elif kind == GROUP_ENDED:
            for name in fields:
                self.pop(name, None)
                self.refused.pop(name, None)

    def _replace(self, fields: Any) -> None:
        name, epoch, position, least, undone, above, failed, *topic = fields
        state = GroupState(name, (epoch, position), least, topic[0] if topic else 0)
        state.undone = {item.at: item for item in map(Item.of, undone)}
        state.above.update(zip(above[::2], above[1::2], strict=True))
        state.failed = {(epoch, position): (attempts, due) for epoch, position, attempts, due in failed}
        group = self.get(name)
        if group is None:
            self[name] = state
        else:
            group.become(state)
        self.refused.pop(name, None)

    def needs_after(self) -> int | None:
        """Returns the epoch after which groups need the log; None where no group does."""
        groups = [group for group in list(self.values()) if not group.topic]
        parked = [after for group in groups if (after := group.parked_after) is not None]
        return min([group.saved for group in groups] + parked, default=None)

    def needs_of_topic(self, topic: int) -> int | None:
        """Returns the epoch after which groups need a topic, by its identity; None where none does."""
        return min([group.saved for group in self.values() if group.topic == topic], default=None)

    def saved(self, rows: Sequence[Any]) -> None:
        """Notes that checkpoints are on disk; a group that has begun anew since keeps its own."""
        for name, *place in rows:
            group = self.get(name)
            if group is None or len(place) == 1:  # what is parked
                continue
            epoch, position, least, *_ = place
            if group.least == least:
                group.saved = max(group.saved, whole_before((epoch, position)))

    def rows(self) -> list[RegisterRows]:
        """Returns the checkpoints of all groups, which nothing changes any more; O(undone items)."""
        rows: list[RegisterRows] = [(GROUP, (group.checkpoint(self.fed),)) for group in self.values()]
        for group in self.values():
            if parked := group.parked:
                cells = [
                    cell
                    for item in parked
                    for cell in (*item.at, item.time, item.attempts, item.due, item.value)
                ]
                rows.append((PARKED, ((group.name, tuple(cells)),)))
        return rows


def is_dead(fact: Value) -> TypeGuard[Record]:
    """True if a fact of a group is a dead letter; its field 3 is the item."""
    return isinstance(fact, Record) and fact.label == DEAD and len(fact.fields) == 8


def of_group(kind: str, fields: Fields) -> Note:
    """Returns a note about a group."""
    return Note(kind, fields, required=True)


def items_of(kind: str, fields: Any) -> list[Item]:
    """Returns the items that a note has; O(items)."""
    packed = fields[4] if kind == GROUP else fields[_before_items(kind) :] if kind in WITH_ITEMS else ()
    return [Item.of(each) for each in packed]


def without_items(note: Note, goes: Callable[[Item], bool], instead: Value) -> Note:
    """Returns a note with ``instead`` as the value of each item that goes; itself if none does.  O(items)."""
    items = items_of(note.kind, note.fields)
    gone = [each for each in items if goes(each)]
    if not gone:
        return note
    for item in gone:
        item.value = instead
    packed = tuple([each.packed() for each in items])
    if note.kind == GROUP:
        return note._replace(fields=(*note.fields[:4], packed, *note.fields[5:]))
    return note._replace(fields=(*note.fields[: _before_items(note.kind)], *packed))


def _before_items(kind: str) -> int:
    """Returns how many fields are before the items at the end of a note."""
    return 3 if kind == READ else 1


def whole_before(read: At) -> int:
    """Returns the newest epoch that was read whole."""
    return read[0] if read[1] == END else read[0] - 1


def done_fields(name: str, items: Iterable[At]) -> Fields:
    """Returns the fields of a ``DONE`` note; each epoch is written as its difference to the one before."""
    cells: list[Value] = [name]
    before = 0
    for epoch, position in sorted(items):
        cells += (epoch - before, position)
        before = epoch
    return tuple(cells)


def _items(cells: list[int]) -> Iterator[At]:
    epoch = 0
    for difference, position in zip(cells[::2], cells[1::2], strict=True):
        epoch += difference
        yield epoch, position
