"""Tables: the state that an observation has, made of its epochs.

After a reconnect to a log that no longer has what followed, the state is sent again, and the table knows the
difference.  ``RowTable`` is for that alone; of ``KeyedTable`` a program reads the rows by key as well
(``space.live``), so that there is no second one.

Always: a table is the state at a whole epoch, also for other threads; a key whose row is replaced within an
epoch keeps its place, and a new key comes last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from threading import RLock
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from dataspace.errors import SeveralRows, UsageError
from dataspace.kernel.changes import Captures
from index.values.values import Value, key, keys

R = TypeVar("R")


class StateTable(Protocol):
    """The state of one observation."""

    def apply(self, added: Sequence[Captures], removed: Sequence[Captures]) -> None:
        """Takes the net changes of an epoch; O(rows)."""

    def difference(self, state: Iterable[Captures]) -> tuple[list[Captures], list[Captures]]:
        """Returns the rows that must come and those that must go to make this state; O(rows of both)."""

    def close(self) -> None:
        """Releases what only an observation needs."""


class RowTable:
    """Rows without order, for the difference alone."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: Final[dict[Hashable, Captures]] = {}

    def apply(self, added: Sequence[Captures], removed: Sequence[Captures]) -> None:
        """Takes the net changes of an epoch; O(rows)."""
        rows = self._rows
        for row in added:
            rows[keys(row)] = row
        for row in removed:
            rows.pop(keys(row), None)

    def difference(self, state: Iterable[Captures]) -> tuple[list[Captures], list[Captures]]:
        """Returns the rows that must come and those that must go to make this state; O(rows of both)."""
        return _difference(self._rows, state)

    def close(self) -> None:
        """Releases the rows."""
        self._rows.clear()


def _difference(
    known: dict[Hashable, Captures], state: Iterable[Captures]
) -> tuple[list[Captures], list[Captures]]:
    now = {keys(row): row for row in state}
    came = [row for at, row in now.items() if at not in known]
    return came, [row for at, row in known.items() if at not in now]


# -- by key ----------------------------------------------------------------------------------------


class _Several(dict[Hashable, Captures]):
    """Several rows of one key, oldest first."""

    __slots__ = ()


class _MadeRow(tuple[Value, ...]):
    """A row with the object that the program's ``row=`` has made of it."""

    made: Any


Entry: TypeAlias = Captures | _Several
"""What a key has: nearly always one row, which then costs no more than its place."""


class KeyForm(Generic[R]):
    """How rows are found and shown: the captures of the key, and what is made of a row.

    ``at`` are the places of the key's captures; if ``single``, a key is the value of the only one, else a
    tuple.  ``make`` is called when a row comes, ``show`` when one is read.
    """

    __slots__ = ("_at", "make", "many", "place", "show", "single", "sort")

    def __init__(
        self,
        at: Sequence[int],
        *,
        single: bool = True,
        many: bool = False,
        make: Callable[[Captures], Any] | None = None,
        show: Callable[[Captures], Any] = tuple,
        sort: Callable[[Any], Any] | None = None,
    ) -> None:
        self._at: Final = tuple(at)
        self.single: Final = single
        self.many: Final = many
        self.make: Final = make
        self.show: Final[Callable[[Any], Any]] = _made if make is not None else show
        self.sort: Final = sort
        self.place: Final = _by_one(self._at[0]) if len(self._at) == 1 else _by_several(self._at)
        """Returns what stands for the key of a row."""

    def place_of(self, at: Any) -> Hashable:
        """Returns what stands for a key as a program writes it; for what cannot be a key, what stands for
        none."""
        if self.single:
            return key(at)
        return keys(at) if isinstance(at, tuple) and len(at) == len(self._at) else _NO_KEY

    def key_of(self, entry: Entry) -> Any:
        """Returns the key of rows, as a program sees it."""
        row: Captures = next(iter(entry.values())) if entry.__class__ is _Several else entry  # type: ignore[assignment]  # narrowed by class
        return row[self._at[0]] if self.single else tuple([row[at] for at in self._at])

    def seen(self, entry: Entry) -> R:
        """Returns what a program sees of a key; raises ``SeveralRows`` where it asked for one row."""
        rows: list[Captures] = list(entry.values()) if entry.__class__ is _Several else [entry]  # type: ignore[list-item]  # narrowed by class
        if self.many:
            return [self.show(row) for row in rows]  # type: ignore[return-value]  # R is a list then
        if len(rows) > 1:
            raise SeveralRows(
                f"{self.key_of(entry)!r:.80} has {len(rows)} rows, {', '.join(map(repr, rows)):.300}: "
                "several facts have this key (as for the grace of a publisher that came back); "
                "many=True gives them all"
            )
        return self.show(rows[0])  # type: ignore[no-any-return]  # R is what the program makes of a row


