"""Interests: the observers of a pattern, and the changes that this turn has for them.

However many observers share a pattern, the index knows one handler for it: an ``Interest``.  During a
turn it collects what its handler is called with; when the turn has committed, the space closes the collection
into one ``Changes`` and every observer gets that same object.

Always: between turns nothing is collected; an interest without observers is in no table.  To observe and to
ignore are done whole or not at all, whatever raises.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import Final, Protocol

from dataspace.codec import pack, unpack_own
from dataspace.kernel.changes import Captures, Changes
from dataspace.kernel.limits import SpaceLimits, size_of_pattern
from index.patterns.events import ADDED, REMOVED, Event
from index.patterns.patterns import Skeleton, skeleton
from index.trie.contents import completed
from index.trie.trie import Index
from index.values.values import Value, key

FILLED: Final = 256
"""Facts that are filed in one step for the first observer of a pattern, in less than a millisecond."""


class Observer(Protocol):
    """A receiver of changes; must return at once and not call back into the space."""

    def offer(self, changes: Changes) -> None:
        """Takes one epoch's changes."""


class SharedObserver(Observer, Protocol):
    """An observer that stands for many."""

    def __len__(self) -> int:
        """Returns for how many."""


class Interest:
    """The handler of one pattern and the observers behind it.

    Most patterns have one observer, which stands for all others: so what few need is made when it is needed.
    """

    __slots__ = (
        "_added",
        "_messages",
        "_packed",
        "_removed",
        "_touched",
        "_waiting",
        "observers",
        "queue",
        "skeleton",
    )

    def __init__(self, pattern: Value, skeleton: Skeleton, touched: list[Interest]) -> None:
        self._packed = pack(pattern)
        self.skeleton = skeleton
        self.observers = _NO_OBSERVERS
        self.queue: SharedObserver | None = None
        """One more observer, which stands for many, where there is one."""
        self._touched = touched
        self._waiting = False
        self._added = self._messages = self._removed = _NO_ROWS

    def notice(self, event: Event, captures: Captures) -> None:
        """Collects one event; the callback that the index calls.  O(1)."""
        if not self._waiting:
            self._waiting = True
            self._touched.append(self)
        if event is ADDED:
            if self._added:
                self._added.append(captures)
            else:
                self._added = [captures]
        elif event is REMOVED:
            if self._removed:
                self._removed.append(captures)
            else:
                self._removed = [captures]
        elif self._messages:
            self._messages.append(captures)
        else:
            self._messages = [captures]

    def forget(self) -> None:
        """Drops what was collected."""
        self._waiting = False
        self._added = self._messages = self._removed = _NO_ROWS

    def __len__(self) -> int:
        """Returns the number of observers."""
        return len(self.observers) + (0 if self.queue is None else len(self.queue))

    def add(self, observer: Observer) -> None:
        """Calls an observer from the next epoch on."""
        if self.observers:
            self.observers[observer] = None
        else:
            self.observers = {observer: None}

    def remove(self, observer: Observer) -> None:
        """Stops calling an observer, if it is called."""
        if observer is self.queue:
            self.queue = None
        else:
            self.observers.pop(observer, None)

    @property
    def pattern(self) -> Value:
        """Returns the pattern; O(size).  It is rarely needed, and takes five times as much as its bytes."""
        return unpack_own(self._packed)

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to call."""
        return self.queue is None and not self.observers

    def close(self, number: int, time: int) -> None:
        """Ends the collection, if there is one, and calls the observers; O(observers).

        An error of an observer is raised once all others were called.
        """
        if not self._waiting:
            return
        changes = Changes(number, time, self._added, self._messages, self._removed)
        called: Observer | None = None
        try:
            self._waiting = False  # as ``forget``, without its call
            self._added = self._messages = self._removed = _NO_ROWS
            if self.queue is not None:
                called = self.queue
                called.offer(changes)
            for called in self.observers:
                called.offer(changes)
        except BaseException:
            self.forget()
            self._call_rest(changes, called)
            raise

    def _call_rest(self, changes: Changes, last: Observer | None) -> None:
        """Calls the observers after the failed one."""
        waiting = [*([] if self.queue is None else [self.queue]), *self.observers]
        if last is not None:
            del waiting[: waiting.index(last) + 1]
        tell_each([observer.offer for observer in waiting], changes)


_NO_OBSERVERS: Final[dict[Observer, None]] = {}
_NO_ROWS: Final[list[Captures]] = []
"""What most interests have most of the time; never changed."""


class Interests:
    """The interests of one index; an interest that has changes to close is put into ``touched``.

    Patterns that differ in the names of their captures alone are one interest: they observe the same, and
    names are no part of it.  A thousand observers of everything would else be told a thousand times.
    """

    __slots__ = ("_by_place", "_index", "_limits", "_touched", "size")

    def __init__(self, index: Index, touched: list[Interest], limits: SpaceLimits) -> None:
        self._index = index
        self._touched = touched
        self._limits = limits
        self._by_place: dict[object, Interest] = {}
        self.size = 0
        """Bytes that the patterns take, about."""

    def relimit(self, limits: SpaceLimits) -> None:
        """Changes the limits; patterns that are observed stay."""
        self._limits = limits

    def __len__(self) -> int:
        return len(self._by_place)

    def __iter__(self) -> Iterator[Interest]:
        return iter(self._by_place.values())

    @property
    def touched(self) -> list[Interest]:
        """The interests that have changes in the turn under way; a list of the caller's own."""
        return self._touched[:]

    @property
    def observers(self) -> int:
        """Observers of all patterns; O(patterns)."""
        return sum([len(interest) for interest in self])

    def observe(self, pattern: Value, observer: Observer) -> Interest:
        """Calls an observer with the changes of a pattern from the next epoch on.

        Raises ``UsageError`` for a pattern that is none, ``Refused`` beyond a limit.
        """
        interest = self._found(pattern)
        try:
            self._enter(pattern, interest)
            interest.add(observer)
        except BaseException:
            self._drop_if_idle(interest)
            raise
        return interest

    def share(self, pattern: Value, make: Callable[[Interest], SharedObserver]) -> SharedObserver:
        """Returns the observer of a pattern that stands for many; makes it where there is none.

        Raises as ``observe`` does.
        """
        interest = self._found(pattern)
        try:
            self._enter(pattern, interest)
            if interest.queue is None:
                interest.queue = make(interest)
        except BaseException:
            self._drop_if_idle(interest)
            raise
        return interest.queue

    def preparing(self, pattern: Value) -> Generator[None, None, None]:
        """Does in steps what the first observer of a pattern needs, while turns go on; ``observe`` must
        follow at once.

        Raises as ``observe`` does.  If it does not come to its end, or nothing follows, ``drop_idle`` must.
        """
        form = skeleton(pattern)
        while _place(form) not in self._by_place:
            self._limits.check_patterns(len(self._by_place) + 1, self.size + size_of_pattern(key(pattern)))
            if self._index.fill(form, FILLED):
                return
            yield

    def drop_idle(self, pattern: Value) -> None:
        """Drops what was prepared for a pattern that nothing observes; O(1)."""
        form = skeleton(pattern)
        if _place(form) not in self._by_place:
            self._index.drop_idle(form)

    def _found(self, pattern: Value) -> Interest:
        """Returns the interest of a pattern, or a new one, which nothing knows yet."""
        form = skeleton(pattern)
        found = self._by_place.get(_place(form))
        return Interest(pattern, form, self._touched) if found is None else found

    def _enter(self, pattern: Value, interest: Interest) -> None:
        """Adds an interest to the index and the table, if it is new."""
        at = _place(interest.skeleton)
        if at not in self._by_place:
            size = self.size + size_of_pattern(key(pattern))
            self._limits.check_patterns(len(self._by_place) + 1, size)
            self._index.add_handler(interest.skeleton, interest.notice, tells=False)
            self._by_place[at], self.size = interest, size

    def ignore(self, interest: Interest, observer: Observer) -> None:
        """Stops calling an observer; the last one takes the pattern out of the index."""
        completed(self._ignore, interest, observer)

    def _ignore(self, interest: Interest, observer: Observer) -> None:
        interest.remove(observer)
        self._drop_if_idle(interest)

    def _drop_if_idle(self, interest: Interest) -> None:
        if interest.is_idle:
            self._drop(interest)

    def _drop(self, interest: Interest) -> None:
        """Removes an interest from the index and the table, as far as it is there."""
        if self._index.has_handler(interest.skeleton, interest.notice):
            self._index.remove_handler(interest.skeleton, interest.notice)
        at = _place(interest.skeleton)
        if self._by_place.get(at) is interest:
            size = self.size - size_of_pattern(key(interest.pattern))
            self.size, _ = size, self._by_place.pop(at)

    def forget(self) -> None:
        """Drops what was collected for all observers."""
        for interest in self:
            interest.forget()
        self._touched.clear()


def _place(form: Skeleton) -> Hashable:
    """Returns the place of a pattern in the index; patterns that observe the same have the same place."""
    return form.way, form.group, form.place, form.captures


def tell_each(offers: Sequence[Callable[..., None]], *args: object) -> None:
    """Calls each, and then raises the first of their errors."""
    failure: BaseException | None = None
    for offer in offers:
        try:
            offer(*args)
        except BaseException as error:  # noqa: BLE001  # all are called, then the first of them is raised
            failure = failure or error
    if failure is not None:
        raise failure
