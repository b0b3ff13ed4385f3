"""A group: items that its members divide, each of which is done once.

An *item* is a fact that comes, a message, or an item of a durable topic; it is named by its epoch and its
position there.  A *delivery* of an item has a token; a member reports items as done by their tokens.  Which
member gets which item, and when, is open.  So a group is not worked out: these are constraints on what a log
says of it, and on what its members were told.

Always: a function yields one sentence for each place where its promise is broken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from index.values.values import Value, key, keys

At: TypeAlias = tuple[int, int]
"""The name of an item."""


class Epoch(NamedTuple):
    """What an epoch adds, sends and removes; a row's position is that among all of these, in this order."""

    number: int
    added: Sequence[Value]
    messages: Sequence[Value]
    removed: Sequence[Value]


class Begun(NamedTuple):
    """The group takes items after a place from now on; of those before, and of those after it, some are left
    and some are done."""

    after: At
    undone: Sequence[tuple[At, Value]] = ()
    done: Sequence[At] = ()


class Done(NamedTuple):
    """Items are done, in one epoch: that of a turn, of a dead letter, or the one before."""

    items: Sequence[At]


class Failed(NamedTuple):
    """An item has failed so many times."""

    item: At
    attempts: int


class Revived(NamedTuple):
    """Items that were dead letters are to be done."""

    items: Sequence[tuple[At, Value]]


Entry: TypeAlias = Epoch | Begun | Done | Failed | Revived


@dataclass(frozen=True)
class Told:
    """A delivery that a member was told; its ``attempt`` is 1 for an item that has not failed."""

    at: At
    token: int
    member: str = ""
    captures: tuple[Value, ...] | None = None
    attempt: int = 1


class Report(NamedTuple):
    """A member reported items as done by these tokens, and the daemon is known to have taken that, or not."""

    member: str
    items: tuple[tuple[At, int], ...]
    is_taken: bool


@dataclass
class GroupHistory:
    """The entries of a log about one group, in order, and what its members were told and have reported.

    ``captures`` returns what members are told of a value; None if it is no item.
    """

    captures: Callable[[Value], tuple[Value, ...] | None]
    entries: list[Entry]
    told: list[Told] = field(default_factory=list)
    key: Callable[[Value], Hashable] | None = None
    reports: list[Report] = field(default_factory=list)
    kinds: str = "+!"
    """What is an item: facts that come (``+``), facts that go (``-``), messages (``!``)."""
    is_whole: bool = True
    """False if the daemon was started again meanwhile: of an item of before it does not know whose it was."""


def broken_groups(history: GroupHistory) -> list[str]:
    """Returns what is wrong in a history of one group, in words; empty if nothing is."""
    return [said for promise in PROMISES for said in promise(history)]


# -- what the log says ------------------------------------------------------------------------------------


class Items:
    """The items of a group after some entries of the log."""

    def __init__(self, history: GroupHistory) -> None:
        self._captures = history.captures
        self._kinds = history.kinds
        self._begun: At | None = None
        self._facts: dict[Hashable, At] = {}
        """The latest item of each fact."""
        self.values: dict[At, Value] = {}
        """All items so far, in their order."""
        self.done: dict[At, int] = {}
        """Items that are done, each with the epoch before or in which that was."""
        self.gone: dict[At, int] = {}
        """Items whose fact has gone, each with the epoch in which it went."""
        self.back: set[At] = set()
        """Those of them whose fact came again, and is an item anew."""
        self.failed: dict[At, tuple[int, int]] = {}
        """How often items have failed, and the epoch before that."""
        self.revived: set[At] = set()
        """Items that were dead letters, which have lost their place among those of their key."""
        self.number = 0

    def take(self, entry: Entry) -> None:
        """Takes the next entry."""
        match entry:
            case Epoch(number, added, messages, removed):
                self.number = number
                kinds = "+" * len(added) + "!" * len(messages) + "-" * len(removed)
                for position, value in enumerate((*added, *messages, *removed)):
                    at, kind = (number, position), kinds[position]
                    is_taken = self._begun is not None and at > self._begun and kind in self._kinds
                    if not is_taken or self._captures(value) is None:
                        continue
                    self.values[at] = value
                    if kind == "+":
                        if (before := self._facts.get(key(value))) in self.gone:
                            self.back.add(before)
                        self._facts[key(value)] = at
                self.gone |= {self._facts[key(each)]: number for each in removed if key(each) in self._facts}
            case Begun(after, undone, done):
                self._begun, self.values = after, dict(undone)
                self.done = dict.fromkeys(done, self.number)
            case Done(items):
                self.done |= dict.fromkeys(items, self.number)
            case Failed(item, attempts):
                self.failed[item] = attempts, self.number
            case Revived(items):
                self.values |= dict(items)
                for at, _ in items:
                    self.done.pop(at, None)
                    self.failed.pop(at, None)
                    self.revived.add(at)


def items_of(history: GroupHistory) -> Items:
    """Returns the items in the end."""
    items = Items(history)
    for entry in history.entries:
        items.take(entry)
    return items


def done_in(history: GroupHistory) -> list[At]:
    """Returns the items that the log says are done, in order."""
    return [at for entry in history.entries if isinstance(entry, Done) for at in entry.items]