_NO_KEY: Final = object()
"""Stands for what is no key."""


def _made(row: _MadeRow) -> Any:
    return row.made


def _by_one(at: int) -> Callable[[Captures], Hashable]:
    def place(row: Captures) -> Hashable:
        value = row[at]
        return value if value.__class__ is str else key(value)  # most keys are text

    return place


def _by_several(places: tuple[int, ...]) -> Callable[[Captures], Hashable]:
    return lambda row: keys(tuple([row[at] for at in places]))


def places_of(by: str | Sequence[str], names: Sequence[str]) -> list[int]:
    """Returns the places of the captures that are a key; raises ``UsageError`` for what is no capture."""
    wanted = (by,) if isinstance(by, str) else tuple(by)
    if not wanted or len({*wanted}) < len(wanted) or not {*wanted} <= {*names}:
        there = ", ".join(names) or "of which the pattern has none"
        raise UsageError(
            f"by names captures, each once: {there}; not {', '.join(map(str, wanted)) or 'nothing'}"
        )
    return [names.index(name) for name in wanted]


class LiveChange(Generic[R]):
    """What has become of one key: ``old`` is None if it came, ``new`` if it went.

    ``key, old, new = change`` takes it apart.  Without ``many``, ``old`` or ``new`` raises ``SeveralRows``
    where the key had several rows.
    """

    __slots__ = ("_new", "_old", "_form")

    def __init__(self, form: KeyForm[R], old: Entry | None, new: Entry | None) -> None:
        self._form = form
        self._old = old
        self._new = new

    @property
    def key(self) -> Any:
        """The value by which rows are kept; a tuple where there are several."""
        entry = self._old if self._new is None else self._new
        assert entry is not None  # it would be no change
        return self._form.key_of(entry)

    @property
    def old(self) -> R | None:
        """The row before; with ``many`` a list."""
        return None if self._old is None else self._form.seen(self._old)

    @property
    def new(self) -> R | None:
        """The row now; with ``many`` a list."""
        return None if self._new is None else self._form.seen(self._new)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.key, self.old, self.new))

    def __repr__(self) -> str:
        old, new = [
            list(each.values()) if isinstance(each, _Several) else each for each in (self._old, self._new)
        ]
        return f"<{self.key!r}: {old!r} -> {new!r}>"


