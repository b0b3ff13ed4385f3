"""Rows: the changes of epochs as Arrow record batches that Spark takes as they are.

Spark checks only the first batch of a task, and reads the memory of the others as whatever the schema
says.  So every batch is built from the one schema that Spark derives from ours: order, types, nullability.
Apart from the source because it is the inner loop, and because it can be held against plain lists.

Always: one row for each change that an observer of the pattern would be told, in the same order; a
snapshot, which has no order of its own, is sorted elsewhere (``sorting``); ``_seq`` counts the rows of an
epoch from 0, also when the epoch comes in several blocks; a value that does not fit its column
is an error that names the epoch and the column, never a conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dataspace.errors import DataspaceError
from relay.spark.common.schema import (
    CHANGE_TYPE,
    CRASHED,
    DAEMON,
    EPOCH,
    EPOCH_TIMESTAMP,
    SEQ,
    TIME,
    Column,
    Columns,
    Unfit,
)

if TYPE_CHECKING:
    from dataspace.client.bulk.blocks import Block
    from index.values.values import Value
    from relay.spark.common.parsing import Malformed

CHANGE_TYPES: Final = ["insert", "message", "delete"]
"""In the order in which the changes of an epoch come."""


class Misfit(DataspaceError):
    """A fact holds a value that the column for it cannot hold."""


def batches(
    blocks: Iterable[Block], columns: Columns, rows: int, *, url: str = ""
) -> Iterator[pa.RecordBatch]:
    """Record batches of at least ``rows`` rows each but the last, cut between blocks.

    Raises ``Misfit`` for a value that does not fit.  Holds one batch at a time, so the memory is ``rows``
    rows and one block.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    for block in blocks:
        waiting.append(batch(block, columns, url=url))
        count += waiting[-1].num_rows
        if count >= rows:
            yield _joined(waiting)
            waiting, count = [], 0
    if count:
        yield _joined(waiting)


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    (whole,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return whole


def batch(block: Block, columns: Columns, *, url: str = "") -> pa.RecordBatch:
    """One block as a record batch; O(rows), nearly all of it in Arrow."""
    own = _own_columns(block, columns, url)
    bad: set[int] = set()
    made = pa.RecordBatch.from_arrays(
        [
            own[column.name]() if column.capture is None else _array(column, block, columns.malformed, bad)
            for column in columns.all
        ],
        schema=columns.arrow,
    )
    if bad and columns.malformed == "drop":
        return made.filter(pa.array([at not in bad for at in range(len(block))]))
    return made


def _own_columns(block: Block, columns: Columns, url: str) -> dict[str, Callable[[], pa.Array]]:
    """Returns the makers of the columns that do not come from captures; an unwanted column costs nothing."""
    totals = block.totals()

    def kinds() -> pa.Array:
        counts = chain.from_iterable(zip(block.added, block.messages, block.removed, strict=True))
        return _repeated(CHANGE_TYPES * len(totals), counts, pa.string())

    def seqs() -> pa.Array:
        # Counting goes on over the whole block; each epoch takes away what came before it.
        before = accumulate(totals[:-1], initial=0)
        offsets = [at if number else -block.skipped for number, at in enumerate(before)]
        return _compute().subtract(_ascending(len(block)), _repeated(offsets, totals, pa.int64()))

    def times() -> pa.Array:
        each = pa.array(block.coordinates, columns.arrow.field(TIME).type)  # type: ignore[attr-defined]  # a topic's
        return each.take(_repeated(range(len(totals)), totals, pa.int64()))

    return {
        CHANGE_TYPE: kinds,
        EPOCH: lambda: _repeated(block.numbers, totals, pa.int64()),
        EPOCH_TIMESTAMP: lambda: _repeated(block.times, totals, pa.timestamp("us", tz="UTC")),
        TIME: times,
        CRASHED: lambda: _repeated(block.crashes, totals, pa.string()),  # type: ignore[attr-defined]  # as above
        SEQ: seqs,
        DAEMON: lambda: pa.repeat(url, len(block)),
    }


def _repeated(values: Iterable[object], counts: Iterable[int], kind: pa.DataType) -> pa.Array:
    """Each value as often as its count says; O(values) here, and the rest in Arrow."""
    runs = [(value, count) for value, count in zip(values, counts, strict=True) if count]
    ends = pa.array(accumulate([count for _, count in runs]), pa.int32())
    each = pa.array([value for value, _ in runs], kind)
    return _compute().run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, each))


def _ascending(count: int) -> pa.Array:
    """0, 1, 2 and so on."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    compute = _compute()
    return compute.subtract(compute.cumulative_sum(ones), 1)


def _compute() -> Any:
    """Arrow's functions, which take 50 ms to load: most of Spark's processes plan, and read nothing."""
    import pyarrow.compute

    return pyarrow.compute


def _array(column: Column, block: Block, malformed: Malformed, bad: set[int]) -> pa.Array:
    """Returns the values of a capture; values that do not fit are null and in ``bad``, if they do not
    fail."""
    assert column.capture is not None  # as the caller has seen
    values = block.columns[column.capture]
    try:
        if not column.misfits(values):
            return pa.array(column.encoded(values), column.arrow)
    except (pa.ArrowInvalid, OverflowError, Unfit):
        pass  # one of them is other than its class promised
    if malformed == "fail" or (malformed == "null" and type(None) not in (column.fits or ())):
        raise _misfit(column, block)
    fitting = [column.holds(value) for value in values]
    bad.update([at for at, fits in enumerate(fitting) if not fits])
    kept = [value if fits else None for value, fits in zip(values, fitting, strict=True)]
    return pa.array(column.encoded(kept), column.arrow)


def _misfit(column: Column, block: Block) -> Misfit:
    """Which value it was; looked for only now, one by one."""
    values = block.columns[column.capture or 0]
    at = next(at for at, value in enumerate(values) if not column.holds(value))
    return Misfit(
        f"epoch {_epoch_of(block, at)} has {_brief(values[at])} for column {column.name}, "
        f"which is {column.spark.simpleString()}: {column.remedy(values[at])}"
    )


def _epoch_of(block: Block, row: int) -> int:
    for number, count in zip(block.numbers, block.totals(), strict=True):
        if row < count:
            return number
        row -= count
    raise IndexError(row)


def _brief(value: Value) -> str:
    said = repr(value)
    return f"{type(value).__name__} {said if len(said) <= 60 else said[:57] + '…'}"
