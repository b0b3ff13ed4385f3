"""Columnar replays: what an observer would have been told, by the column instead of by the change.

Who reads a million changes wants columns in the end, and a row that is made for each change, packed,
unpacked and taken apart again is work for nothing.  So here captures are taken from the log's plain rows
without making the records, one comprehension for a whole epoch, and leave as one packed column for each
capture.  The order and the meaning are those of ``Replay``, whose bag this shares.

Always: the changes of the blocks, in order, are those of ``Replay.epochs``; a block holds whole epochs
unless it is flagged ``MORE``; memory is the bag, about 256 KiB of the log, and one block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from dataspace.errors import Refused
from dataspace.wire.codec import packer
from dataspace.wire.packets import MORE, SNAPSHOT
from index.patterns import matcher
from index.positions import Path
from index.skeletons import ATOM_CLASSES, Check, CheckKind, Skeleton, skeleton
from index.values import Value
from relay.log.cursors import Captures
from relay.log.reader import LogReader
from relay.log.replay import Live, Replay
from relay.log.segments import table

BLOCK_ROWS: Final = 8192
"""Changes after which a block is closed, and that it holds at most."""

BLOCK_BYTES: Final = 1 << 20
"""About how much a block takes at most, unless one change alone is larger."""

Select = Callable[[Sequence[Any]], list[Captures]]
"""The captures of those plain rows ``(label, field, …)`` that match."""


class Block:
    """Some epochs of one pattern as a stream value, packed; ``len`` is how many changes are in it."""

    __slots__ = ("_length", "packed")

    def __init__(self, length: int, packed: bytes) -> None:
        self._length = length
        self.packed = packed

    def __len__(self) -> int:
        return self._length


class ColumnReplay(Replay):
    """A replay that answers with blocks.  For one thread at a time; all calls block."""

    def __init__(self, log: LogReader, pattern: Value, after: int, *, live: Live | None = None) -> None:
        super().__init__(log, pattern, after, live=live)
        form = skeleton(pattern)
        self._width = len(form.captures)
        self._select = flat_selection(form)
        self._general = general_selection(pattern)

    def state(self, time: int) -> Iterator[Block]:
        """The captures at the epoch where this replay is, which was made at ``time``."""
        forming = _Forming(self._width, SNAPSHOT)
        rows = self.bag()
        for start in range(0, len(rows), BLOCK_ROWS):
            part = rows[start : start + BLOCK_ROWS]
            forming.add(self.at, time, part, (), (), 64 * len(part))
            yield from forming.blocks()

    def blocks(self, upto: int) -> Iterator[Block]:
        """What was told in the epochs (at, upto]; as ``Replay.epochs``."""
        bag = self.own_bag()
        forming = _Forming(self._width)
        for segment in self._log.segments(self.at, upto) if upto > self.at else ():
            share = len(segment.body) // max(1, segment.entries)
            for number, time, counts, rows, plain in segment.rows_after(self.at, upto):
                came, said, went = self._captured(counts, rows, plain)
                came = bag.add_all(came) if came else came
                went = bag.remove_all(went) if went else went
                forming.add(number, time, came, said, went, share)
            self.at = max(self.at, min(segment.last, upto))
            if forming.full:
                yield from forming.blocks()
        self.at = max(self.at, upto)
        self.leave()
        yield from forming.blocks()

    def _captured(
        self, counts: tuple[int, int, int], rows: Sequence[Any], plain: Sequence[int]
    ) -> tuple[list[Captures], list[Captures], list[Captures]]:
        """The captures of the additions, the messages and the removals of one epoch."""
        added, sent, removed = counts
        said, gone = added + sent, added + sent + removed
        select = self._select
        if select is None or plain:
            rows, select = table(rows, plain, gone), self._general
        return (
            select(rows[:added]) if added else [],
            select(rows[added:said]) if sent else [],
            select(rows[said:gone]) if removed else [],
        )


def general_selection(pattern: Value) -> Select:
    """What selects from values of any form."""
    match = matcher(pattern)
    return lambda values: [row for row in map(match, values) if row is not None]


def flat_selection(form: Skeleton) -> Select | None:
    """What selects from plain rows, or None for a pattern that looks deeper than their fields.

    All that a row must fulfil is written as one comprehension, in which positions are numbers and whatever
    came from the pattern is bound by a name.
    """
    if len(form.shape) != 1 or form.shape[0][1].__class__ is not str:
        return None
    if not all(len(path) == 1 for path in _paths(form)) or not all(map(_testable, form.checks)):
        return None
    if not all(value.__class__ is str for _, value in form.constants):
        return None
    bound: dict[str, object] = {"label": form.shape[0][1]}
    tests = ["row[0] == label", _size_test(form)]
    for at, (path, value) in enumerate(form.constants):
        bound[f"constant{at}"] = value
        tests.append(f"{_field(path)} == constant{at}")
    for at, check in enumerate(form.checks):
        if check.kind is CheckKind.CLASS:
            bound[f"class{at}"] = ATOM_CLASSES[str(check.argument)]
            tests.append(f"{_field(check.path)}.__class__ is class{at}")
    row = "".join([f"{_field(path)}, " for path in form.captures])
    text = f"lambda rows: [({row}) for row in rows if {' and '.join(tests)}]"
    return eval(text, bound)  # type: ignore[no-any-return]  # written here, of numbers and our own names


def _paths(form: Skeleton) -> list[Path]:
    """All positions below the record that a pattern speaks of."""
    checked = [check.path for check in form.checks if check.kind is not CheckKind.SIZE]
    return [*form.captures, *[path for path, _ in form.constants], *checked]


def _testable(check: Check) -> bool:
    """Whether a check can be made on a plain row: no equality of positions, no class of compounds."""
    if check.kind is CheckKind.SIZE:
        return not check.path
    return check.kind is CheckKind.HAS or (
        check.kind is CheckKind.CLASS and check.argument not in ("record", "seq", "map")
    )


def _size_test(form: Skeleton) -> str:
    for check in form.checks:
        if check.kind is CheckKind.SIZE:
            return f"len(row) == {int(check.argument) + 1}"  # type: ignore[call-overload]  # a number of parts
    return f"len(row) > {max([int(path[0]) + 1 for path in _paths(form)], default=0)}"  # type: ignore[arg-type]  # an index


def _field(path: Path) -> str:
    return f"row[{int(path[0]) + 1}]"  # type: ignore[arg-type]  # an index, one step below a record


class _Forming:
    """A block that is being filled, epoch by epoch."""

    def __init__(self, width: int, flags: int = 0) -> None:
        self._width = width
        self._flags = flags
        self._pack = packer()
        self._clear()

    def _clear(self) -> None:
        self._runs: list[tuple[int, int, int, int, int]] = []
        self._rows: list[Captures] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self._rows) >= BLOCK_ROWS or self._bytes >= BLOCK_BYTES

    def add(
        self,
        number: int,
        time: int,
        added: Sequence[Captures],
        messages: Sequence[Captures],
        removed: Sequence[Captures],
        size: int,
    ) -> None:
        """One epoch, which took about ``size`` bytes in the log; one that tells nothing leaves no trace."""
        if added or messages or removed:
            self._runs.append((number, time, len(added), len(messages), len(removed)))
            self._rows += added
            self._rows += messages
            self._rows += removed
            self._bytes += size

    def blocks(self) -> Iterator[Block]:
        """What has been added, as blocks, which are more than one where an epoch is large."""
        count = len(self._rows)
        most = min(BLOCK_ROWS, max(1, BLOCK_BYTES * count // max(1, self._bytes)))
        if count > 2 * most:
            for runs, skipped, start, stop, more in _cut(self._runs, most):
                yield self._block(runs, self._rows[start:stop], skipped, more=more)
        elif count:
            yield self._block(self._runs, self._rows, 0, more=False)
        self._clear()

    def _block(
        self, runs: Iterable[tuple[int, ...]], rows: Sequence[Captures], skipped: int, *, more: bool
    ) -> Block:
        columns = [*zip(*rows, strict=True)] if self._width else []
        flags = self._flags | (MORE if more else 0)
        return Block(len(rows), self._pack([flags, skipped, *zip(*runs, strict=True), columns]))


Part = tuple[list[tuple[int, int, int, int, int]], int, int, int, bool]
"""Some epochs, how many changes of the first went before, their rows, and whether the last one goes on."""


def _cut(runs: Sequence[tuple[int, int, int, int, int]], most: int) -> Iterator[Part]:
    """Epochs cut into parts of at most ``most`` changes; an epoch is divided only where it is larger."""
    part: list[tuple[int, int, int, int, int]] = []
    start = at = 0
    for run in runs:
        size = sum(run[2:])
        if part and at + size - start > most:
            yield part, 0, start, at, False
            part, start = [], at
        if size <= most:
            part.append(run)
            at += size
            continue
        for skipped in range(0, size, most):
            stop = min(skipped + most, size)
            yield [_slice(run, skipped, stop)], skipped, at + skipped, at + stop, stop < size
        at += size
        start = at
    if part:
        yield part, 0, start, at, False


def _slice(run: tuple[int, int, int, int, int], start: int, stop: int) -> tuple[int, int, int, int, int]:
    """The counts of an epoch for its changes ``start`` to ``stop``."""
    number, time, *counts = run
    sliced, at = [], 0
    for count in counts:
        sliced.append(max(0, min(stop, at + count) - max(start, at)))
        at += count
    return (number, time, sliced[0], sliced[1], sliced[2])


class Blocks:
    """The waiting room of one bulk reader: a few blocks, whole (see ``relay/observation.py``)."""

    __slots__ = ("_waiting", "failure")

    def __init__(self) -> None:
        self.failure: Refused | None = None
        self._waiting: deque[Block] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def extend(self, block: Block) -> None:
        """Lets one more block wait; the caller keeps them few."""
        self._waiting.append(block)

    def take(self, count: int, size: int) -> list[Block]:
        """Up to ``count`` blocks of about ``size`` bytes in all; the last may go beyond."""
        taken: list[Block] = []
        while self._waiting and len(taken) < count and size > 0:
            taken.append(self._waiting.popleft())
            size -= len(taken[-1].packed)
        return taken