class KeyedTable(Generic[R]):
    """Rows by key, in the order in which keys appeared, and what has changed since that was last taken.

    Any thread may read it; one applies epochs.  Changes are kept as what each key had before: memory for them
    is at most one entry for each key that was there when they were last taken, or is there now.
    """

    __slots__ = ("_before", "_lock", "_notes", "_rows", "_turn", "form")

    def __init__(self, form: KeyForm[R], rows: dict[Hashable, Entry] | None = None) -> None:
        self.form: Final = form
        self._rows: dict[Hashable, Any] = {} if rows is None else rows
        """An ``Entry`` for each key; while an epoch is applied, None for a key that may go."""
        self._notes = False
        """True once the first state is whole."""
        self._before: dict[Hashable, Entry | None] = {}
        """What keys that have changed had when changes were last taken."""
        self._turn: Final[deque[tuple[Hashable, Entry | None]]] = deque()
        """Entries of ``_before`` that are being taken one by one."""
        self._lock: Final = RLock()  # a signal handler may read while its thread applies an epoch

    # -- the observation's side -------------------------------------------------------------------------

    def apply(self, added: Sequence[Captures], removed: Sequence[Captures]) -> None:
        """Takes the net changes of an epoch; O(rows).

        Raises what the program's ``row=`` raises for a row, and is unchanged then.
        """
        make = self.form.make
        if make is not None:
            added = [_made_row(row, make) for row in added]
        with self._lock:
            self._apply(added, removed)

    def _apply(self, added: Sequence[Captures], removed: Sequence[Captures]) -> None:
        rows, place_of = self._rows, self.form.place
        before = self._before if self._notes else None
        vacant: list[Hashable] = []
        for row in removed:  # before what is added: then the row of a key that has one is the one that goes
            place = place_of(row)
            known = rows.get(place)
            if before is not None and place not in before:
                before[place] = (
                    _Several(known) if known.__class__ is _Several else known
                )  # `_copied`, uncalled
            if known.__class__ is _Several:
                known.pop(keys(row), None)
                if len(known) > 1:
                    continue
                if known:
                    (rows[place],) = known.values()
                    continue
            rows[place] = None  # and not removed yet, for the place in the order
            vacant.append(place)
        for row in added:
            place = place_of(row)
            known = rows.get(place)
            if before is not None and place not in before:
                before[place] = _Several(known) if known.__class__ is _Several else known  # as above
            if known is None:
                rows[place] = row
            elif known.__class__ is _Several:
                known[keys(row)] = row
            else:
                rows[place] = _Several({keys(known): known, keys(row): row})
        for place in vacant:
            if place in rows and rows[place] is None:
                del rows[place]
                if before is not None and before[place] is None:  # it came and went since
                    del before[place]

    def begin(self) -> None:
        """Notes changes from now on."""
        self._notes = True

    def difference(self, state: Iterable[Captures]) -> tuple[list[Captures], list[Captures]]:
        """Returns the rows that must come and those that must go to make this state; O(rows of both)."""
        known: dict[Hashable, Captures] = {}
        for entry in self._rows.values():
            if entry.__class__ is _Several:
                known |= entry
            else:
                known[keys(entry)] = entry
        return _difference(known, state)

    def close(self) -> None:
        """Releases nothing: a program may still read it."""

    # -- the program's side -----------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._lock:
            return len(self._rows)

    def seen(self, at: Any) -> R:
        """Returns what a key has; raises ``KeyError``, or ``SeveralRows`` where that is not one row."""
        with self._lock:
            entry = _copied(self._rows.get(self.form.place_of(at)))
        if entry is None:
            raise KeyError(at)
        return self.form.seen(entry)

    def has(self, at: Any) -> bool:
        """True if there is a row with this key."""
        with self._lock:
            return self.form.place_of(at) in self._rows

    def keys(self) -> list[Any]:
        """Returns the keys in their order; O(n), O(n log n) if sorted."""
        form, entries = self.form, list(self.copy()._rows.values())
        sort = form.sort
        if sort is not None:
            entries.sort(key=lambda entry: sort(form.seen(entry)))
        return [form.key_of(entry) for entry in entries]

    def copy(self) -> Self:
        """Returns the state of now, which stays as it is; O(n)."""
        with self._lock:
            rows = self._rows.copy()
            for place, entry in rows.items():
                if entry.__class__ is _Several:
                    rows[place] = _Several(entry)
        return type(self)(self.form, rows)

    def take(self) -> list[LiveChange[R]]:
        """Returns the net difference since changes were last taken, in the order of the first changes."""
        with self._lock:
            before = dict(self._turn)  # what these keys had is older than what the others say
            self._turn.clear()
            for place, old in self._before.items():
                before.setdefault(place, old)
            self._before = {}
            changes = [self._change(place, old) for place, old in before.items()]
        return [each for each in changes if each is not None]

    def take_one(self) -> LiveChange[R] | None:
        """Returns the difference of one key, up to now, or None if there is none; the others keep theirs."""
        with self._lock:
            while True:
                if not self._turn:
                    self._turn.extend(self._before.items())
                    self._before = {}
                    if not self._turn:
                        return None
                place, old = self._turn.popleft()
                self._before.pop(place, None)
                change = self._change(place, old)
                if change is not None:
                    return change

    def _change(self, place: Hashable, old: Entry | None) -> LiveChange[R] | None:
        new = self._rows.get(place)
        if old is new or (old is not None and new is not None and _identity(old) == _identity(new)):
            return None
        return LiveChange(self.form, old, _copied(new))


def _copied(entry: Entry | None) -> Entry | None:
    """Returns what a key has, as it stays: several rows of one key change in place."""
    return _Several(entry) if isinstance(entry, _Several) else entry


def _made_row(row: Captures, make: Callable[[Captures], Any]) -> _MadeRow:
    made = _MadeRow(row)
    made.made = make(row)
    return made


def _identity(entry: Entry) -> list[Hashable]:
    """Returns what is equal for the same rows in the same order."""
    return list(entry) if isinstance(entry, _Several) else [keys(entry)]