def done_once(history: GroupHistory) -> Iterator[str]:
    """An item is done at most once, and not before it is there, unless it was guessed after a restart."""
    items = Items(history)
    guessed = {at for each in history.reports if not history.is_whole for at, _ in _guessed(history, each)}
    for entry in history.entries:
        at_once = entry.items if isinstance(entry, Done) else ()
        for at in at_once:
            if at not in items.values and at not in items.done and at not in guessed:
                yield f"{at} is done after epoch {items.number}, and no such item is before it"
            elif at in items.done:
                yield f"{at} is done after epoch {items.number}, and was done after {items.done[at]}"
        if len(set(at_once)) < len(at_once):
            yield f"an item is done twice in one turn: {at_once}"
        items.take(entry)


def done_in_order(history: GroupHistory) -> Iterator[str]:
    """Of one key, items are done in the order of the log; those of one turn at once.

    A fact that has gone, and was never handed out, may be passed over before: nobody does anything then.
    """
    if history.key is None:
        return
    items, told = Items(history), {each.at for each in history.told}
    for entry in history.entries:
        items.take(entry)
        at_once = [at for at in entry.items if at in items.values] if isinstance(entry, Done) else []
        free = items.done.keys() | items.gone.keys() | items.revived if at_once else ()
        for at in at_once:
            if at in items.gone and at not in told:
                continue
            mine = history.key(items.values[at])
            before = [each for each in items.values if each < at and each not in free]
            if blocking := [each for each in before if history.key(items.values[each]) == mine]:
                yield f"{at} is done before {blocking[0]}, which has the same key"


def left(history: GroupHistory) -> list[At]:
    """Returns the items that are not done: a member that comes last gets each of them.

    A fact that has gone need not be done.
    """
    items = items_of(history)
    return [at for at in items.values if at not in items.done and at not in items.gone]


# -- what members were told -------------------------------------------------------------------------------


def told_what_there_is(history: GroupHistory) -> Iterator[str]:
    """An item that is handed out is in the log, with the value that the member is told."""
    items = items_of(history)
    for each in history.told:
        value = items.values.get(each.at)
        if each.captures is not None and (
            value is None or keys(history.captures(value) or ()) != keys(each.captures)
        ):
            yield f"{each.at} was handed out with {each.captures!r:.60}, in the log it is {value!r:.60}"


def told_one_item_for_a_token(history: GroupHistory) -> Iterator[str]:
    """A token names one delivery of one item, to one member."""
    tokens: dict[int, tuple[At, str]] = {}
    for each in history.told:
        if (before := tokens.setdefault(each.token, (each.at, each.member))) != (each.at, each.member):
            yield f"token {each.token} is of {each.at}, {each.member}, and of {before[0]}, {before[1]}"


def told_no_more_once_done(history: GroupHistory) -> Iterator[str]:
    """An item that is done is handed out no more, nor one whose fact has gone."""
    items, since = items_of(history), _Since(history)
    for each in history.told:
        for what, ends in ("was done", items.done), ("had gone", items.gone):
            is_known = each.at in ends and (ends is items.done or each.at not in items.back)
            if is_known and since.epoch(each) > ends[each.at]:
                yield f"{each} was handed out after epoch {since.epoch(each)}, it {what} in {ends[each.at]}"


def told_each_attempt(history: GroupHistory) -> Iterator[str]:
    """An item that has failed is handed out as a further attempt."""
    items, since = items_of(history), _Since(history)
    for each in history.told:
        attempts, epoch = items.failed.get(each.at, (0, 0))
        if since.epoch(each) > epoch and each.attempt <= attempts:
            yield f"{each} was handed out as attempt {each.attempt}, it had failed {attempts} times"


class _Since:
    """After which epoch each delivery was made, as far as tokens tell: they ascend, and an item is handed out
    after its epoch."""

    def __init__(self, history: GroupHistory) -> None:
        ordered = sorted(history.told, key=lambda each: each.token)
        self._tokens = [each.token for each in ordered]
        self._epochs = list(accumulate([each.at[0] for each in ordered], max))

    def epoch(self, told: Told) -> int:
        """Returns an epoch after which a delivery was made."""
        return self._epochs[bisect_left(self._tokens, told.token)]


# -- what members report ----------------------------------------------------------------------------------


def done_by_who_was_told(history: GroupHistory) -> Iterator[str]:
    """What is reported as done is taken only from the member to which it is out, by its token.

    After a restart the token alone counts."""
    for report in history.reports:
        if report.is_taken and history.is_whole and (strange := _guessed(history, report)):
            yield f"{report.member} has reported {strange} as done, which it never had"


def _guessed(history: GroupHistory, report: Report) -> list[tuple[At, int]]:
    """Returns what a member has reported that it was never told of."""
    known = {(each.at, each.token) for each in history.told if each.member == report.member}
    return [each for each in report.items if each not in known]


def done_as_it_was_told(history: GroupHistory) -> Iterator[str]:
    """An item is done only once it was handed out, unless its fact has gone."""
    told = {each.at for each in history.told}
    known = told | {at for report in history.reports for at, _ in report.items}
    for at in set(done_in(history)) - known - items_of(history).gone.keys():
        if told:
            yield f"{at} is done, and was delivered to nobody"


PROMISES: Final = (
    done_once,
    done_in_order,
    told_what_there_is,
    told_one_item_for_a_token,
    told_no_more_once_done,
    told_each_attempt,
    done_by_who_was_told,
    done_as_it_was_told,
)
